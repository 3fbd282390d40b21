"""Errors as Kubernetes ``Status`` objects, so that kubectl and client libraries print what we say. Pure."""

from collections.abc import Mapping
from typing import Final

from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.identity import User

_HTML: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_NO_HEADERS: Final[Mapping[str, str]] = {}


class StatusError(Exception):
    """Ends a request with an error; caught in one place, the server.

    Attributes:
        code: The HTTP status.
        reason: The machine-readable reason of Kubernetes.
        message: What kubectl prints.
        details: None leaves the key out, as for 401; an empty mapping stays an empty object.
        headers: To be sent beside the body.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, object] | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers

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


def unauthorized() -> StatusError:
    """No valid credential. The reason is not given, so that it cannot be probed."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(user: User, attributes: Attributes, why: str = "") -> StatusError:
    """The caller is known and may not. ``why`` is what the authorizer said; often nothing."""
    reason = f": {why}" if why else ""
    headers = {"X-Content-Type-Options": "nosniff"}
    if not attributes.resource:
        sentence = f'User "{user.name}" cannot {attributes.verb} path "{attributes.path}"'
        return StatusError(403, "Forbidden", f"forbidden: {sentence.translate(_HTML)}{reason}", {}, headers)
    resource = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    sentence = (
        f'User "{user.name}" cannot {attributes.verb} resource "{resource}" '
        f'in API group "{attributes.group}" {scope}'
    )
    name = f' "{attributes.name}"' if attributes.name else ""
    message = f"{attributes.qualified_resource}{name} is forbidden: {sentence.translate(_HTML)}{reason}"
    return StatusError(403, "Forbidden", message, _details(attributes), headers)


def not_found(attributes: Attributes) -> StatusError:
    """The object does not exist. The message holds nothing but the request."""
    return StatusError(
        404, "NotFound", f'{attributes.qualified_resource} "{attributes.name}" not found', _details(attributes)
    )


def unknown_path() -> StatusError:
    """Nothing is served at this path of our group."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed(allowed: str) -> StatusError:
    """A write, or another method that is not served here."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {}, {"Allow": allowed})


def watch_not_supported(attributes: Attributes, allowed: str) -> StatusError:
    """A list with ``watch``: there is no history to watch."""
    message = f'watch is not supported on resources of kind "{attributes.qualified_resource}"'
    details = {"group": attributes.group, "kind": attributes.resource}
    return StatusError(405, "MethodNotAllowed", message, details, {"Allow": allowed})


def not_acceptable() -> StatusError:
    """Nothing the caller accepts can be made."""
    return StatusError(406, "NotAcceptable", "only the following media types are accepted: application/json", {})


def bad_request(message: str) -> StatusError:
    """A parameter that cannot be used."""
    return StatusError(400, "BadRequest", message, {})


def service_unavailable(attributes: Attributes, message: str) -> StatusError:
    """No source could answer. Without Retry-After: kubectl would hold the message back for ten seconds."""
    return StatusError(503, "ServiceUnavailable", message, _details(attributes))


def timed_out(attributes: Attributes, message: str) -> StatusError:
    """The deadline passed first."""
    text = message if message.startswith("Timeout: ") else f"Timeout: {message}"
    return StatusError(504, "Timeout", text, _details(attributes))


def too_many_requests(message: str) -> StatusError:
    """More at once than is served; trying again soon helps."""
    return StatusError(429, "TooManyRequests", message, {"retryAfterSeconds": 1}, {"Retry-After": "1"})


def internal_error(message: str) -> StatusError:
    """A fault of ours, or of the API server when it is asked who may do what."""
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details)


def _details(attributes: Attributes) -> dict[str, object]:
    name = {"name": attributes.name} if attributes.name else {}
    return {**name, "group": attributes.group, "kind": attributes.resource}
