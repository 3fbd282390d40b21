"""The single-flight cache in virtual time: who waits for whom, how long an answer is given, what is never kept."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from devicemanager.errors import DocumentError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.transport import body_memory
from devicemanager.transport.body_memory import BodyMemory
from devicemanager.worker.single_flight import NOT_ASKED, TOO_LARGE, Keeping, OverloadedError, SharedReads
from tests.timing import LoopClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime(start=100.0)]


class Peers:
    """Peers that answer after a while, each time with the next number, or fail."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.takes_s = 1.0
        self.failure: Exception | None = None

    async def fetch(self, key: str) -> int:
        self.asked.append(key)
        number, failure = len(self.asked), self.failure
        await asyncio.sleep(self.takes_s)
        if failure is not None:
            raise failure
        return number


@pytest.fixture
def peers() -> Peers:
    return Peers()


@pytest_asyncio.fixture
async def kept(peers: Peers) -> AsyncIterator[SharedReads[str, int]]:
    """Answers are given for 15 s."""
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=15) as reads:
        yield reads


@pytest_asyncio.fixture
async def fresh(peers: Peers) -> AsyncIterator[SharedReads[str, int]]:
    """Answers are given to nobody who comes later."""
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=0) as reads:
        yield reads


async def test_concurrent_readers_share_one_read(fresh: SharedReads[str, int], peers: Peers) -> None:
    async with asyncio.TaskGroup() as tasks:
        reads = [tasks.create_task(fresh.read("a", deadline_s=5)) for _ in range(100)]

    assert {read.result() for read in reads} == {1}
    assert peers.asked == ["a"]
    assert (fresh.statistics.started, fresh.statistics.joined) == (1, 99)


async def test_keys_are_apart(fresh: SharedReads[str, int], peers: Peers) -> None:
    async with asyncio.TaskGroup() as tasks:
        a = tasks.create_task(fresh.read("a", deadline_s=5))
        b = tasks.create_task(fresh.read("b", deadline_s=5))

    assert (a.result(), b.result()) == (1, 2)


async def test_with_no_age_the_next_one_reads_anew(fresh: SharedReads[str, int]) -> None:
    assert await fresh.read("a", deadline_s=5) == 1
    assert await fresh.read("a", deadline_s=5) == 2
    assert len(fresh) == 0


async def test_an_answer_is_given_until_it_is_exactly_too_old(kept: SharedReads[str, int]) -> None:
    assert await kept.read("a", deadline_s=5) == 1  # begun at 100, there at 101
    await asyncio.sleep(13.999)
    assert await kept.read("a", deadline_s=5) == 1
    await asyncio.sleep(0.001)
    assert await kept.read("a", deadline_s=5) == 2
    assert kept.statistics.reused == 1


async def test_each_waiter_leaves_at_its_own_deadline(fresh: SharedReads[str, int], peers: Peers) -> None:
    peers.takes_s = 3
    loop = asyncio.get_running_loop()

    async def impatient() -> float:
        with pytest.raises(FetchError, match=r"within 0\.5 s") as caught:
            await fresh.read("a", deadline_s=0.5)
        assert caught.value.state is SourceState.TIMEOUT
        return loop.time()

    async with asyncio.TaskGroup() as tasks:
        starter = tasks.create_task(impatient())
        patient = tasks.create_task(fresh.read("a", deadline_s=5))

    assert starter.result() == 100.5
    assert patient.result() == 1
    assert loop.time() == 103
    assert peers.asked == ["a"]


async def test_a_cancelled_starter_leaves_the_others_their_answer(
    fresh: SharedReads[str, int], peers: Peers
) -> None:
    async with asyncio.TaskGroup() as tasks:
        starter = tasks.create_task(fresh.read("a", deadline_s=5))
        other = tasks.create_task(fresh.read("a", deadline_s=5))
        await asyncio.sleep(0.5)
        starter.cancel()

    assert other.result() == 1
    assert peers.asked == ["a"]


