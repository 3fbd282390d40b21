"""The settings of both servers: where they listen, with which certificate, and how they end."""

from collections.abc import Iterator
from typing import Annotated, Final

from pydantic import AfterValidator
from typing_extensions import override

from devicemanager.rules.object_names import is_peer_name
from devicemanager.rules.quantity import format_bytes
from devicemanager.settings.flags import Conflict, FlagSpec, Settings
from devicemanager.settings.values import (
    DEFAULT_PORT,
    Address,
    Bytes,
    ExistingDirectory,
    Names,
    Port,
    Seconds,
    between,
    checked,
)

_MOST_MEMORY_BYTES: Final = 1 << 50

SecurePort = Annotated[Port, FlagSpec("TCP port to serve HTTPS on; 0 takes any free one.", "PORT")]


def _san_problem(value: tuple[str, ...]) -> str | None:
    return None if all(map(is_peer_name, value)) else "must be DNS names and IP addresses"


def _memory_problem(value: int | None) -> str | None:
    """The least that a program needs is said when it is started, for each program has its own."""
    most = _MOST_MEMORY_BYTES
    return None if value is None or value <= most else f"must be at most {format_bytes(most)}"


class ServerSettings(Settings):
    """Where a program listens, and who it is there."""

    bind_address: Annotated[
        Address,
        FlagSpec(
            "IP address to listen on.",
            "ADDRESS",
            default="127.0.0.1, or 0.0.0.0 once clients are checked or anyone may read",
        ),
    ] = None
    secure_port: SecurePort = DEFAULT_PORT
    cert_dir: Annotated[
        ExistingDirectory,
        FlagSpec(
            "Directory with tls.crt and tls.key, followed while running.",
            "PATH",
            default="a self-signed pair is made at start",
        ),
    ] = None
    san: Annotated[
        Names,
        AfterValidator(checked(_san_problem)),
        FlagSpec("More host names and IP addresses for the self-signed certificate; may be repeated.", "NAME,..."),
    ] = ()
    memory_limit: Annotated[
        Bytes | None,
        AfterValidator(checked(_memory_problem)),
        FlagSpec(
            "Memory that this program may take, which decides how much it admits; where its cgroup has a lower "
            "limit, that counts.",
            "SIZE",
            default="the limit of its cgroup, else 480Mi for serve and 512Mi for worker",
        ),
    ] = None
    shutdown_timeout: Annotated[
        Seconds,
        between(0, 300),
        FlagSpec("How long requests under way may take after a termination signal.", "DURATION"),
    ] = 5.0

    @override
    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.san and self.cert_dir is not None:
            yield Conflict(
                ("san", "cert_dir"),
                "--san: names the self-signed certificate and has no effect with --cert-dir; drop one of them",
            )
