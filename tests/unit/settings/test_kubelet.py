"""How the worker reaches kubelets, and what is refused of it."""

from pathlib import Path

import pytest

from devicemanager.errors import SettingsError
from devicemanager.settings.kubelet import KubeletMode
from devicemanager.settings.loading import load
from devicemanager.settings.worker import WorkerSettings
from devicemanager.wire.nodes import AddressType

DIRECT = "--kubelet-mode=direct"


def loaded(*flags: str, **environment: str) -> WorkerSettings:
    return load(WorkerSettings, flags, environment)


def problems(*flags: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(*flags)
    return list(caught.value.problems)


@pytest.fixture
def authority(tmp_path: Path) -> str:
    (tmp_path / "ca.crt").touch()
    return f"--kubelet-certificate-authority={tmp_path / 'ca.crt'}"


def test_defaults() -> None:
    settings = loaded(DIRECT)
    assert loaded().kubelet_mode is KubeletMode.PROXY
    assert settings.reads_kubelets_directly
    assert settings.kubelet_preferred_address_types == ("InternalIP", "Hostname", "ExternalIP")
    assert settings.kubelet_certificate_authority is None
    assert settings.kubelet_server_name is None
    assert not settings.kubelet_insecure_skip_verify


def test_types_of_addresses_are_a_list_in_order() -> None:
    settings = loaded(DIRECT, "--kubelet-preferred-address-types=Hostname,InternalDNS")
    assert settings.kubelet_preferred_address_types == (AddressType.HOSTNAME, AddressType.INTERNAL_DNS)
    for wrong in ("internalip", "Hostname,IP", ","):
        [problem] = problems(DIRECT, f"--kubelet-preferred-address-types={wrong}")
        assert problem.startswith("--kubelet-preferred-address-types")


@pytest.mark.parametrize("name", ["{node}", "{node}.example.org", "kubelet.internal"])
def test_names_of_kubelets(name: str) -> None:
    assert loaded(DIRECT, f"--kubelet-server-name={name}").kubelet_server_name == name


@pytest.mark.parametrize("name", ["", "{host}", "Node", "{node", "a b", "node/x"])
def test_names_that_no_kubelet_has(name: str) -> None:
    [problem] = problems(DIRECT, f"--kubelet-server-name={name}")
    assert problem.endswith("in which {node} stands for the node's name")


@pytest.mark.parametrize(
    "flag", ["--kubelet-insecure-skip-verify", "--kubelet-server-name=a.b", "--kubelet-certificate-authority="]
)
def test_what_direct_mode_needs_is_refused_without_it(flag: str, authority: str) -> None:
    given = authority if flag.startswith("--kubelet-cert") else flag
    assert problems(given) == [
        f"{given.partition('=')[0]}: has no effect with --kubelet-mode=proxy; "
        "drop it, or give --kubelet-mode=direct"
    ]


def test_skipping_the_check_leaves_nothing_to_check_with(authority: str) -> None:
    assert problems(DIRECT, "--kubelet-insecure-skip-verify", authority, "--kubelet-server-name=a.b") == [
        "--kubelet-insecure-skip-verify: would make --kubelet-certificate-authority pointless; drop one of them",
        "--kubelet-insecure-skip-verify: would make --kubelet-server-name pointless; drop one of them",
    ]


def test_a_kubeconfig_says_nothing_of_kubelets(authority: str) -> None:
    kubeconfig = "--kubeconfig=/a"
    [problem] = problems(DIRECT, kubeconfig)
    assert "give --kubelet-certificate-authority" in problem
    assert loaded(DIRECT, kubeconfig, authority).reads_kubelets_directly
    assert loaded(DIRECT, kubeconfig, "--kubelet-insecure-skip-verify").reads_kubelets_directly


def test_an_authority_that_is_not_there_is_named() -> None:
    assert problems(DIRECT, "--kubelet-certificate-authority=/none") == [
        "--kubelet-certificate-authority=/none: no such file"
    ]
