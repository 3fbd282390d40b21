"""The settings of the node's programs: what reads accelerators, serves what was read, or shows it."""

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator
from typing_extensions import override

from devicemanager.rules.duration import format_duration
from devicemanager.rules.quantity import format_bytes
from devicemanager.settings.flags import Conflict, FlagSpec, Settings
from devicemanager.settings.output import LogSettings, OutputSettings
from devicemanager.settings.server import ServerSettings
from devicemanager.settings.values import (
    DEFAULT_PORT,
    Bytes,
    Directory,
    ExistingFile,
    Names,
    Seconds,
    between,
    checked,
    count_between,
    device_manager_url,
    url_problem,
)


class CollectingSettings(Settings):
    """Whose accelerators are read, and with which deadlines."""

    manufacturer: Annotated[
        str,
        FlagSpec("Whose accelerators to read: auto finds out on the PCI bus; simulated needs no hardware.", "NAME"),
    ] = "auto"
    no_pci_check: Annotated[bool, FlagSpec("Do not look at the PCI bus at all; needs --manufacturer.")] = False
    sys_root: Annotated[Directory, FlagSpec("Where the host's /sys is mounted.", "PATH")] = Path("/sys")
    simulated_scenario: Annotated[
        ExistingFile,
        FlagSpec("Scenario file of the simulated cards.", "PATH", default="two cards built in"),
    ] = None
    card_timeout: Annotated[
        Seconds | None,
        between(0.05, 60),
        FlagSpec(
            "How long reading one card may take before its process is killed and the card is left out.",
            "DURATION",
            default="half the monitor period, from 500ms to 2s",
        ),
    ] = None
    open_timeout: Annotated[
        Seconds,
        between(0.1, 600),
        FlagSpec(
            "How long loading the manufacturer's library may take before its process is killed; the first figure "
            "of each card may take as long, up to 10s.",
            "DURATION",
        ),
    ] = 30.0
    collector_memory_limit: Annotated[
        Bytes,
        count_between(16 << 20, 64 << 30, format_bytes),
        FlagSpec(
            "Memory of its own that a collector process may hold: with more after a sample it is replaced, with a "
            "quarter more than that during a sample it is killed at once.",
            "SIZE",
        ),
    ] = 80 << 20
    collector_descriptor_limit: Annotated[
        int,
        count_between(64, 1 << 20),
        FlagSpec("Descriptors that a collector process may have open; with more, it is replaced.", "COUNT"),
    ] = 512
    node_name: Annotated[
        str | None,
        FlagSpec(
            "Name of the Kubernetes node, given in the snapshot.",
            "NAME",
            also_from=("KUBERNETES_NODE_NAME", "NODE_NAME"),
        ),
    ] = None

    @override
    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.no_pci_check and self.manufacturer == "auto":
            yield Conflict(
                ("no_pci_check", "manufacturer"),
                "--no-pci-check: without the PCI bus nothing tells whose accelerators there are; "
                "name one with --manufacturer",
            )
        if self.simulated_scenario is not None and not self.manufacturer.startswith("simulated"):
            yield Conflict(
                ("simulated_scenario", "manufacturer"),
                f"--simulated-scenario: has no effect with --manufacturer={self.manufacturer}; "
                "drop it, or give --manufacturer=simulated",
            )


class MonitorSettings(CollectingSettings, OutputSettings):
    """`devicemanager monitor`: one sample, once."""


class DetectSettings(MonitorSettings):
    """`devicemanager detect`: what cards there are, once."""


class ServeSettings(CollectingSettings, ServerSettings, LogSettings):
    """`devicemanager serve`: the device manager."""

    monitor_period: Annotated[
        Seconds,
        between(1, 3600),
        FlagSpec("Time from the start of one sample to the start of the next.", "DURATION"),
    ] = 15.0
    client_ca_file: Annotated[
        ExistingFile,
        FlagSpec(
            "Certificates of the authorities whose client certificates may read, followed while running.", "PATH"
        ),
    ] = None
    client_allowed_names: Annotated[
        Names,
        FlagSpec(
            "Common or alternative names that a client certificate must carry one of; may be repeated.",
            "NAME,...",
            default="any, of a certificate that the client CA signed",
        ),
    ] = ()
    allow_anonymous: Annotated[bool, FlagSpec("Let anyone who can reach the port read the snapshot.")] = False

    @property
    def address(self) -> str:
        """The IP address to listen on."""
        if self.bind_address is not None:
            return self.bind_address
        return "0.0.0.0" if self.client_ca_file is not None or self.allow_anonymous else "127.0.0.1"  # noqa: S104 - only so

    @override
    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.card_timeout is not None and self.card_timeout >= self.monitor_period:
            yield Conflict(
                ("card_timeout", "monitor_period"),
                f"--card-timeout: {format_duration(self.card_timeout)} must be shorter than "
                f"--monitor-period ({format_duration(self.monitor_period)})",
            )
        if self.client_allowed_names and self.client_ca_file is None:
            yield Conflict(
                ("client_allowed_names", "client_ca_file"),
                "--client-allowed-names: names are only checked with --client-ca-file; give it, or drop the names",
            )
        if self.allow_anonymous and self.client_ca_file is not None:
            yield Conflict(
                ("allow_anonymous", "client_ca_file"),
                "--allow-anonymous: would make --client-ca-file pointless; drop one of them",
            )
        loopback = ipaddress.ip_address(self.address).is_loopback
        if not loopback and self.client_ca_file is None and not self.allow_anonymous:
            yield Conflict(
                ("bind_address", "client_ca_file", "allow_anonymous"),
                f"--bind-address={self.address}: anyone who reaches it could read the snapshot; give "
                "--client-ca-file to require client certificates, or --allow-anonymous to let anyone read",
            )


class SnapshotSettings(OutputSettings):
    """`devicemanager snapshot`: what a running device manager serves."""

    url: Annotated[
        str,
        BeforeValidator(device_manager_url),
        AfterValidator(checked(url_problem)),
        FlagSpec(
            f"Address of a device manager, HOST:PORT or https://HOST:PORT; a HOST alone has port {DEFAULT_PORT}. "
            "/monitor/snapshot is added where it has no path.",
            "URL",
            positional=True,
        ),
    ]
    ca_file: Annotated[
        ExistingFile,
        FlagSpec("Certificates of the authorities to verify the server with.", "PATH", default="the system's"),
    ] = None
    cert: Annotated[ExistingFile, FlagSpec("Client certificate to show, with --key.", "PATH")] = None
    key: Annotated[ExistingFile, FlagSpec("Private key of the client certificate.", "PATH")] = None
    server_name: Annotated[
        str | None, FlagSpec("Name to verify the server's certificate for.", "NAME", default="the host of the URL")
    ] = None
    insecure: Annotated[bool, FlagSpec("Do not verify the server; for a look at a machine that you trust.")] = False
    timeout: Annotated[Seconds, between(0.1, 600), FlagSpec("How long the whole answer may take.", "DURATION")] = (
        10.0
    )

    @override
    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if (self.cert is None) != (self.key is None):
            yield Conflict(("cert", "key"), "--cert, --key: a client certificate needs both")
        if self.insecure and self.ca_file is not None:
            yield Conflict(("insecure", "ca_file"), "--insecure: would make --ca-file pointless; drop one of them")
