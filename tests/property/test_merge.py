"""The merge over clusters of look-alikes: nothing invented, nothing lost, nobody else's figures.

Every figure of a cluster is a number of its own, so that a figure in an answer tells where it came from.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.allocation import UNITS_PER_CARD, AllocatedCard, Allocation, Mode
from devicemanager.model.figures import Figures
from devicemanager.model.usage import (
    AcceleratorUsage,
    PeerSnapshot,
    PodReading,
    PodUsage,
    SliceDevice,
    SliceUsage,
    SnapshotCard,
    SnapshotReading,
    SourceFailure,
    SourceState,
    UsageSample,
)
from devicemanager.rules.freshness import is_stale
from devicemanager.rules.merge import PodOutcome, SnapshotOutcome, merge
from tests import devices

NOW = datetime(2026, 1, 1, 10, 0, tzinfo=UTC)
OWN_POD, OTHER_POD, EARLIER_POD = "u-1", "u-11", "u-0"

MANUFACTURERS = ("nvidia", "nvidia-2")
CARD_IDS = ("GPU-1", "GPU-11", "index:0")
MADE_UP = {"index:0"}
"""Ids for cards that were never read, which match no allocation."""
PARTITION_IDS = ("MIG-1", "MIG-11")
CONTAINERS = ("main", "main-2")

CARVED = (Mode.SLICED, Mode.PARTITIONED)
"""The modes with the most to get wrong are tried most."""

manufacturers = st.sampled_from(MANUFACTURERS)
card_ids = st.sampled_from(CARD_IDS)
partition_ids = st.sampled_from((None, *PARTITION_IDS))
ages = st.sampled_from([0.0, 45.0])
waits = st.sampled_from([0.0, 0.0, 3.0])
profiles = st.none() | st.sampled_from(["1g.10gb", "3g.40gb"])
failures = st.builds(SourceFailure, st.sampled_from(list(SourceState)[1:]), st.just("why"))
allocated_cards = st.builds(
    AllocatedCard,
    manufacturer=manufacturers,
    id=card_ids,
    index=st.none() | st.integers(0, 2),
    mode=st.sampled_from([*Mode, *CARVED, *CARVED]),
    container=st.sampled_from(CONTAINERS),
    partition_id=partition_ids,
    profile=profiles,
    units=st.none() | st.sampled_from([1, UNITS_PER_CARD // 4, UNITS_PER_CARD]),
)


@dataclass(frozen=True)
class Cluster:
    """What one read may find."""

    allocation: Allocation
    kubelet: PodOutcome
    metrics_server: PodOutcome | None
    device_managers: Mapping[str, SnapshotOutcome]

    def read(self) -> UsageSample:
        return merge(
            now=NOW,
            pod_uid=OWN_POD,
            allocation=self.allocation,
            kubelet=self.kubelet,
            metrics_server=self.metrics_server,
            device_managers=self.device_managers,
        )

    def fresh(self, manufacturer: str) -> PeerSnapshot | None:
        """The snapshot that may answer for a manufacturer's cards."""
        outcome = self.device_managers.get(manufacturer)
        if isinstance(outcome, SnapshotReading) and outcome.snapshot.timestamp is not None:
            asked_s = None if outcome.age_s is None else outcome.age_s - outcome.waited_s
            return None if is_stale(asked_s, outcome.snapshot.period_s) else outcome.snapshot
        return None


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Clusters with look-alike names, ids shared by manufacturers, recreated pods and every mode."""
    numbers = itertools.count(1)
    allocated = draw(st.lists(allocated_cards, min_size=1, max_size=4))
    outcomes: dict[str, SnapshotOutcome] = {}
    for manufacturer in MANUFACTURERS:
        match draw(st.sampled_from(["fresh"] * 4 + ["stale", "zero", "failed", "not asked"])):
            case "fresh":
                waited_s = draw(waits)
                snapshot = draw(snapshots(numbers, allocated))
                outcomes[manufacturer] = SnapshotReading(snapshot, draw(ages) + waited_s, waited_s)
            case "stale":
                age, waited_s = draw(st.sampled_from([None, 45.1])), draw(waits)
                snapshot = draw(snapshots(numbers, allocated))
                outcomes[manufacturer] = SnapshotReading(
                    snapshot, None if age is None else age + waited_s, waited_s
                )
            case "zero":
                snapshot = replace(draw(snapshots(numbers, allocated)), timestamp=None)
                outcomes[manufacturer] = SnapshotReading(snapshot, 0.0)
            case "failed":
                outcomes[manufacturer] = draw(failures)
            case _:
                pass
    return Cluster(
        Allocation(tuple(allocated), draw(st.none() | st.just("half of it is unreadable"))),
        draw(pod_outcomes(numbers)),
        draw(st.none() | pod_outcomes(numbers)),
        outcomes,
    )


@st.composite
def pod_outcomes(draw: st.DrawFn, numbers: Iterator[int]) -> PodOutcome:
    """A kubelet's or metrics.k8s.io's answer."""
    if draw(st.booleans()):
        return draw(failures)
    cpu, memory, rootfs, ephemeral = (next(numbers) << 20 for _ in range(4))
    measured_at = NOW - timedelta(seconds=next(numbers))
    return PodReading(PodUsage(cpu, memory, rootfs, ephemeral, measured_at=measured_at), draw(ages))


@st.composite
def snapshots(draw: st.DrawFn, numbers: Iterator[int], allocated: Sequence[AllocatedCard]) -> PeerSnapshot:
    """What one device manager knows: some of the cards, and all manufacturers' though it should know one's only."""
    cards: dict[str, tuple[SnapshotCard, ...]] = {}
    slices: dict[str, tuple[SliceUsage, ...]] = {}
    devices: dict[str, tuple[SliceDevice, ...]] = {}
    for manufacturer in MANUFACTURERS:
        ids = [card_id for card_id in CARD_IDS if draw(st.sampled_from([True, True, False]))]
        cards[manufacturer] = tuple(_card(card_id, index, numbers) for index, card_id in enumerate(ids))
        keys = draw(st.lists(record_keys(allocated), unique=True, max_size=4))
        slices[manufacturer] = tuple(_record(key, numbers) for key in keys)
        devices[manufacturer] = tuple(SliceDevice(card_id) for card_id in CARD_IDS if draw(st.booleans()))
    return PeerSnapshot(
        timestamp=NOW - timedelta(seconds=next(numbers)),
        period_s=15,
        node_name=None,
        state=draw(st.sampled_from(list(CollectorState))),
        detail=None,
        cards=cards,
        slices=draw(st.sampled_from([slices, slices, None])),
        slice_devices=devices,
    )


@st.composite
def record_keys(draw: st.DrawFn, allocated: Sequence[AllocatedCard]) -> tuple[str, str, str, str | None]:
    """The key of one of the pod's own shares, or one that differs from it in one thing."""
    card = draw(st.sampled_from(allocated))
    partition_id = card.partition_id if card.mode is Mode.PARTITIONED else None
    match draw(st.sampled_from(["own", "own", "pod", "container", "card", "partition"])):
        case "pod":
            return draw(st.sampled_from([OTHER_POD, EARLIER_POD])), card.container, card.id, partition_id
        case "container":
            return OWN_POD, draw(st.sampled_from(["sshd", *CONTAINERS])), card.id, partition_id
        case "card":
            return OWN_POD, card.container, draw(card_ids), partition_id
        case "partition":
            return OWN_POD, card.container, card.id, draw(partition_ids)
        case _:
            return OWN_POD, card.container, card.id, partition_id


