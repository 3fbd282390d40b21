"""Kinds of values that settings take: how each is read from text, and what is wrong with one that cannot be.

A check returns what is wrong, as the end of a sentence that begins with what was given; None when nothing is.
"""

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

from devicemanager.errors import DocumentError
from devicemanager.rules.duration import format_duration, parse_duration
from devicemanager.rules.object_names import is_name
from devicemanager.rules.quantity import parse as parse_quantity

DEFAULT_PORT: Final = 32443
"""Where a device manager listens."""

PORT_PROBLEM: Final = "must be between 1 and 65535, or 0 for any free port"


def checked(check: Callable[[Any], str | None]) -> Callable[[Any], Any]:
    """A pydantic validator from a check."""

    def validate(value: Any) -> Any:
        if (problem := check(value)) is not None:
            raise ValueError(problem)
        return value

    return validate


def _seconds(value: object) -> object:
    """Text becomes seconds; a number is seconds already."""
    return parse_duration(value) if isinstance(value, str) else value


def names(value: object) -> object:
    """Values separated by commas, or a file's list; empty ones are dropped."""
    if isinstance(value, str):
        value = value.split(",")
    if isinstance(value, (list, tuple)) and not any(isinstance(item, (list, dict)) for item in value):
        return tuple(str(item).strip() for item in value if str(item).strip())
    return value


def between(least_s: float, most_s: float) -> AfterValidator:
    """Durations from the least to the most, both included."""

    def check(value: float | None) -> str | None:
        if value is None or least_s <= value <= most_s:
            return None
        return f"must be between {format_duration(least_s)} and {format_duration(most_s)}"

    return AfterValidator(checked(check))


def is_address(value: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def _address_problem(value: str | None) -> str | None:
    return None if value is None or is_address(value) else "must be an IP address"


def _port_problem(value: int) -> str | None:
    return None if 0 <= value <= 65535 else PORT_PROBLEM


def device_manager_url(value: object) -> object:
    """``HOST`` or ``HOST:PORT``, with a path or without, as a URL. A URL stays as it is."""
    if not isinstance(value, str) or "://" in value:
        return value
    if is_address(value) and ":" in value:
        value = f"[{value}]"
    host = re.split("[/?#]", value, maxsplit=1)[0]
    has_port = host.rpartition(":")[2].isdigit() and not host.endswith("]")
    return f"https://{host}{'' if has_port else f':{DEFAULT_PORT}'}{value[len(host) :]}"


def url_problem(value: str) -> str | None:
    """For the address of an HTTPS server."""
    try:
        parts = urlsplit(value)
        if "@" in parts.netloc:
            return "must hold neither user nor password: a device manager knows its readers by their certificates"
        usable = parts.scheme == "https" and parts.hostname and " " not in parts.netloc and parts.port != 0
    except ValueError:
        usable = False
    return None if usable else "must look like HOST, HOST:PORT or https://HOST:PORT"


def _name_problem(value: str) -> str | None:
    return None if is_name(value) else "must be a name in Kubernetes: lower-case letters, digits, - and ."


def _file_problem(path: Path | None) -> str | None:
    if path is None or path.is_file():
        return None
    return "is a directory, and must be a file" if path.is_dir() else "no such file"


def _directory_problem(path: Path | None) -> str | None:
    if path is None or path.is_dir():
        return None
    return "is a file, and must be a directory" if path.is_file() else "no such directory"


def _bytes(value: object) -> object:
    """Text becomes bytes, exactly; a number is bytes already."""
    if not isinstance(value, str):
        return value
    try:
        found = parse_quantity(value)
    except DocumentError:
        found = None
    if found is None or found.denominator != 1 or found < 0:
        raise ValueError("must be a size such as 80Mi: whole bytes, or a number with k, M, G, T, Ki, Mi, Gi or Ti")
    return int(found)


def count_between(least: int, most: int, shown: Callable[[int], str] = str) -> AfterValidator:
    """Whole numbers from the least to the most, both included."""

    def check(value: int | None) -> str | None:
        return (
            None if value is None or least <= value <= most else f"must be between {shown(least)} and {shown(most)}"
        )

    return AfterValidator(checked(check))


Seconds = Annotated[float, BeforeValidator(_seconds)]
Bytes = Annotated[int, BeforeValidator(_bytes)]
Names = Annotated[tuple[str, ...], BeforeValidator(names)]
Port = Annotated[int, AfterValidator(checked(_port_problem))]
ObjectName = Annotated[str, AfterValidator(checked(_name_problem))]
Address = Annotated[str | None, AfterValidator(checked(_address_problem))]
ExistingFile = Annotated[Path | None, AfterValidator(checked(_file_problem))]
ExistingDirectory = Annotated[Path | None, AfterValidator(checked(_directory_problem))]
Directory = Annotated[Path, AfterValidator(checked(_directory_problem))]
