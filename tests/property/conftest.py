"""How examples are generated: with all the time they need, for the machine is often busy with other tests.

Where CI is set they are the same in every run, so that a change is judged by what it changed; everywhere else they
are new ones, and that is where faults are found.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("house", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("house")

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Trace nothing here: it takes as long again as the examples, and unit tests reach the same lines."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("no_cover")
