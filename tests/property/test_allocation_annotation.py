"""The allocation annotation: any text is an allocation, and a good one is read in full."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.model.allocation import UNITS_PER_CARD, AllocatedCard, Mode
from devicemanager.wire import allocation_annotation
from tests.property.json_strategies import anything, bodies, objects

cards = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["GPU-1", "GPU-10", "GPU-11", "gpu-1", "0000:3c:00.0", "slot-9"]),
        "index": st.integers(0, 2**32 - 1),
        "mode": st.sampled_from([mode.value for mode in Mode]),
    },
    optional={
        "allocatedPhysicalID": st.sampled_from(["MIG-1", "MIG-2"]),
        "allocated": st.integers(0, UNITS_PER_CARD),
    },
)
groups = st.fixed_dictionaries(
    {
        "id": st.text(max_size=5),
        "manufacturer": st.sampled_from(["nvidia", "amd", "simulated-a"]),
        "accelerators": st.lists(cards, max_size=3),
    }
)
allocations = st.dictionaries(
    st.text(max_size=5),
    st.fixed_dictionaries({"devices": st.fixed_dictionaries({"groups": st.lists(groups, max_size=2)})}),
)
loose = st.dictionaries(
    st.text(max_size=3),
    objects(
        {
            "devices": objects(
                {
                    "groups": st.lists(
                        objects(
                            {
                                "manufacturer": st.just("nvidia"),
                                "accelerators": st.lists(
                                    objects({"id": st.text(), "index": st.integers(), "mode": st.integers(-1, 9)})
                                ),
                            }
                        ),
                        max_size=2,
                    )
                }
            )
        }
    ),
    max_size=3,
)


@given(bodies(loose | anything).map(lambda body: body.decode("utf-8", "replace")) | st.text())
def test_any_text_is_an_allocation(text: str) -> None:
    found = allocation_annotation.parse(text)
    for card in found.cards:
        assert card.id
        assert card.id.isprintable()
    assert found.problem is None or (found.problem.isprintable() and len(found.problem) < 2000)


@given(allocations)
def test_a_good_annotation_is_read_in_full(document: dict[str, Any]) -> None:
    found = allocation_annotation.parse(json.dumps(document))
    expected = [
        AllocatedCard(
            group["manufacturer"],
            card["id"],
            card["index"],
            Mode(card["mode"]),
            container,
            card.get("allocatedPhysicalID") if card["mode"] == Mode.PARTITIONED else None,
            units=card.get("allocated") or None,
        )
        for container in sorted(document, key=lambda name: name.encode())
        for group in document[container]["devices"]["groups"]
        for card in group["accelerators"]
    ]
    assert found.cards == tuple(expected)
    assert found.problem is None


@given(allocations, st.text(max_size=3), anything)
def test_a_malformed_container_changes_no_other(document: dict[str, Any], name: str, bad: object) -> None:
    document.pop(name, None)
    alone = allocation_annotation.parse(json.dumps(document)).cards
    together = allocation_annotation.parse(json.dumps({**document, name: bad})).cards
    assert tuple(card for card in together if card.container != name) == alone
