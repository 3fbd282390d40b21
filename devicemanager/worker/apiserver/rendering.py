"""Renders usages as the bytes of an answer, in the form that was asked for. Pure."""

from collections.abc import Mapping, Sequence
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
                return encode(self._table([usage], form, now, {"resourceVersion": ""}))
            case Shape.METADATA | Shape.METADATA_LIST:
                return encode(_partial(usage, form.version))

    def many(self, usages: Sequence[WorkloadUsage], form: Form, now: datetime, continuation: Continuation) -> bytes:
        """A list, or one page of it."""
        metadata: dict[str, object] = {"resourceVersion": ""}
        if continuation.token:
            metadata |= {"continue": continuation.token, "remainingItemCount": continuation.remaining}
        match form.shape:
            case Shape.OBJECT:
                return self._list(usages, metadata)
            case Shape.TABLE:
                return encode(self._table(usages, form, now, metadata))
            case Shape.METADATA | Shape.METADATA_LIST:
                items = [_partial(usage, form.version) for usage in usages]
                kind, api_version = Shape.METADATA_LIST.value, f"meta.k8s.io/{form.version}"
                return encode({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items})

    def _document(self, usage: WorkloadUsage) -> dict[str, object]:
        return self.workload.document(usage, api_group=self.api_group)

    def _list(self, usages: Sequence[WorkloadUsage], metadata: Mapping[str, object]) -> bytes:
        """One item after the other, so that a long list is never held as a tree of values."""
        api_version = f"{self.api_group}/{API_VERSION}"
        head = {"kind": self.workload.resource.list_kind, "apiVersion": api_version, "metadata": metadata}
        items = b",".join(encode(self._document(usage)).rstrip() for usage in usages)
        return encode(head).rstrip()[:-1] + b',"items":[' + items + b"]}\n"

    def _table(
        self, usages: Sequence[WorkloadUsage], form: Form, now: datetime, metadata: Mapping[str, object]
    ) -> dict[str, object]:
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{form.version}",
            "metadata": metadata,
            "columnDefinitions": self._column_definitions(),
            "rows": [
                {"cells": self.workload.cells(usage, now), "object": self._row_object(usage, form)}
                for usage in usages
            ],
        }

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
