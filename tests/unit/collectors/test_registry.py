"""Which manufacturers there are, and how a collector is had."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType

import pytest

from collectors import registry
from collectors.contract import ENTRY_POINT_GROUP, Collector
from collectors.nvidia import NvidiaCollector
from collectors.simulated import SimulatedCollector
from devicemanager.errors import SettingsError


def test_names_vendor_ids_and_resources() -> None:
    table = {name: (one.pci_vendor_id, one.resource_name) for name, one in registry.MANUFACTURERS.items()}
    assert table == {
        "amd": ("1002", "amd.com/gpu"),
        "ascend": ("19e5", "huawei.com/npu"),
        "cambricon": ("cabc", "cambricon.com/mlu"),
        "hygon": ("1d94", "hygon.com/dcu"),
        "iluvatar": ("1e3e", "iluvatar.com/gpu"),
        "metax": ("9999", "metax-tech.com/gpu"),
        "mthreads": ("1ed5", "mthreads.com/gpu"),
        "nvidia": ("10de", "nvidia.com/gpu"),
        "thead": ("1ded", "alibabacloud.com/ppu"),
        "simulated": (None, None),
    }


@pytest.mark.parametrize(("name", "kind"), [("nvidia", NvidiaCollector), ("simulated", SimulatedCollector)])
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
    assert registry.is_simulated(name)
    manufacturer = registry.known(name)
    assert manufacturer is not None
    assert manufacturer.name == name


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
        assert isinstance(registry.load("amd"), SimulatedCollectorOfAcme)

    def test_none_may_replace_what_is_built(self, install: "Install") -> None:
        install("nvidia", SimulatedCollectorOfAcme)
        assert isinstance(registry.load("nvidia"), NvidiaCollector)

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
