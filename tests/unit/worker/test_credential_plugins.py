"""Credentials that a program or an identity provider gives."""

import json
import stat
import sys
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import pytest

from devicemanager.errors import DocumentError
from devicemanager.worker.credential_plugins import exec_credential, provider_authorization

API = "client.authentication.k8s.io/v1"


def plugin(folder: Path, text: str) -> dict[str, object]:
    script = folder / "plugin"
    script.write_text(f"#!{sys.executable}\n{text}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": API, "command": str(script)}


def printing(status: object) -> str:
    return f"print({json.dumps({'apiVersion': API, 'kind': 'ExecCredential', 'status': status})!r})"


def test_a_plugin_gets_its_arguments_and_its_variables(tmp_path: Path) -> None:
    text = (
        "import json, os, sys; print(json.dumps({'apiVersion': '"
        + API
        + "', 'kind': 'ExecCredential', 'status': {'token': sys.argv[1] + os.environ['REGION']}}))"
    )
    config = {**plugin(tmp_path, text), "args": ["of-"], "env": [{"name": "REGION", "value": "eu"}]}

    assert exec_credential(config, 10) == {"token": "of-eu"}


@pytest.mark.parametrize("status", [None, [], {}, {"token": ""}, {"clientKeyData": "k"}])
def test_a_plugin_without_a_credential_is_a_failure(tmp_path: Path, status: object) -> None:
    with pytest.raises(DocumentError, match="exec plugin gave no credential"):
        exec_credential(plugin(tmp_path, printing(status)), 10)


def test_a_plugin_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="exec plugin gave no credential"):
        exec_credential({"apiVersion": API, "command": str(tmp_path / "none")}, 10)


def test_a_plugin_says_why_it_failed(tmp_path: Path) -> None:
    text = "import sys; sys.stderr.write('log in first'); sys.exit(1)"
    with pytest.raises(DocumentError, match="log in first"):
        exec_credential(plugin(tmp_path, text), 10)


def token(claims: dict[str, Any]) -> str:
    parts = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims)]
    return ".".join([*parts, "signature"])


def test_the_token_of_an_auth_provider() -> None:
    current = token({"exp": 4_000_000_000})
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": current}}}

    assert provider_authorization(user, 10) == f"Bearer {current}"


@pytest.mark.parametrize("provider", [{"name": "oidc"}, {"name": "oidc", "config": {}}, {"name": "another"}])
def test_an_auth_provider_without_a_token_is_a_failure(provider: dict[str, object]) -> None:
    with pytest.raises(DocumentError, match="auth provider gave no credential"):
        provider_authorization({"auth-provider": provider}, 10)
