"""The page that explains the snapshot: it names every key, reason and state, and its example is a real document."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

from devicemanager.model.accelerator import (
    Card,
    CollectorState,
    CollectorStatus,
    Reading,
    Reason,
    RestartReason,
    Sample,
    Snapshot,
)
from devicemanager.model.figures import FIGURES
from devicemanager.wire import snapshot as wire
from tests import devices

PAGE = (Path(__file__).parents[3] / "docs" / "snapshot.md").read_text()
SINCE = datetime(2026, 8, 12, 8, 0, 13, 30331, tzinfo=UTC)
TAKEN = datetime(2026, 8, 12, 9, 15, 4, 512873, tzinfo=UTC)


def rows() -> set[str]:
    """The first cell of every table row, as code."""
    return set(re.findall(r"^\| `([^`]+)`", PAGE, re.MULTILINE))


def test_every_word_of_the_closed_vocabularies_has_a_row() -> None:
    assert {reason.value for reason in Reason} | {state.value for state in CollectorState} <= rows()


def test_the_example_is_what_is_served() -> None:
    healthy = devices.reading(
        Card(0, "GPU-aaaa1111-0000-0000-0000-000000000001", "NVIDIA H100 80GB HBM3", "0000:1b:00.0"),
        memory_total=81559 << 20,
        memory_used=20481 << 20,
        clock_reduction_reasons=("sw_power_cap",),
    )
    hung = Reading.unreadable(
        Card(1, "GPU-aaaa1111-0000-0000-0000-000000000002", "NVIDIA H100 80GB HBM3", "0000:2b:00.0"),
        Reason.TIMEOUT,
        "the card did not answer within 2 s",
    )
    status = CollectorStatus(CollectorState.OK, SINCE, restarts={RestartReason.CRASHED: 1})
    served = Snapshot("nvidia", 15, Sample(TAKEN, 0.0, 0.0, (healthy, hung)), status, "worker-1")
    starting = Snapshot("nvidia", 15, None, CollectorStatus(CollectorState.STARTING, SINCE))
    first, second = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert json.loads(first) == json.loads(wire.encode(served))
    assert second.encode() == wire.encode(starting)


def test_every_key_of_a_document_has_a_row() -> None:
    unhealthy = devices.reading(Card(0, "GPU-1", "card", "0000:1b:00.0"), "ecc")
    status = CollectorStatus(CollectorState.FAILED, SINCE, "detail")
    document = json.loads(
        wire.encode(Snapshot("nvidia", 15, Sample(TAKEN, 0.0, 0.0, (unhealthy,)), status, "worker-1"))
    )
    (group,) = document["groups"]
    keys = {*document, *document["collector"], *group["accelerators"][0]}
    assert keys - {spec.snapshot_key for spec in FIGURES} <= rows()
