"""An installation without an extra says which one is missing."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from devicemanager import cli

WITHOUT: Final = """
import sys

class Without:
    @staticmethod
    def find_spec(fullname, path, target=None):
        if fullname.split(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {sys.argv[1]!r}", name=sys.argv[1])

sys.meta_path.insert(0, Without)
from devicemanager import cli
sys.exit(cli.main(sys.argv[2:]))
"""
"""A program for which the package that its first argument names is not installed."""


ASKS_A_PLUGIN: Final = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: "true"}}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""
"""A kubeconfig whose credentials a program gives, for which the package is needed."""


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("rich", ["demo", "--once"], "demo"),
        ("msgspec", ["instance-metrics", "web"], "cli"),
        ("kubernetes", ["instance-metrics", "web", "--kubeconfig={kubeconfig}"], "cli"),
        ("kubernetes", ["instance-metrics", "web", "-n=default", "--kubeconfig={kubeconfig}"], "cli"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, package: str, arguments: list[str], extra: str
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(ASKS_A_PLUGIN)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *(each.format(kubeconfig=kubeconfig) for each in arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == cli.EXIT_FAILED
    assert done.stdout == ""
    assert done.stderr == (
        f"devicemanager {arguments[0]}: the Python package {package} is not installed: "
        f"pip install 'accelerator-device-manager[{extra}]'\n"
    )
