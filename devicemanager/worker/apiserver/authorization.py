"""Whether a caller may do something: the cluster decides, by SubjectAccessReview.

A review that fails allows nothing.
"""

import json
from dataclasses import dataclass
from typing import Final, TypeAlias

from devicemanager.errors import DeviceManagerError, DocumentError, excerpt
from devicemanager.worker.apiserver import reviews
from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.identity import ANONYMOUS, User
from devicemanager.worker.apiserver.reviews import Poster, ReviewCache
from devicemanager.worker.single_flight import OverloadedError

HEALTH_ROOTS: Final = frozenset({"/healthz", "/livez", "/readyz"})
"""Open to everybody: kubelets ask without a credential. Exactly these, not what is under them."""

REMEMBERED_LIMIT_BYTES: Final = 10_000
"""A longer request is reviewed each time, so that no caller fills the memory."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The cluster's answer.

    Attributes:
        reason: What the authorizer said, one line; often nothing.
    """

    allowed: bool
    reason: str = ""


AccessReviews: TypeAlias = "ReviewCache[tuple[User, Attributes], Decision]"

ALLOWED: Final = Decision(allowed=True)


class ReviewFailedError(DeviceManagerError):
    """The cluster could not be asked."""


class Authorizer:
    """Asks the cluster who may do what."""

    def __init__(self, api: Poster, access_reviews: AccessReviews) -> None:
        self._api = api
        self._reviews = access_reviews
        self.reached = False
        """Whether the cluster has answered once."""

    async def decide(self, user: User, attributes: Attributes, *, peer: str | None = None) -> Decision:
        """Whether this user may do this.

        Args:
            user: Who.
            attributes: What.
            peer: The address of whoever asks; None behind the front proxy.

        Raises:
            ReviewFailedError: The cluster could not be asked.
            OverloadedError: Too many other questions are under way.
        """
        if user.is_master or attributes.path in HEALTH_ROOTS:
            return ALLOWED
        key = (user, attributes)
        known = self._reviews.known(key)
        if isinstance(known, Decision):
            return known
        review = reviews.access_review(user, attributes)
        keep = len(json.dumps(review)) < REMEMBERED_LIMIT_BYTES
        try:
            return await self._reviews.review(key, lambda: self._review(review), peer=peer, keep=keep)
        except OverloadedError:
            raise
        except DeviceManagerError as error:
            raise ReviewFailedError(str(error)) from error

    async def probe(self) -> None:
        """Make a review whose answer does not matter, to learn whether reviews work.

        Raises:
            ReviewFailedError: No.
            OverloadedError: Too many other questions are under way.
        """
        await self.decide(ANONYMOUS, Attributes(verb="get", path="/"))

    async def _review(self, review: dict[str, object]) -> Decision:
        status = await reviews.ask(self._api, reviews.ACCESS_REVIEWS, review)
        self.reached = True
        allowed, denied = status.get("allowed", False), status.get("denied", False)
        if not isinstance(allowed, bool) or not isinstance(denied, bool):
            raise DocumentError("a SubjectAccessReview says neither yes nor no")
        reason = status.get("reason", "")
        return Decision(allowed and not denied, excerpt(reason) if isinstance(reason, str) else "")
