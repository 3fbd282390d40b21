"""The worker's settings: defaults that are promises, and what is refused."""

from pathlib import Path

import pytest

from devicemanager.errors import SettingsError
from devicemanager.settings.kubelet import KubeletMode
from devicemanager.settings.loading import load
from devicemanager.settings.worker import WorkerSettings


def loaded(*flags: str, **environment: str) -> WorkerSettings:
    return load(WorkerSettings, flags, environment)


def test_defaults() -> None:
    settings = loaded()
    assert settings.api_group == "worker.gpustack.ai"
    assert settings.secure_port == 10250
    assert settings.bind_address == "0.0.0.0"  # every caller is checked
    assert (settings.kubelet_max_age, settings.snapshot_max_age) == (15, 1)
    assert settings.max_reads == 400
    assert settings.kubelet_mode is KubeletMode.PROXY
    assert not settings.take_over_api_service
    assert not settings.reads_device_managers
    assert settings.kubeconfig is None


def test_the_kubeconfig_comes_from_where_people_keep_it() -> None:
    assert loaded(KUBECONFIG="/a:/b").kubeconfig == "/a:/b"
    assert loaded(KUBECONFIG="/a", DEVICEMANAGER_KUBECONFIG="/b").kubeconfig == "/b"
    assert loaded("--kubeconfig=/c", DEVICEMANAGER_KUBECONFIG="/b").kubeconfig == "/c"


@pytest.mark.parametrize(
    "group", ["nodots", "", ".", "a.", ".a", "a..b", "-a.b", "A.b", "a.b-", "a.ü", "a/b.c", "a" * 64 + ".b"]
)
def test_groups_that_are_none(group: str) -> None:
    with pytest.raises(SettingsError, match="--api-group"):
        loaded(f"--api-group={group}")


@pytest.mark.parametrize("group", ["metrics.example.org", "a.b", "x-1.y-2.z"])
def test_groups(group: str) -> None:
    assert loaded(f"--api-group={group}").api_group == group


@pytest.mark.parametrize("service", ["x", "x/", "/x", "a/b/c"])
def test_services_that_are_none(service: str) -> None:
    with pytest.raises(SettingsError, match="NAMESPACE/NAME"):
        loaded(f"--service={service}")


def test_an_owner_is_looked_for_on_the_api_service_of_a_service() -> None:
    assert loaded("--service=a/b", "--api-service-owner=a.b").api_service_owner == "a.b"
    with pytest.raises(SettingsError, match="needs --service"):
        loaded("--api-service-owner=a.b")


def test_device_managers_are_verified_unless_switched_off(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.touch()
    assert loaded(f"--device-manager-ca-file={ca}").reads_device_managers
    assert loaded("--device-manager-insecure-skip-verify").reads_device_managers
    with pytest.raises(SettingsError, match="pointless"):
        loaded(f"--device-manager-ca-file={ca}", "--device-manager-insecure-skip-verify")
    with pytest.raises(SettingsError, match="needs --device-manager-ca-file"):
        loaded(f"--device-manager-client-cert-dir={tmp_path}")


def test_ports_and_numbers() -> None:
    for flags in (["--secure-port=70000"], ["--max-reads=0"], ["--kubelet-max-age=2m"], ["--shutdown-delay=1h"]):
        with pytest.raises(SettingsError):
            loaded(*flags)
    assert loaded("--kubelet-max-age=0s").kubelet_max_age == 0
