"""The programs understand every argument the chart gives them, and find every file they are pointed at."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from collectors.contract import ENTRY_POINT_GROUP
from collectors.registry import MANUFACTURERS
from devicemanager.cli import COMMANDS
from devicemanager.errors import SettingsError
from devicemanager.settings.flags import Settings
from devicemanager.settings.loading import load
from devicemanager.settings.output import LogSettings
from tests.chart.conftest import Document
from tests.chart.installed import moved
from tests.chart.test_policy import pods

SECRET_KEYS = ("tls.crt", "tls.key", "ca.crt")
NOT_BUILT = {name for name, one in MANUFACTURERS.items() if not one.built}


def files(pod: Mapping[str, Any], documents: Sequence[Document]) -> Iterator[Path]:
    """What a container of the pod finds in its volumes, as absolute paths."""
    config_maps = {d["metadata"]["name"]: d.get("data", {}) for d in documents if d["kind"] == "ConfigMap"}
    (container,) = pod["containers"]
    mounted = {mount["name"]: Path(mount["mountPath"]) for mount in container["volumeMounts"]}
    for volume in pod["volumes"]:
        source = volume.get("configMap", {})
        keys = SECRET_KEYS if "secret" in volume else config_maps.get(source.get("name"), ())
        # Those that are named, also of a ConfigMap that somebody else keeps.
        keys = [item["path"] for item in source.get("items", ())] or keys
        yield from (mounted[volume["name"]] / key for key in keys)
        yield from (mounted[volume["name"]] / path for path in projected(volume))


def projected(volume: Mapping[str, Any]) -> Iterator[str]:
    """The files of a projected volume."""
    for source in volume.get("projected", {}).get("sources", ()):
        for kind, what in source.items():
            yield from [what["path"]] if kind == "serviceAccountToken" else [item["path"] for item in what["items"]]


def loaded(document: Document, pod: Mapping[str, Any], documents: Sequence[Document], root: Path) -> Settings:
    """The settings of a pod's container, in a file system made of its mounts alone.

    Raises:
        SettingsError: The program would refuse to start.
    """
    for path in files(pod, documents):
        place = root / path.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    (container,) = pod["containers"]
    name, *arguments = container["args"]
    command = COMMANDS[name]
    model: type[Settings] = resolve_name(command.settings)
    environment = {
        entry["name"]: entry.get("value", document["metadata"]["name"]) for entry in container.get("env", ())
    }
    return load(model, [moved(one, root) for one in arguments], environment, resolve_name(command.rules))


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that provides the collector of a manufacturer called acme, as far as settings look at it."""
    package = tmp_path / "site-packages" / "acme-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1\n")
    (package / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nacme = acme:collector\n")
    monkeypatch.syspath_prepend(str(package.parent))


@pytest.mark.usefixtures("plug_in")
def test_every_container_starts_with_the_arguments_it_is_given(
    rendered: Sequence[Document], tmp_path: Path
) -> None:
    for document, pod in pods(rendered):
        root = tmp_path / document["metadata"]["name"]
        manufacturer = document["metadata"]["labels"].get("gpustack.ai/manufacturer")
        if manufacturer in NOT_BUILT:
            with pytest.raises(SettingsError) as refused:
                loaded(document, pod, rendered, root)
            (problem,) = refused.value.problems
            assert f"the collector for {manufacturer} is not built yet" in problem
        else:
            assert isinstance(loaded(document, pod, rendered, root), LogSettings)


def test_the_notes_warn_of_exactly_the_manufacturers_that_are_not_built() -> None:
    notes = (Path(__file__).parents[2] / "charts/devicemanager/templates/NOTES.txt").read_text()
    (built,) = re.findall(r"has \$name \(list ([^)]*)\)", notes)
    assert set(re.findall(r'"([a-z]+)"', built)) == MANUFACTURERS.keys() - NOT_BUILT


def test_the_chart_knows_every_manufacturer_and_takes_no_other_for_one() -> None:
    checks = (Path(__file__).parents[2] / "charts/devicemanager/templates/checks.yaml").read_text()
    (known,) = re.findall(r"\$known := list ([^-]*) -}}", checks)
    assert set(re.findall(r'"([a-z]+)"', known)) == MANUFACTURERS.keys()
