"""Turns finished ticks and failed processes into a sample, a state and a delay. Starts and awaits nothing.

A tick that succeeded (``rules.sample``) is a sample. Otherwise the held sample ages, and the state says why.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason, RestartReason, Sample, Versions
from devicemanager.node.health_log import HealthLog
from devicemanager.node.quarantine import Quarantine
from devicemanager.node.sample_duration import SampleDuration
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.node.status import StatusTracker
from devicemanager.node.tick import (
    LOST,
    NOT_READ,
    Tick,
    Unreached,
    anonymous,
    assemble,
    partitions_of,
    remember,
    with_partitions,
)
from devicemanager.rules import backoff
from devicemanager.rules import sample as sample_rules
from devicemanager.rules.freshness import STALE_AFTER_PERIODS
from devicemanager.rules.identity import NO_ORDER
from devicemanager.wire.collector_lines import Read


@dataclass(frozen=True, slots=True)
class RunFailure:
    """Why the common sample must wait before it is tried again.

    Attributes:
        state: What the collector's state is then.
        detail: One line for a person.
        killed: Whether somebody else ended the process.
    """

    state: CollectorState
    detail: str
    killed: bool = False

    @property
    def restart(self) -> RestartReason:
        """Why the next process is started."""
        if self.killed:
            return RestartReason.KILLED
        return _RESTARTS.get(self.state, RestartReason.UNUSABLE)


_RESTARTS: Final = {
    CollectorState.UNRESPONSIVE: RestartReason.UNRESPONSIVE,
    CollectorState.CRASHED: RestartReason.CRASHED,
    CollectorState.FAILED: RestartReason.FAILED,
}


class SnapshotPublisher:
    """Publishes the results of one manufacturer's ticks to one store."""

    def __init__(
        self, period_s: float, store: SnapshotStore, quarantine: Quarantine, clock: Clock, log: FilteringBoundLogger
    ) -> None:
        """Publish nothing yet."""
        self._period_s = period_s
        self._quarantine = quarantine
        self._clock = clock
        self._log = log
        self._tracker = StatusTracker(store, clock, log)
        self._health = HealthLog(clock, log)
        self._duration = SampleDuration(period_s, clock, log)
        self._known: tuple[Card, ...] = ()
        self._partitions: Mapping[str, tuple[Card, ...]] = {}
        self._count: int | None = None
        self._order: Mapping[int, str] = NO_ORDER
        self._failures = 0
        self._readable_since_s: float | None = None
        self._published_s = clock.monotonic()
        self._none_since_s: float | None = None

    def opened(self, versions: Versions) -> None:
        """Record with what the cards are read from now on."""
        self._tracker.versions = versions

    def restarted(self, why: RestartReason) -> None:
        """Record that a process for the common sample took the place of another."""
        self._tracker.restarts[why] += 1

    def wants_addresses(self, tick: Tick | None, count: int | None = None) -> bool:
        """Whether a card of this tick is not identified, so that the addresses on the bus are needed."""
        if tick is None or not tick.readings:
            return False
        return anonymous(tick.readings, self._quarantined(), count)

    def read(self, tick: Tick, line: Read) -> None:
        """A device was read within a tick."""
        tick.add(line)
        card = line.reading.card
        moved = card.parent is None and card.id is not None and self._order.get(card.index, card.id) != card.id
        if moved and not tick.renumbered:  # once a tick: later failures are at the new index
            tick.renumbered = True
            self._quarantine.renumbered()

    def complete(self, tick: Tick, count: int, addresses: Sequence[str], taken: Sequence[str] = ()) -> None:
        """A tick has come to its end.

        Args:
            tick: What it read.
            count: How many cards the library counts.
            addresses: Where the bus has cards of this vendor; empty if they were not wanted.
            taken: Where it has cards that the library must count; empty where that is not known.
        """
        if self._count not in (None, count):  # an index may mean another card now
            self._quarantine.renumbered(before_s=tick.started_monotonic_s)
            self._order = NO_ORDER
        self._count = count
        if sample_rules.succeeded(tick.devices):
            self._failures = self._tracker.consecutive_failures = 0
            self._none_since_s = None
            self._publish(tick, CollectorState.OK, None, count, addresses, LOST, taken)
            for device in self._quarantine.answered(reading.card for reading in tick.devices):
                self._log.info("device_recovered", **device.log_keys)
        else:
            self._readable_since_s = None
            self._tracker.consecutive_failures += 1
            self._tracker.update(*self._none_answered(tick, count))

    def fail(self, failure: RunFailure, unfinished: Tick | None, addresses: Sequence[str]) -> None:
        """A process has failed. What it had read of an unfinished tick may be a sample, too."""
        self._failures += 1
        tick = unfinished
        if unfinished is not None and not sample_rules.succeeded(unfinished.devices):
            unfinished = None
        if failure.state is CollectorState.NO_DEVICES and unfinished is None:
            self._no_devices(failure.detail, tick)
            return
        self._none_since_s = None
        self._tracker.consecutive_failures += 1
        if unfinished is not None:
            overdue = failure.state is CollectorState.UNRESPONSIVE
            reason = Reason.TIMEOUT if overdue else Reason.TRANSIENT_DRIVER_ERROR
            # Not with its detail, which may be about other cards: the user of this one is shown the fault.
            fault = f"the collector failed before it came to this card: {failure.state}"
            self._publish(unfinished, failure.state, failure.detail, None, addresses, Unreached(reason, fault))
            return
        if self._failures > 1:
            self._readable_since_s = None
        self._tracker.update(failure.state, failure.detail)

    def overdue_in_s(self) -> float:
        """Seconds until no sample has come for so long that the last one is stale; a period once that is so."""
        left_s = self._published_s + STALE_AFTER_PERIODS * self._period_s - self._clock.monotonic()
        return left_s if left_s > 0 else self._period_s

    def overdue(self, tick: Tick | None) -> None:
        """Have the state say that no sample has come for long, if that is so and nothing else is known to be wrong.

        Args:
            tick: The one that is under way; None if the library has not begun it. One whose devices all answer is
                none that is overdue: then the period is too short.
        """
        since_s = self._clock.monotonic() - self._published_s
        answering = tick is not None and not tick.timeouts
        if self._tracker.status.state is not CollectorState.OK or answering:
            return
        if since_s < STALE_AFTER_PERIODS * self._period_s:
            return
        why = "the collector has not begun the next one"
        if tick is not None:
            why = f"the next waited {tick.unanswered_s:.3g} s for devices that do not answer ({tick.timeouts})"
        self._tracker.update(CollectorState.UNRESPONSIVE, f"no sample for {since_s:.3g} s: {why}")

    def delay_s(self) -> float:
        """Seconds to wait after a failure: by the back-off, and where cards can be read, until the next tick."""
        # That there is no card is a sample too; taken less often, it would be stale most of the time.
        readable = self._none_since_s is not None or self._readable_since_s is not None
        delay_s = backoff.delay_s(self._failures, self._period_s, readable=readable)
        if self._readable_since_s is None:
            return delay_s
        return max(delay_s, min(self.until_next_s(), backoff.LONGEST_S))

    def until_next_s(self) -> float:
        """Seconds until the next tick is due; a period where the last one gave no sample."""
        now_s = self._clock.monotonic()
        since_s = now_s if self._readable_since_s is None else self._readable_since_s
        return max(0.0, since_s + self._period_s - now_s)

    def _publish(
        self,
        tick: Tick,
        state: CollectorState,
        detail: str | None,
        count: int | None,
        addresses: Sequence[str],
        unreached: Unreached,
        taken: Sequence[str] = (),
    ) -> None:
        self._readable_since_s = tick.started_monotonic_s
        self._published_s = self._clock.monotonic()
        duration_s = self._published_s - tick.started_monotonic_s
        detail = detail or self._duration.detail(duration_s - tick.unanswered_s - tick.noticed_late_s)
        listing = assemble(
            tick.readings,
            self._quarantined(),
            count=count,
            known=self._known,
            bus_addresses=addresses,
            order=self._order,
            unreached=unreached,
            taken=taken,
        )
        readings = with_partitions(
            listing.readings,
            tick,
            (reading for reading in self._quarantine.readings if reading.card.parent is not None),
            self._partitions,
            NOT_READ if count is not None else unreached,
        )
        self._partitions = partitions_of(readings)
        self._known = remember(readings)
        self._order = listing.order if count is not None else _merged_order(self._order, listing.order)
        sample = Sample(tick.started_at, tick.started_monotonic_s, duration_s, readings)
        self._tracker.update(state, detail, sample)
        self._health.update(readings)
        self._log.debug("sample_published", cards=len(readings), answered=len(tick.readings), duration_s=duration_s)

    def _quarantined(self) -> tuple[Reading, ...]:
        """How cards in quarantine are listed."""
        return tuple(reading for reading in self._quarantine.readings if reading.card.parent is None)

    def _none_answered(self, tick: Tick, count: int) -> tuple[CollectorState, str]:
        if tick.readings:
            others = [reading for reading in self._quarantined() if reading.card.index not in tick.readings]
            state, why = sample_rules.why_not((*tick.readings.values(), *others))
            return state, f"none of {count} cards gives a figure: {why}"
        skipped = [device for device in self._quarantine.skipped if device.card.parent is None]
        timeouts = sum(device.reason is Reason.TIMEOUT for device in skipped)
        state = CollectorState.UNRESPONSIVE if timeouts else CollectorState.CRASHED
        how = f"{timeouts} did not answer in time" if timeouts else "the collector crashed on each"
        return state, f"none of {count} cards can be read: {how}"

    def _no_devices(self, detail: str, tick: Tick | None) -> None:
        """No card is counted. If there were some before, believe it only after a while: drivers restart."""
        now_s = self._clock.monotonic()
        if self._none_since_s is None:
            self._none_since_s = now_s
        if self._known and now_s - self._none_since_s < STALE_AFTER_PERIODS * self._period_s:
            self._tracker.consecutive_failures += 1
            had = f"{detail}, though there were {self._count or len(self._known)}"
            doubt = f"{had}; believed after {STALE_AFTER_PERIODS} periods"
            self._tracker.update(self._tracker.status.state, doubt)
            return
        self._known, self._count, self._order, self._readable_since_s = (), None, NO_ORDER, None
        self._partitions = {}
        self._quarantine.clear()
        self._tracker.consecutive_failures = 0
        began_s, began_at = (
            (now_s, self._clock.now()) if tick is None else (tick.started_monotonic_s, tick.started_at)
        )
        self._health.update(())
        self._tracker.update(CollectorState.NO_DEVICES, detail, Sample(began_at, began_s, now_s - began_s, ()))


def _merged_order(order: Mapping[int, str], seen: Mapping[int, str]) -> Mapping[int, str]:
    """The order after a tick that did not read all cards."""
    ids = set(seen.values())
    return {index: card_id for index, card_id in order.items() if card_id not in ids} | dict(seen)
