"""Names of Kubernetes objects, and of peers in certificates. Pure."""

import re
from typing import Final

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


_PEER: Final = re.compile(r"(?!\.)[A-Za-z0-9_.:*-]+", re.ASCII)


def is_peer_name(text: str) -> bool:
    """Whether a certificate may carry it as the DNS name or IP address of a peer."""
    return _PEER.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether Kubernetes accepts it as an object's name (a DNS-1123 subdomain)."""
    return _NAME.fullmatch(text) is not None and ".." not in text
