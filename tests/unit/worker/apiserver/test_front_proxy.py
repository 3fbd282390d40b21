"""Following the front proxy's ConfigMap: what is adopted, and what is kept when it goes bad."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import structlog.testing
from typing_extensions import override

from devicemanager.demo.cluster.stand_in import WORKER_TOKEN
from devicemanager.errors import DocumentError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.tls.certificates import Authority
from devicemanager.tls.material import TrustedCAs
from devicemanager.transport.messages import Received
from devicemanager.worker.apiserver.front_proxy import RECHECK_S, FrontProxy
from devicemanager.worker.apiserver.request_header import parse_trust
from devicemanager.worker.cluster import Cluster, ClusterClient
from devicemanager.worker.credentials import Kubeconfig
from devicemanager.worker.watch_stream import WatchEvent
from tests.cluster.stand_in import StandInCluster
from tests.timing import FakeClock, until

CA = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
DATA = {
    "client-ca-file": "not ours to believe",
    "requestheader-client-ca-file": CA,
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}


def test_the_real_content() -> None:
    trust = parse_trust(DATA)
    assert trust.ca_pem == CA
    assert trust.allowed_names == ("front-proxy-client",)
    assert trust.username_headers == ("X-Remote-User",)
    assert trust.uid_headers == ()
    assert trust.extra_prefixes == ("x-remote-extra-",)
    assert trust.allows("front-proxy-client")
    assert not trust.allows("kubelet")


@pytest.mark.parametrize("names", ["[]", "", None])
def test_no_names_allow_any(names: str | None) -> None:
    data = {key: value for key, value in DATA.items() if key != "requestheader-allowed-names"}
    if names is not None:
        data["requestheader-allowed-names"] = names
    assert parse_trust(data).allows("anybody")


def test_an_empty_allowed_name_allows_no_certificate_and_an_empty_header_names_no_user() -> None:
    trust = parse_trust(
        {
            **DATA,
            "requestheader-allowed-names": '[""]',
            "requestheader-group-headers": '["", "X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '[""]',
        }
    )
    assert not trust.allows("anybody")
    assert trust.group_headers == ("X-Remote-Group",)
    assert trust.extra_prefixes == ()


@pytest.mark.parametrize(
    "change",
    [
        {"requestheader-client-ca-file": ""},
        {"requestheader-client-ca-file": "not a certificate"},
        {"requestheader-allowed-names": "front-proxy-client"},
        {"requestheader-allowed-names": '"front-proxy-client"'},
        {"requestheader-allowed-names": "[1]"},
        {"requestheader-username-headers": "[]"},
        {"requestheader-username-headers": ""},
        {"requestheader-group-headers": "{"},
        pytest.param({"requestheader-group-headers": "[" * 100_000}, id="nested"),
    ],
)
def test_content_of_no_use(change: dict[str, str]) -> None:
    with pytest.raises(DocumentError):
        parse_trust({**DATA, **change})
    with pytest.raises(DocumentError, match="aggregation layer is not configured"):
        parse_trust({})


LISTED = "900"
"""The version of a list is the cluster's, far ahead of that of an object that has not changed for long."""


ONLY_IT = {"fieldSelector": "metadata.name=extension-apiserver-authentication"}
"""Anything wider is refused by the real role."""


class Script(Cluster):
    """A ConfigMap that changes as told; each list or watch event is the next of the script.

    A document is the only item of a list of version ``LISTED``; bytes and lists stand as they are.
    """

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.events: list[WatchEvent] = []
        self.reads: list[float] = []
        self.watched: list[str] = []
        self.watch_error: FetchError | None = None

    @override
    async def get(self, path: str, params: Mapping[str, str] | None = None, **bounds: float) -> bytes:
        assert path == "/api/v1/namespaces/kube-system/configmaps"
        assert params == {**ONLY_IT, "limit": "250"}
        self.reads.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, dict):
            answer = [answer]
        if isinstance(answer, list):
            answer = json.dumps({"metadata": {"resourceVersion": LISTED}, "items": answer}).encode()
        assert isinstance(answer, bytes)
        return answer

    @override
    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str] | None = None, *, resource_version: str
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        assert params == ONLY_IT
        self.watched.append(resource_version)
        if self.watch_error is not None:
            raise self.watch_error
        async with aclosing(self._events()) as events:
            yield events

    async def _events(self) -> AsyncGenerator[WatchEvent, None]:
        while self.events:
            yield self.events.pop(0)
        await asyncio.Event().wait()

    @override
    async def fetch(self, *args: Any, **kwargs: Any) -> Received:
        raise NotImplementedError

    @override
    async def post(self, path: str, body: bytes, *, deadline_s: float = 10.0) -> bytes:
        raise NotImplementedError


def config_map(version: str = "1", **data: str) -> dict[str, Any]:
    return {"metadata": {"uid": "one", "resourceVersion": version}, "data": {**DATA, **data}}


def event(kind: str, document: object) -> WatchEvent:
    return WatchEvent(kind, json.dumps(document).encode())


async def followed(script: Script, seconds: float, installed: list[str]) -> FrontProxy:
    front_proxy = FrontProxy(script, installed.append, jitter=lambda: 0.5)
    try:
        async with asyncio.timeout(seconds):
            await front_proxy.follow()
    except TimeoutError:
        pass
    return front_proxy


