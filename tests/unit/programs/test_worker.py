"""The order in which a worker starts."""

import pytest

from devicemanager.clock import SystemClock
from devicemanager.errors import SettingsError
from devicemanager.programs import worker
from devicemanager.settings.worker import WorkerSettings
from tests.tls_peers import Logged


@pytest.mark.asyncio
async def test_without_credentials_no_certificate_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    logged = Logged()

    with pytest.raises(SettingsError, match="not in a cluster, and no --kubeconfig"):
        async with worker.running(WorkerSettings(secure_port=0), SystemClock(), logged.log):
            raise AssertionError("it must not get as far as this")

    assert logged.events("self_signed_certificate_made") == []
