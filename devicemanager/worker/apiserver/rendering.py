"""Renders usages as the bytes of an answer, in the form that was asked for. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from devicemanager.model.usage import WorkloadUsage
from devicemanager.worker.apiserver.documents import encode
from devicemanager.worker.apiserver.negotiation import Form, IncludeObject, Shape
from devicemanager.worker.workloads.workload import API_VERSION, Workload


@dataclass(frozen=True, slots=True)
class Continuation:
    """What a list says about its further pages.

    Attributes:
        token: Empty on the last page.
        remaining: Objects behind this page.
    """

    token: str = ""
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class Renderer:
    """Renders the answers of one kind of workload.

    Attributes:
        api_group: Of ``apiVersion``.
        workload: Makes the documents and the cells of tables.
    """

    api_group: str
    workload: Workload

    def one(self, usage: WorkloadUsage, form: Form, now: datetime) -> bytes:
        """One workload."""
        match form.shape:
            case Shape.OBJECT:
                return encode(self._document(usage))
            case Shape.TABLE:
                return self.collection([self.item(usage, form, now)], form, Continuation())
            case Shape.METADATA | Shape.METADATA_LIST:
                return encode(_partial(usage, form.version))

    def item(self, usage: WorkloadUsage, form: Form, now: datetime) -> bytes:
        """One workload as :meth:`collection` takes it: an item, or a row of a table."""
        return encode(self._item(usage, form, now)).rstrip()

    def collection(self, items: Iterable[bytes], form: Form, continuation: Continuation) -> bytes:
        """A list, or one page of it, of items made one by one: a tree of all their values would be too large."""
        metadata: dict[str, object] = {"resourceVersion": ""}
        if continuation.token:
            metadata |= {"continue": continuation.token, "remainingItemCount": continuation.remaining}
        head, key = self._head(form), b"rows" if form.shape is Shape.TABLE else b"items"
        begin = encode({**head, "metadata": metadata}).rstrip()[:-1]
        return b"".join([begin, b',"', key, b'":[', b",".join(items), b"]}\n"])

    def _item(self, usage: WorkloadUsage, form: Form, now: datetime) -> object:
        match form.shape:
            case Shape.OBJECT:
                return self._document(usage)
            case Shape.TABLE:
                return {"cells": self.workload.cells(usage, now), "object": self._row_object(usage, form)}
            case Shape.METADATA | Shape.METADATA_LIST:
                return _partial(usage, form.version)

    def _head(self, form: Form) -> dict[str, object]:
        meta = f"meta.k8s.io/{form.version}"
        match form.shape:
            case Shape.OBJECT:
                api_version = f"{self.api_group}/{API_VERSION}"
                return {"kind": self.workload.resource.list_kind, "apiVersion": api_version}
            case Shape.TABLE:
                return {"kind": "Table", "apiVersion": meta, "columnDefinitions": self._column_definitions()}
            case Shape.METADATA | Shape.METADATA_LIST:
                return {"kind": Shape.METADATA_LIST.value, "apiVersion": meta}

    def _document(self, usage: WorkloadUsage) -> dict[str, object]:
        return self.workload.document(usage, api_group=self.api_group)

    def _column_definitions(self) -> list[dict[str, object]]:
        return [
            {
                "name": column.name,
                "type": "string",
                "format": "name" if column.name == "Name" else "",
                "description": column.description,
                "priority": column.priority,
            }
            for column in self.workload.columns
        ]

    def _row_object(self, usage: WorkloadUsage, form: Form) -> object:
        match form.include:
            case IncludeObject.METADATA:
                return _partial(usage, form.version)
            case IncludeObject.OBJECT:
                return self._document(usage)
            case IncludeObject.NONE:
                return None


def _partial(usage: WorkloadUsage, version: str) -> dict[str, object]:
    """The metadata alone. Labels and age of the object are what ``--show-labels`` and ``-L`` print."""
    metadata: dict[str, object] = {"name": usage.name, "namespace": usage.namespace, "uid": usage.uid}
    if usage.labels:
        metadata["labels"] = dict(sorted(usage.labels.items()))
    if usage.created_at is not None:
        metadata["creationTimestamp"] = usage.created_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"kind": Shape.METADATA.value, "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}
