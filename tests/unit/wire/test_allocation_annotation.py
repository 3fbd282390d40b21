"""The allocation annotation: what is understood is kept, what is not is named."""

import json
from typing import Any

import pytest

from devicemanager.model.allocation import AllocatedCard, Allocation, Mode
from devicemanager.wire import allocation_annotation

CARD = "GPU-aaaa1111-0000-0000-0000-000000000001"
PARTITION = "MIG-bbbb2222-0000-0000-0000-000000000003"


def accelerator(**changes: object) -> dict[str, object]:
    return {"id": CARD, "index": 0, "mode": 1, "allocated": 1_600_000, **changes}


def devices(*accelerators: object, manufacturer: object = "nvidia") -> dict[str, Any]:
    return {"devices": {"groups": [{"id": "h100", "manufacturer": manufacturer, "accelerators": accelerators}]}}


def parse(document: object) -> Allocation:
    return allocation_annotation.parse(json.dumps(document))


def test_the_three_forms_of_the_allocator() -> None:
    exclusive = {"main": {**devices(accelerator()), "deviceIDs": [f"h100:{CARD}:0000"]}}
    assert parse(exclusive) == Allocation(
        (AllocatedCard("nvidia", CARD, 0, Mode.EXCLUSIVE, "main", units=1_600_000),)
    )
    sliced = {"main": devices(accelerator(mode=3, index=1, allocated=400_000))}
    assert parse(sliced) == Allocation((AllocatedCard("nvidia", CARD, 1, Mode.SLICED, "main", units=400_000),))
    partitioned = accelerator(
        mode=4,
        index=2,
        allocated=200_000,
        allocatedPhysicalProfile="1g.10gb",
        allocatedPhysicalPlacements=[{"start": 0, "length": 1}],
        allocatedPhysicalID=PARTITION,
    )
    assert parse({"main": devices(partitioned)}) == Allocation(
        (AllocatedCard("nvidia", CARD, 2, Mode.PARTITIONED, "main", PARTITION, "1g.10gb", 200_000),)
    )


@pytest.mark.parametrize("units", [0, -1, 1_600_001, 1.5, "400000", True, None, [], 2**70])
def test_a_number_of_units_that_no_card_has_is_none(units: object) -> None:
    (card,) = parse({"main": devices(accelerator(mode=3, allocated=units))}).cards
    assert card.units is None


@pytest.mark.parametrize(
    ("profile", "read"), [("1g.10gb", "1g.10gb"), ("1g\n.10gb", "1g .10gb"), ("", None), (5, None), (None, None)]
)
def test_the_profile_of_a_partition_is_one_line(profile: object, read: str | None) -> None:
    (card,) = parse({"main": devices(accelerator(mode=4, allocatedPhysicalProfile=profile))}).cards
    assert card.profile == read


def test_only_a_partition_has_a_profile() -> None:
    (card,) = parse({"main": devices(accelerator(mode=3, allocatedPhysicalProfile="1g.10gb"))}).cards
    assert card.profile is None


@pytest.mark.parametrize("text", [None, "", "  \n", "null", "{}"])
def test_no_annotation_is_no_allocation_and_no_problem(text: str | None) -> None:
    assert allocation_annotation.parse(text) == Allocation()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("nonsense", "is not JSON"),
        ("[]", "is not an object"),
        ('"x"', "is not an object"),
        ("5", "is not an object"),
        ("[" * 10_000, "is not JSON"),
        ("[" * 200_000, "more than 65536 values"),
        ('{"a":[' + ",".join(["{}"] * 16_384) + "]}", "more than 16384 objects"),
        ('{"groups":[{"id":"h100","manufacturer":"nvidia","accelerators":[]}]}', "container 'groups'"),
        ("x" * (1 << 20) + "x", "longer than"),
    ],
    ids=["half", "text", "array", "string", "number", "deep", "deeper", "dense", "older shape", "huge"],
)
def test_what_is_not_understood_is_a_problem_and_never_an_exception(text: str, problem: str) -> None:
    found = allocation_annotation.parse(text)
    assert found.cards == ()
    assert problem in (found.problem or "")


@pytest.mark.parametrize(
    "container",
    [
        None,
        5,
        [],
        "x",
        {"devices": 5},
        {"devices": []},
        {"devices": {"groups": 5}},
        {"devices": {"groups": [5]}},
        {"devices": {"groups": [{"manufacturer": "", "accelerators": []}]}},
        {"devices": {"groups": [{"manufacturer": "../nvidia", "accelerators": []}]}},
        {"devices": {"groups": [{"manufacturer": "nvidia", "accelerators": {}}]}},
        devices(5),
        devices(accelerator(id=None)),
        devices(accelerator(id="")),
        devices(accelerator(id="a\nb")),
        devices(accelerator(id="x" * 257)),
        devices(accelerator(mode=None)),
        devices(accelerator(mode="Sliced")),
        devices(accelerator(mode=True)),
        devices(accelerator(mode=1.0)),
    ],
)
def test_a_part_that_is_not_understood_costs_itself_only(container: object) -> None:
    found = parse({"bad": container, "main": devices(accelerator())})
    assert found.cards == (AllocatedCard("nvidia", CARD, 0, Mode.EXCLUSIVE, "main", units=1_600_000),)
    assert "container 'bad'" in (found.problem or "")


