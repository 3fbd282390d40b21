"""Whatever a peer or a caller sends, a parser gives a bounded answer or a refusal that it documents.

``DEVICEMANAGER_FUZZ`` says how many inputs each gets. They are always the same ones, each made of its number and of
the corpus.
"""

import gc
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from tests.fuzz.mutator import mutated
from tests.fuzz.targets import TARGETS, Target

CORPUS: Final = Path(__file__).with_name("corpus")
INPUTS: Final = int(os.environ.get("DEVICEMANAGER_FUZZ", "60"))

MEASURED_EVERY: Final = 20
"""Counting calls takes ten times as long as the parser."""

CALLS: Final = 20_000
CALLS_PER_BYTE: Final = 60
"""More than any parser makes for the input with most to do; their number grows as the length does."""

RESULT: Final = 20_000
RESULT_PER_BYTE: Final = 100
"""Characters of what comes out, written as Python does; the most is for documents of many empty objects."""

MESSAGE: Final = 2000
MESSAGE_PER_BYTE: Final = 20
"""Characters of an error; the second where it lists every mistake of the user's own input."""


def corpus_of(name: str) -> list[bytes]:
    folder = CORPUS / (TARGETS[name].corpus or name)
    found = [path.read_bytes() for path in sorted(folder.iterdir())]
    assert found
    return found


def outcome(target: Target, data: bytes) -> object:
    """What the parser makes of it, or its refusal."""
    try:
        return target.parse(data)
    except target.raises as error:
        refusal = str(error)
    assert len(refusal) <= MESSAGE + target.own * MESSAGE_PER_BYTE * len(data)
    return None


def calls_of(action: Callable[[], object]) -> tuple[object, int]:
    """What it gives, and how many functions it called, those written in C included."""
    count = 0

    def called(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        found = action()
    finally:
        sys.setprofile(before)
    return found, count


@pytest.mark.parametrize("name", TARGETS)
def test_right_inputs_are_accepted(name: str) -> None:
    """Else all that is made of them is refused for the same reason, and nothing is shown."""
    for data in corpus_of(name):
        TARGETS[name].parse(data)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", TARGETS)
def test_mutated_inputs_are_answered_or_refused_within_bounds(name: str) -> None:
    target, corpus = TARGETS[name], corpus_of(name)
    for number in range(INPUTS):
        data = mutated(random.Random(number), corpus)
        try:
            if number % MEASURED_EVERY:
                outcome(target, data)
                continue
            gc.collect(0)
            found, calls = calls_of(lambda: outcome(target, data))  # noqa: B023 - called at once
            assert calls <= CALLS + CALLS_PER_BYTE * len(data)
            assert len(repr(found)) <= RESULT + RESULT_PER_BYTE * len(data)
        except BaseException as error:
            error.add_note(f"input {number} of {name}: {data!r}")
            raise
