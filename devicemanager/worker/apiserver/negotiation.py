"""Which form of an answer a caller accepts. Pure.

Clauses are walked by weight. A clause that asks for a conversion we do not know is skipped, never answered with
something else: a client that reads an answer in the wrong form fails later and worse.
"""

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

CLAUSE_LIMIT: Final = 64
"""Clauses looked at; real clients send at most five."""

_CACHED_LENGTH: Final = 512
_META_GROUP: Final = "meta.k8s.io"
_DISCOVERY_GROUP: Final = "apidiscovery.k8s.io"
_DISCOVERY_KIND: Final = "APIGroupDiscoveryList"


class Shape(StrEnum):
    """What stands for the object; the value is the ``as`` parameter that asks for it."""

    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


class IncludeObject(StrEnum):
    """How much of the object comes with a table's row; the values of the ``includeObject`` parameter."""

    METADATA = "Metadata"
    OBJECT = "Object"
    NONE = "None"


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
    def is_json(self) -> bool:
        """Whether it accepts JSON; we write nothing else."""
        return self.media_type in {"application/json", "*/*", "application/*"}

    @property
    def is_plain(self) -> bool:
        """It asks for no conversion."""
        return not (self.group or self.version or self.kind)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of one answer.

    Attributes:
        version: Of ``meta.k8s.io``, for every shape but the object itself.
        include: How much of the object comes with a table's row.
    """

    shape: Shape = Shape.OBJECT
    version: str = "v1"
    include: IncludeObject = IncludeObject.METADATA


def for_object(accept: str) -> Form | None:
    """The form of one object; None when nothing acceptable can be made."""
    return _form(accept, {Shape.TABLE, Shape.METADATA})


def for_list(accept: str) -> Form | None:
    """The form of a list; None when nothing acceptable can be made."""
    return _form(accept, {Shape.TABLE, Shape.METADATA_LIST})


def for_metadata(accept: str) -> Form | None:
    """The form of an object of which only the metadata can be had, so no table; None for nothing acceptable."""
    return _form(accept, {Shape.METADATA})


def accepts_json(accept: str) -> bool:
    """Whether a document of one shape is acceptable."""
    return any(clause.is_json and clause.is_plain for clause in clauses(accept))


def for_discovery(accept: str) -> Discovery | None:
    """The form of ``/apis``; None when nothing acceptable can be made."""
    for clause in clauses(accept):
        if not clause.is_json:
            continue
        if clause.is_plain:
            return Discovery.LEGACY
        if (clause.group, clause.kind) == (_DISCOVERY_GROUP, _DISCOVERY_KIND) and clause.version in {
            Discovery.V2,
            Discovery.V2BETA1,
        }:
            return Discovery(clause.version)
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


def _form(accept: str, conversions: Set[Shape]) -> Form | None:
    for clause in clauses(accept):
        if not clause.is_json:
            continue
        if clause.is_plain:
            return Form()
        if clause.group == _META_GROUP and clause.version in {"v1", "v1beta1"} and clause.kind in conversions:
            return Form(Shape(clause.kind), clause.version)
    return None
