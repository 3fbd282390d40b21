"""Memory that was freed goes back, where the C library can be asked to give it."""

import asyncio
import ctypes
import gc
from pathlib import Path

import pytest

from devicemanager.serving import memory

_BLOCKS = 4_000
_BLOCK_BYTES = 16_384
"""Large enough for the C library's heap, small enough not to be mapped on its own."""


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / (1 << 20)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
def test_pages_between_those_in_use_are_given_back() -> None:
    blocks = [bytes([index % 255 + 1]) * _BLOCK_BYTES for index in range(_BLOCKS)]
    kept = blocks[::50]
    del blocks
    held = resident_mib()

    memory.trim_malloc()

    assert resident_mib() < held - 30
    assert len(kept) == _BLOCKS // 50


def test_without_such_a_call_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_trim", lambda: None)

    memory.trim_malloc()


def test_cycles_are_looked_for_rarely_and_not_in_what_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "set_threshold", lambda *thresholds: calls.append(thresholds))

    memory.collect_garbage_rarely()

    young, middle, _ = gc.get_threshold()
    assert calls == ["freeze", (max(10_000, young), middle, 1 << 30)]


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_all_objects_are_looked_through_when_nothing_is_under_way_and_at_the_latest_after_five_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, idle, looked_at_s = asyncio.get_running_loop(), True, []
    monkeypatch.setattr(gc, "collect", lambda: looked_at_s.append(loop.time()))
    task = asyncio.create_task(memory.collect_when_idle(lambda: idle))
    await asyncio.sleep(25)
    assert looked_at_s == [10, 20]

    idle = False
    await asyncio.sleep(300)
    assert looked_at_s == [10, 20, 320]

    idle = True
    await asyncio.sleep(10)
    assert looked_at_s == [10, 20, 320, 330]
    task.cancel()
