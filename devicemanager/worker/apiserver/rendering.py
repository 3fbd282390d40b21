"""From usages to the bytes of an answer, in whatever form was asked for. Pure.

The plain JSON form is made by :mod:`devicemanager.wire.instance_metrics` alone; every other form is made from it or
from the metadata, so no two forms can disagree.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from devicemanager.model.usage import InstanceUsage
from devicemanager.worker.apiserver import table
from devicemanager.worker.apiserver.discovery import LIST_KIND, VERSION, encode
from devicemanager.worker.apiserver.negotiation import Encoding, Representation, Shape
from devicemanager.worker.apiserver.table import IncludeObject

Encode: TypeAlias = Callable[[InstanceUsage], bytes]
"""One usage as its JSON document."""

_PLAIN: Final = Representation()


@dataclass(frozen=True, slots=True)
class Form:
    """How an answer is to look.

    Attributes:
        include: How much of the object comes with a table's row.
        pretty: Indented JSON, for people.
    """

    representation: Representation = _PLAIN
    include: IncludeObject = IncludeObject.METADATA
    pretty: bool = False

    @property
    def is_plain(self) -> bool:
        """The object itself as compact JSON: what programs ask for, and the form that can be encoded once."""
        return self.representation == _PLAIN and not self.pretty


@dataclass(frozen=True, slots=True)
class Continuation:
    """What a list says of the pages behind this one.

    Attributes:
        token: Empty on the last page.
        remaining: Objects behind this page.
    """

    token: str = ""
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders the answers of one API group.

    Attributes:
        api_group: Of ``apiVersion``.
        encode: Makes the plain document.
    """

    api_group: str
    encode: Encode

    def one(self, usage: InstanceUsage, form: Form, now: datetime) -> bytes:
        """One Instance."""
        if form.is_plain:
            return self.encode(usage)
        return encode(self._one(usage, form, now), form.representation.encoding, pretty=form.pretty)

    def many(self, usages: Sequence[InstanceUsage], form: Form, now: datetime, continuation: Continuation) -> bytes:
        """A list, or one page of it."""
        metadata: dict[str, object] = {"resourceVersion": ""}
        if continuation.token:
            metadata |= {"continue": continuation.token, "remainingItemCount": continuation.remaining}
        if form.is_plain:
            return self._joined(map(self.encode, usages), metadata)
        document = self._many(usages, form, now, metadata)
        return encode(document, form.representation.encoding, pretty=form.pretty)

    def _one(self, usage: InstanceUsage, form: Form, now: datetime) -> object:
        match form.representation.shape:
            case Shape.TABLE:
                return self._table([usage], form, now, {"resourceVersion": ""})
            case Shape.METADATA | Shape.METADATA_LIST:
                return _partial(usage, form.representation.version)
            case Shape.OBJECT:
                return json.loads(self.encode(usage))

    def _many(
        self, usages: Sequence[InstanceUsage], form: Form, now: datetime, metadata: Mapping[str, object]
    ) -> object:
        version = form.representation.version
        match form.representation.shape:
            case Shape.TABLE:
                return self._table(usages, form, now, metadata)
            case Shape.METADATA | Shape.METADATA_LIST:
                items = [_partial(usage, version) for usage in usages]
                kind, api_version = Shape.METADATA_LIST.value, f"meta.k8s.io/{version}"
                return {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}
            case Shape.OBJECT:
                return json.loads(self._joined(map(self.encode, usages), metadata))

    def _joined(self, documents: Iterable[bytes], metadata: Mapping[str, object]) -> bytes:
        """A list made of documents that are encoded already."""
        head = {"kind": LIST_KIND, "apiVersion": f"{self.api_group}/{VERSION}", "metadata": metadata}
        opening = encode(head, Encoding.JSON).rstrip()[:-1]
        return opening + b',"items":[' + b",".join(document.strip() for document in documents) + b"]}\n"

    def _table(
        self, usages: Sequence[InstanceUsage], form: Form, now: datetime, metadata: Mapping[str, object]
    ) -> dict[str, object]:
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{form.representation.version}",
            "metadata": metadata,
            "columnDefinitions": table.column_definitions(),
            "rows": [
                {"cells": table.cells(usage, now), "object": self._row_object(usage, form)} for usage in usages
            ],
        }

    def _row_object(self, usage: InstanceUsage, form: Form) -> object:
        match form.include:
            case IncludeObject.METADATA:
                return _partial(usage, form.representation.version)
            case IncludeObject.OBJECT:
                return json.loads(self.encode(usage))
            case IncludeObject.NONE:
                return None


def _partial(usage: InstanceUsage, version: str) -> dict[str, object]:
    """The metadata alone. Labels and age of the Instance are what ``--show-labels`` and ``-L`` print."""
    metadata: dict[str, object] = {"name": usage.name, "namespace": usage.namespace, "uid": usage.uid}
    if usage.labels:
        metadata["labels"] = dict(sorted(usage.labels.items()))
    if usage.created_at is not None:
        metadata["creationTimestamp"] = usage.created_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"kind": Shape.METADATA.value, "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}
