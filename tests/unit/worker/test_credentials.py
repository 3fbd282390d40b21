"""Credentials from a service account and from kubeconfigs of every kind, read again as they change."""

import json
import ssl
import stat
import sys
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from devicemanager.errors import SettingsError
from devicemanager.tls.certificates import Authority
from devicemanager.worker import credentials as credentials_module
from devicemanager.worker.credentials import Kubeconfig, ServiceAccount

AUTHORITY = Authority.create("a cluster")
ENVIRONMENT = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A service account's folder."""
    (tmp_path / "token").write_text("eyJ.first\n")
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.pem.certificate)
    return tmp_path


def test_a_service_account_is_read(account: Path) -> None:
    found = ServiceAccount(ENVIRONMENT, account).load()

    assert str(found.server) == "https://10.0.0.1"
    assert found.authorization == "Bearer eyJ.first"
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert found.proxy is None


def test_no_secret_is_printed(account: Path) -> None:
    assert "eyJ.first" not in repr(ServiceAccount(ENVIRONMENT, account).load())


def test_an_ipv6_server_is_bracketed(account: Path) -> None:
    found = ServiceAccount(
        {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, account
    ).load()

    assert str(found.server) == "https://[fd00::1]:6443"


def test_a_rotated_token_is_read_and_connections_are_kept(account: Path) -> None:
    source = ServiceAccount(ENVIRONMENT, account)
    before = source.load()
    (account / "token").write_text("  eyJ.second \r\n\n")

    after = source.load()

    assert after.authorization == "Bearer eyJ.second"
    assert after.tls is before.tls


def test_another_ca_makes_another_context(account: Path) -> None:
    source = ServiceAccount(ENVIRONMENT, account)
    before = source.load()
    (account / "ca.crt").write_bytes(Authority.create("its successor").pem.certificate)

    assert source.load().tls is not before.tls


@pytest.mark.parametrize("token", ["", "\n", "two words", "eyJ.\x00", "é"])
def test_an_invalid_token_is_refused_without_being_shown(account: Path, token: str) -> None:
    (account / "token").write_text(token)

    with pytest.raises(SettingsError, match="service account in") as caught:
        ServiceAccount(ENVIRONMENT, account).load()

    assert not token.strip() or token not in str(caught.value)


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_a_missing_file_is_named(account: Path, name: str) -> None:
    (account / name).unlink()

    with pytest.raises(SettingsError, match="does not exist"):
        ServiceAccount(ENVIRONMENT, account).load()


@pytest.mark.parametrize("port", [None, "", "http", "70000"])
def test_an_invalid_port_is_named(account: Path, port: str | None) -> None:
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": port}

    with pytest.raises(SettingsError, match=f"KUBERNETES_SERVICE_PORT={port or ''} is no port"):
        ServiceAccount({name: value for name, value in environment.items() if value is not None}, account).load()


@pytest.mark.parametrize("ca", ["", "no certificate"])
def test_an_invalid_ca_is_refused(account: Path, ca: str) -> None:
    (account / "ca.crt").write_text(ca)

    with pytest.raises(SettingsError, match="service account in"):
        ServiceAccount(ENVIRONMENT, account).load()


def test_outside_a_pod_it_says_so(account: Path) -> None:
    with pytest.raises(SettingsError, match="not in a cluster, and no --kubeconfig"):
        ServiceAccount({}, account).load()


def test_without_a_service_account_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="not in a cluster, and no --kubeconfig"):
        ServiceAccount(ENVIRONMENT, tmp_path / "none").load()


# Kubeconfigs


