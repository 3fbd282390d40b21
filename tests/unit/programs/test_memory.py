"""A server admits what its memory limit allows, and refuses one with which it cannot serve."""

from unittest.mock import ANY

import pytest
from structlog.testing import capture_logs

from devicemanager.errors import SettingsError
from devicemanager.node.launcher import most_bytes
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
        budget(program, load(settings, [f"--memory-limit={size << 20}"], {}))
        for size in (program.designed_bytes >> 20, program.designed_bytes >> 19)
    )

    assert smaller.memory_bytes == program.designed_bytes
    assert smaller.limits.connections < larger.limits.connections


@pytest.mark.parametrize("size", ["64Mi", "100", "0"])
@pytest.mark.parametrize(("program", "settings"), PROGRAMS)
def test_a_limit_that_is_too_small_is_refused_with_the_smallest_that_works(
    program: Program, settings: type[ServerSettings], size: str
) -> None:
    too_small = rf"from --memory-limit: {size} .* the smallest limit that works is \d+Mi"
    with pytest.raises(SettingsError, match=too_small):
        budget(program, load(settings, [f"--memory-limit={size}"], {}))


@pytest.mark.parametrize(
    ("limit", "collector_limit", "warned"),
    [
        ("480Mi", "80Mi", None),
        ("479Mi", "80Mi", {"limit": "479Mi (--memory-limit)", "left": "295Mi", "wanted": "296Mi"}),
        ("192Mi", "16Mi", {"limit": "192Mi (--memory-limit)", "left": "17Mi", "wanted": "136Mi"}),
        ("320Mi", "16Mi", None),
        ("480Mi", "1Gi", {"limit": "480Mi (--memory-limit)", "left": "296Mi", "wanted": "2656Mi"}),
    ],
)
def test_collector_processes_that_may_grow_beyond_the_limit_are_a_warning_with_both_numbers(
    limit: str, collector_limit: str, warned: dict[str, str] | None
) -> None:
    settings = load(ServeSettings, [f"--memory-limit={limit}", f"--collector-memory-limit={collector_limit}"], {})

    with capture_logs() as logs:
        budget(DEVICE_MANAGER, settings, most_bytes(settings.collector_memory_limit))

    warnings = [each for each in logs if each["event"] == "collector_memory_not_covered"]
    assert warnings == ([] if warned is None else [{"event": ANY, "log_level": "warning", **warned}])


@pytest.mark.parametrize("text", ["a lot", "-64Mi", "2048Ti"])
def test_what_is_no_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--memory-limit"):
        load(ServeSettings, [f"--memory-limit={text}"], {})
