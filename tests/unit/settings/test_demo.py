"""The settings of the demo."""

from pathlib import Path

import pytest

from devicemanager.errors import SettingsError
from devicemanager.settings.demo import KUBECONFIG_HEADER, DemoSettings
from devicemanager.settings.loading import load


def problems(*arguments: str) -> str:
    with pytest.raises(SettingsError) as refused:
        load(DemoSettings, arguments, {})
    return "; ".join(refused.value.problems)


def test_defaults() -> None:
    settings = load(DemoSettings, [], {})
    assert (settings.once, settings.kubeconfig, settings.port) == (False, None, 0)


def test_a_document_is_printed_once() -> None:
    assert "--output=json: needs --once" in problems("-o", "json")
    assert load(DemoSettings, ["--once", "-o", "json"], {}).once


def test_a_kubeconfig_needs_a_cluster_that_stays(tmp_path: Path) -> None:
    assert "drop one of them" in problems("--once", f"--kubeconfig={tmp_path / 'k'}")


def test_only_a_kubeconfig_of_ours_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\n")
    assert "not the demo's own" in problems(f"--kubeconfig={path}")
    path.write_bytes(b"\xff\xfe")
    assert "not the demo's own" in problems(f"--kubeconfig={path}")
    path.write_text(KUBECONFIG_HEADER + "apiVersion: v1\n")
    assert load(DemoSettings, [f"--kubeconfig={path}"], {}).kubeconfig == path


def test_a_kubeconfig_needs_a_directory(tmp_path: Path) -> None:
    assert "there is no directory" in problems(f"--kubeconfig={tmp_path / 'missing' / 'k'}")
