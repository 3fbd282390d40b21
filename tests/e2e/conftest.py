"""Whole programs, asked from outside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.device_manager import Serve, serving


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts ``devicemanager serve`` with the flags given, on a free port."""
    folder = tmp_path / "programs"
    folder.mkdir()
    yield from serving(folder)
