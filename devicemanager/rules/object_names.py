"""Names of Kubernetes objects. Pure."""

import re
from typing import Final

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)


def is_name(text: str) -> bool:
    """Whether Kubernetes accepts it as an object's name (a DNS-1123 subdomain)."""
    return _NAME.fullmatch(text) is not None and ".." not in text
