"""Which proxy the environment names for a server, as kubectl and other Go programs decide it."""

import ipaddress
from collections.abc import Mapping
from typing import Final

_LOCAL_NAME: Final = "localhost"


def proxy_of(scheme: str, host: str, port: int, environment: Mapping[str, str]) -> str | None:
    """The proxy for a server; None to connect directly.

    Args:
        scheme: ``https`` or ``http``.
        host: A name or an address, without brackets.
        port: The server's.
        environment: ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``, each also in lower case.

    Returns:
        What the variable says, ``http://`` before it where it names no scheme.
    """
    value = _variable(environment, f"{scheme.upper()}_PROXY")
    if not value or _is_local(host) or _is_excepted(host, port, _variable(environment, "NO_PROXY")):
        return None
    return value if "://" in value else f"http://{value}"


def _variable(environment: Mapping[str, str], name: str) -> str:
    return (environment.get(name) or environment.get(name.lower()) or "").strip()


def _is_local(host: str) -> bool:
    address = _address(host)
    return host.lower() == _LOCAL_NAME if address is None else address.is_loopback


def _is_excepted(host: str, port: int, exceptions: str) -> bool:
    return any(_matches(entry.strip().lower(), host.lower(), port) for entry in exceptions.split(","))


def _matches(entry: str, host: str, port: int) -> bool:
    """Whether an entry of ``NO_PROXY`` covers a server: ``*``, a network, or a host, perhaps with a port."""
    if entry in {"", "*"}:
        return entry == "*"
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, wanted_port = _split(entry)
    if wanted_port not in {"", str(port)}:
        return False
    if address is not None:
        return _address(name) == address
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split(entry: str) -> tuple[str, str]:
    """The host and the port of an entry; an IPv6 address with a port is in brackets."""
    if entry.startswith("["):
        name, _, port = entry[1:].partition("]")
        return name, port.removeprefix(":")
    if entry.count(":") == 1:
        name, _, port = entry.partition(":")
        return name, port
    return entry, ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
