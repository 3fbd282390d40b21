"""``python -m collectors NAME``: the only process in which vendor code runs.

It samples for ever and writes the lines of :mod:`devicemanager.wire.collector_lines` to a private descriptor.
Whoever started it reads them, and kills it when a call does not come back; nothing in here guards against a hang.
It must stay small, because it is started anew after each kill: no asyncio, no aiohttp, no pydantic, no vendor
library before ``open()``.

Without ``--fd`` the lines go to standard output, and ``--once`` prints one sample for a person.
"""

import ctypes
import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final, NoReturn

from collectors import registry, text
from collectors.arguments import parser
from collectors.contract import EXIT_CODES, Collector, PossibleDriverError
from collectors.pacing import next_due_s
from devicemanager import streams
from devicemanager.errors import CollectorError, OutputError, SettingsError, excerpt
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason, Versions
from devicemanager.rules.plausibility import CARDS_LIMIT, PARTITIONS_LIMIT
from devicemanager.rules.selection import Selection
from devicemanager.wire.collector_lines import Announced, Begin, End, Failed, Hello, Read, encode

EXIT_NOT_READ: Final = 1
EXIT_USAGE: Final = 2
_PR_SET_PDEATHSIG: Final = 1
_STDOUT: Final = 1
_STDERR: Final = 2