async def test_a_read_without_waiters_is_kept(kept: SharedReads[str, int], peers: Peers) -> None:
    with pytest.raises(FetchError):
        await kept.read("a", deadline_s=0.1)
    await asyncio.sleep(1)

    assert await kept.read("a", deadline_s=0.1) == 1
    assert peers.asked == ["a"]


async def test_a_failure_reaches_every_waiter_and_is_not_kept(kept: SharedReads[str, int], peers: Peers) -> None:
    peers.failure = FetchError(SourceState.FORBIDDEN, "no", status=403, reason="Forbidden")

    async def refused() -> FetchError:
        with pytest.raises(FetchError) as caught:
            await kept.read("a", deadline_s=5)
        return caught.value

    async with asyncio.TaskGroup() as tasks:
        waiters = [tasks.create_task(refused()) for _ in range(3)]
    errors = [waiter.result() for waiter in waiters]
    peers.failure = None

    assert {(error.state, error.status, error.reason) for error in errors} == {
        (SourceState.FORBIDDEN, 403, "Forbidden")
    }
    assert len({id(error) for error in errors}) == 3
    assert await kept.read("a", deadline_s=5) == 2
    assert kept.statistics.failed == 1


async def test_an_internal_error_fails_one_read_and_no_other(kept: SharedReads[str, int], peers: Peers) -> None:
    peers.failure = ZeroDivisionError("a bug")
    with capture_logs() as logs, pytest.raises(FetchError, match="a reason of our own") as caught:
        await kept.read("a", deadline_s=5)
    peers.failure = None

    assert [(entry["event"], entry["key"]) for entry in logs] == [("shared_read_failed", "a")]
    assert caught.value.state is SourceState.INVALID
    assert await kept.read("b", deadline_s=5) == 2


async def test_without_time_nothing_is_asked(kept: SharedReads[str, int], peers: Peers) -> None:
    with pytest.raises(FetchError) as caught:
        await kept.read("a", deadline_s=0)

    assert caught.value.state is SourceState.TIMEOUT
    assert peers.asked == []


async def test_without_time_a_kept_answer_is_given(kept: SharedReads[str, int]) -> None:
    await kept.read("a", deadline_s=5)

    assert await kept.read("a", deadline_s=0) == 1


async def test_keys_are_forgotten_without_anybody_asking(kept: SharedReads[str, int]) -> None:
    for number in range(100):
        await kept.read(f"node-{number}", deadline_s=5)
        assert len(kept) <= 30  # one a second, each fresh for 15 s and swept no later than 15 s after
    await asyncio.sleep(30)

    assert len(kept) == 0


async def test_no_more_is_kept_than_allowed(peers: Peers) -> None:
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=1000, keep_at_most=3) as reads:
        for key in "abcd":
            await reads.read(key, deadline_s=5)
        assert len(reads) == 3
        await reads.read("b", deadline_s=5)
        assert peers.asked == ["a", "b", "c", "d"]
        await reads.read("a", deadline_s=5)

    assert peers.asked == ["a", "b", "c", "d", "a"]


async def test_reads_in_flight_stay_limited_when_callers_have_left(peers: Peers) -> None:
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=0, flights_at_most=2) as reads:
        for key in "ab":
            with pytest.raises(FetchError):
                await reads.read(key, deadline_s=0.1)
        with pytest.raises(FetchError, match="too many reads are under way") as caught:
            await reads.read("c", deadline_s=5)
        joined = await reads.read("a", deadline_s=5)
        later = await reads.read("c", deadline_s=5)

    assert caught.value.state is SourceState.UNREACHABLE
    assert peers.asked == ["a", "b", "c"]
    assert (joined, later) == (1, 3)


