"""A server admits what its memory limit allows, and refuses one with which it cannot serve."""

import pytest

from devicemanager.errors import SettingsError
from devicemanager.programs.memory import budget
from devicemanager.serving.budget import DEVICE_MANAGER, WORKER, Program
from devicemanager.settings.loading import load
from devicemanager.settings.node import ServeSettings
from devicemanager.settings.server import ServerSettings
from devicemanager.settings.worker import WorkerSettings

PROGRAMS = [
    pytest.param(DEVICE_MANAGER, ServeSettings, id="device-manager"),
    pytest.param(WORKER, WorkerSettings, id="worker"),
]


@pytest.mark.parametrize(("program", "settings"), PROGRAMS)
def test_the_flag_decides_what_is_admitted(program: Program, settings: type[ServerSettings]) -> None:
    smaller, larger = (
        budget(program, load(settings, [f"--memory-limit={size}"], {})) for size in ("256Mi", "300Mi")
    )

    assert smaller.memory_bytes == 256 << 20
    assert smaller.limits.connections < larger.limits.connections


@pytest.mark.parametrize("size", ["64Mi", "100", "0"])
@pytest.mark.parametrize(("program", "settings"), PROGRAMS)
def test_a_limit_that_is_too_small_is_refused_with_the_smallest_that_works(
    program: Program, settings: type[ServerSettings], size: str
) -> None:
    too_small = rf"from --memory-limit: {size} .* the smallest limit that works is \d+Mi"
    with pytest.raises(SettingsError, match=too_small):
        budget(program, load(settings, [f"--memory-limit={size}"], {}))


@pytest.mark.parametrize("text", ["a lot", "-64Mi", "2048Ti"])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--memory-limit"):
        load(ServeSettings, [f"--memory-limit={text}"], {})
