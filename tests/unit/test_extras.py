"""An installation without an extra says which one is missing."""

import subprocess
import sys
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


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("rich", ["demo", "--once"], "demo"),
        ("msgspec", ["instance-metrics", "web"], "cli"),
        ("kubernetes", ["instance-metrics", "web", f"--kubeconfig={__file__}"], "cli"),
        ("kubernetes", ["instance-metrics", "web", "-n=default", f"--kubeconfig={__file__}"], "cli"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(package: str, arguments: list[str], extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, package, *arguments],
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