async def test_a_read_may_be_begun_and_awaited_later(fresh: SharedReads[str, int], peers: Peers) -> None:
    loop = asyncio.get_running_loop()
    a, b = fresh.begin("a", deadline_s=5), fresh.begin("b", deadline_s=0.5)

    assert not await a.settled(0.25)
    assert loop.time() == 100.25
    outcome = await b.outcome()
    assert loop.time() == 100.5
    assert isinstance(outcome, FetchError)
    assert outcome.state is SourceState.TIMEOUT
    assert await a.settled(10)
    assert loop.time() == 101
    assert await a.outcome() == 1
    assert peers.asked == ["a", "b"]


async def test_a_begun_read_gives_its_failure_as_a_value(fresh: SharedReads[str, int], peers: Peers) -> None:
    peers.failure = FetchError(SourceState.FORBIDDEN, "no")

    assert await fresh.begin("a", deadline_s=5).outcome() is peers.failure


async def test_closing_ends_flights_and_frees_waiters(peers: Peers) -> None:
    peers.takes_s = 1e6
    async with asyncio.TaskGroup() as tasks, SharedReads(peers.fetch, LoopClock(), max_age_s=15) as reads:
        waiter = tasks.create_task(attempt_to_read(reads))
        await asyncio.sleep(1)

    assert waiter.result() is SourceState.UNREACHABLE
    assert asyncio.get_running_loop().time() == 101


async def attempt_to_read(reads: SharedReads[str, int]) -> SourceState:
    with pytest.raises(FetchError, match="shutting down") as caught:
        await reads.read("a", deadline_s=1e6)
    return caught.value.state


async def test_only_a_lasting_failure_is_kept_as_an_answer_is(kept: SharedReads[str, int], peers: Peers) -> None:
    """What a peer sends too much of is not read again for each who asks."""
    peers.failure = FetchError(SourceState.INVALID, "too much", status=200, lasting=True)
    for _ in range(2):
        with pytest.raises(FetchError, match="too much") as caught:
            await kept.read("a", deadline_s=5)
        assert (caught.value.state, caught.value.status, caught.value.lasting) == (SourceState.INVALID, 200, True)
    assert (peers.asked, kept.statistics.failed, kept.statistics.reused) == (["a"], 1, 1)
    await asyncio.sleep(15)
    peers.failure = FetchError(SourceState.INVALID, "garbled")
    for _ in range(2):
        with pytest.raises(FetchError, match="garbled"):
            await kept.read("a", deadline_s=5)
    assert peers.asked == ["a"] * 3


async def test_the_answer_used_longest_ago_goes_first(peers: Peers) -> None:
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=1000, keep_at_most=2) as reads:
        for key in ("a", "b", "a", "c"):
            await reads.read(key, deadline_s=5)

        assert (reads.known("a"), reads.known("b"), reads.known("c")) == (1, None, 3)


async def test_what_is_not_to_be_kept_is_asked_each_time(kept: SharedReads[str, int], peers: Peers) -> None:
    for _ in range(2):
        await kept.get("a", lambda: peers.fetch("a"), keep=False)

    assert len(kept) == 0
    assert peers.asked == ["a", "a"]


async def test_a_caller_without_a_deadline_waits_for_as_long_as_it_takes(
    kept: SharedReads[str, int], peers: Peers
) -> None:
    peers.takes_s = 1e6

    assert await kept.get("a", lambda: peers.fetch("a")) == 1
    assert asyncio.get_running_loop().time() == 100 + 1e6


async def test_a_known_answer_is_given_while_too_much_is_under_way(peers: Peers) -> None:
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=15, flights_at_most=1) as reads:
        await reads.read("known", deadline_s=5)
        reads.begin("a", deadline_s=5)
        with pytest.raises(OverloadedError):
            await reads.read("b", deadline_s=5)

        assert await reads.read("known", deadline_s=5) == 1


async def test_a_document_that_cannot_be_used_is_a_failure_of_its_peer(
    kept: SharedReads[str, int], peers: Peers
) -> None:
    peers.failure = DocumentError("no JSON")
    with capture_logs() as logs, pytest.raises(FetchError, match="no JSON") as caught:
        await kept.read("a", deadline_s=5)

    assert caught.value.state is SourceState.INVALID
    assert logs == []


