"""Whole programs, asked from outside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.device_manager import Serve, environment, serving
from tests.e2e.forked import Template


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    """A process that has imported the device manager, and that others begin as a copy of."""
    with Template(environment({})) as running:
        yield running


@pytest.fixture
def serve(tmp_path: Path, template: Template) -> Iterator[Serve]:
    """Starts ``devicemanager serve`` with the flags given, on a free port."""
    folder = tmp_path / "programs"
    folder.mkdir()
    yield from serving(folder, template)
