"""Children of the demo. ``devicemanager`` itself is the child, as in the demo."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devicemanager.demo.processes import DemoError, Program

SERVE = ["serve", "--manufacturer=simulated-x", "--no-pci-check", "--secure-port=0", "--bind-address=127.0.0.4"]


@pytest_asyncio.fixture
async def serving() -> AsyncIterator[Program]:
    """A device manager that is being started."""
    program = await Program.start("the device manager", SERVE, os.environ)
    yield program
    await program.stop()


@pytest.mark.asyncio
async def test_it_says_where_it_listens_and_ends_when_asked(serving: Program) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(serving.follow())
        address, port = await serving.listening()
        await serving.stop()
    assert address == "127.0.0.4"
    assert port > 0


@pytest.mark.asyncio
async def test_a_child_that_ends_by_itself_is_an_error_with_its_last_words() -> None:
    program = await Program.start(
        "the device manager", ["serve", "--manufacturer=nobody", "--no-pci-check"], os.environ
    )
    with pytest.raises(DemoError, match=r"the device manager ended with exit code 2: .*--manufacturer=nobody"):
        await program.follow()


@pytest.mark.asyncio
async def test_ending_what_has_ended_is_nothing() -> None:
    program = await Program.start("a version", ["snapshot"], os.environ)
    with pytest.raises(DemoError):
        await program.follow()
    await program.stop()