async def test_an_error_of_the_block_comes_out_as_itself(peers: Peers) -> None:
    with pytest.raises(KeyError):
        async with SharedReads(peers.fetch, LoopClock(), max_age_s=15):
            raise KeyError


PAUSES_S = {SourceState.INVALID: 10.0}


def keeping(most_bytes: float = 1000) -> Keeping[str, int]:
    """An answer takes 100 bytes for each time that somebody was asked; each failure is kept for 10 s more."""
    return Keeping(
        most_bytes=most_bytes,
        size=lambda number: 100 * number,
        longer_s=lambda number: 60.0 if number == 3 else 0.0,
        backoff_s=lambda _key, error, failures: failures * PAUSES_S.get(error.state, 0.0),
    )


@pytest_asyncio.fixture
async def careful(peers: Peers) -> AsyncIterator[SharedReads[str, int]]:
    """The same as ``fresh``, but for what :func:`keeping` says."""
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=0, keeping=keeping()) as reads:
        yield reads


async def failed(reads: SharedReads[str, int]) -> str:
    """The message with which a read fails, at once."""
    with pytest.raises(FetchError) as caught:
        await reads.read("a", deadline_s=5)
    return caught.value.message


async def test_a_peer_that_misbehaves_is_left_alone_and_its_readers_hear_why_at_once(
    careful: SharedReads[str, int], peers: Peers
) -> None:
    peers.failure = FetchError(SourceState.INVALID, "no JSON")
    loop = asyncio.get_running_loop()
    assert await failed(careful) == "no JSON"
    began_s = loop.time()
    for _ in range(9):
        assert await failed(careful) == f"no JSON{NOT_ASKED}"
        await asyncio.sleep(1)
    assert loop.time() - began_s == 9
    assert len(peers.asked) == 1


async def test_each_failure_in_a_row_is_followed_by_a_longer_pause(
    careful: SharedReads[str, int], peers: Peers
) -> None:
    peers.failure = FetchError(SourceState.INVALID, "no JSON")
    loop = asyncio.get_running_loop()
    asked_at_s = []
    for _ in range(100):
        before = len(peers.asked)
        await failed(careful)
        if len(peers.asked) > before:
            asked_at_s.append(loop.time())
        await asyncio.sleep(1)

    assert [later - earlier for earlier, later in pairwise(asked_at_s)] == [11, 21, 31]


async def test_a_good_answer_ends_the_pauses_and_other_failures_begin_none(
    careful: SharedReads[str, int], peers: Peers
) -> None:
    bad, gone = FetchError(SourceState.INVALID, "bad"), FetchError(SourceState.UNREACHABLE, "gone")
    for failure in (bad, None, gone, None):
        peers.failure = failure
        if failure is None:
            await careful.read("a", deadline_s=5)
        else:
            await failed(careful)
            await asyncio.sleep(10 if failure is bad else 0)
    assert len(peers.asked) == 4

    peers.failure = bad
    await failed(careful)
    await asyncio.sleep(10)
    await failed(careful)
    assert len(peers.asked) == 6


async def test_a_flight_counts_nothing_for_the_caller_that_began_it() -> None:
    """It may last longer than that caller, who would then count for ever what it takes."""
    memory = BodyMemory(1000)

    async def fetch(_: str) -> int:
        await body_memory.take(10)
        await asyncio.sleep(1)
        await body_memory.take(10_000)
        return memory.held_bytes

    async with SharedReads(fetch, LoopClock(), max_age_s=0) as reads:
        with memory.peers.holding():
            pending = reads.begin("a", deadline_s=5)
            await asyncio.sleep(0.5)
            assert memory.held_bytes == 0
        assert await pending.outcome() == 0


