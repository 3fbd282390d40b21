"""The demo's kubeconfig: for its user alone, and never in place of somebody else's file."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from devicemanager.demo import chain
from devicemanager.demo.processes import DemoError
from devicemanager.settings.demo import KUBECONFIG_HEADER


class Cluster:
    def kubeconfig(self, **_: str) -> str:
        return "users: []\n"


CLUSTER: Any = Cluster()


def test_the_kubeconfig_is_its_owners_alone_and_goes_with_the_demo(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    with chain._published(path, CLUSTER):
        assert path.read_text() == f"{KUBECONFIG_HEADER}users: []\n"
        assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["file", "link", "link to a demo's"])
def test_what_appeared_there_while_the_demo_started_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path, victim = tmp_path / "kubeconfig", tmp_path / "victim"
    victim.write_text(KUBECONFIG_HEADER if kind == "link to a demo's" else "theirs")
    if kind == "file":
        path.write_text("theirs")
    else:
        path.symlink_to(victim)
    before = path.read_text()

    chain._remove_leftovers(path)
    with pytest.raises(DemoError, match="cannot be written"), chain._published(path, CLUSTER):
        pytest.fail("it was published")

    assert path.read_text() == victim.read_text() if path.is_symlink() else path.read_text() == before


@pytest.mark.parametrize("theirs", ["theirs", f"{KUBECONFIG_HEADER}another demo's"])
def test_what_somebody_puts_there_meanwhile_stays_when_the_demo_ends(tmp_path: Path, theirs: str) -> None:
    path = tmp_path / "kubeconfig"
    with chain._published(path, CLUSTER):
        path.write_text(theirs)
    assert path.read_text() == theirs


def test_an_earlier_demos_kubeconfig_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG_HEADER)
    chain._remove_leftovers(path)
    assert not path.exists()


def test_the_tokens_are_others_each_time() -> None:
    """Anyone on the machine reaches the stand-in's port on loopback."""
    program = "from devicemanager.demo.cluster import stand_in as s; print(s.ADMIN_TOKEN, s.WORKER_TOKEN)"
    runs = [
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True) for _ in "ab"
    ]
    tokens = [token for run in runs for token in run.stdout.split()]
    assert len(set(tokens)) == 4
    assert all(len(token) >= 32 for token in tokens)
