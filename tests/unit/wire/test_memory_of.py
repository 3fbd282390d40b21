"""What a document takes is counted, whatever it is made of."""

import sys
from dataclasses import dataclass

import msgspec

from devicemanager.model.accelerator import Reason
from devicemanager.wire.memory_of import size_in_steps
from devicemanager.wire.steps import at_once


@dataclass(frozen=True, slots=True)
class Card:
    name: str


class Pod(msgspec.Struct):
    name: str


def size(*parts: object) -> int:
    return sum(map(sys.getsizeof, parts))


def test_everything_in_it_counts() -> None:
    text, card, pod = "a" * 1000, Card("b" * 1000), Pod("c" * 1000)
    row = (text, card)
    found = {"pods": [pod], "rows": row}

    assert at_once(size_in_steps(found)) == size(
        found, "pods", found["pods"], pod, pod.name, "rows", row, text, card, card.name
    )


def test_what_there_is_one_of_costs_nothing() -> None:
    assert at_once(size_in_steps([None, True, Reason.TIMEOUT])) == size([None, True, Reason.TIMEOUT])


def test_a_large_document_is_counted_in_steps() -> None:
    steps = size_in_steps(list(range(10_000)))

    assert sum(1 for _ in steps) == 10_001 // 512
