"""The caller's identity from the front proxy: the trust it publishes, and the headers it sends. Pure.

The API server publishes in ConfigMap ``kube-system/extension-apiserver-authentication`` which CA signs the front
proxy's client certificate, which names that certificate may carry, and which headers name the user. The headers are
worth exactly as much as the certificate of the connection they came on.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import unquote

from devicemanager.errors import DocumentError
from devicemanager.worker.apiserver.identity import User, ordered_extra

_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"


class Headers(Protocol):
    """The headers of a request; names compare without regard to case, repeats are kept."""

    def getall(self, key: str, default: list[str]) -> list[str]: ...
    def items(self) -> Iterable[tuple[str, str]]: ...


class IdentityHeaderError(ValueError):
    """The identity headers contradict themselves; the request has no valid credential."""


@dataclass(frozen=True, slots=True)
class FrontProxyTrust:
    """How to recognise the front proxy, as the cluster publishes it.

    Attributes:
        ca_pem: The CA bundle that signs the front proxy's client certificate.
        allowed_names: Common names that certificate may carry; empty allows any.
        username_headers: The first that is not empty names the user.
        uid_headers: Empty trusts none.
        group_headers: All values of all of them.
        extra_prefixes: Headers that begin so carry extra attributes.
    """

    ca_pem: str
    allowed_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()

    def allows(self, common_name: str) -> bool:
        """Whether a certificate with this common name is the front proxy's."""
        return not self.allowed_names or common_name in self.allowed_names


def parse_trust(data: Mapping[str, str]) -> FrontProxyTrust:
    """Parse the ConfigMap's data.

    Raises:
        DocumentError: The aggregation layer is not configured, or a value is not what it should be.
    """
    ca_pem = data.get("requestheader-client-ca-file", "")
    if _CERTIFICATE not in ca_pem:
        raise DocumentError(
            "requestheader-client-ca-file holds no certificate: the aggregation layer is not configured"
        )
    trust = FrontProxyTrust(
        ca_pem=ca_pem,
        allowed_names=_names(data, "requestheader-allowed-names"),
        username_headers=_headers(data, "requestheader-username-headers"),
        uid_headers=_headers(data, "requestheader-uid-headers"),
        group_headers=_headers(data, "requestheader-group-headers"),
        extra_prefixes=tuple(prefix.lower() for prefix in _headers(data, "requestheader-extra-headers-prefix")),
    )
    if not trust.username_headers:
        raise DocumentError("requestheader-username-headers names no header")
    return trust


def _names(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    text = data.get(key, "").strip()
    if not text:
        return ()
    try:
        names = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"{key} is not JSON") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DocumentError(f"{key} is not a list of strings")
    # Empty ones stay: a list of nothing but an empty name allows no certificate, where an empty list allows any.
    return tuple(names)


def _headers(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Names of headers, or prefixes; an empty one would name none, or every one."""
    return tuple(name for name in _names(data, key) if name)


def user_from_headers(headers: Headers, trust: FrontProxyTrust) -> User | None:
    """The user that the front proxy names; None if it names none.

    Only for a connection whose certificate was found to be the front proxy's.

    Raises:
        IdentityHeaderError: A user or uid header is repeated, or a value is not text.
    """
    name = _first(headers, trust.username_headers)
    if not name:
        return None
    user = User(
        name=name,
        uid=_first(headers, trust.uid_headers),
        groups=tuple(group for header in trust.group_headers for group in headers.getall(header, []) if group),
        extra=ordered_extra(_extra(headers, trust.extra_prefixes)),
    )
    _check_text(user)
    return user


def _first(headers: Headers, names: tuple[str, ...]) -> str:
    """The first value that is not empty. A header given twice is refused: one may be forged."""
    found = ""
    for name in names:
        values = headers.getall(name, [])
        if len(values) > 1:
            raise IdentityHeaderError(f"header {name} is repeated")
        if values and not found:
            found = values[0]
    return found


def _extra(headers: Headers, prefixes: tuple[str, ...]) -> dict[str, list[str]]:
    extra: dict[str, list[str]] = {}
    if not prefixes:
        return extra
    for header, value in headers.items():
        name = header.lower()
        for prefix in prefixes:
            if name.startswith(prefix):
                extra.setdefault(_unescape(name[len(prefix) :]), []).append(value)
                break
    return extra


def _unescape(key: str) -> str:
    """Percent-decode a key; one that is malformed stays as it is, as the generic API server keeps it."""
    if "%" not in key or _BROKEN_ESCAPE.search(key):
        return key
    try:
        return unquote(key, errors="strict")
    except UnicodeDecodeError:
        return key


def _check_text(user: User) -> None:
    """Refuse text that is not UTF-8: it arrives as surrogates, and two users could look alike."""
    values = [user.name, user.uid, *user.groups, *(part for key, many in user.extra for part in (key, *many))]
    try:
        "".join(values).encode()
    except UnicodeEncodeError as error:
        raise IdentityHeaderError("an identity header is not UTF-8") from error