def _record(key: tuple[str, str, str, str | None], numbers: Iterator[int]) -> SliceUsage:
    pod_uid, container, card_id, partition_id = key
    used, cores, total = next(numbers), next(numbers), 10**9 + next(numbers)
    return SliceUsage(pod_uid, container, card_id, used, cores, partition_id, total)


def _card(card_id: str, index: int, numbers: Iterator[int]) -> SnapshotCard:
    total, (used, share, cores, temperature, power) = 10**9 + next(numbers), (next(numbers) for _ in range(5))
    figures = devices.published(
        memory_total=total,
        memory_used=used,
        memory_utilization=share,
        compute_utilization=cores,
        temperature=temperature,
        power_usage=power,
    )
    return SnapshotCard(card_id, index, "card", figures, unhealthy=True, unhealthy_reason=f"fault of {card_id}")


def key_of(card: AllocatedCard) -> tuple[str, str]:
    """The manufacturer and id under which an allocated card is answered for."""
    partition = card.partition_id if card.mode is Mode.PARTITIONED else None
    return card.manufacturer, partition or card.id


@given(clusters())
def test_no_card_is_invented_and_none_is_lost_whatever_its_device_manager_says(cluster: Cluster) -> None:
    found = {(entry.manufacturer, entry.id) for entry in cluster.read().accelerators}
    held = [card for card in cluster.allocation.cards if card.mode is not Mode.VISIBILITY]
    assert found == {key_of(card) for card in held}


