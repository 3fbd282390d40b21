"""What is read of this process's environment, and what is handed on of it."""

import os

import pytest

from devicemanager.settings.node import ServeSettings
from devicemanager.settings.process import (
    api_server_environment,
    environment_of_children,
    environment_of_collectors,
    from_process,
)


def test_the_environment_of_this_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("DEVICEMANAGER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DEVICEMANAGER_SECURE_PORT", "7")

    assert from_process(ServeSettings, []).secure_port == 7


def test_of_the_variables_of_a_pod_only_those_of_the_api_server_are_handed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("KUBECONFIG", "/somewhere")

    found = api_server_environment()

    assert (found["KUBERNETES_SERVICE_HOST"], found["KUBERNETES_SERVICE_PORT"]) == ("10.0.0.1", "443")
    assert "KUBECONFIG" not in found


def test_children_do_not_inherit_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEVICEMANAGER_MANUFACTURER", "nvidia")
    monkeypatch.setenv("KUBECONFIG", "/somewhere")
    monkeypatch.setenv("LANG", "C.UTF-8")
    environment = environment_of_children()
    assert "DEVICEMANAGER_MANUFACTURER" not in environment
    assert "KUBECONFIG" not in environment
    assert environment["LANG"] == "C.UTF-8"


def test_collectors_inherit_what_libraries_read_and_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = {"LD_LIBRARY_PATH": "/opt/lib", "NVIDIA_VISIBLE_DEVICES": "all", "ROCM_PATH": "/opt/rocm"}
    ours = {
        "DEVICEMANAGER_NODE_NAME": "node-a",
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_PORT_443_TCP": "tcp://10.0.0.1:443",
        "HTTPS_PROXY": "http://user:password@proxy:3128",
        "no_proxy": "localhost",
    }
    for name, value in {**libraries, **ours}.items():
        monkeypatch.setenv(name, value)

    found = environment_of_collectors()

    assert {name: found.get(name) for name in libraries} == libraries
    assert not ours.keys() & found.keys()
