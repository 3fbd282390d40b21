"""The merge over clusters of look-alikes: nothing invented, nothing lost, nobody else's figures.

Every figure of a cluster is a number of its own, so that a figure in an answer tells where it came from.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.allocation import AllocatedCard, Allocation, Mode
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

NOW = datetime(2026, 1, 1, 10, 0, tzinfo=UTC)
OWN_POD, OTHER_POD, EARLIER_POD = "u-1", "u-11", "u-0"

manufacturers = st.sampled_from(["nvidia", "nvidia-2", "amd"])
card_ids = st.sampled_from(["GPU-1", "GPU-11", "GPU-1 ", "gpu-1", "index:0", "pci:0000:01:00.0"])
partition_ids = st.sampled_from(["MIG-1", "MIG-11"])
containers = st.sampled_from(["main", "main-2", "sshd"])
pod_uids = st.sampled_from([OWN_POD, OTHER_POD, EARLIER_POD])
ages = st.none() | st.sampled_from([0.0, 45.0, 46.0])


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
            return None if is_stale(outcome.age_s, outcome.snapshot.period_s) else outcome.snapshot
        return None


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Clusters with look-alike names, ids shared by manufacturers, recreated pods and every mode."""
    numbers = itertools.count(1)
    allocated = draw(
        st.lists(
            st.builds(
                AllocatedCard,
                manufacturer=manufacturers,
                id=card_ids,
                index=st.none() | st.integers(0, 3),
                mode=st.sampled_from(list(Mode)),
                container=containers,
                partition_id=st.none() | partition_ids,
            ),
            max_size=5,
        )
    )
    outcomes: dict[str, SnapshotOutcome] = {}
    for manufacturer in draw(st.lists(manufacturers, unique=True)):
        if draw(st.booleans()):
            outcomes[manufacturer] = SnapshotReading(draw(snapshots(numbers)), draw(ages))
        else:
            outcomes[manufacturer] = SourceFailure(draw(st.sampled_from(list(SourceState)[1:])), "why")
    return Cluster(
        Allocation(tuple(allocated), draw(st.none() | st.just("half of it is unreadable"))),
        draw(pod_outcomes(numbers)),
        draw(st.none() | pod_outcomes(numbers)),
        outcomes,
    )


@st.composite
def pod_outcomes(draw: st.DrawFn, numbers: Iterator[int]) -> PodOutcome:
    if draw(st.booleans()):
        return SourceFailure(draw(st.sampled_from(list(SourceState)[1:])))
    cpu, memory, rootfs, ephemeral = (next(numbers) << 20 for _ in range(4))
    measured_at = NOW - timedelta(seconds=next(numbers))
    usage = PodUsage(cpu, memory, rootfs, ephemeral, measured_at=measured_at)
    return PodReading(usage, draw(ages))


@st.composite
def snapshots(draw: st.DrawFn, numbers: Iterator[int]) -> PeerSnapshot:
    """A snapshot of one device manager, which may carry other manufacturers' groups too."""
    cards: dict[str, tuple[SnapshotCard, ...]] = {}
    slices: dict[str, tuple[SliceUsage, ...]] = {}
    devices: dict[str, tuple[SliceDevice, ...]] = {}
    for manufacturer in ("nvidia", "nvidia-2", "amd"):
        ids = draw(st.lists(card_ids, unique=True, max_size=4))
        cards[manufacturer] = tuple(_card(card_id, index, numbers) for index, card_id in enumerate(ids))
        keys = st.tuples(pod_uids, containers, card_ids, st.none() | partition_ids)
        slices[manufacturer] = tuple(
            SliceUsage(
                pod_uid, container, card_id, next(numbers), next(numbers), partition_id, 10**9 + next(numbers)
            )
            for pod_uid, container, card_id, partition_id in draw(st.lists(keys, unique=True, max_size=6))
        )
        devices[manufacturer] = tuple(
            SliceDevice(card_id) for card_id in draw(st.lists(card_ids, unique=True, max_size=2))
        )
    return PeerSnapshot(
        timestamp=draw(st.none() | st.just(NOW - timedelta(seconds=next(numbers)))),
        period_s=15,
        node_name=None,
        state=draw(st.sampled_from(list(CollectorState))),
        detail=None,
        cards=cards,
        slices=draw(st.none() | st.just(slices)),
        slice_devices=devices,
    )


def _card(card_id: str, index: int, numbers: Iterator[int]) -> SnapshotCard:
    total, (used, share, cores, temperature, power) = 10**9 + next(numbers), (next(numbers) for _ in range(5))
    return SnapshotCard(card_id, index, "card", total, used, share, cores, temperature, power, unhealthy=True)


def key_of(card: AllocatedCard) -> tuple[str, str]:
    """The manufacturer and id under which an allocated card is answered for."""
    partition = card.partition_id if card.mode is Mode.PARTITIONED else None
    return card.manufacturer, partition or card.id


@given(clusters())
def test_no_card_is_invented_and_none_of_a_fresh_snapshot_is_lost(cluster: Cluster) -> None:
    found = {(entry.manufacturer, entry.id) for entry in cluster.read().accelerators}
    held = [card for card in cluster.allocation.cards if card.mode is not Mode.VISIBILITY]
    assert found == {key_of(card) for card in held if cluster.fresh(card.manufacturer) is not None}


@given(clusters())
def test_nobody_elses_figure_appears(cluster: Cluster) -> None:
    for entry in cluster.read().accelerators:
        snapshot = cluster.fresh(entry.manufacturer)
        assert snapshot is not None
        own = [card for card in cluster.allocation.measured if key_of(card) == (entry.manufacturer, entry.id)]
        allowed = {
            figure for card in own for figure in _figures_of(card, own, snapshot, modes={card.mode for card in own})
        }
        for figure in (entry.memory_usage_mib, entry.cores_utilization_percent):
            assert isinstance(figure, Reason) or figure in allowed
        board = {
            card.temperature_celsius
            for card in snapshot.cards[entry.manufacturer]
            if card.id in {c.id for c in own}
        }
        assert isinstance(entry.temperature_celsius, Reason) or entry.temperature_celsius in board


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
        return {record.memory_used_mib for record in mine} | {record.cores_percent for record in mine}
    if Mode.SLICED in modes:
        mine = [record for record in records if record.partition_id is None]
        counts = range(len(mine) + 1)
        picks = [pick for count in counts for pick in itertools.combinations(mine, count)]
        return {sum(_number(record.memory_used_mib) for record in pick) for pick in picks} | {
            sum(_number(record.cores_percent) for record in pick) for pick in picks
        }
    whole = [entry for entry in snapshot.cards[card.manufacturer] if entry.id == card.id]
    return {entry.memory_usage_mib for entry in whole} | {entry.cores_utilization_percent for entry in whole}


def _number(figure: object) -> int:
    assert isinstance(figure, int)
    return figure


@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_the_inputs_does_not_matter(cluster: Cluster, random: Random) -> None:
    assert _shuffled(cluster, random).read() == cluster.read()


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
    assert after.accelerators == _without(before, manufacturer)
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