def write(folder: Path, user: dict[str, Any], **cluster: Any) -> str:
    path = folder / "kubeconfig"
    server = {
        "server": "https://api.example:6443",
        "certificate-authority-data": encoded(AUTHORITY.pem.certificate),
    }
    document = {
        "clusters": [{"name": "c", "cluster": {**server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


def test_a_token_in_the_file(tmp_path: Path) -> None:
    found = Kubeconfig(write(tmp_path, {"token": "secret\n"})).load()

    assert (str(found.server), found.authorization) == ("https://api.example:6443", "Bearer secret")


def test_a_token_in_another_file_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    source = Kubeconfig(write(tmp_path, {"tokenFile": str(tmp_path / "token")}))
    assert source.load().authorization == "Bearer first"
    (tmp_path / "token").write_text("second\n")

    assert source.load().authorization == "Bearer second"


@pytest.mark.parametrize(
    ("context", "expected"), [(None, "team-a"), ("named", "team-b"), ("bare", "default"), ("empty", "default")]
)
def test_the_namespace_is_the_contexts(tmp_path: Path, context: str | None, expected: str) -> None:
    path = Path(write(tmp_path, {"token": "secret"}))
    document = yaml.safe_load(path.read_text())
    named = {"current": "team-a", "named": "team-b", "bare": None, "empty": ""}
    document["contexts"] = [
        {"name": name, "context": {"cluster": "c", "user": "u", **({} if value is None else {"namespace": value})}}
        for name, value in named.items()
    ]
    document["current-context"] = "current"
    path.write_text(yaml.safe_dump(document))

    assert Kubeconfig(str(path), context).namespace() == expected


def test_a_namespace_of_no_kubeconfig_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file"):
        Kubeconfig(str(tmp_path / "missing")).namespace()
    with pytest.raises(SettingsError, match="another"):
        Kubeconfig(write(tmp_path, {"token": "secret"}), "another").namespace()


def test_a_password(tmp_path: Path) -> None:
    found = Kubeconfig(write(tmp_path, {"username": "a", "password": "b"})).load()

    assert found.authorization == f"Basic {encoded(b'a:b')}"


def test_a_client_certificate(tmp_path: Path) -> None:
    pair = AUTHORITY.client("me")
    user = {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}
    source = Kubeconfig(write(tmp_path, user))

    found = source.load()

    assert found.authorization is None
    assert found.tls is not None
    assert source.load().tls is found.tls


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    user = {
        "client-certificate-data": encoded(AUTHORITY.client("me").certificate),
        "client-key-data": encoded(AUTHORITY.client("you").key),
    }

    with pytest.raises(SettingsError, match="kubeconfig"):
        Kubeconfig(write(tmp_path, user)).load()


def test_what_the_cluster_says_of_the_connection(tmp_path: Path) -> None:
    cluster = {"tls-server-name": "kubernetes", "proxy-url": "http://proxy.example:3128"}

    found = Kubeconfig(write(tmp_path, {"token": "t"}, **cluster)).load()

    assert found.server_hostname == "kubernetes"
    assert str(found.proxy) == "http://proxy.example:3128"


def test_verification_may_be_switched_off_there(tmp_path: Path) -> None:
    path = Path(write(tmp_path, {"token": "t"}))
    document = yaml.safe_load(path.read_text())
    document["clusters"][0]["cluster"] = {"server": "https://api.example", "insecure-skip-tls-verify": True}
    path.write_text(yaml.safe_dump(document))

    found = Kubeconfig(str(path)).load()

    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_NONE


def test_a_plain_server_has_no_tls(tmp_path: Path) -> None:
    assert Kubeconfig(write(tmp_path, {"token": "t"}, server="http://127.0.0.1:8001")).load().tls is None


def test_a_context_may_be_chosen(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="other"):
        Kubeconfig(write(tmp_path, {"token": "t"}), context="other").load()


def plugin(folder: Path, text: str) -> dict[str, Any]:
    script = folder / "plugin"
    script.write_text(f"#!{sys.executable}\n{text}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}


def test_an_exec_plugin_is_asked(tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plugin"},
    }
    user = plugin(tmp_path, f"print({json.dumps(credential)!r})")

    assert Kubeconfig(write(tmp_path, user)).load().authorization == "Bearer from-plugin"


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "print('no JSON')", "print('{}')"])
def test_an_exec_plugin_that_fails_is_no_anonymous_access(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="exec plugin gave no credential"):
        Kubeconfig(write(tmp_path, plugin(tmp_path, text))).load()


def test_an_exec_plugin_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials_module, "PLUGIN_DEADLINE_S", 1.0)
    pid_file = tmp_path / "pid"
    text = f"import os, signal; open({str(pid_file)!r}, 'w').write(str(os.getpid())); signal.pause()"

    with pytest.raises(SettingsError, match="did not answer within 1 s"):
        Kubeconfig(write(tmp_path, plugin(tmp_path, text))).load()

    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(pid_file.read_text())).wait(timeout=10)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "a: b", "clusters: null\nusers: null\ncontexts: null", "{", "current-context: x\ncontexts: 7"],
)
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    with pytest.raises(SettingsError, match="kubeconfig"):
        Kubeconfig(str(path)).load()


