"""Checks that the APIService of our group and version is not registered to another backend.

An APIService names one backend. Where the existing operator serves the same group and version, taking it over would
cut off everything else that the operator serves there, so that is refused unless a setting allows it. An address
alone does not tell whose an APIService is: one that was applied over another's points here too. So the chart labels
its own, and the worker looks for that label.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from devicemanager.errors import DocumentError, FetchError, SettingsError
from devicemanager.worker.workloads.workload import API_VERSION

API_SERVICES: Final = "/apis/apiregistration.k8s.io/v1/apiservices"
OWNER_LABEL: Final = "devicemanager.gpustack.ai/owner"
_AUTOMANAGED: Final = "kube-aggregator.kubernetes.io/automanaged"
_NOT_FOUND: Final = 404


async def check_registration(
    get: Callable[[str], Awaitable[bytes]], api_group: str, own: str, owner: str | None = None
) -> None:
    """Refuse to serve what is registered to another backend.

    Args:
        get: Reads one object of the API server by its path.
        api_group: The group that is to be served.
        own: Our Service, ``namespace/name``, which it must point at.
        owner: The value of its owner label; None where nobody labels it, and the address must do.

    Raises:
        SettingsError: It is; both ways out are named.
        FetchError: The cluster could not be asked.
        DocumentError: Its answer is no APIService.
    """
    try:
        body = await get(f"{API_SERVICES}/{API_VERSION}.{api_group}")
    except FetchError as error:
        if error.status == _NOT_FOUND:
            return
        raise
    problem = conflict(body, api_group, own, owner)
    if problem is not None:
        raise SettingsError([problem])


def conflict(body: bytes, api_group: str, own: str, owner: str | None = None) -> str | None:
    """Why serving is refused, as one sentence with the remedies; None if it is not. Pure.

    Raises:
        DocumentError: The bytes are no APIService.
    """
    name = f"{API_VERSION}.{api_group}"
    ways_out = (
        "serve a group of our own with --api-group=GROUP (Instances are still read from the operator's resource), "
        "or take it over with --take-over-api-service, which cuts off whatever that serves"
    )
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DocumentError("an APIService is not JSON") from error
    match document:
        case {"spec": {"service": {"namespace": str(namespace), "name": str(service)}}}:
            found = f"{namespace}/{service}"
            if found != own:
                return f"APIService {name} is registered to service {found}, and not to {own}: {ways_out}"
            label = _owner(document)
            if owner is None or label == owner:
                return None
            return (
                f"APIService {name} points at {own}, but its label {OWNER_LABEL} is {label!r} and not {owner!r}, "
                f"so that it is not this release's own: apply the APIService of this release, or {ways_out}"
            )
        case {"metadata": {"labels": {**labels}}} if labels.get(_AUTOMANAGED):
            return (
                f"APIService {name} belongs to a custom resource definition, and the cluster would take it back: "
                "serve a group of our own with --api-group=GROUP, or remove that version from the definition"
            )
        case {"spec": dict()}:
            return f"APIService {name} is served by the API server itself: {ways_out}"
        case _:
            raise DocumentError("the answer is no APIService")


def _owner(document: Mapping[str, Any]) -> str | None:
    match document:
        case {"metadata": {"labels": {**labels}}}:
            label = labels.get(OWNER_LABEL)
            return label if isinstance(label, str) else None
        case _:
            return None
