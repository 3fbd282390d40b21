"""Law 7: exactly the pod's own cards, and of a share only what is its own."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.allocation import AllocatedCard, Allocation, Mode
from devicemanager.model.figures import FIGURES, Scope
from devicemanager.model.usage import (
    AcceleratorUsage,
    PeerSnapshot,
    SliceDevice,
    SliceUsage,
    SnapshotCard,
)
from devicemanager.rules.cards import entries
from devicemanager.rules.snapshot_view import View
from tests import devices

POD, OTHER_POD = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
CARD, PARTITION = "GPU-aaaa1111-0000-0000-0000-000000000001", "MIG-bbbb2222-0000-0000-0000-000000000003"
NAMES = (
    "memory_total",
    "memory_used",
    "memory_utilization",
    "compute_utilization",
    "temperature",
    "power_usage",
)


def snapshot_card(card_id: str = CARD, index: int = 0, pci_bus_id: str | None = None) -> SnapshotCard:
    return SnapshotCard(card_id, index, "H100", devices.published(), unhealthy=False, pci_bus_id=pci_bus_id)


def snapshot(
    *cards: SnapshotCard,
    slices: tuple[SliceUsage, ...] | None = None,
    devices: tuple[SliceDevice, ...] = (),
    manufacturer: str = "nvidia",
) -> PeerSnapshot:
    return PeerSnapshot(
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        period_s=15,
        node_name=None,
        state=CollectorState.OK,
        detail=None,
        cards={manufacturer: cards},
        slices=None if slices is None else {manufacturer: slices},
        slice_devices={manufacturer: devices},
    )


def given(
    mode: Mode = Mode.EXCLUSIVE,
    card_id: str = CARD,
    *,
    container: str = "main",
    partition_id: str | None = None,
    index: int | None = 3,
    manufacturer: str = "nvidia",
    profile: str | None = None,
    units: int | None = None,
) -> AllocatedCard:
    return AllocatedCard(manufacturer, card_id, index, mode, container, partition_id, profile, units)


def read(peer: PeerSnapshot, *cards: AllocatedCard) -> tuple[AcceleratorUsage, ...]:
    return entries("nvidia", POD, Allocation(cards), peer)


def figures(entry: AcceleratorUsage) -> tuple[object, ...]:
    return *(entry.figures[name] for name in NAMES), entry.unhealthy


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED, Mode.NONE])
def test_a_card_given_whole_or_shared_shows_its_figures_and_the_mode_says_so(mode: Mode) -> None:
    (entry,) = read(snapshot(snapshot_card()), given(mode))
    assert figures(entry) == (81920, 20480, 25, 40, 51, 233, False)
    assert (entry.id, entry.manufacturer, entry.index, entry.name, entry.mode) == (
        CARD,
        "nvidia",
        3,
        "H100",
        mode.label,
    )


def test_a_mode_that_is_not_known_may_be_a_share_and_shows_what_is_the_boards_alone() -> None:
    (entry,) = read(snapshot(snapshot_card()), given(Mode.UNKNOWN))
    assert figures(entry) == (*(Reason.VERSION_SKEW,) * 4, 51, 233, False)
    assert entry.mode == "Unknown"


@pytest.mark.parametrize("mode", Mode)
def test_what_is_the_boards_is_shown_whatever_the_mode_and_nothing_else_of_a_divided_card(mode: Mode) -> None:
    for entry in read(snapshot(snapshot_card()), given(mode, partition_id=PARTITION)):
        for spec in FIGURES:
            whole = mode in (Mode.EXCLUSIVE, Mode.SHARED, Mode.NONE)
            if whole or spec.scope is Scope.BOARD:
                assert entry.figures[spec.name] == devices.PUBLISHED[spec.name]
            elif not (mode is Mode.SLICED and spec.name == "memory_total"):
                assert isinstance(entry.figures[spec.name], Reason)


def test_a_card_merely_made_visible_is_skipped() -> None:
    assert read(snapshot(snapshot_card()), given(Mode.VISIBILITY)) == ()


def test_other_cards_of_the_node_do_not_appear() -> None:
    peer = snapshot(snapshot_card("GPU-other"), snapshot_card(), snapshot_card(CARD + "0"))
    assert [entry.id for entry in read(peer, given())] == [CARD]


def test_other_manufacturers_cards_of_the_same_id_do_not_answer() -> None:
    peer = replace(snapshot(), cards={"amd": (snapshot_card(),)})
    (entry,) = read(peer, given(), given(manufacturer="amd"))
    assert entry.manufacturer == "nvidia"
    assert figures(entry) == (Reason.NOT_REPORTED,) * 7


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED, Mode.SLICED, Mode.NONE])
def test_an_allocated_card_that_is_not_in_the_snapshot_is_listed_without_figures(mode: Mode) -> None:
    (entry,) = read(snapshot(snapshot_card("GPU-other")), given(mode))
    assert (entry.id, entry.index, entry.name, entry.mode) == (CARD, 3, None, mode.label)
    assert figures(entry) == (Reason.NOT_REPORTED,) * 7


@pytest.mark.parametrize("made_up", ["pci:0000:3c:00.0", "index:0"])
def test_a_card_never_read_matches_no_allocation(made_up: str) -> None:
    (entry,) = read(snapshot(snapshot_card(made_up)), given(card_id=made_up))
    assert figures(entry) == (Reason.NOT_REPORTED,) * 7


def test_a_card_given_to_two_containers_is_listed_once() -> None:
    peer = snapshot(snapshot_card(), snapshot_card())
    found = read(peer, given(container="a", index=None), given(container="b", index=2))
    assert [(entry.id, entry.index) for entry in found] == [(CARD, 2)]


@pytest.mark.parametrize("first", [0, 1])
def test_where_two_containers_disagree_on_the_mode_the_narrower_one_counts(first: int) -> None:
    cards = (given(Mode.EXCLUSIVE, container="a"), given(Mode.SLICED, container="b"))
    (entry,) = read(snapshot(snapshot_card()), cards[first], cards[1 - first])
    assert entry.mode == "Sliced"
    assert entry.figures["memory_used"] is Reason.UNSUPPORTED


def test_absent_figures_of_the_card_keep_their_reasons() -> None:
    card = replace(
        snapshot_card(), figures=devices.published(memory_used=Reason.PERMISSION), unhealthy=Reason.TIMEOUT
    )
    (entry,) = read(snapshot(card), given())
    assert (entry.figures["memory_used"], entry.unhealthy) == (Reason.PERMISSION, Reason.TIMEOUT)


class TestSliced:
    def share(self, **changes: object) -> SliceUsage:
        fields: dict[str, object] = {
            "pod_uid": POD,
            "container": "main",
            "card_id": CARD,
            "memory_used_mib": 8192,
            "utilization_percent": 18,
        }
        return SliceUsage(**{**fields, **changes})  # type: ignore[arg-type]

    def test_shows_its_own_share(self) -> None:
        peer = snapshot(snapshot_card(), slices=(self.share(),))
        (entry,) = read(peer, given(Mode.SLICED))
        assert figures(entry) == (81920, 8192, 10, 18, 51, 233, False)

    @pytest.mark.parametrize(
        "foreign",
        [
            {"pod_uid": OTHER_POD},
            {"pod_uid": ""},
            {"container": "sshd"},
            {"card_id": "GPU-other"},
            {"partition_id": PARTITION},
        ],
    )
    def test_never_shows_anything_elses(self, foreign: dict[str, object]) -> None:
        peer = snapshot(snapshot_card(), slices=(self.share(**foreign),))
        (entry,) = read(peer, given(Mode.SLICED))
        assert figures(entry) == (81920, *(Reason.UNSUPPORTED,) * 3, 51, 233, False)

    def test_without_a_section_its_use_is_unsupported(self) -> None:
        (entry,) = read(snapshot(snapshot_card()), given(Mode.SLICED))
        assert figures(entry) == (81920, *(Reason.UNSUPPORTED,) * 3, 51, 233, False)

    def test_a_card_that_was_asked_and_has_no_record_of_it_is_measured_idle(self) -> None:
        peer = snapshot(snapshot_card(), slices=(), devices=(SliceDevice(CARD),))
        (entry,) = read(peer, given(Mode.SLICED))
        assert figures(entry)[1:4] == (0, 0, 0)

    def test_a_card_that_could_not_be_asked_gives_its_reasons(self) -> None:
        device = SliceDevice(CARD, memory_reason=Reason.PERMISSION, utilization_reason=None)
        (entry,) = read(snapshot(snapshot_card(), slices=(), devices=(device,)), given(Mode.SLICED))
        assert figures(entry)[1:4] == (Reason.PERMISSION, Reason.PERMISSION, 0)

    def test_a_record_without_a_figure_takes_the_cards_reason(self) -> None:
        device = SliceDevice(CARD, memory_reason=Reason.INVALID_DATA)
        record = self.share(memory_used_mib=Reason.NOT_REPORTED)
        (entry,) = read(snapshot(snapshot_card(), slices=(record,), devices=(device,)), given(Mode.SLICED))
        assert figures(entry)[1:4] == (Reason.INVALID_DATA, Reason.INVALID_DATA, 18)

    def test_two_containers_shares_of_one_card_are_summed_in_full_or_not_at_all(self) -> None:
        both = (given(Mode.SLICED, container="a"), given(Mode.SLICED, container="b"))
        shares = (self.share(container="a"), self.share(container="b", memory_used_mib=1))
        (entry,) = read(snapshot(snapshot_card(), slices=shares), *both)
        assert (entry.figures["memory_used"], entry.figures["compute_utilization"]) == (8193, 36)
        (entry,) = read(snapshot(snapshot_card(), slices=shares[:1]), *both)
        assert (entry.figures["memory_used"], entry.figures["compute_utilization"]) == (Reason.UNSUPPORTED,) * 2

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"memory_used_mib": 81920}, (81920, 100, 18)),
            ({"memory_used_mib": 81921}, (Reason.INVALID_DATA, Reason.INVALID_DATA, 18)),
            ({"utilization_percent": 100}, (8192, 10, 100)),
            ({"utilization_percent": 101}, (8192, 10, Reason.INVALID_DATA)),
        ],
    )
    def test_a_share_is_never_more_than_its_card(
        self, changes: dict[str, object], expected: tuple[object, ...]
    ) -> None:
        (entry,) = read(snapshot(snapshot_card(), slices=(self.share(**changes),)), given(Mode.SLICED))
        assert figures(entry) == (81920, *expected, 51, 233, False)

    def test_nor_are_two_containers_shares_together(self) -> None:
        both = (given(Mode.SLICED, container="a"), given(Mode.SLICED, container="b"))
        shares = [self.share(container=name, memory_used_mib=50_000, utilization_percent=60) for name in ("a", "b")]
        (entry,) = read(snapshot(snapshot_card(), slices=tuple(shares)), *both)
        assert figures(entry) == (81920, *(Reason.INVALID_DATA,) * 3, 51, 233, False)

    def test_two_records_of_one_share_both_do_not_count(self) -> None:
        peer = snapshot(snapshot_card(), slices=(self.share(), self.share(memory_used_mib=1)))
        (entry,) = read(peer, given(Mode.SLICED))
        assert entry.figures["memory_used"] is Reason.INVALID_DATA


class TestPartitioned:
    def partition(self, **changes: object) -> SliceUsage:
        fields: dict[str, object] = {
            "pod_uid": POD,
            "container": "main",
            "card_id": CARD,
            "memory_used_mib": 2464,
            "utilization_percent": Reason.UNSUPPORTED,
            "partition_id": PARTITION,
            "memory_total_mib": 9856,
        }
        return SliceUsage(**{**fields, **changes})  # type: ignore[arg-type]

    def test_shows_the_partitions_figures_and_the_boards_health(self) -> None:
        peer = snapshot(snapshot_card(), slices=(self.partition(),))
        (entry,) = read(peer, given(Mode.PARTITIONED, partition_id=PARTITION))
        assert entry.id == PARTITION
        assert figures(entry) == (9856, 2464, 25, Reason.UNSUPPORTED, 51, 233, False)

    @pytest.mark.parametrize(
        "foreign",
        [
            {"pod_uid": OTHER_POD},
            {"container": "sshd"},
            {"card_id": "GPU-other"},
            {"partition_id": PARTITION + "0"},
            {"partition_id": None},
        ],
    )
    def test_never_shows_the_parents_figures_nor_another_partitions(self, foreign: dict[str, object]) -> None:
        peer = snapshot(snapshot_card(), slices=(self.partition(**foreign),))
        (entry,) = read(peer, given(Mode.PARTITIONED, partition_id=PARTITION))
        assert figures(entry) == (*(Reason.PARTITIONED,) * 4, 51, 233, False)

    def test_without_a_recorded_partition_only_the_board_is_shown(self) -> None:
        peer = snapshot(snapshot_card(), slices=(self.partition(),))
        (entry,) = read(peer, given(Mode.PARTITIONED))
        assert (entry.id, entry.mode) == (CARD, "Partitioned")
        assert figures(entry) == (*(Reason.PARTITIONED,) * 4, 51, 233, False)

    def test_a_record_of_a_device_manager_without_pod_uids_answers(self) -> None:
        peer = snapshot(snapshot_card(), slices=(self.partition(pod_uid="", container=""),))
        (entry,) = read(peer, given(Mode.PARTITIONED, partition_id=PARTITION))
        assert entry.figures["memory_used"] == 2464

    def test_a_partition_that_is_listed_on_its_card_answers(self) -> None:
        listed = self.partition(pod_uid="", container="")
        peer = replace(snapshot(snapshot_card()), partitions={"nvidia": (listed,)})
        (entry,) = read(peer, given(Mode.PARTITIONED, partition_id=PARTITION))
        assert figures(entry) == (9856, 2464, 25, Reason.UNSUPPORTED, 51, 233, False)
        (entry,) = read(peer, given(Mode.PARTITIONED, PARTITION, partition_id=PARTITION))
        assert figures(entry) == (9856, 2464, 25, Reason.UNSUPPORTED, 51, 233, False)

    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            ({"memory_total_mib": 81920}, (81920, 2464, 3)),
            ({"memory_total_mib": 81921}, (Reason.INVALID_DATA,) * 3),
            (
                {"memory_total_mib": Reason.UNSUPPORTED, "memory_used_mib": 81921},
                (Reason.UNSUPPORTED, Reason.INVALID_DATA, Reason.UNSUPPORTED),
            ),
            ({"memory_used_mib": 9857}, (9856, Reason.INVALID_DATA, Reason.INVALID_DATA)),
        ],
    )
    @pytest.mark.parametrize("listed", [True, False])
    def test_a_partition_is_never_larger_than_its_card(
        self, listed: bool, changes: dict[str, object], expected: tuple[object, ...]
    ) -> None:
        partition = self.partition(pod_uid="", container="", **changes)
        alone = {"nvidia": (partition,)}
        peer = snapshot(snapshot_card())
        peer = replace(peer, partitions=alone) if listed else replace(peer, slices=alone)
        (entry,) = read(peer, given(Mode.PARTITIONED, partition_id=PARTITION))
        assert figures(entry) == (*expected, Reason.UNSUPPORTED, 51, 233, False)

    def test_a_partition_of_a_card_whose_size_is_not_known_is_believed(self) -> None:
        card = replace(snapshot_card(), figures=devices.published(memory_total=Reason.PERMISSION))
        peer = snapshot(card, slices=(self.partition(memory_total_mib=100_000),))
        (entry,) = read(peer, given(Mode.PARTITIONED, partition_id=PARTITION))
        assert figures(entry)[:2] == (100_000, 2464)

    @pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED, Mode.SLICED])
    def test_it_says_nothing_of_a_card_that_was_given_otherwise(self, mode: Mode) -> None:
        listed = self.partition(pod_uid="", container="")
        peer = replace(snapshot(snapshot_card()), partitions={"nvidia": (listed,)})
        assert read(peer, given(mode)) == read(snapshot(snapshot_card()), given(mode))

    def test_listed_on_its_card_and_among_the_slices_it_is_believed_where_both_agree(self) -> None:
        listed = self.partition(pod_uid="", container="")
        peer = replace(snapshot(snapshot_card(), slices=(self.partition(),)), partitions={"nvidia": (listed,)})
        (entry,) = read(peer, given(Mode.PARTITIONED, partition_id=PARTITION))
        assert entry.figures["memory_used"] == 2464
        other = replace(listed, memory_used_mib=1)
        (entry,) = read(
            replace(peer, partitions={"nvidia": (other,)}), given(Mode.PARTITIONED, partition_id=PARTITION)
        )
        assert entry.figures["memory_used"] is Reason.PARTITIONED

    def test_two_partitions_of_one_card_are_two_entries(self) -> None:
        other = "MIG-cccc"
        peer = snapshot(
            snapshot_card(), slices=(self.partition(), self.partition(partition_id=other, memory_used_mib=1))
        )
        found = read(
            peer,
            given(Mode.PARTITIONED, partition_id=PARTITION),
            given(Mode.PARTITIONED, partition_id=other),
        )
        assert [(entry.id, entry.figures["memory_used"]) for entry in found] == [(PARTITION, 2464), (other, 1)]

    @pytest.mark.parametrize("first", [0, 1])
    def test_one_partition_said_to_be_on_two_cards_is_listed_once_without_figures(self, first: int) -> None:
        other = "GPU-other"
        peer = snapshot(snapshot_card(), snapshot_card(other), slices=(self.partition(),))
        cards = [given(Mode.PARTITIONED, card_id, partition_id=PARTITION) for card_id in (CARD, other)]
        (entry,) = read(peer, cards[first], cards[1 - first])
        assert entry.id == PARTITION
        assert figures(entry) == (*(Reason.PARTITIONED,) * 4, *(Reason.NOT_REPORTED,) * 3)

    def test_two_records_that_differ_both_do_not_count(self) -> None:
        peer = snapshot(snapshot_card(), slices=(self.partition(), self.partition(memory_used_mib=1)))
        (entry,) = read(peer, given(Mode.PARTITIONED, partition_id=PARTITION))
        assert entry.figures["memory_used"] is Reason.PARTITIONED

    def test_an_allocation_by_the_partitions_own_uuid_finds_its_board(self) -> None:
        peer = snapshot(snapshot_card(), slices=(self.partition(),))
        (entry,) = read(peer, given(Mode.PARTITIONED, PARTITION, partition_id=PARTITION))
        assert figures(entry) == (9856, 2464, 25, Reason.UNSUPPORTED, 51, 233, False)

    def test_an_allocation_by_an_unknown_partition_has_no_board(self) -> None:
        (entry,) = read(snapshot(snapshot_card()), given(Mode.PARTITIONED, PARTITION, partition_id=PARTITION))
        assert figures(entry) == (*(Reason.PARTITIONED,) * 4, *(Reason.NOT_REPORTED,) * 3)


class TestPciAddress:
    """An address in an annotation, which a tenant may write and easily guesses, names no card."""

    def test_an_allocation_by_pci_address_matches_no_card(self) -> None:
        peer = snapshot(snapshot_card(pci_bus_id="0000:3c:00.0"), snapshot_card("GPU-other"))
        entry, own = read(peer, given(card_id="0000:3c:00.0"), given(card_id=CARD, container="b"))
        assert (entry.id, entry.name, *figures(entry)) == ("0000:3c:00.0", None, *(Reason.NOT_REPORTED,) * 7)
        assert (own.id, own.figures["memory_used"]) == (CARD, 20480)

    @pytest.mark.parametrize("address", ["0000:3c:00.0", "00000000:3C:00.0", "pci:0000:3c:00.0"])
    def test_a_card_listed_under_its_address_matches_none_either(self, address: str) -> None:
        (entry,) = read(snapshot(snapshot_card(address)), given(card_id=address))
        assert figures(entry) == (Reason.NOT_REPORTED,) * 7


def test_of_a_card_that_is_listed_twice_only_what_both_say_is_shown() -> None:
    """The same kind: one id twice in a snapshot, in either order."""
    one, other = snapshot_card(), replace(snapshot_card(), figures=devices.published(memory_used=1), unhealthy=True)
    for pair in ((one, other), (other, one)):
        (entry,) = read(snapshot(*pair), given())
        assert (entry.figures["memory_total"], entry.figures["memory_used"], entry.unhealthy) == (
            81920,
            Reason.INVALID_DATA,
            Reason.INVALID_DATA,
        )


@pytest.mark.parametrize("mode", [Mode.EXCLUSIVE, Mode.SHARED, Mode.NONE])
def test_a_card_given_whole_has_all_its_memory_whatever_the_units_say(mode: Mode) -> None:
    (entry,) = read(snapshot(snapshot_card()), given(mode, units=160_000))
    assert entry.memory_granted_mib == 81920


@pytest.mark.parametrize(
    ("units", "granted"),
    [(400_000, 20480), (19, 1), (1, 1), (1_600_000, 81920), (None, Reason.NOT_REPORTED)],
)
def test_a_slice_has_its_part_of_the_memory(units: int | None, granted: int | Reason) -> None:
    (entry,) = read(snapshot(snapshot_card()), given(Mode.SLICED, units=units))
    assert entry.memory_granted_mib == granted
    assert entry.figures["memory_total"] == 81920


@pytest.mark.parametrize(
    ("main", "second", "granted"),
    [
        ((400_000,), (400_000,), 40960),
        ((1_600_000,), (400_000,), 81920),
        ((400_000,), (None,), Reason.NOT_REPORTED),
        ((400_000, 400_000), (), 20480),
        ((400_000, 800_000), (), Reason.NOT_REPORTED),
        ((400_000, None), (), Reason.NOT_REPORTED),
    ],
    ids=[
        "two containers",
        "more than there is",
        "one unknown",
        "listed twice",
        "twice unlike",
        "twice, once unknown",
    ],
)
def test_slices_of_two_containers_are_added_and_one_that_is_listed_twice_is_not(
    main: tuple[int | None, ...], second: tuple[int | None, ...], granted: int | Reason
) -> None:
    cards = [
        *(given(Mode.SLICED, units=units) for units in main),
        *(given(Mode.SLICED, units=units, container="second") for units in second),
    ]
    for order in (cards, cards[::-1]):
        (entry,) = read(snapshot(snapshot_card()), *order)
        assert entry.memory_granted_mib == granted


def test_without_the_cards_memory_no_part_of_it_is_known() -> None:
    lost = replace(snapshot_card(), figures=devices.published(memory_total=Reason.LOST))
    (entry,) = read(snapshot(lost), given(Mode.SLICED, units=400_000))
    assert entry.memory_granted_mib is Reason.LOST


@pytest.mark.parametrize(
    ("allocated", "listed", "profile"),
    [
        ("1g.10gb", None, "1g.10gb"),
        (None, "1g.10gb", "1g.10gb"),
        ("1g.10gb", "3g.40gb", "1g.10gb"),
        (None, None, None),
    ],
)
def test_a_partition_has_the_profile_of_the_record_or_else_of_the_snapshot(
    allocated: str | None, listed: str | None, profile: str | None
) -> None:
    mine = SliceUsage("", "", CARD, 100, 7, PARTITION, 9856, profile=listed)
    peer = replace(snapshot(snapshot_card()), partitions={"nvidia": (mine,)})
    (entry,) = read(peer, given(Mode.PARTITIONED, partition_id=PARTITION, profile=allocated))
    assert (entry.profile, entry.memory_granted_mib) == (profile, 9856)


def test_a_partition_listed_in_both_ways_is_one_though_only_one_names_the_profile() -> None:
    in_slices = SliceUsage(POD, "main", CARD, 100, 7, PARTITION, 9856)
    on_card = SliceUsage("", "", CARD, 100, 7, PARTITION, 9856, profile="1g.10gb")
    peer = replace(snapshot(snapshot_card(), slices=(in_slices,)), partitions={"nvidia": (on_card,)})
    (entry,) = read(peer, given(Mode.PARTITIONED, partition_id=PARTITION))
    assert (entry.figures["memory_used"], entry.profile) == (100, "1g.10gb")


def test_why_a_board_is_unhealthy_is_said_of_every_share_of_it() -> None:
    ill = replace(snapshot_card(), unhealthy=True, unhealthy_reason="double-bit ECC error")
    mine = SliceUsage("", "", CARD, 100, 7, PARTITION, 9856)
    peer = replace(snapshot(ill), partitions={"nvidia": (mine,)})
    for card in (given(), given(Mode.SLICED), given(Mode.PARTITIONED, partition_id=PARTITION)):
        (entry,) = read(peer, card)
        assert (entry.unhealthy, entry.unhealthy_reason) == (True, "double-bit ECC error")


def test_the_card_of_a_partition_is_looked_for_once_however_often_it_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of records of one partition, given a thousand times, would take a second of the event loop."""
    looked_for: list[str] = []
    find = View.canonical_id

    def counted(view: View, card_id: str, partition_id: str | None) -> str:
        looked_for.append(card_id)
        return find(view, card_id, partition_id)

    monkeypatch.setattr(View, "canonical_id", counted)
    cards = (given(Mode.PARTITIONED, PARTITION, partition_id=PARTITION, container=f"c{n}") for n in range(100))
    (entry,) = read(snapshot(snapshot_card()), *cards)
    assert entry.id == PARTITION
    assert looked_for == [PARTITION]
