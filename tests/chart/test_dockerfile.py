"""The image's recipe, as far as it can be judged without an engine to build it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).parents[2] / "Dockerfile"


def test_the_linter_has_nothing_to_say() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint: tox -e chart installs it")
    done = subprocess.run([hadolint, RECIPE], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")


def test_it_ends_as_a_numeric_user_that_is_not_root_and_starts_without_a_shell() -> None:
    lines = [line for line in RECIPE.read_text().splitlines() if line and not line.startswith("#")]
    last_stage = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    (user,) = [line for line in last_stage if line.startswith("USER ")]
    assert user == "USER 65532:65532"
    (entrypoint,) = [line for line in last_stage if line.startswith("ENTRYPOINT ")]
    assert entrypoint.startswith("ENTRYPOINT [")
