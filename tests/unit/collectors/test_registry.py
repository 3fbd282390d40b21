"""Which manufacturers there are, and how a collector is had."""

import ast
import re
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from collectors import registry
from collectors.base import LibraryCollector
from collectors.contract import ENTRY_POINT_GROUP, Collector
from collectors.simulated import SimulatedCollector
from devicemanager.errors import SettingsError

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "devicemanager"


def test_the_chart_has_the_same_manufacturers() -> None:
    charted = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["manufacturers"]
    assert set(charted) == set(registry.MANUFACTURERS)
    for name, one in registry.MANUFACTURERS.items():
        values = charted[name]
        if one.simulated:
            continue
        assert values["resourceName"] == one.resource_name
        assert values.get("runtimeClassName") == one.runtime_class
        assert tuple(mount["hostPath"] for mount in values.get("hostMounts", ())) == one.host_mounts
        assert values["nodeSelector"] == {f"feature.node.kubernetes.io/pci-{one.pci_vendor_id}.present": "true"}


def test_the_page_on_collectors_has_the_same_manufacturers() -> None:
    page = (ROOT / "docs" / "collectors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z]+)`[^|]*\| (.*?) \| (.*?) \| (built|not yet) \|$", page, re.MULTILINE)
    assert rows == [
        (
            name,
            f"`{one.library}`" if one.library else "none",
            f"`{one.pci_vendor_id}`" if one.pci_vendor_id else "none",
            "built" if one.built else "not yet",
        )
        for name, one in registry.MANUFACTURERS.items()
    ]


def test_the_page_on_collectors_lists_the_files_of_a_vendor() -> None:
    page = (ROOT / "docs" / "collectors.md").read_text(encoding="utf-8")
    table = page.split("## How to add a vendor", 1)[1].split("\n## ", 1)[0]
    listed = [
        path for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for path in re.findall(r"`(.*?)`", row)
    ]
    built = [name for name, one in registry.MANUFACTURERS.items() if one.built]
    assert len(listed) >= 5
    for name in built:
        assert [path for path in listed if not (ROOT / path.replace("<vendor>", name)).is_file()] == []


def test_nothing_is_done_by_a_manufacturers_name() -> None:
    """A manufacturer is an entry of the table: its name and vendor id are written nowhere else."""
    names = {text for one in registry.MANUFACTURERS.values() for text in (one.name, one.pci_vendor_id) if text}
    shared = ("contract", "base", "device", "codes", "query_failures", "process", "pci")
    lines = ROOT / "devicemanager" / "wire" / "collector_lines.py"
    for module in (lines, *(ROOT / "collectors" / f"{name}.py" for name in shared)):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        constants = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert constants.isdisjoint(names), module


@pytest.mark.parametrize(("name", "kind"), [("nvidia", LibraryCollector), ("simulated", SimulatedCollector)])
def test_what_is_built_is_a_collector(name: str, kind: type) -> None:
    collector = registry.load(name)
    assert isinstance(collector, kind)
    assert isinstance(collector, Collector)
    manufacturer = registry.known(name)
    assert manufacturer is not None
    assert manufacturer.built


@pytest.mark.parametrize("name", [name for name, one in registry.MANUFACTURERS.items() if not one.built])
def test_what_is_not_built_says_so(name: str) -> None:
    with pytest.raises(
        SettingsError, match=f"the collector for {name} is not built yet; built are nvidia, simulated"
    ):
        registry.load(name)


@pytest.mark.parametrize("name", ["simulated-a", "simulated-east-2", "simulated"])
def test_simulated_names(name: str) -> None:
    manufacturer = registry.known(name)
    assert manufacturer is not None
    assert (manufacturer.name, manufacturer.simulated, manufacturer.built) == (name, True, True)
    assert isinstance(registry.load(name), SimulatedCollector)


@pytest.mark.parametrize(
    "name",
    ["", "nothing", "simulated-", "simulated--", "simulated-NVIDIA", "simulatednvidia", "simulated-é", "NVIDIA"],
)
def test_other_names_are_unknown(name: str) -> None:
    assert registry.known(name) is None
    with pytest.raises(SettingsError, match="no manufacturer is called"):
        registry.load(name)


def test_a_scenario_is_for_simulated_cards() -> None:
    with pytest.raises(SettingsError, match="a scenario is for simulated cards, not for nvidia"):
        registry.load("nvidia", scenario="cards.toml")


class TestPlugIns:
    """Packages of third parties, by the entry-point group."""

    @pytest.fixture
    def install(self, monkeypatch: pytest.MonkeyPatch) -> "Install":
        return Install(monkeypatch)

    def test_one_that_is_installed_is_known_and_loads(self, install: "Install") -> None:
        install("acme", SimulatedCollectorOfAcme)
        assert registry.known("acme") is not None
        assert isinstance(registry.load("acme"), SimulatedCollectorOfAcme)

    def test_one_may_fill_in_what_is_not_built(self, install: "Install") -> None:
        install("amd", SimulatedCollectorOfAcme)
        amd = registry.known("amd")
        assert amd is not None
        assert (amd.built, amd.resource_name) == (True, "amd.com/gpu")
        assert isinstance(registry.load("amd"), SimulatedCollectorOfAcme)

    def test_none_may_replace_what_is_built(self, install: "Install") -> None:
        install("nvidia", SimulatedCollectorOfAcme)
        assert isinstance(registry.load("nvidia"), LibraryCollector)

    def test_one_that_does_not_load_is_named(self, install: "Install") -> None:
        install("acme", None)
        with pytest.raises(SettingsError, match="acme_plugin:Built, which provides acme, does not load: TypeError"):
            registry.load("acme")

    def test_one_that_is_no_collector_is_named(self, install: "Install") -> None:
        install("acme", object)
        with pytest.raises(SettingsError, match="acme_plugin:Built, which provides acme, is no collector"):
            registry.load("acme")

    def test_two_of_a_name_are_refused(self, install: "Install") -> None:
        install("acme", SimulatedCollectorOfAcme)
        install("acme", SimulatedCollectorOfAcme)
        with pytest.raises(SettingsError, match="more than one installed package provides acme"):
            registry.load("acme")


class SimulatedCollectorOfAcme(SimulatedCollector):
    """A collector without constructor arguments, as a plug-in has to be."""

    def __init__(self) -> None:
        super().__init__("acme")


class Install:
    """Makes entry points appear as if packages were installed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._points: list[EntryPoint] = []

    def __call__(self, name: str, built: object) -> None:
        module = ModuleType("acme_plugin")
        vars(module)["Built"] = built
        self._monkeypatch.setitem(sys.modules, "acme_plugin", module)
        self._points.append(EntryPoint(name, "acme_plugin:Built", ENTRY_POINT_GROUP))
        points = EntryPoints(self._points)
        self._monkeypatch.setattr("importlib.metadata.entry_points", lambda **chosen: points.select(**chosen))
