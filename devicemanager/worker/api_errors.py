"""Error answers of the API server, as a FetchError."""

from typing import Final

from devicemanager.errors import FetchError, excerpt
from devicemanager.model.usage import SourceState
from devicemanager.wire import kubernetes


def fetch_error(status: int, body: bytes, retry_after_s: int | None = None) -> FetchError:
    """The error for an error answer of the API server, or of a kubelet behind it; what it says is for the log.

    A missing object keeps the reason ``NotFound``; a kind that is not served at all comes without a reason.

    Args:
        status: Of the answer, or the code of a Status that a watch ends with.
        body: The Status, or whatever was sent instead.
        retry_after_s: What the answer's head says; None takes it from the Status.
    """
    answer = kubernetes.parse_status(body)
    details = answer.details if answer is not None else None
    if retry_after_s is None and details is not None and details.retry_after_seconds is not None:
        retry_after_s = max(0, details.retry_after_seconds)
    said = excerpt(answer.message if answer and answer.message else body.decode("utf-8", "replace"))
    return FetchError(
        _STATES.get(status, SourceState.UNREACHABLE if status >= 500 else SourceState.INVALID),
        f"HTTP {status}",
        detail=said or None,
        status=status,
        reason=answer.reason if answer and _UNKNOWN_KIND not in answer.message else None,
        object_name=details.name or None if details is not None else None,
        retry_after_s=retry_after_s,
    )


_UNKNOWN_KIND: Final = "could not find the requested resource"
"""How API machinery words a 404 for a kind it does not serve; the reason is the same as for a missing object."""

_STATES: Final = {
    401: SourceState.UNAUTHORIZED,
    403: SourceState.FORBIDDEN,
    404: SourceState.NOT_SERVED,
    408: SourceState.TIMEOUT,
    429: SourceState.UNREACHABLE,
    504: SourceState.TIMEOUT,
}
