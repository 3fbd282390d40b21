"""``GET instances/NAME``: the metadata of an Instance, for whoever asks whether an owner still exists.

Objects may name an Instance of our group and version as their owner, and discovery says that there are such. The
garbage collector then asks here, and **deletes every dependent when the answer is 404**. So this answers with the
metadata of the live custom resource, read from the API server for this very request, through no cache.
404 is passed on only as the API server's own word about that name. Whatever else goes wrong is 503, after which the
collector keeps the dependents and asks again.
"""

import json
from collections.abc import Mapping
from typing import Final, Protocol

from devicemanager.errors import FetchError
from devicemanager.worker.apiserver import negotiation, status
from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.concurrency import AtCapacityError, Cap
from devicemanager.worker.apiserver.discovery import INSTANCES, VERSION, encode
from devicemanager.worker.apiserver.negotiation import Representation, Shape
from devicemanager.worker.apiserver.resources import Reply
from devicemanager.worker.apiserver.status import Refusal
from devicemanager.worker.cluster import is_name
from devicemanager.worker.workloads import INSTANCE_GROUP, READ_DEADLINE_S, instance_path

LOOKUPS: Final = 64
"""Under way at once; the garbage collector of one cluster has 20 workers."""

_UNAVAILABLE: Final = "the Instance cannot be read at the moment"


class Getter(Protocol):
    """What is needed of the API client."""

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, *, deadline_s: float = READ_DEADLINE_S
    ) -> bytes:
        """One object; without parameters, no cache answers. Raises FetchError."""
        ...


class Owners:
    """Answers for Instances as owners of other objects."""

    def __init__(self, cluster: Getter, api_group: str) -> None:
        """Nothing is read before :meth:`get`.

        Args:
            cluster: Where the custom resources are.
            api_group: The group we serve. Where it is not the custom resource's, it has no Instances to speak of.
        """
        self._cluster = cluster
        self._prefix = f"/apis/{api_group}/{VERSION}" if api_group == INSTANCE_GROUP else None
        self._cap = Cap(LOOKUPS)

    def serves(self, attributes: Attributes) -> bool:
        """Whether the path names one Instance, to the letter, and Instances live in our group."""
        path = f"{self._prefix}/namespaces/{attributes.namespace}/{INSTANCES}/{attributes.name}"
        return self._prefix is not None and not attributes.is_collection and attributes.path == path

    async def get(self, attributes: Attributes, accept: str) -> Reply:
        """The metadata of one Instance.

        Never shared with another caller's read: one that began earlier might not know of an owner made since.

        Raises:
            Refusal: 404 when the API server says that there is none, 406, or 503.
        """
        form = negotiation.for_metadata(accept)
        if form is None:
            raise Refusal(status.not_acceptable(negotiation.ACCEPTED))
        if not (is_name(attributes.namespace) and is_name(attributes.name)):
            raise Refusal(status.not_found(attributes))  # Kubernetes gives nothing such a name
        try:
            with self._cap.slot():
                body = await self._cluster.get(
                    instance_path(attributes.namespace, attributes.name), deadline_s=READ_DEADLINE_S
                )
        except FetchError as error:
            if error.says_missing(attributes.name):
                raise Refusal(status.not_found(attributes)) from error
            raise Refusal(status.service_unavailable(attributes, f"{_UNAVAILABLE}: {error.state}")) from error
        except AtCapacityError as error:
            raise Refusal(status.service_unavailable(attributes, _UNAVAILABLE)) from error
        document = _document(body, attributes, form)
        if document is None:
            raise Refusal(status.service_unavailable(attributes, f"{_UNAVAILABLE}: invalid"))
        return Reply(encode(document, form.encoding), form.encoding)


def _document(body: bytes, attributes: Attributes, form: Representation) -> dict[str, object] | None:
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
        kind, api_version = "Instance", f"{attributes.group}/{VERSION}"
    return {"kind": kind, "apiVersion": api_version, "metadata": found["metadata"]}


def is_owner_read(attributes: Attributes) -> bool:
    """Whether the path is about Instances themselves, and not about what they use."""
    return attributes.resource == INSTANCES and not attributes.subresource
