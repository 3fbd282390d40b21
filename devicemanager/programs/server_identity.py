"""The certificate that a server shows, and the clients that it trusts."""

from pathlib import Path

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.settings.server import ServerSettings
from devicemanager.tls.identity import ServerIdentity
from devicemanager.tls.material import Pair, PairFiles
from devicemanager.tls.self_signed import self_signed_pair


async def server_identity(
    settings: ServerSettings, client_cas: Path | None, clock: Clock, log: FilteringBoundLogger
) -> ServerIdentity:
    """With the pair in the directory of the settings, or a self-signed one made now.

    Args:
        settings: Of either server.
        client_cas: Bundle of the authorities whose client certificates are verified; None for none yet.
        clock: For certificates that end.
        log: Where that, and changes of the files, are said.

    Raises:
        SettingsError: A file cannot be used.
    """
    pair: Pair | PairFiles
    if settings.cert_dir is not None:
        pair = PairFiles.in_directory(settings.cert_dir)
    else:
        pair = await self_signed_pair(settings.san)
        log.info("self_signed_certificate_made", not_after=pair.not_after.isoformat())
    return ServerIdentity(pair, client_cas, clock=clock, log=log)
