"""Memory that was freed goes back, where the C library can be asked to give it."""

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

    assert calls == ["freeze", (10_000, *gc.get_threshold()[1:])]
