"""The certificates that a worker shows beside its own, the authorities that it trusts, and when all of them end."""

from collections.abc import Mapping
from datetime import datetime

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.errors import SettingsError
from devicemanager.settings.worker import WorkerSettings
from devicemanager.tls.identity import ClientIdentity, ServerIdentity
from devicemanager.tls.material import PairFiles
from devicemanager.worker.credentials import SERVICE_ACCOUNT
from devicemanager.worker.direct_kubelets import KubeletAccess


def device_manager_identity(
    settings: WorkerSettings, clock: Clock, log: FilteringBoundLogger
) -> ClientIdentity | None:
    if not settings.reads_device_managers:
        return None
    if settings.device_manager_insecure_skip_verify:
        log.warning("device_managers_not_verified", namespace=settings.device_manager_namespace)
    folder = settings.device_manager_client_cert_dir
    return ClientIdentity(
        settings.device_manager_ca_file,
        None if folder is None else PairFiles.in_directory(folder),
        verify=not settings.device_manager_insecure_skip_verify,
        clock=clock,
        log=log,
    )


def kubelet_identity(settings: WorkerSettings, clock: Clock, log: FilteringBoundLogger) -> ClientIdentity | None:
    if not settings.reads_kubelets_directly:
        return None
    if settings.kubelet_insecure_skip_verify:
        log.warning("kubelets_not_verified")
        return ClientIdentity(None, verify=False, clock=clock, log=log)
    authority = settings.kubelet_certificate_authority or SERVICE_ACCOUNT / "ca.crt"
    return ClientIdentity(authority, clock=clock, log=log)


def serving_ca(settings: WorkerSettings, clock: Clock, log: FilteringBoundLogger) -> ClientIdentity | None:
    """The authority beside the serving certificate, where whoever made that left one: only to say when it ends.

    Some issuers leave an empty file. Nothing is verified with it, so one that cannot be used ends no program.
    """
    ca = None if settings.cert_dir is None else settings.cert_dir / "ca.crt"
    if ca is None or not ca.is_file():
        return None
    try:
        return ClientIdentity(ca, clock=clock, log=log)
    except SettingsError as error:
        log.warning("tls_files_refused", files=str(ca), reason=str(error).removeprefix(f"{ca}: "))
        return None


def cas_not_after(
    identity: ServerIdentity, clients: Mapping[str, ClientIdentity | None]
) -> Mapping[str, datetime | None]:
    """Use -> when the first of its authorities ends; None for those of the system, or none."""
    cas = {"front-proxy": identity.client_cas} | {
        use: None if client is None else client.cas for use, client in clients.items()
    }
    return {use: None if authorities is None else authorities.not_after for use, authorities in cas.items()}


def kubelet_access(settings: WorkerSettings, identity: ClientIdentity) -> KubeletAccess:
    return KubeletAccess(
        tls=lambda: identity.context,
        address_types=settings.kubelet_preferred_address_types,
        server_name=settings.kubelet_server_name,
    )
