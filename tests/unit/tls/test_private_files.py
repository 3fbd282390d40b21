"""Private files: what others put at their path, or near it, is neither written to nor followed."""

import os
import stat
from pathlib import Path

import pytest

from devicemanager.tls.private_files import write_whole


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    victim = tmp_path / "elsewhere" / "victim"
    victim.write_bytes(b"precious")
    return victim


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared" / "key"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize("replace", [True, False])
def test_it_is_there_whole_for_its_owner_alone_and_nothing_beside_it(path: Path, replace: bool) -> None:
    before = os.umask(0)
    try:
        write_whole(path, b"secret", replace=replace)
    finally:
        os.umask(before)
    assert (path.read_bytes(), mode(path)) == (b"secret", 0o600)
    assert list(path.parent.iterdir()) == [path]


def test_the_mode_is_the_one_asked_for_whatever_lay_there_and_whatever_is_masked(path: Path) -> None:
    path.touch(0o666)
    path.chmod(0o666)
    before = os.umask(0o077)
    try:
        write_whole(path, b"secret")
        assert mode(path) == 0o600
        write_whole(path, b"public", mode=0o644)
    finally:
        os.umask(before)
    assert (path.read_bytes(), mode(path)) == (b"public", 0o644)


def test_a_link_at_the_path_is_replaced_and_not_followed(path: Path, victim: Path) -> None:
    path.symlink_to(victim)
    write_whole(path, b"secret")
    assert victim.read_bytes() == b"precious"
    assert not path.is_symlink()


def test_an_open_file_of_that_name_does_not_see_what_is_written(path: Path) -> None:
    path.write_bytes(b"old")
    with path.open("rb") as held:
        write_whole(path, b"secret")
        assert held.read() == b"old"


@pytest.mark.parametrize("kind", ["a file", "a link", "a link to nothing"])
def test_what_must_not_be_replaced_stays(path: Path, victim: Path, kind: str) -> None:
    if kind == "a file":
        path.write_bytes(b"theirs")
    else:
        path.symlink_to(victim if kind == "a link" else path.parent / "nothing")
    before = os.readlink(path) if path.is_symlink() else path.read_bytes()
    with pytest.raises(FileExistsError):
        write_whole(path, b"secret", replace=False)
    assert (os.readlink(path) if path.is_symlink() else path.read_bytes()) == before
    assert victim.read_bytes() == b"precious"
    assert list(path.parent.iterdir()) == [path]


def test_no_name_near_it_can_be_foreseen(path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where it is all the same, what lies there stays, and nothing is written."""
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    (path.parent / ".guessed.new").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_whole(path, b"secret")
    assert victim.read_bytes() == b"precious"
    assert not path.exists()
    monkeypatch.undo()
    write_whole(path, b"secret")
    assert path.read_bytes() == b"secret"
