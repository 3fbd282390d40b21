"""The settings of ``devicemanager demo``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator
from typing_extensions import override

from devicemanager.settings.flags import Conflict, FlagSpec
from devicemanager.settings.output import Output, OutputSettings
from devicemanager.settings.values import Port, checked

KUBECONFIG_HEADER: Final = "# Written by devicemanager demo, for a stand-in cluster that ends with it.\n"
"""The first line of a kubeconfig of ours: only such a file is ever replaced or removed."""


def _kubeconfig_problem(path: Path | None) -> str | None:
    if path is None:
        return None
    if not path.parent.is_dir():
        return f"there is no directory {path.parent}"
    if path.exists() and not is_ours(path):
        return "exists and is not the demo's own; name another file"
    return None


def is_ours(path: Path) -> bool:
    """Whether a file is a kubeconfig that a demo wrote."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline() == KUBECONFIG_HEADER
    except (OSError, UnicodeDecodeError):
        return False


class DemoSettings(OutputSettings):
    """`devicemanager demo`: the whole chain on one machine."""

    once: Annotated[bool, FlagSpec("Print one sample of each Instance as soon as everything answers, and end.")] = (
        False
    )
    kubeconfig: Annotated[
        Path | None,
        AfterValidator(checked(_kubeconfig_problem)),
        FlagSpec(
            "Write a kubeconfig for the stand-in cluster there once everything answers; it is removed at the end.",
            "PATH",
            default="one in a temporary directory",
        ),
    ] = None
    port: Annotated[
        Port,
        FlagSpec("TCP port of the stand-in cluster on 127.0.0.1; 0 takes any free one.", "PORT"),
    ] = 0

    @override
    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.output is not Output.TABLE and not self.once:
            yield Conflict(
                ("output", "once"), f"--output={self.output}: needs --once, for a live table is not a document"
            )
        if self.once and self.kubeconfig is not None:
            yield Conflict(
                ("once", "kubeconfig"),
                "--kubeconfig: the cluster ends with --once, so nothing would be there to ask; drop one of them",
            )
