"""``GET instances/NAME``: the metadata of a workload, for clients that check whether an owner exists.

Objects may name an Instance of our group and version as their owner, as discovery lists the kind. The
garbage collector then asks here, and **deletes every dependent when the answer is 404**. So this answers with the
metadata of the live custom resource, read from the API server for this very request, through no cache.
404 is passed on only if the API server itself answered it for that name. Any other failure is 503, after which the
collector keeps the dependents and asks again.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from devicemanager.errors import FetchError
from devicemanager.rules.object_names import is_name
from devicemanager.worker.apiserver import negotiation, status
from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.documents import encode
from devicemanager.worker.apiserver.in_flight import InFlightLimiter, TooManyInFlightError
from devicemanager.worker.apiserver.negotiation import Form, Shape
from devicemanager.worker.apiserver.resources import Reply
from devicemanager.worker.workloads.reads import READ_DEADLINE_S
from devicemanager.worker.workloads.workload import API_VERSION, Resource, SourceObject

LOOKUPS: Final = 64
"""Under way at once; the garbage collector of one cluster has 20 workers."""


class Getter(Protocol):
    """What is needed of the API client."""

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, deadline_s: float = READ_DEADLINE_S
    ) -> bytes:
        """One object; without parameters, no cache answers. Raises FetchError."""
        ...


class Owners:
    """Answers for workloads as owners of other objects, for kinds that discovery lists.

    Args:
        cluster: Where the objects are. Nothing is read before :meth:`get`.
        api_group: The group we serve. A kind whose definition is in another group is no owner in ours.
        resources: Of every kind of workload.
    """

    def __init__(self, cluster: Getter, api_group: str, resources: Iterable[Resource]) -> None:
        self._cluster = cluster
        self._api_group = api_group
        self._sources = {
            resource.source.plural: resource.source for resource in resources if resource.source.is_owner
        }
        self._limiter = InFlightLimiter(LOOKUPS)

    def is_owner_read(self, attributes: Attributes) -> bool:
        """Whether the path is about such objects themselves, and not about what they use."""
        return attributes.resource in self._sources and not attributes.subresource

    def serves(self, attributes: Attributes) -> bool:
        """Whether the path is exactly that of one object, of a kind that is defined in our group."""
        source = self._sources[attributes.resource]
        prefix = f"/apis/{self._api_group}/{API_VERSION}"
        path = f"{prefix}/namespaces/{attributes.namespace}/{source.plural}/{attributes.name}"
        return source.group == self._api_group and not attributes.is_collection and attributes.path == path

    async def get(self, attributes: Attributes, accept: str) -> Reply:
        """The metadata of one object.

        Never shared with another caller's read: one that began earlier might not know of an owner made since.

        Raises:
            StatusError: 404 when the API server says that there is none, 406, or 503.
        """
        form = negotiation.for_metadata(accept)
        if form is None:
            raise status.not_acceptable()
        if not (is_name(attributes.namespace) and is_name(attributes.name)):
            raise status.not_found(attributes)  # Kubernetes gives nothing such a name
        source = self._sources[attributes.resource]
        unavailable = f"the {source.kind} cannot be read at the moment"
        try:
            with self._limiter.slot():
                body = await self._cluster.get(
                    source.path(attributes.namespace, attributes.name), deadline_s=READ_DEADLINE_S
                )
        except FetchError as error:
            if error.says_missing(attributes.name):
                raise status.not_found(attributes) from error
            raise status.service_unavailable(attributes, f"{unavailable}: {error.state}") from error
        except TooManyInFlightError as error:
            raise status.service_unavailable(attributes, unavailable) from error
        document = _document(body, attributes, form, source)
        if document is None:
            raise status.service_unavailable(attributes, f"{unavailable}: invalid")
        return Reply(encode(document))


def _document(body: bytes, attributes: Attributes, form: Form, source: SourceObject) -> dict[str, object] | None:
    """The metadata, unchanged, in the form asked for; None when the body is not the object that was asked for."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match found:
        case {"metadata": {"uid": str(uid), "name": attributes.name, "namespace": attributes.namespace}} if uid:
            pass
        case _:
            return None
    if form.shape is Shape.METADATA:
        kind, api_version = Shape.METADATA.value, f"meta.k8s.io/{form.version}"
    else:
        kind, api_version = source.kind, f"{attributes.group}/{API_VERSION}"
    return {"kind": kind, "apiVersion": api_version, "metadata": found["metadata"]}
