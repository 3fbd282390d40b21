"""TokenReview and SubjectAccessReview of callers, and a cache of their answers.

Built and read as plain JSON: two small documents, whose keys are fixed by Kubernetes.
"""

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, Protocol, TypeVar

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError
from devicemanager.model.usage import SourceState
from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.identity import User, ordered_extra
from devicemanager.worker.single_flight import OverloadedError, SingleFlightCache

TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

DEADLINE_S: Final = 10.0
"""For one question, retries included, as generic API servers have it."""

REMEMBERED_S: Final = 10.0
"""What generic API servers use, for yes and for no."""

REMEMBERED_AT_MOST: Final = 8192
IN_FLIGHT: Final = 256
"""Reviews under way for callers behind the front proxy, and as many for those who ask the worker directly."""

IN_FLIGHT_PER_PEER: Final = 12
"""Of the latter, for one address: sixteen strangers with made-up tokens leave a quarter to everybody else."""

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")


class ReviewCache(SingleFlightCache[Key, Answer]):
    """Answers to reviews of one kind; one review per key at a time.

    Args:
        clock: For the age of answers.
        in_flight: Reviews under way at most for callers behind the front proxy, and for all others.
        per_peer: Of the latter, for one address.
    """

    def __init__(self, clock: Clock, *, in_flight: int = IN_FLIGHT, per_peer: int = IN_FLIGHT_PER_PEER) -> None:
        super().__init__(
            clock, max_age_s=REMEMBERED_S, keep_at_most=REMEMBERED_AT_MOST, flights_at_most=2 * in_flight
        )
        self._in_flight = in_flight
        self._per_peer = per_peer
        self._proxied = 0
        self._direct: Counter[str] = Counter()

    async def review(
        self, key: Key, ask: Callable[[], Awaitable[Answer]], *, peer: str | None, keep: bool = True
    ) -> Answer:
        """The answer to a review, as :meth:`get` gives it.

        Args:
            key: What is asked.
            ask: Asks it.
            peer: The address of whoever it is asked for; None for a caller behind the front proxy.
            keep: Whether the answer is remembered.

        Raises:
            OverloadedError: Too many other reviews are under way for callers of this kind, or for this address.
            FetchError: There was no good answer in time.
        """
        if self.settled_or_under_way(key):
            return await self.get(key, ask, keep=keep)
        if not self._begin(peer):
            raise OverloadedError(SourceState.UNREACHABLE, "too many reviews are under way")

        async def counted() -> Answer:
            try:
                return await ask()
            finally:
                self._end(peer)

        return await self.get(key, counted, keep=keep)

    def _begin(self, peer: str | None) -> bool:
        if peer is None:
            if self._proxied >= self._in_flight:
                return False
            self._proxied += 1
            return True
        if self._direct.total() >= self._in_flight or self._direct[peer] >= self._per_peer:
            return False
        self._direct[peer] += 1
        return True

    def _end(self, peer: str | None) -> None:
        if peer is None:
            self._proxied -= 1
            return
        self._direct[peer] -= 1
        if not self._direct[peer]:
            del self._direct[peer]


class Poster(Protocol):
    """What a review needs of the API client."""

    async def post(self, path: str, body: bytes, *, deadline_s: float) -> bytes:
        """The body of a good answer. Raises FetchError."""
        ...


async def ask(api: Poster, path: str, review: Mapping[str, object]) -> Mapping[str, object]:
    """Post a review and return its status.

    Raises:
        FetchError: There was no good answer in time.
        DocumentError: The answer is no review.
    """
    body = json.dumps(review, ensure_ascii=True, separators=(",", ":")).encode()
    return _status(await api.post(path, body, deadline_s=DEADLINE_S))


def _status(body: bytes) -> Mapping[str, object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise DocumentError("the answer to a review is not JSON") from error
    match document:
        case {"status": dict(status)}:
            return status
        case _:
            raise DocumentError("the answer to a review has no status")


def token_review(token: str) -> dict[str, object]:
    """A TokenReview for a token."""
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}


def reviewed_user(status: Mapping[str, object]) -> User | None:
    """The user of a token; None if it is not valid.

    Raises:
        DocumentError: The user is not one.
    """
    if status.get("authenticated") is not True:
        return None
    match status.get("user"):
        case {"username": str(name), **rest} if name:
            return User(name, _text(rest.get("uid")), _texts(rest.get("groups")), _extra(rest.get("extra")))
        case _:
            raise DocumentError("a TokenReview names no user")


def access_review(user: User, attributes: Attributes) -> dict[str, object]:
    """A SubjectAccessReview for a user and a request."""
    spec: dict[str, object] = {"user": user.name, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra}
    if attributes.resource:
        named = {
            "namespace": attributes.namespace,
            "verb": attributes.verb,
            "group": attributes.group,
            "version": attributes.version,
            "resource": attributes.resource,
            "subresource": attributes.subresource,
            "name": attributes.name,
        }
        spec["resourceAttributes"] = {key: value for key, value in named.items() if value}
    else:
        spec["nonResourceAttributes"] = {"path": attributes.path, "verb": attributes.verb}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}


def _text(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DocumentError("a TokenReview names a user whose uid is not text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DocumentError("a TokenReview names a user whose groups are not a list of texts")
    return tuple(value)


def _extra(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if value is None:
        return ()
    if not isinstance(value, dict):
        raise DocumentError("a TokenReview names a user whose extra attributes are not a map")
    return ordered_extra({key: _texts(values) for key, values in value.items()})
