"""Which form of an answer a caller accepts. Pure.

Clauses are walked by weight. A clause that asks for a conversion we do not know is skipped, never answered with
something else: a client that reads an answer in the wrong form fails later and worse.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

ACCEPTED: Final = "only the following media types are accepted: application/json, application/yaml"
"""What a refused caller is told."""

CLAUSE_LIMIT: Final = 64
"""Clauses looked at; real clients send at most five."""

_CACHED_LENGTH: Final = 512
_META_GROUP: Final = "meta.k8s.io"
_DISCOVERY_GROUP: Final = "apidiscovery.k8s.io"
_DISCOVERY_KIND: Final = "APIGroupDiscoveryList"


class Encoding(StrEnum):
    """How a document becomes bytes; the value is its media type."""

    JSON = "application/json"
    YAML = "application/yaml"


class Shape(StrEnum):
    """What stands for the object; the value is the ``as`` parameter that asks for it."""

    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


class Discovery(StrEnum):
    """Forms of ``/apis``; the value is the version parameter that asks for it."""

    LEGACY = ""
    V2 = "v2"
    V2BETA1 = "v2beta1"


@dataclass(frozen=True, slots=True)
class Clause:
    """One term of an Accept header.

    Attributes:
        media_type: Lower case.
        group, version, kind: The ``g``, ``v`` and ``as`` parameters; empty when absent.
        weight: In thousandths, 1..1000.
    """

    media_type: str
    group: str = ""
    version: str = ""
    kind: str = ""
    weight: int = 1000

    @property
    def encoding(self) -> Encoding | None:
        """What it accepts of what we can write; None for protobuf, HTML and the rest."""
        match self.media_type:
            case "application/json" | "*/*" | "application/*":
                return Encoding.JSON
            case "application/yaml":
                return Encoding.YAML
            case _:
                return None

    @property
    def is_plain(self) -> bool:
        """It asks for no conversion."""
        return not (self.group or self.version or self.kind)


@dataclass(frozen=True, slots=True)
class Representation:
    """The form of one answer.

    Attributes:
        version: Of ``meta.k8s.io``, for every shape but the object itself.
    """

    encoding: Encoding = Encoding.JSON
    shape: Shape = Shape.OBJECT
    version: str = "v1"


def for_object(accept: str) -> Representation | None:
    """The form of one object; None when nothing acceptable can be made."""
    return _representation(accept, Shape.METADATA)


def for_list(accept: str) -> Representation | None:
    """The form of a list; None when nothing acceptable can be made."""
    return _representation(accept, Shape.METADATA_LIST)


def for_metadata(accept: str) -> Representation | None:
    """The form of an object of which only the metadata can be had, so no table; None for nothing acceptable."""
    return _representation(accept, Shape.METADATA, tables=False)


def for_document(accept: str) -> Encoding | None:
    """The encoding of a document that has one shape only; None when nothing acceptable can be made."""
    for clause in clauses(accept):
        if clause.encoding is not None and clause.is_plain:
            return clause.encoding
    return None


def for_error(accept: str) -> Encoding:
    """The encoding of an error: conversions do not matter, and whoever accepts nothing of ours reads JSON."""
    for clause in clauses(accept):
        if clause.encoding is not None:
            return clause.encoding
    return Encoding.JSON


def for_discovery(accept: str) -> tuple[Discovery, Encoding] | None:
    """The form of ``/apis``; None when nothing acceptable can be made. Aggregated documents are JSON only."""
    for clause in clauses(accept):
        if clause.encoding is None:
            continue
        if clause.is_plain:
            return Discovery.LEGACY, clause.encoding
        if (
            clause.encoding is Encoding.JSON
            and (clause.group, clause.kind) == (_DISCOVERY_GROUP, _DISCOVERY_KIND)
            and clause.version in {Discovery.V2, Discovery.V2BETA1}
        ):
            return Discovery(clause.version), Encoding.JSON
    return None


def clauses(accept: str) -> tuple[Clause, ...]:
    """Parse an Accept header, heaviest first, the caller's order kept among equals. Empty accepts anything."""
    return _cached_clauses(accept) if len(accept) <= _CACHED_LENGTH else _parse(accept)


def _parse(accept: str) -> tuple[Clause, ...]:
    if not accept.strip():
        return (Clause("*/*"),)
    found = [clause for term in accept.split(",")[:CLAUSE_LIMIT] if (clause := _clause(term)) is not None]
    return tuple(sorted(found, key=lambda clause: -clause.weight))


_cached_clauses = lru_cache(maxsize=256)(_parse)


def _clause(term: str) -> Clause | None:
    media_type, *parameters = term.split(";")
    media_type = media_type.strip().lower()
    if media_type == "*":
        media_type = "*/*"
    values = {}
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        values[key.strip().lower()] = value.strip().strip('"')
    weight = _weight(values.get("q"))
    if "/" not in media_type or weight == 0:
        return None
    return Clause(media_type, values.get("g", ""), values.get("v", ""), values.get("as", ""), weight)


def _weight(text: str | None) -> int:
    """Thousandths; a weight that is not one counts as none given, as generic API servers read it."""
    if text is None:
        return 1000
    whole, _, fraction = text.partition(".")
    digits = whole + fraction
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _CACHED_LENGTH:
        return 1000
    return min(1000, int(whole or "0") * 1000 + int((fraction + "000")[:3]))


def _representation(accept: str, metadata: Shape, *, tables: bool = True) -> Representation | None:
    shapes = {Shape.TABLE, metadata} if tables else {metadata}
    for clause in clauses(accept):
        if clause.encoding is None:
            continue
        if clause.is_plain:
            return Representation(clause.encoding)
        if clause.group == _META_GROUP and clause.version in {"v1", "v1beta1"} and clause.kind in shapes:
            return Representation(clause.encoding, Shape(clause.kind), clause.version)
    return None