Emit = Callable[[bytes], None]
"""Takes whole lines; returns when they are out of this process."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one collector until it fails or its reader goes away.

    Returns:
        0 after ``--once`` or when the reader is gone, 1 where its output cannot be written or a device that
        ``--once`` was asked for is not there, 2 for usage, else one of :data:`collectors.contract.EXIT_CODES`.
    """
    return streams.answering("collectors", lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    options = parser().parse_args(arguments)
    try:
        channel = _private_channel(options.fd)
    except OSError as error:
        print(f"collectors: --fd {options.fd}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    _end_with_parent(channel, started_by_supervisor=options.fd is not None)
    try:
        collector = registry.load(options.name, scenario=options.scenario)
    except SettingsError as error:
        print(f"collectors: {error}", file=sys.stderr)
        return EXIT_USAGE

    def emit(data: bytes) -> None:
        rest = memoryview(data)
        with streams.writing():
            while rest:
                rest = rest[os.write(channel, rest) :]

    selection = Selection(frozenset(options.only), frozenset(options.skip), dict(options.assume))
    for_a_person = options.once and options.fd is None
    try:
        collector.open()
        if for_a_person:
            unread = _print_once(collector, selection, emit)
        else:
            unread = False
            emit(_hello(options.name, collector))
            _sample_for_ever(collector, selection, emit, period_s=None if options.once else options.period)
        collector.close()
    except OutputError as error:
        return _unwritten(error)
    except CollectorError as error:
        return _report(error, emit, for_a_person=for_a_person)
    except Exception as error:  # noqa: BLE001 - the top of the process: a broken collector is a state
        _print_traceback()
        detail = f"the collector raised {type(error).__name__}: {excerpt(str(error))}"
        return _report(CollectorError(CollectorState.FAILED, detail), emit, for_a_person=for_a_person)
    return EXIT_NOT_READ if unread else 0


def _print_once(collector: Collector, selection: Selection, emit: Emit) -> bool:
    """Print the selected devices. Whether one that was asked for, or every one, was not read; that is said too."""
    named = {key.parent or key.id for key in selection.only | selection.skip} - {None}
    if not named <= set(selection.assumed.values()):
        # Only reading a card tells its id.
        _all_of(collector, Selection(skip=selection.skip, assumed=selection.assumed))
    readings = _all_of(collector, selection)
    if readings:
        said = text.describe(readings, library=getattr(collector, "library", None))
        emit(said.encode(sys.stdout.encoding, "replace"))
    problems = text.not_read(readings, selection)
    for problem in problems:
        print(f"collectors: {problem}", file=sys.stderr)
    return bool(problems)


def _all_of(collector: Collector, selection: Selection) -> list[Reading]:
    reads = _reads(collector, _counted(collector), selection, announce=lambda _: None)
    return [read.reading for read in reads]


def _hello(name: str, collector: Collector) -> bytes:
    library, fault = getattr(collector, "library", None), getattr(collector, "library_fault", None)
    if fault:
        print(f"collectors: {library}: {fault}", file=sys.stderr)
    versions = getattr(collector, "versions", Versions())
    return encode(Hello(name, library, fault, getattr(collector, "count_call", None), versions))


def sample(collector: Collector, selection: Selection, emit: Emit) -> None:
    """One sample of all devices: announced, read, written, closed.

    That it begins is written before the library is asked anything, so that a count that hangs is known as one. A
    device's reading and the announcement of the next one leave in one write, which halves the writes.

    Raises:
        CollectorError: There is no card, or the driver as a whole went away. What was read until then is written.
    """
    wall = datetime.now(UTC)  # no decision here: both clocks are reported as they are
    emit(encode(Begin(time.monotonic(), wall)))
    pending = b""
    cards = _counted(collector)

    def announce(card: Card) -> None:
        emit(pending + encode(Announced(card)))

    for read in _reads(collector, cards, selection, announce):
        pending = encode(read)
    emit(pending + encode(End(len(cards))))


def _sample_for_ever(collector: Collector, selection: Selection, emit: Emit, period_s: float | None) -> None:
    due_s = time.monotonic()
    while True:
        sample(collector, selection, emit)
        if period_s is None:
            return
        now_s = time.monotonic()
        due_s = next_due_s(due_s, now_s, period_s)
        time.sleep(max(0.0, due_s - now_s))


def _reads(
    collector: Collector, cards: Iterable[Card], selection: Selection, announce: Callable[[Card], None]
) -> Iterator[Read]:
    """The selected cards and their selected partitions, each announced and then read.

    Raises:
        CollectorError: The driver as a whole went away: some cards said so, no device gave a figure, and the other
            cards are lost. The order of the cards does not matter.
    """
    gone: CollectorError | None = None
    refuted = False
    for card in cards:
        if card not in selection:
            continue
        announce(card)
        reading, error = _read(collector, card)
        partitions = _partitions(collector, reading)  # still announced: to find them touches the card
        gone = gone or error
        refuted = refuted or (error is None and (reading.answered or set(reading.figures.reasons) != {Reason.LOST}))
        yield Read(reading, partitions)
        for partition in partitions or ():
            if partition in selection:
                announce(partition)
                reading, _ = _read(collector, partition)
                refuted = refuted or reading.answered
                yield Read(reading)
    if gone is not None and not refuted:
        raise gone


def _counted(collector: Collector) -> tuple[Card, ...]:
    cards = tuple(islice(collector.cards(), CARDS_LIMIT + 1))
    if not cards:
        raise CollectorError(CollectorState.NO_DEVICES, "the library is in order and counts no card")
    if len(cards) > CARDS_LIMIT:
        raise CollectorError(CollectorState.FAILED, f"the library counts more than {CARDS_LIMIT} cards")
    return cards


def _read(collector: Collector, device: Card) -> tuple[Reading, CollectorError | None]:
    """One device's reading, and the error if the driver as a whole may be at fault."""
    try:
        return collector.read(device), None
    except PossibleDriverError as error:
        return error.reading, error
    except CollectorError as error:
        refused = error.state is CollectorState.NO_PERMISSION
        reason = Reason.PERMISSION if refused else Reason.TRANSIENT_DRIVER_ERROR
        return Reading.unreadable(device, reason, error.detail), error
    except Exception as error:  # noqa: BLE001 - the border of one device: its fault costs no other its figures
        _print_traceback()
        what = f"the collector raised {type(error).__name__}"
        return Reading.unreadable(device, Reason.TRANSIENT_DRIVER_ERROR, what), None


def _partitions(collector: Collector, reading: Reading) -> tuple[Card, ...] | None:
    """All partitions of a card that was just read; None if they cannot be listed."""
    card = reading.card
    failed = reading.unhealthy_reason is not None and not reading.answered
    # To ask whether it is a PartitionCollector would cost 25 us a card, a fifth of what our own code takes.
    listed: Callable[[Card], Iterable[Card]] | None = getattr(collector, "partitions", None)
    if listed is None or card.id is None or failed:
        return None
    try:
        found = list(islice(listed(card), PARTITIONS_LIMIT + 1))
    except CollectorError as error:
        print(f"collectors: partitions of {card.id}: {error}", file=sys.stderr)
        return None
    except Exception:  # noqa: BLE001 - as for a device
        _print_traceback()
        return None
    if len(found) > PARTITIONS_LIMIT:
        return None
    times = Counter(one.id for one in found)  # without an id, or with one of two, a partition cannot be addressed
    return tuple(
        Card(card.index, one.id, parent=card.id, profile=one.profile)
        for one in found
        if one.id is not None and times[one.id] == 1
    )


def _print_traceback() -> None:
    import traceback  # 4 ms of start-up that only a broken collector should cost

    traceback.print_exc()


def _report(error: CollectorError, emit: Emit, *, for_a_person: bool) -> int:
    if for_a_person:
        print(f"collectors: {error}", file=sys.stderr)
    else:
        try:
            emit(encode(Failed(error.state, error.detail)))
        except OutputError as unwritten:
            return _unwritten(unwritten)
    return EXIT_CODES.get(error.state, EXIT_CODES[CollectorState.FAILED])


def _unwritten(error: OutputError) -> int:
    """0 where nobody reads any longer: the supervisor, or ``head``, has what it wanted."""
    if error.reader_left:
        return 0
    raise error


def _private_channel(descriptor: int | None) -> int:
    """The descriptor for our lines, made unreachable for vendor code that prints or starts programs.

    Standard output is pointed at standard error, because C libraries print to descriptor 1 directly. The duplicate
    is not inherited by what a vendor library executes, so the pipe closes when this process ends.
    """
    given = _STDOUT if descriptor is None else descriptor
    channel = os.dup(given)
    if given > _STDERR:
        os.close(given)
    os.dup2(_STDERR, _STDOUT)
    return channel


def _end_with_parent(channel: int, *, started_by_supervisor: bool) -> None:
    """Have the kernel kill this process when its parent ends, also while a call hangs.

    A parent that ended before the request was made is found afterwards: by another parent id, or by a pipe that
    nobody reads.
    """
    if started_by_supervisor:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides for us
    else:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    poll = select.poll()
    poll.register(channel, 0)
    reader_gone = any(events & select.POLLERR for _, events in poll.poll(0))
    if os.getppid() != parent or reader_gone:
        _leave()


def _leave() -> NoReturn:
    os._exit(0)
