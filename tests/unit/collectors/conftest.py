"""Fixtures of the collectors' tests."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.standins.child import CollectorChild
from tests.standins.nvml import NvmlStandin

StartNvidia = Callable[..., CollectorChild]


@pytest.fixture
def nvidia(nvml: NvmlStandin) -> Iterator[StartNvidia]:
    """Starts the NVIDIA collector on the stand-in library, sampling every 20 ms unless told otherwise."""
    with ExitStack() as processes:

        def start(*arguments: str, period: str = "0.02") -> CollectorChild:
            child = CollectorChild(("nvidia", "--period", period, *arguments), nvml.environment)
            return processes.enter_context(child)

        yield start
