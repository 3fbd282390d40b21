"""Folders of keys: those of demos that live, those that killed ones left, and those of somebody else."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from devicemanager.demo.folder import private_folder, remove_leftovers

_KILLED = """
import os, signal
from devicemanager.demo.folder import private_folder
with private_folder() as folder:
    (folder / "worker").mkdir()
    (folder / "worker" / "tls.key").write_text("secret")
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def left(scratch: Path) -> Path:
    """The folder of a demo that was killed."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED],
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    folder = Path(done.stdout.strip())
    assert (folder / "worker" / "tls.key").exists(), done.stderr
    return folder


def test_a_folder_goes_with_its_demo(scratch: Path) -> None:
    with private_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(scratch.iterdir()) == []


def test_what_a_killed_demo_left_is_removed(left: Path) -> None:
    remove_leftovers()
    assert not left.exists()


def test_a_running_demo_keeps_its_folder() -> None:
    with private_folder() as folder:
        (folder / "tls.key").write_text("secret")
        remove_leftovers()
        assert (folder / "tls.key").read_text() == "secret"


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o1700])
def test_a_folder_that_others_may_enter_is_left_alone(left: Path, mode: int) -> None:
    left.chmod(mode)
    remove_leftovers()
    assert left.exists()


def test_another_users_folder_is_left_alone(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    somebody = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: somebody)
    remove_leftovers()
    assert left.exists()


def test_what_has_no_lock_is_no_demos(left: Path) -> None:
    (left / "lock").unlink()
    remove_leftovers()
    (left / "lock").symlink_to(left / "worker" / "tls.key")
    remove_leftovers()
    assert (left / "worker" / "tls.key").exists()


def test_a_link_is_not_followed(left: Path, scratch: Path) -> None:
    elsewhere = left.rename(scratch / "elsewhere")
    left.symlink_to(elsewhere)
    remove_leftovers()
    assert (elsewhere / "worker" / "tls.key").exists()
    assert left.is_symlink()


def test_a_file_of_that_name_is_left_alone(scratch: Path) -> None:
    path = scratch / "devicemanager-demo-notes"
    path.write_text("mine")
    remove_leftovers()
    assert path.read_text() == "mine"
