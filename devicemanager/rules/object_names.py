"""Names of Kubernetes objects, and of peers in certificates. Pure."""

import ipaddress
import re
from typing import Final

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)

_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"

_DNS_NAME: Final = re.compile(rf"(?=.{{1,253}}$)(\*\.)?{_LABEL}(\.{_LABEL})*", re.ASCII)


def is_peer_name(text: str) -> bool:
    """Whether a certificate may carry it as the DNS name or IP address of a peer."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _DNS_NAME.fullmatch(text) is not None
    return True


def is_name(text: str) -> bool:
    """Whether Kubernetes accepts it as an object's name (a DNS-1123 subdomain)."""
    return _NAME.fullmatch(text) is not None and ".." not in text
