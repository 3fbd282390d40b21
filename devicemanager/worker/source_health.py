"""What is known of the health of peers: logged when it changes, and counted for the worker's own metrics.

Labels of metrics are kinds of source and states, both closed sets: nodes and manufacturers are in the log alone,
whose lines are limited, because a pod's annotation may name any manufacturer.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.model.usage import SourceFailure
from devicemanager.serving.line_allowance import LineAllowance

REMEMBERED_FAULTS: Final = 16_384
"""Peers known to be at fault; past that the one longest unchanged is forgotten, and may be logged twice."""

LINES_AT_ONCE: Final = 256
"""About one kind of source, and one in ten seconds after that: a few hundred nodes may fail together."""

LINE_EVERY_S: Final = 10.0

_log: FilteringBoundLogger = structlog.get_logger()


class SourceHealth:
    """How the peers of each kind of source answered.

    Args:
        clock: Limits the lines in the log.

    Attributes:
        up: Kind -> whether the newest answer of any of its peers was good.
        failures: Kind and state -> answers that were not good, since the start.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._allowances: dict[tuple[str, bool], LineAllowance] = {}
        self._left_out: Counter[tuple[str, bool]] = Counter()
        self._states: OrderedDict[tuple[str, str | None], str] = OrderedDict()
        self._backed_off: OrderedDict[tuple[str, str | None], float] = OrderedDict()
        self._kinds_backed_off: set[str] = set()
        self.up: dict[str, bool] = {}
        self.failures: Counter[tuple[str, str]] = Counter()

    def note(self, source: str, node: str | None, fault: SourceFailure | None) -> None:
        """Record how one peer answered.

        Args:
            source: Its name, as ``sources`` of a sample has it.
            node: Where the peer is; None for one that serves the whole cluster.
            fault: None for none.
        """
        peer, kind = (source, node), _kind(source)
        self.up[kind] = fault is None
        where = {} if node is None else {"node": node}
        if peer in self._backed_off:
            self._backed_off[peer] = 0.0  # it was asked
        if fault is None:
            if (
                self._backed_off.pop(peer, None) is not None
                and (more := self._line(source, backoff=True)) is not None
            ):
                _log.info("source_backoff_ended", source=source, **where, **more)
            if self._states.pop(peer, None) is not None and (more := self._line(source)) is not None:
                _log.info("source_recovered", source=source, **where, **more)
            return
        self.failures[kind, str(fault.state)] += 1
        if self._states.get(peer) != fault.state:
            self._states[peer] = str(fault.state)
            self._states.move_to_end(peer)
            if len(self._states) > REMEMBERED_FAULTS:
                self._states.popitem(last=False)
            if (more := self._line(source)) is not None:
                state, error = fault.state, fault.said
                _log.warning("source_failed", source=source, **where, state=state, error=error, **more)

    def backed_off(
        self, source: str, node: str | None, fault: SourceFailure, *, failures: int, backoff_s: float
    ) -> None:
        """Record that a peer is in back-off: logged when that begins, and when it answers well again.

        Args:
            source: As for :meth:`note`, and so the next two.
            failures: How often in a row it failed so.
            backoff_s: Seconds from now until it may be asked again.
        """
        peer = (source, node)
        begins = self._backed_off.pop(peer, None) is None or failures == 1
        self._backed_off[peer] = self._clock.monotonic() + backoff_s
        self._kinds_backed_off.add(_kind(source))
        if len(self._backed_off) > REMEMBERED_FAULTS:
            self._backed_off.popitem(last=False)
        if begins and (more := self._line(source, backoff=True)) is not None:
            where = {} if node is None else {"node": node}
            state, error = fault.state, fault.said
            _log.warning("source_backed_off", source=source, **where, state=state, error=error, **more)

    def in_backoff(self) -> Mapping[str, int]:
        """Kind -> peers that are in back-off at this moment; 0 for a kind that once had one."""
        now_s = self._clock.monotonic()
        counts = Counter(dict.fromkeys(self._kinds_backed_off, 0))
        counts.update(_kind(source) for (source, _), until_s in self._backed_off.items() if until_s > now_s)
        return counts

    def failing(self) -> Mapping[tuple[str, str], int]:
        """Kind and state -> peers whose last answer was that; 0 for what has been, so that a series ends in 0."""
        now = Counter((_kind(source), state) for (source, _), state in self._states.items())
        return {key: now[key] for key in self.failures}

    def _line(self, source: str, *, backoff: bool = False) -> Mapping[str, int] | None:
        """What a line about a source also says: how many were left out before it. None if it is left out itself.

        Lines about back-off have an allowance of their own: they push out none that says what is wrong.
        """
        kind = _kind(source), backoff
        if kind not in self._allowances:
            self._allowances[kind] = LineAllowance(self._clock, LINES_AT_ONCE, LINE_EVERY_S)
        if not self._allowances[kind].take():
            self._left_out[kind] += 1
            return None
        left_out = self._left_out.pop(kind, 0)
        return {"left_out": left_out} if left_out else {}


def _kind(source: str) -> str:
    """The manufacturer of a device manager is whatever an annotation says."""
    return source.partition("/")[0]
