"""Whole programs, asked from outside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import device_manager
from tests.e2e.device_manager import Serve, serving
from tests.e2e.forked import Template


@pytest.fixture
def template() -> Template:
    """A process that has imported most programs, and that others begin as a copy of."""
    return device_manager.template()


@pytest.fixture
def serve(tmp_path: Path, template: Template) -> Iterator[Serve]:
    """Starts ``devicemanager serve`` with the flags given, on a free port."""
    folder = tmp_path / "programs"
    folder.mkdir()
    yield from serving(folder, template)