@pytest.mark.looptime
@pytest.mark.asyncio
async def test_the_ca_is_installed_once_and_names_change_without_it() -> None:
    script, installed = Script(config_map()), list[str]()
    script.events = [
        event("MODIFIED", config_map("2", **{"requestheader-allowed-names": '["other"]'})),
        event("BOOKMARK", {"metadata": {"resourceVersion": "3"}}),
    ]
    front_proxy = await followed(script, 10, installed)
    assert installed == [CA]
    assert front_proxy.problem is None
    assert front_proxy.trust is not None
    assert front_proxy.trust.allowed_names == ("other",)
    assert script.watched == [LISTED]


@pytest.mark.looptime
@pytest.mark.asyncio
async def test_a_version_that_the_api_server_has_forgotten_is_no_problem_and_not_logged() -> None:
    """After a restart of kube-apiserver, watches ended with 410 for ever, with two lines in the log each."""
    script = Script(config_map())
    script.watch_error = FetchError(SourceState.INVALID, "HTTP 410: too old resource version", status=410)
    with structlog.testing.capture_logs() as logs:
        front_proxy = await followed(script, 10.5, [])
    assert front_proxy.problem is None
    assert [line["event"] for line in logs] == ["front_proxy_trust_changed", "front_proxy_trust_current"]
    assert len(script.reads) == 11


@pytest.mark.looptime
@pytest.mark.asyncio
@pytest.mark.parametrize("listing", [[], b'{"metadata":{"resourceVersion":"1"},"items":null}', b"{}", b"[]", b"x"])
async def test_a_list_of_no_use_leaves_the_last_good_word(listing: object) -> None:
    script, installed = Script(config_map(), listing), list[str]()
    front_proxy = await followed(script, 100, installed)
    assert front_proxy.trust == parse_trust(DATA)
    assert front_proxy.problem is not None


@pytest.mark.looptime
@pytest.mark.asyncio
@pytest.mark.parametrize(
    "bad",
    [
        event("MODIFIED", {"metadata": {"uid": "one", "resourceVersion": "2"}}),
        event("MODIFIED", config_map("2", **{"requestheader-client-ca-file": ""})),
        event("MODIFIED", config_map("2", **{"requestheader-allowed-names": "{"})),
        event("DELETED", config_map("2")),
        WatchEvent("MODIFIED", b"not json"),
    ],
)
async def test_the_last_good_word_is_kept(bad: WatchEvent) -> None:
    script, installed = Script(config_map(), FetchError(SourceState.NOT_SERVED, "gone", status=404)), list[str]()
    script.events = [bad]
    front_proxy = await followed(script, 100, installed)
    assert front_proxy.trust == parse_trust(DATA)
    assert installed == [CA]
    assert front_proxy.problem == "gone"


@pytest.mark.looptime
@pytest.mark.asyncio
async def test_it_is_read_again_each_minute_whatever_the_watch_says() -> None:
    script = Script(config_map())
    await followed(script, 3.5 * RECHECK_S, [])
    assert script.reads == pytest.approx([0, RECHECK_S, 2 * RECHECK_S, 3 * RECHECK_S])


@pytest.mark.looptime
@pytest.mark.asyncio
async def test_a_cluster_that_is_away_is_asked_again_with_growing_pauses_and_said_so() -> None:
    script = Script(FetchError(SourceState.UNREACHABLE, "away"))
    front_proxy = await followed(script, 100, [])
    assert front_proxy.trust is None
    assert front_proxy.problem == "away"
    assert script.reads == pytest.approx([0, 1, 3, 7, 15, 30, 45, 60, 75, 90])


@pytest.mark.looptime
@pytest.mark.asyncio
async def test_a_ca_that_cannot_be_installed_is_not_trusted() -> None:
    def install(pem: str) -> None:
        raise ValueError("not a certificate")

    front_proxy = FrontProxy(Script(config_map()), install)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await front_proxy.follow()
    assert front_proxy.trust is None
    assert "cannot be used" in str(front_proxy.problem)


@pytest.mark.asyncio
async def test_over_a_real_connection(stand_in_cluster: StandInCluster) -> None:
    installed: list[str] = []

    def install(pem: str) -> None:
        TrustedCAs.parse(pem.encode())
        installed.append(pem)

    kubeconfig = stand_in_cluster.write_kubeconfig(stand_in_cluster.folder / "worker", WORKER_TOKEN)
    async with ClusterClient(Kubeconfig(str(kubeconfig)), FakeClock()) as api, asyncio.TaskGroup() as tasks:
        front_proxy = FrontProxy(api, install)
        following = tasks.create_task(front_proxy.follow())
        await until(lambda: front_proxy.trust is not None)
        await until(lambda: bool(stand_in_cluster.requests.matching("watch=true")) or len(installed) == 1)
        successor = Authority.create("next front proxy CA")
        stand_in_cluster.publish_front_proxy([stand_in_cluster.front_proxy, successor])
        await until(lambda: len(installed) == 2)
        assert installed[1].count("BEGIN CERTIFICATE") == 2
        following.cancel()