def test_one_bad_accelerator_of_a_group_costs_itself_only() -> None:
    found = parse({"main": devices(accelerator(id="a"), {}, accelerator(id="b"))})
    assert [card.id for card in found.cards] == ["a", "b"]
    assert found.problem == "container 'main': an accelerator of nvidia without a usable id"


@pytest.mark.parametrize("empty", [{}, {"devices": None}, {"devices": {}}, {"devices": {"groups": None}}])
def test_a_container_without_devices_is_no_problem(empty: object) -> None:
    assert parse({"main": empty}) == Allocation()


def test_containers_come_in_byte_order_of_their_names() -> None:
    found = parse({name: devices(accelerator(id=name)) for name in ("b", "Z", "a", "\u00e9")})
    assert [card.container for card in found.cards] == ["Z", "a", "b", "\u00e9"]


def test_a_card_of_two_containers_is_kept_twice() -> None:
    found = parse({"a": devices(accelerator()), "b": devices(accelerator())})
    assert [(card.container, card.id) for card in found.cards] == [("a", CARD), ("b", CARD)]


@pytest.mark.parametrize(
    ("number", "mode"),
    [
        (0, Mode.NONE),
        (1, Mode.EXCLUSIVE),
        (2, Mode.SHARED),
        (3, Mode.SLICED),
        (4, Mode.PARTITIONED),
        (5, Mode.VISIBILITY),
        (6, Mode.UNKNOWN),
        (255, Mode.UNKNOWN),
        (4_294_967_295, Mode.UNKNOWN),
    ],
)
def test_modes_by_number_and_any_other_number_as_unknown(number: int, mode: Mode) -> None:
    assert parse({"main": devices(accelerator(mode=number))}).cards[0].mode is mode


@pytest.mark.parametrize(
    ("index", "expected"), [(7, 7), (None, None), ("7", None), (-1, None), (1 << 32, None), (1.5, None)]
)
def test_an_invalid_index_costs_the_card_nothing(index: object, expected: int | None) -> None:
    (card,) = parse({"main": devices(accelerator(index=index))}).cards
    assert (card.id, card.index) == (CARD, expected)


def test_a_partitions_id_counts_in_its_mode_only() -> None:
    (card,) = parse({"main": devices(accelerator(mode=3, allocatedPhysicalID=PARTITION))}).cards
    assert card.partition_id is None


UUID = "GPU-00000001-aaaa-bbbb-cccc-000000000001"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (UUID, (UUID, Mode.EXCLUSIVE, None)),
        (f"{UUID}::3", (UUID, Mode.SHARED, None)),
        (
            "MIG-00000000-0000-5000-8000-0000000000a0",
            (
                "MIG-00000000-0000-5000-8000-0000000000a0",
                Mode.PARTITIONED,
                "MIG-00000000-0000-5000-8000-0000000000a0",
            ),
        ),
        (f"MIG-{UUID}/7/0", (UUID, Mode.PARTITIONED, f"MIG-{UUID}/7/0")),
        ("nvidia0/gi7", ("nvidia0/gi7", Mode.EXCLUSIVE, None)),
        ("0000:3c:00.0", ("0000:3c:00.0", Mode.EXCLUSIVE, None)),
        ("amdgpu_xcp_3", ("amdgpu_xcp_3", Mode.EXCLUSIVE, None)),
        ("slot-9", ("slot-9", Mode.EXCLUSIVE, None)),
    ],
)
def test_every_form_of_a_device_id_is_kept_and_none_is_guessed(
    written: str, expected: tuple[str, Mode, str | None]
) -> None:
    found = parse({"c": devices(accelerator(id=written))})
    assert found.problem is None
    (card,) = found.cards
    assert (card.id, card.mode, card.partition_id) == expected


def test_a_replica_of_a_slice_stays_a_slice() -> None:
    (card,) = parse({"c": devices(accelerator(id=f"{UUID}::0", mode=3))}).cards
    assert (card.id, card.mode) == (UUID, Mode.SLICED)


def test_many_problems_are_counted_and_the_first_named() -> None:
    found = parse({f"c{index}": 5 for index in range(9)})
    assert (found.problem or "").count("container 'c") == 3
    assert (found.problem or "").endswith("and 6 more")


def test_a_hostile_annotation_is_cut_off() -> None:
    found = parse({"c": devices(*(accelerator(id=str(index)) for index in range(2000)))})
    assert len(found.cards) == 1024
    assert "more than 1024" in (found.problem or "")


def test_a_pod_whose_annotation_names_ever_more_manufacturers_has_the_first_ones_asked() -> None:
    """Each has a device manager looked for, a source in the answer and a look through all cards."""
    groups = [{"manufacturer": f"maker-{number}", "accelerators": [accelerator()]} for number in range(100)]
    found = parse({"main": {"devices": {"groups": groups}}})
    assert found.manufacturers == tuple(f"maker-{number}" for number in range(16))
    assert found.problem == "more than 16 manufacturers"


def test_sixteen_manufacturers_are_no_problem() -> None:
    groups = [{"manufacturer": f"maker-{number % 16}", "accelerators": [accelerator()]} for number in range(32)]
    found = parse({"main": {"devices": {"groups": groups}}})
    assert (len(found.cards), found.problem) == (32, None)
