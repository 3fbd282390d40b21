"""Has a self-signed pair made by a short-lived process: the server never imports ``cryptography``."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

from devicemanager.errors import SettingsError, excerpt
from devicemanager.tls.material import Pair

_DEADLINE_S: Final = 20.0


async def self_signed_pair(names: Sequence[str] = ()) -> Pair:
    """Have a short-lived process make a pair for these names, this host's, ``localhost`` and loopback addresses.

    Raises:
        SettingsError: The process failed, with what it said, or did not end in time.
    """
    arguments = [argument for name in names for argument in ("--san", name)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # what lies in the directory that we happen to be started in is not our code
        "-m",
        "devicemanager.tls.certificates",
        "self-signed",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_DEADLINE_S):
            output, errors = await process.communicate()
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise SettingsError(["making a self-signed certificate took too long; give --cert-dir"]) from error
    if process.returncode != 0:
        last_line = excerpt(errors.decode("utf-8", "replace").strip().rpartition("\n")[2])
        raise SettingsError([f"making a self-signed certificate failed: {last_line}"])
    return Pair.parse(output, output)