@pytest.mark.parametrize("server", ["ftp://x", "x", ""])
def test_a_server_that_is_no_url_is_refused(tmp_path: Path, server: str) -> None:
    with pytest.raises(SettingsError):
        Kubeconfig(write(tmp_path, {"token": "t"}, server=server)).load()


def test_an_emptied_token_file_is_no_anonymous_access(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    source = Kubeconfig(write(tmp_path, {"tokenFile": "token"}))
    assert source.load().authorization == "Bearer first"
    (tmp_path / "token").write_text(" \n")

    with pytest.raises(SettingsError, match=r"tokenFile .*/token is empty"):
        source.load()


def test_a_token_file_counts_before_a_token_that_stands_in_for_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from the file")
    source = Kubeconfig(write(tmp_path, {"tokenFile": "token", "token": "inline"}))
    with pytest.raises(SettingsError):
        source.load()  # "from the file" is no token

    (tmp_path / "token").write_text("rotated")
    assert source.load().authorization == "Bearer rotated"
    (tmp_path / "token").write_text("")
    assert source.load().authorization == "Bearer inline"


def test_of_several_kubeconfigs_the_first_current_context_counts(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, {"token": name}, server=f"https://{name}.example")
    (tmp_path / "empty").write_text("")
    files = [str(tmp_path / "empty"), *(str(tmp_path / name / "kubeconfig") for name in ("first", "second"))]

    found = Kubeconfig(":".join(files)).load()

    assert (str(found.server), found.authorization) == ("https://first.example", "Bearer first")


def test_whoever_is_impersonated_is(tmp_path: Path) -> None:
    found = Kubeconfig(write(tmp_path, {"token": "t", "as": "jane", "as-groups": ["dev"]})).load()

    assert found.impersonation == (("Impersonate-User", "jane"), ("Impersonate-Group", "dev"))


@pytest.mark.parametrize(
    "user", [{"token": "secret"}, {"username": "a", "password": "secret"}, {"exec": {"command": "/nowhere"}}]
)
def test_a_server_without_tls_is_shown_no_credential(tmp_path: Path, user: dict[str, Any]) -> None:
    found = Kubeconfig(write(tmp_path, user, server="http://api.example:8080")).load()

    assert (found.authorization, found.tls) == (None, None)


@pytest.mark.parametrize("server", ["https://me:my-secret@api.example", "https://me@api.example"])
def test_a_server_with_a_password_in_its_url_is_refused_without_showing_it(tmp_path: Path, server: str) -> None:
    with pytest.raises(SettingsError, match="server must hold no user name and no password") as caught:
        Kubeconfig(write(tmp_path, {"token": "t"}, server=server)).load()

    assert "my-secret" not in str(caught.value)


def test_inline_certificates_leave_no_file_behind_that_others_could_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    pair, other = AUTHORITY.client("me"), AUTHORITY.client("me again")
    user = {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}
    source = Kubeconfig(write(tmp_path, user))

    before = source.load()
    assert list(scratch.iterdir()) == []
    assert source.load().tls is before.tls
    user = {"client-certificate-data": encoded(other.certificate), "client-key-data": encoded(other.key)}
    write(tmp_path, user)
    assert source.load().tls is not before.tls


@pytest.mark.parametrize("missing", ["client-certificate-data", "client-key-data"])
def test_half_a_pair_is_refused(tmp_path: Path, missing: str) -> None:
    pair = AUTHORITY.client("me")
    user = {"client-certificate-data": encoded(pair.certificate), "client-key-data": encoded(pair.key)}
    del user[missing]

    with pytest.raises(SettingsError, match="need each other"):
        Kubeconfig(write(tmp_path, user)).load()


def test_a_ca_file_that_is_empty_is_not_the_systems(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("")
    changes = {"certificate-authority-data": None, "certificate-authority": "ca.crt"}

    with pytest.raises(SettingsError, match="no certificate"):
        Kubeconfig(write(tmp_path, {"token": "t"}, **changes)).load()


PROXIES = {"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": ".internal"}


@pytest.mark.parametrize(
    ("cluster", "environment", "expected"),
    [
        ({}, PROXIES, "http://proxy.example:3128"),
        ({}, {}, None),
        ({"server": "https://api.internal"}, PROXIES, None),
        ({"server": "https://127.0.0.1:6443"}, PROXIES, None),
        ({"proxy-url": "http://of-the-cluster.example"}, PROXIES, "http://of-the-cluster.example"),
        ({"server": "https://api.internal", "proxy-url": "http://mine.example"}, PROXIES, "http://mine.example"),
    ],
)
def test_a_command_goes_through_the_proxy_of_its_environment(
    tmp_path: Path, cluster: dict[str, Any], environment: dict[str, str], expected: str | None
) -> None:
    found = Kubeconfig(write(tmp_path, {"token": "t"}, **cluster), environment=environment).load()

    assert (None if found.proxy is None else str(found.proxy)) == expected


def test_whoever_does_not_hand_in_an_environment_connects_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in PROXIES.items():
        monkeypatch.setenv(name, value)

    assert Kubeconfig(write(tmp_path, {"token": "t"})).load().proxy is None


@pytest.mark.parametrize(
    ("cluster", "environment", "named"),
    [
        ({"proxy-url": "socks5://u:my-secret@proxy"}, {}, "proxy-url"),
        ({}, {"HTTPS_PROXY": "socks5://u:my-secret@proxy"}, "HTTPS_PROXY"),
        ({}, {"HTTPS_PROXY": "http://"}, "HTTPS_PROXY"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(
    tmp_path: Path, cluster: dict[str, Any], environment: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingsError, match=f"{named} is no http or https URL") as caught:
        Kubeconfig(write(tmp_path, {"token": "t"}, **cluster), environment=environment).load()

    assert "my-secret" not in str(caught.value)


def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    pair = AUTHORITY.client("me")
    status = {"clientCertificateData": pair.certificate.decode(), "clientKeyData": pair.key.decode()}
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    user = plugin(tmp_path, f"print({json.dumps(credential)!r})")

    found = Kubeconfig(write(tmp_path, user)).load()

    assert found.authorization is None
    assert found.tls is not None


def test_a_plugin_has_the_time_that_its_caller_has(tmp_path: Path) -> None:
    user = plugin(tmp_path, "import signal; signal.pause()")

    with pytest.raises(SettingsError, match=r"did not answer within 0\.2 s"):
        Kubeconfig(write(tmp_path, user), left_s=lambda: 0.2).load()


def test_a_kubeconfig_that_is_a_directory_is_said_to_be_one_in_plain_words(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        Kubeconfig(str(tmp_path)).load()

    assert raised.value.problems == (f"kubeconfig {tmp_path}: {tmp_path}: Is a directory",)
