"""APIServices as ``kubectl get`` shows them: who stands behind a group, and whether they answer. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from devicemanager.demo.selectors import JsonObject
from devicemanager.rules.duration import human_duration

API_SERVICES: Final = "apiservices.apiregistration.k8s.io"
_COLUMNS: Final = ("Name", "Service", "Available", "Age")


def wants_table(accept: str) -> bool:
    """Whether a client would rather have a table than the objects."""
    _, *parameters = (part.strip() for part in accept.partition(",")[0].split(";"))
    return {"as=Table", "g=meta.k8s.io", "v=v1"} <= set(parameters)


def table(items: Sequence[JsonObject], version: int, now: datetime) -> JsonObject:
    """A ``Table`` of APIServices, with each one's metadata."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": str(version)},
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": 0,
            }
            for name in _COLUMNS
        ],
        "rows": [{"cells": _cells(item, now), "object": _metadata_only(item)} for item in items],
    }


def _cells(item: JsonObject, now: datetime) -> list[str]:
    service = item["spec"]["service"]
    conditions = item["status"].get("conditions", [])
    available = "Unknown"
    for condition in conditions:
        reason = "" if condition["status"] == "True" else f" ({condition['reason']})"
        available = f"{condition['status']}{reason}"
    created = datetime.fromisoformat(item["metadata"]["creationTimestamp"])
    age = human_duration(int((now - created).total_seconds()))
    return [item["metadata"]["name"], f"{service['namespace']}/{service['name']}", available, age]


def _metadata_only(item: JsonObject) -> JsonObject:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