@given(clusters())
def test_without_a_fresh_snapshot_every_figure_of_a_card_is_absent_for_one_reason(cluster: Cluster) -> None:
    for entry in cluster.read().accelerators:
        if cluster.fresh(entry.manufacturer) is None:
            reasons = {*entry.figures.values, entry.unhealthy, entry.memory_granted_mib}
            assert len(reasons) == 1
            assert isinstance(reasons.pop(), Reason)
            assert entry.unhealthy_reason is None


@given(clusters())
def test_what_was_given_of_a_cards_memory_is_never_more_than_there_is(cluster: Cluster) -> None:
    for entry in cluster.read().accelerators:
        total, granted = entry.figures["memory_total"], entry.memory_granted_mib
        if isinstance(total, Reason) or isinstance(granted, Reason):
            assert granted == total or entry.mode == Mode.SLICED.label
        else:
            assert isinstance(total, int)
            assert 1 <= granted <= total
            assert granted == total or entry.mode == Mode.SLICED.label


@given(clusters())
def test_profiles_are_those_of_partitions_that_were_given(cluster: Cluster) -> None:
    for entry in cluster.read().accelerators:
        own = [card for card in cluster.allocation.measured if key_of(card) == (entry.manufacturer, entry.id)]
        assert entry.profile is None or entry.profile in {card.profile for card in own}


@given(clusters())
def test_no_other_pods_figure_appears(cluster: Cluster) -> None:
    for entry in cluster.read().accelerators:
        snapshot = cluster.fresh(entry.manufacturer)
        if snapshot is None:
            assert not entry.figures.measured
            continue
        own = [card for card in cluster.allocation.measured if key_of(card) == (entry.manufacturer, entry.id)]
        allowed = {
            figure for card in own for figure in _figures_of(card, own, snapshot, modes={card.mode for card in own})
        }
        for figure in (entry.figures["memory_used"], entry.figures["compute_utilization"]):
            assert isinstance(figure, Reason) or figure in allowed
        # An id that a snapshot made up for a card it never read stands for no card of the allocation.
        board = {
            card.figures["temperature"]
            for card in snapshot.cards[entry.manufacturer]
            if card.id in {held.id for held in own} - MADE_UP
        }
        assert isinstance(entry.figures["temperature"], Reason) or entry.figures["temperature"] in board
        assert entry.unhealthy_reason in {None, *(f"fault of {held.id}" for held in own if held.id not in MADE_UP)}


def _figures_of(
    card: AllocatedCard, own: list[AllocatedCard], snapshot: PeerSnapshot, modes: set[Mode]
) -> set[object]:
    """Every memory and compute figure that may stand for this card."""
    names = {held.container for held in own}
    records = [
        record
        for record in (snapshot.slices or {}).get(card.manufacturer, ())
        if record.pod_uid == OWN_POD and record.card_id == card.id and record.container in names
    ]
    if Mode.PARTITIONED in modes:
        mine = [record for record in records if record.partition_id == card.partition_id]
        return {record.memory_used_mib for record in mine} | {record.utilization_percent for record in mine}
    if Mode.SLICED in modes:
        mine = [record for record in records if record.partition_id is None]
        counts = range(len(mine) + 1)
        picks = [pick for count in counts for pick in itertools.combinations(mine, count)]
        return {sum(_number(record.memory_used_mib) for record in pick) for pick in picks} | {
            sum(_number(record.utilization_percent) for record in pick) for pick in picks
        }
    whole = [entry for entry in snapshot.cards[card.manufacturer] if entry.id == card.id and card.id not in MADE_UP]
    return {entry.figures["memory_used"] for entry in whole} | {
        entry.figures["compute_utilization"] for entry in whole
    }


def _number(figure: object) -> int:
    assert isinstance(figure, int)
    return figure


@given(clusters())
def test_what_others_hold_changes_nothing(cluster: Cluster) -> None:
    """Beside each card of the pod: another pod's share of it, another container's, another card's, another card."""
    numbers = itertools.count(10**6)
    outcomes = {
        manufacturer: replace(outcome, snapshot=_crowded(outcome.snapshot, cluster.allocation, numbers))
        if isinstance(outcome, SnapshotReading)
        else outcome
        for manufacturer, outcome in cluster.device_managers.items()
    }
    assert replace(cluster, device_managers=outcomes).read() == cluster.read()


