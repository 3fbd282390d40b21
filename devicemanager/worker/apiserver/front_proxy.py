"""Follows what the cluster publishes about its front proxy, and keeps the last good word.

The CA goes to the listener and the names stay here, both without a restart. A ConfigMap that is deleted, emptied or
garbled changes nothing: the aggregator that it described is still the one that calls.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Final, NoReturn, Protocol

import structlog

from devicemanager.errors import DeviceManagerError, DocumentError, FetchError
from devicemanager.worker.apiserver.request_header import FrontProxyTrust, parse_trust
from devicemanager.worker.cluster import WatchEvent

NAME: Final = "extension-apiserver-authentication"
CONFIG_MAPS: Final = "/api/v1/namespaces/kube-system/configmaps"
RECHECK_S: Final = 60.0
"""The ConfigMap is read anew at least so often, whatever the watch says: a watch can die without a word."""

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0

_ONLY_IT: Final = {"fieldSelector": f"metadata.name={NAME}"}
_GONE: Final = 410
_CHANGES: Final = frozenset({"ADDED", "MODIFIED"})


class ConfigMaps(Protocol):
    """What following needs of the API client."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        """A list. Raises FetchError."""
        ...

    def watch(
        self, path: str, params: Mapping[str, str] | None = None, *, resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        """Its changes. Raises FetchError."""
        ...


class FrontProxy:
    """The front proxy's trust at this moment.

    Args:
        api: Reads and watches the ConfigMap.
        install: Hands the CA bundle to the listener; raises ``ssl.SSLError`` or ValueError for one it cannot use.
    """

    def __init__(self, api: ConfigMaps, install: Callable[[str], None]) -> None:
        self._api = api
        self._install = install
        self._log = structlog.get_logger().bind()
        self.trust: FrontProxyTrust | None = None
        """The last good word; None before the first."""
        self.problem: str | None = "not read yet"
        """Why the newest word could not be had, one line; None when it could."""

    async def follow(self) -> NoReturn:
        """List, watch, list again; for ever."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                version = self._take_listed(json.loads(await self._api.get(CONFIG_MAPS, _ONLY_IT)))
                pause_s = FIRST_PAUSE_S
                await self._watch(version)
            except (DeviceManagerError, ValueError, RecursionError) as error:
                self._report(str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _watch(self, version: str) -> None:
        """Take changes for a while; a watch that ends by itself is no fault, only a reason to pause a moment.

        Nor is one that cannot begin because the API server has forgotten the version (410): list again.
        """
        try:
            async with (
                asyncio.timeout(RECHECK_S),
                aclosing(self._api.watch(CONFIG_MAPS, _ONLY_IT, resource_version=version)) as events,  # type: ignore[type-var]
            ):
                async for event in events:
                    if event.type in _CHANGES:
                        self._take(json.loads(event.object))
        except TimeoutError:
            return
        except FetchError as error:
            if error.status != _GONE:
                raise
        await asyncio.sleep(FIRST_PAUSE_S)

    def _take_listed(self, listing: object) -> str:
        """Adopt the ConfigMap of a list, and return the version of the list, from which a watch can begin.

        The object's own version is that of its last change. On a cluster that has run for a while the API server no
        longer knows it, and a watch from there ends at once.

        Raises:
            DocumentError: It is of no use, or is not there; what was known stays.
        """
        match listing:
            case {"metadata": {"resourceVersion": str(version)}, "items": [config_map]}:
                self._take(config_map)
                return version
            case {"metadata": {"resourceVersion": str()}, "items": [] | None}:
                raise DocumentError(f"ConfigMap kube-system/{NAME} not found")
            case _:
                raise DocumentError("the answer is no list of ConfigMaps")

    def _take(self, config_map: object) -> None:
        """Adopt one state of the ConfigMap.

        Raises:
            DocumentError: It is of no use; what was known stays.
        """
        match config_map:
            case {"data": dict(data)}:
                trust = parse_trust({key: value for key, value in data.items() if isinstance(value, str)})
            case _:
                raise DocumentError(f"ConfigMap kube-system/{NAME} has no data")
        if trust != self.trust:
            self._adopt(trust)
        if self.problem is not None:
            self.problem = None
            self._log.info("front_proxy_trust_current")

    def _adopt(self, trust: FrontProxyTrust) -> None:
        """The CA first: names that are believed must never be ahead of the certificates that carry them."""
        if self.trust is None or trust.ca_pem != self.trust.ca_pem:
            try:
                self._install(trust.ca_pem)
            except (OSError, ValueError) as error:  # OSError: no descriptor is free, or TLS refuses it
                raise DocumentError(f"the front proxy's CA bundle cannot be used: {error}") from error
        self.trust = trust
        self._log.info(
            "front_proxy_trust_changed", allowed_names=trust.allowed_names, username_headers=trust.username_headers
        )

    def _report(self, problem: str) -> None:
        """Once per problem, not once per attempt."""
        if problem != self.problem:
            self.problem = problem
            self._log.warning("front_proxy_trust_not_current", error=problem, last_good=self.trust is not None)
