"""Remembered answers: their time, their number, one question at a time."""

import asyncio

import pytest

from devicemanager.worker.apiserver.verdicts import OverloadedError, Verdicts
from tests.timing import FakeClock, until

pytestmark = pytest.mark.asyncio


class Oracle:
    """Answers when let, and counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.let = asyncio.Event()
        self.let.set()

    async def __call__(self) -> str:
        self.asked += 1
        await self.let.wait()
        return f"answer {self.asked}"


async def test_an_answer_is_good_for_its_time_from_when_it_came() -> None:
    clock, oracle = FakeClock(), Oracle()
    async with Verdicts[str, str](clock, ttl_s=10) as verdicts:
        assert await verdicts.get("k", oracle) == "answer 1"
        clock.advance(9.99)
        assert await verdicts.get("k", oracle) == "answer 1"
        clock.advance(0.01)
        assert await verdicts.get("k", oracle) == "answer 2"


async def test_one_question_for_all_who_ask_at_once_even_if_the_first_leaves() -> None:
    oracle = Oracle()
    oracle.let.clear()
    async with Verdicts[str, str](FakeClock()) as verdicts, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(verdicts.get("k", oracle))
        others = [tasks.create_task(verdicts.get("k", oracle)) for _ in range(5)]
        await until(lambda: oracle.asked == 1)
        first.cancel()
        oracle.let.set()
        await asyncio.wait(others)
        assert {task.result() for task in others} == {"answer 1"}
    assert oracle.asked == 1


async def test_the_answer_used_longest_ago_goes_first() -> None:
    oracle = Oracle()
    async with Verdicts[str, str](FakeClock(), capacity=2) as verdicts:
        await verdicts.get("a", oracle)
        await verdicts.get("b", oracle)
        await verdicts.get("a", oracle)
        await verdicts.get("c", oracle)
        assert len(verdicts) == 2
        assert verdicts.known("a") == "answer 1"
        assert verdicts.known("b") is None


async def test_failures_are_for_those_who_waited_and_are_not_remembered() -> None:
    failing = True

    async def ask() -> str:
        if failing:
            raise ValueError("no")
        return "yes"

    async with Verdicts[str, str](FakeClock()) as verdicts:
        with pytest.raises(ValueError, match="no"):
            await verdicts.get("k", ask)
        failing = False
        assert await verdicts.get("k", ask) == "yes"


async def test_what_is_not_to_be_remembered_is_asked_each_time() -> None:
    oracle = Oracle()
    async with Verdicts[str, str](FakeClock()) as verdicts:
        await verdicts.get("k", oracle, remember=False)
        await verdicts.get("k", oracle, remember=False)
        assert len(verdicts) == 0
    assert oracle.asked == 2


async def test_too_many_questions_at_once_are_refused_and_known_answers_are_not() -> None:
    oracle = Oracle()
    async with Verdicts[str, str](FakeClock(), in_flight=1) as verdicts, asyncio.TaskGroup() as tasks:
        await verdicts.get("known", oracle)
        oracle.let.clear()
        waiting = tasks.create_task(verdicts.get("a", oracle))
        await until(lambda: oracle.asked == 2)
        with pytest.raises(OverloadedError):
            await verdicts.get("b", oracle)
        assert await verdicts.get("known", oracle) == "answer 1"
        oracle.let.set()
        assert await waiting == "answer 2"


async def test_leaving_ends_the_questions_and_those_who_wait() -> None:
    oracle = Oracle()
    oracle.let.clear()
    refused = []

    async def wait(verdicts: Verdicts[str, str]) -> None:
        with pytest.raises(OverloadedError):
            await verdicts.get("k", oracle)
        refused.append("k")

    async with asyncio.TaskGroup() as tasks, Verdicts[str, str](FakeClock()) as verdicts:
        tasks.create_task(wait(verdicts))
        await until(lambda: oracle.asked == 1)
    assert refused == ["k"]


async def test_an_error_of_the_block_comes_out_as_itself() -> None:
    with pytest.raises(KeyError):
        async with Verdicts[str, str](FakeClock()):
            raise KeyError