def _crowded(snapshot: PeerSnapshot, allocation: Allocation, numbers: Iterator[int]) -> PeerSnapshot:
    foreign = [
        _record((pod_uid, container, card_id, partition_id), numbers)
        for card in allocation.measured
        for partition_id in (None, card.partition_id)
        for pod_uid, container, card_id in (
            (OTHER_POD, card.container, card.id),
            (EARLIER_POD, card.container, card.id),
            (OWN_POD, "sshd", card.id),
            (OWN_POD, card.container, "GPU-111"),
        )
    ]
    return replace(
        snapshot,
        cards={name: (*cards, _card("GPU-111", 9, numbers)) for name, cards in snapshot.cards.items()},
        slices=None
        if snapshot.slices is None
        else {name: (*records, *foreign) for name, records in snapshot.slices.items()},
    )


@settings(max_examples=300)
@given(clusters(), st.integers(0, 99))
def test_the_order_of_the_inputs_does_not_matter(cluster: Cluster, seed: int) -> None:
    assert _shuffled(cluster, Random(seed)).read() == cluster.read()


def _shuffled(cluster: Cluster, random: Random) -> Cluster:
    def shuffle(snapshot: PeerSnapshot) -> PeerSnapshot:
        return replace(
            snapshot,
            cards={name: tuple(random.sample(cards, len(cards))) for name, cards in snapshot.cards.items()},
            slices=None
            if snapshot.slices is None
            else {name: tuple(random.sample(found, len(found))) for name, found in snapshot.slices.items()},
        )

    outcomes = [
        (
            name,
            replace(outcome, snapshot=shuffle(outcome.snapshot))
            if isinstance(outcome, SnapshotReading)
            else outcome,
        )
        for name, outcome in cluster.device_managers.items()
    ]
    cards = cluster.allocation.cards
    return replace(
        cluster,
        allocation=replace(cluster.allocation, cards=tuple(random.sample(cards, len(cards)))),
        device_managers=dict(random.sample(outcomes, len(outcomes))),
    )


@given(clusters(), manufacturers)
def test_a_failing_device_manager_changes_nothing_but_its_own_cards(cluster: Cluster, manufacturer: str) -> None:
    failure = SourceFailure(SourceState.TIMEOUT, "no answer in 3 s")
    before = cluster.read()
    after = replace(cluster, device_managers={**cluster.device_managers, manufacturer: failure}).read()
    assert _pod_figures(after) == _pod_figures(before)
    assert _without(after, manufacturer) == _without(before, manufacturer)
    for entry in after.accelerators:
        assert entry.manufacturer != manufacturer or entry.figures == Figures(Reason.TIMEOUT)
    assert [(e.manufacturer, e.id) for e in after.accelerators] == [
        (e.manufacturer, e.id) for e in before.accelerators
    ]
    name = f"device-manager/{manufacturer}"
    assert [s for s in after.sources if s.name != name] == [s for s in before.sources if s.name != name]
    assert [s.state for s in after.sources if s.name == name] == [
        SourceState.TIMEOUT for s in before.sources if s.name == name
    ]


@given(clusters())
def test_a_failing_kubelet_changes_no_card(cluster: Cluster) -> None:
    failed = replace(cluster, kubelet=SourceFailure(SourceState.UNREACHABLE)).read()
    assert failed.accelerators == cluster.read().accelerators
    assert failed.sources[1:] == cluster.read().sources[1:]


@given(clusters())
def test_reading_twice_gives_the_same_and_every_source_is_named_once(cluster: Cluster) -> None:
    sample = cluster.read()
    assert sample == cluster.read()
    names = [source.name for source in sample.sources]
    assert len(names) == len(set(names))
    expected = {f"device-manager/{card.manufacturer}" for card in cluster.allocation.measured}
    assert {name for name in names if name.startswith("device-manager/")} == expected
    assert sample.timestamp <= NOW
    keys = [(entry.manufacturer, entry.id) for entry in sample.accelerators]
    assert len(keys) == len(set(keys))


def _pod_figures(sample: UsageSample) -> tuple[object, ...]:
    return (
        sample.cpu_usage_nanocores,
        sample.memory_working_set_mib,
        sample.rootfs_used_mib,
        sample.ephemeral_storage_used_mib,
    )


def _without(sample: UsageSample, manufacturer: str) -> tuple[AcceleratorUsage, ...]:
    return tuple(entry for entry in sample.accelerators if entry.manufacturer != manufacturer)
