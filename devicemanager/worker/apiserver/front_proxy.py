"""Follows what the cluster publishes about its front proxy, and keeps the last good state of it.

The CA goes to the listener and the names stay here, both without a restart. A ConfigMap that is deleted, emptied or
malformed changes nothing: the aggregator that it described still calls.
"""

import json
import random
from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from devicemanager.errors import DocumentError
from devicemanager.worker.apiserver.request_header import FrontProxyTrust, parse_trust
from devicemanager.worker.cluster import Cluster
from devicemanager.worker.pages import Lister
from devicemanager.worker.reflector import Reflector

NAME: Final = "extension-apiserver-authentication"
CONFIG_MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
RECHECK_S: Final = 60.0
"""The ConfigMap is read again at least this often, because a watch can stop without an error."""


class FrontProxy:
    """What is trusted of the front proxy at this moment.

    Args:
        cluster: Where the ConfigMap is.
        install: Hands the CA bundle to the listener; raises ``ssl.SSLError`` or ValueError for one it cannot use.
        jitter: Gives random numbers from 0..1, for the pauses between failed reads.
        lister: Lists the ConfigMap; None for an own.
    """

    def __init__(
        self,
        cluster: Cluster,
        install: Callable[[str], None],
        *,
        jitter: Callable[[], float] = random.random,
        lister: Lister | None = None,
    ) -> None:
        self._config_maps: Reflector[FrontProxyTrust | DocumentError] = Reflector(
            cluster,
            CONFIG_MAPS,
            _read,
            params={"fieldSelector": f"metadata.name={NAME}"},
            name="front-proxy",
            recheck_s=RECHECK_S,
            changed=self._take,
            jitter=jitter,
            lister=lister,
        )
        self._install = install
        self._log = structlog.get_logger().bind()
        self._problem: str | None = "not read yet"
        self.trust: FrontProxyTrust | None = None
        """The last good state; None before the first."""

    @property
    def problem(self) -> str | None:
        """Why the newest state could not be had or used, one line; None when it could."""
        unreachable = self._config_maps.problem
        return self._problem if unreachable is None else str(unreachable)

    async def follow(self) -> NoReturn:
        """Keeps it current until cancelled."""
        await self._config_maps.run()

    def _take(self) -> None:
        """Adopt the current ConfigMap; if it cannot be used, keep the last good one."""
        try:
            trust = next(iter(self._config_maps.items.values()), DocumentError("not found"))
            if isinstance(trust, DocumentError):
                raise trust
            if trust != self.trust:
                self._adopt(trust)
        except DocumentError as error:
            self._report(f"ConfigMap kube-system/{NAME}: {error}")
        else:
            self._report(None)

    def _adopt(self, trust: FrontProxyTrust) -> None:
        """Adopt the CA before the names, so that no name is trusted under another CA."""
        if self.trust is None or trust.ca_pem != self.trust.ca_pem:
            try:
                self._install(trust.ca_pem)
            except (OSError, ValueError) as error:  # OSError: no descriptor is free, or TLS refuses it
                raise DocumentError(f"the CA bundle cannot be used: {error}") from error
        self.trust = trust
        self._log.info(
            "front_proxy_trust_changed", allowed_names=trust.allowed_names, username_headers=trust.username_headers
        )

    def _report(self, problem: str | None) -> None:
        """Once per problem, not once per attempt."""
        if problem == self._problem:
            return
        self._problem = problem
        if problem is None:
            self._log.info("front_proxy_trust_current")
        else:
            self._log.warning("front_proxy_trust_not_current", error=problem, last_good=self.trust is not None)


def _read(config_map: bytes) -> FrontProxyTrust | DocumentError:
    """The trust in the ConfigMap, or what is wrong with it."""
    try:
        match json.loads(config_map):
            case {"data": dict(data)}:
                return parse_trust({key: value for key, value in data.items() if isinstance(value, str)})
            case _:
                return DocumentError("it has no data")
    except DocumentError as error:
        return error
    except (ValueError, RecursionError):
        return DocumentError("it is not JSON")