async def test_a_backoff_ends_once_somebody_else_answers_and_begins_anew_with_the_shortest(peers: Peers) -> None:
    there: dict[str, set[str]] = {"a": {"old"}}
    keeping: Keeping[str, int] = Keeping(
        backoff_s=lambda _key, _error, failures: 10.0 * failures, answering=lambda key: frozenset(there[key])
    )
    peers.failure = FetchError(SourceState.INVALID, "bad")
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=0, keeping=keeping) as reads:
        await failed(reads)
        await asyncio.sleep(10)
        assert await failed(reads) == "bad"
        there["a"] = set()  # not ready: nobody could be asked
        assert await failed(reads) == f"bad{NOT_ASKED}"
        there["a"] = {"new"}
        assert await failed(reads) == "bad"
        assert await failed(reads) == f"bad{NOT_ASKED}"
        await asyncio.sleep(10)
        assert await failed(reads) == "bad"
    assert len(peers.asked) == 4


async def test_one_peer_that_is_left_alone_costs_no_other_anything(
    careful: SharedReads[str, int], peers: Peers
) -> None:
    peers.failure = FetchError(SourceState.INVALID, "bad")
    await failed(careful)
    peers.failure = None

    assert await careful.read("b", deadline_s=5) == 2


async def test_kept_answers_take_no_more_than_they_may_and_those_used_longest_ago_go_first(peers: Peers) -> None:
    size: Keeping[str, int] = Keeping(most_bytes=900, size=lambda _: 100)
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=60, keeping=size) as reads:
        for key in "abcdefghi":
            await reads.read(key, deadline_s=5)
        await reads.read("a", deadline_s=5)
        await reads.read("j", deadline_s=5)

        assert len(reads) == 9
        assert reads.known("a") is not None
        assert reads.known("b") is None


async def test_one_large_answer_is_given_and_takes_no_kept_one_away(peers: Peers) -> None:
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=60, keeping=keeping(most_bytes=2400)) as reads:
        for key in ("a", "b", "c", "d"):
            await reads.read(key, deadline_s=5)

        assert [reads.known(key) for key in ("a", "b", "c", "d")] == [1, 2, 3, None]
        assert await reads.read("d", deadline_s=5) == 5


async def test_an_answer_that_outgrows_its_place_is_kept_no_longer(peers: Peers) -> None:
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=1, keeping=keeping(most_bytes=800)) as reads:
        assert await reads.read("a", deadline_s=5) == 1
        await asyncio.sleep(1)
        assert await reads.read("a", deadline_s=5) == 2

        assert len(reads) == 0


async def test_expired_answers_go_before_those_that_are_still_good(peers: Peers) -> None:
    peers.takes_s = 0.01
    ages: Keeping[str, int] = Keeping(
        most_bytes=800, size=lambda _: 100, longer_s=lambda number: 9.0 if number < 8 else 0
    )
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=0.5, keeping=ages) as reads:
        for key in "abcdefgh":
            await reads.read(key, deadline_s=5)
        await asyncio.sleep(0.5)  # only h has expired
        await reads.read("i", deadline_s=5)

        assert [key for key in "abcdefghi" if reads.known(key) is not None] == list("abcdefgi")


async def test_a_peer_whose_answer_costs_much_and_is_too_large_to_keep_is_left_alone(peers: Peers) -> None:
    costly: Keeping[str, int] = Keeping(most_bytes=800, size=lambda _: 101, longer_s=lambda _: 10.0)
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=1, keeping=costly) as reads:
        assert await reads.read("a", deadline_s=5) == 1
        assert await failed(reads) == f"{TOO_LARGE}{NOT_ASKED}"
        await asyncio.sleep(10)
        assert await reads.read("a", deadline_s=5) == 2


async def test_an_answer_that_costs_much_is_kept_longer(peers: Peers) -> None:
    async with SharedReads(peers.fetch, LoopClock(), max_age_s=0, keeping=keeping(most_bytes=2400)) as reads:
        for _ in range(3):
            await reads.read("a", deadline_s=5)
        await asyncio.sleep(58)
        assert await reads.read("a", deadline_s=5) == 3
        await asyncio.sleep(2)
        assert await reads.read("a", deadline_s=5) == 4
