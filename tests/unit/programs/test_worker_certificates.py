"""The certificates and authorities of a worker beside its own: which there are, and when they end."""

from pathlib import Path

import pytest

from devicemanager.clock import SystemClock
from devicemanager.programs import worker_certificates
from devicemanager.settings.worker import WorkerSettings
from tests.tls_peers import Logged, authority, bundle, cas, server_identity


def settings(folder: Path | None) -> WorkerSettings:
    return WorkerSettings(cert_dir=folder)


def test_a_folder_without_an_authority_has_none_and_that_is_nothing_to_log(tmp_path: Path) -> None:
    logged = Logged()
    for folder in (None, tmp_path):
        assert worker_certificates.serving_ca(settings(folder), SystemClock(), logged.log) is None
    assert not logged.capture.entries


@pytest.mark.parametrize("content", [b"", b"no certificate"])
def test_an_authority_that_cannot_be_used_is_logged_and_ends_nothing(tmp_path: Path, content: bytes) -> None:
    """Issuers without an authority of their own leave an empty file beside the certificate."""
    (tmp_path / "ca.crt").write_bytes(content)
    logged = Logged()
    assert worker_certificates.serving_ca(settings(tmp_path), SystemClock(), logged.log) is None
    (line,) = logged.events("tls_files_refused")
    assert line["files"] == str(tmp_path / "ca.crt")
    assert str(tmp_path) not in str(line["reason"])


def test_the_end_of_each_authority_by_its_use(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(bundle(authority()))
    found = worker_certificates.serving_ca(settings(tmp_path), SystemClock(), Logged().log)
    assert found is not None
    ends = worker_certificates.cas_not_after(server_identity(), {"serving": found, "kubelets": None})
    assert ends == {"front-proxy": None, "serving": cas(authority()).not_after, "kubelets": None}
