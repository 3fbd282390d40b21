"""An installation without an extra says which one is missing."""

import sys
from importlib.abc import MetaPathFinder

import pytest
from typing_extensions import override

from devicemanager import cli


class Without(MetaPathFinder):
    """Finds that a package is not installed."""

    def __init__(self, package: str) -> None:
        self._package = package

    @override
    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname.split(".")[0] == self._package:
            raise ModuleNotFoundError(f"No module named {self._package!r}", name=self._package)


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("rich", ["demo", "--once"], "demo"),
        ("msgspec", ["instance-metrics", "web"], "cli"),
        ("kubernetes", ["instance-metrics", "web", f"--kubeconfig={__file__}"], "cli"),
        ("kubernetes", ["instance-metrics", "web", "-n=default", f"--kubeconfig={__file__}"], "cli"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package: str,
    arguments: list[str],
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = (
        "devicemanager.demo.",
        "devicemanager.programs.demo",
        "devicemanager.programs.instance_metrics",
        "devicemanager.worker.",
        "devicemanager.wire.",
    )
    for name in [name for name in sys.modules if name.startswith((*ours, f"{package}.")) or name == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Without(package), *sys.meta_path])

    assert cli.main(arguments) == cli.EXIT_FAILED

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"devicemanager {arguments[0]}: the Python package {package} is not installed: "
        f"pip install 'accelerator-device-manager[{extra}]'\n"
    )
