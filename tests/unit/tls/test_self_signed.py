import subprocess
import sys

import pytest

from devicemanager.errors import SettingsError
from devicemanager.tls.material import TrustedCAs, client_context, server_context
from devicemanager.tls.self_signed import self_signed_pair
from tests.tls_peers import shake


@pytest.mark.asyncio
async def test_a_short_lived_process_makes_the_pair() -> None:
    pair = await self_signed_pair(["device-manager.test"])

    _, asking = shake(server_context(pair, None), client_context(TrustedCAs.parse(pair.certificate)))
    assert asking.version() == "TLSv1.3"


@pytest.mark.asyncio
async def test_its_failure_says_what_it_said() -> None:
    with pytest.raises(SettingsError, match="self-signed certificate failed"):
        await self_signed_pair(["ü" * 300])


def test_the_serving_side_never_imports_cryptography() -> None:
    code = (
        "import sys, devicemanager.serving.listener, devicemanager.node.server, devicemanager.tls.identity;"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] == 'cryptography'))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)

    assert run.stdout == "[]\n"
