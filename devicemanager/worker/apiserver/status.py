"""Errors as Kubernetes ``Status`` objects, so that kubectl and client libraries print what we say. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.identity import User

_HTML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@dataclass(frozen=True, slots=True)
class Failure:
    """An error on its way to a caller.

    Attributes:
        code: The HTTP status.
        reason: The machine-readable word of Kubernetes.
        message: What kubectl prints.
        details: None leaves the key out, as for 401; an empty mapping stays an empty object.
        headers: To be sent beside the body.
    """

    code: int
    reason: str
    message: str
    details: Mapping[str, object] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        """The ``Status`` object."""
        details = {} if self.details is None else {"details": dict(self.details)}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **details,
            "code": self.code,
        }


class Refusal(Exception):  # noqa: N818 - it is an answer that ends the request early, not a fault of ours
    """Ends a request with a failure; caught in one place, the server."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def unauthorized() -> Failure:
    """No valid credential. It says no more, so that guessing teaches nothing."""
    return Failure(401, "Unauthorized", "Unauthorized")


def forbidden(user: User, attributes: Attributes, why: str = "") -> Failure:
    """The caller is known and may not. ``why`` is what the authorizer said; often nothing."""
    reason = f": {why}" if why else ""
    headers = {"X-Content-Type-Options": "nosniff"}
    if not attributes.resource:
        sentence = f'User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
        return Failure(403, "Forbidden", f"forbidden: {sentence.translate(_HTML)}{reason}", {}, headers)
    resource = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    sentence = (
        f'User "{user.name}" cannot {attributes.verb} resource "{resource}" '
        f'in API group "{attributes.group}" {scope}'
    )
    name = f' "{attributes.name}"' if attributes.name else ""
    message = f"{attributes.qualified_resource}{name} is forbidden: {sentence.translate(_HTML)}{reason}"
    return Failure(403, "Forbidden", message, _about(attributes), headers)


def not_found(attributes: Attributes) -> Failure:
    """The object does not exist. The words are ours, never a source's: they carry nothing but what was asked."""
    return Failure(
        404, "NotFound", f'{attributes.qualified_resource} "{attributes.name}" not found', _about(attributes)
    )


def unknown_path() -> Failure:
    """Nothing is served at this path of our group."""
    return Failure(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed(allowed: str) -> Failure:
    """A write, or another method that is not served here."""
    message = "the server does not allow this method on the requested resource"
    return Failure(405, "MethodNotAllowed", message, {}, {"Allow": allowed})


def watch_not_supported(attributes: Attributes, allowed: str) -> Failure:
    """A list with ``watch``: there is no history to watch."""
    message = f'watch is not supported on resources of kind "{attributes.qualified_resource}"'
    details = {"group": attributes.group, "kind": attributes.resource}
    return Failure(405, "MethodNotAllowed", message, details, {"Allow": allowed})


def not_acceptable(message: str) -> Failure:
    """Nothing the caller accepts can be made."""
    return Failure(406, "NotAcceptable", message, {})


def bad_request(message: str) -> Failure:
    """A parameter that cannot be used."""
    return Failure(400, "BadRequest", message, {})


def service_unavailable(attributes: Attributes, message: str) -> Failure:
    """No source could answer. Without Retry-After: kubectl would hold the message back for ten seconds."""
    return Failure(503, "ServiceUnavailable", message, _about(attributes))


def timed_out(attributes: Attributes, message: str) -> Failure:
    """The deadline passed first."""
    text = message if message.startswith("Timeout: ") else f"Timeout: {message}"
    return Failure(504, "Timeout", text, _about(attributes))


def too_many_requests(message: str, retry_after_s: int = 1) -> Failure:
    """More at once than is served; trying again soon helps."""
    details = {"retryAfterSeconds": retry_after_s}
    return Failure(429, "TooManyRequests", message, details, {"Retry-After": str(retry_after_s)})


def internal_error(message: str) -> Failure:
    """A fault of ours, or of the API server when it is asked who may do what."""
    details = {"causes": [{"message": message}]}
    return Failure(500, "InternalError", f"Internal error occurred: {message}", details)


def _about(attributes: Attributes) -> dict[str, object]:
    name = {"name": attributes.name} if attributes.name else {}
    return {**name, "group": attributes.group, "kind": attributes.resource}
