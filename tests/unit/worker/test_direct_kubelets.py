"""A node's summary from the kubelet itself, over real TLS: whom we believe, what we show, what it costs."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from yarl import URL

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster.access import DISCOVERY, worker_rules
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.demo.cluster.selectors import JsonObject
from devicemanager.demo.cluster.stand_in import WORKER_TOKEN, WORKER_USER
from devicemanager.errors import FetchError
from devicemanager.model.usage import PodReading, SourceState
from devicemanager.tls.certificates import Authority, PemPair, self_signed
from devicemanager.tls.material import TrustedCAs, client_context
from devicemanager.transport.body_memory import BodyMemory
from devicemanager.transport.document_limits import BODY_BYTES
from devicemanager.transport.failures import attempt
from devicemanager.transport.messages import Received
from devicemanager.wire import nodes, pods
from devicemanager.wire.nodes import AddressType, Node, NodeAddress
from devicemanager.worker import direct_kubelets
from devicemanager.worker.client import ReadOptions, connect
from devicemanager.worker.cluster import ClusterClient
from devicemanager.worker.credentials import Credentials, Kubeconfig
from devicemanager.worker.direct_kubelets import RELOCATED_AFTER_S, DirectKubelets, KubeletAccess, summary_urls
from devicemanager.worker.outcomes import Answer
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster
from tests.timing import FakeClock, until

NODE = "node-a"
INTERNAL = (AddressType.INTERNAL_IP,)


@pytest.fixture(autouse=True)
def furnished(stand_in_cluster: StandInCluster) -> StandInCluster:
    """A node with one pod, and the rights of direct mode alone."""
    stand_in_cluster.add_node(NODE)
    stand_in_cluster.add_instance(InstanceSpec("team-a", "web", NODE))
    stand_in_cluster.access.rules[:] = [
        *DISCOVERY,
        *worker_rules(WORKER_USER, "gpustack-system", direct_kubelets=True),
    ]
    return stand_in_cluster


def trusting(authority: Authority) -> ssl.SSLContext:
    return client_context(TrustedCAs.parse(authority.pem.certificate))


def access(cluster: StandInCluster, **changes: Any) -> KubeletAccess:
    context = trusting(cluster.authority)
    return KubeletAccess(**{"tls": lambda: context, "address_types": INTERNAL, **changes})


@pytest_asyncio.fixture
async def kubelets(cluster: ClusterClient, furnished: StandInCluster) -> AsyncIterator[DirectKubelets]:
    async with DirectKubelets(cluster, cluster, access(furnished), SystemClock()) as source:
        yield source


async def state_of_failure(source: DirectKubelets) -> tuple[SourceState, str]:
    with pytest.raises(FetchError) as caught:
        await source.read(NODE)
    assert isinstance(caught.value.state, SourceState)
    return caught.value.state, str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.asyncio
async def test_a_pod_is_found_in_the_summary_of_its_nodes_own_kubelet(
    kubelets: DirectKubelets, cluster: ClusterClient, furnished: StandInCluster, host: str
) -> None:
    pod = pods.parse(await cluster.get("/api/v1/namespaces/team-a/pods/web"))

    async with furnished.kubelet(NODE, host):
        read = await kubelets.read(NODE)

    assert isinstance(read.reading(pod, SystemClock()), PodReading)
    [request] = furnished.requests.matching("nodes/stats")
    assert (request.verb, request.path, request.user) == ("get", "/stats/summary", WORKER_USER)
    assert furnished.requests.matching("nodes/proxy") == []
    [looked_up] = furnished.requests.matching("nodes")
    assert looked_up.path == f"/api/v1/nodes/{NODE}"


@pytest.mark.asyncio
async def test_where_a_node_is_is_asked_once(kubelets: DirectKubelets, furnished: StandInCluster) -> None:
    async with furnished.kubelet(NODE):
        for _ in range(3):
            await kubelets.read(NODE)

    assert len(furnished.requests.matching("nodes/stats")) == 3
    assert len(furnished.requests.matching("nodes")) == 1


@pytest.mark.asyncio
async def test_a_node_that_moved_is_found_again(kubelets: DirectKubelets, furnished: StandInCluster) -> None:
    async with furnished.kubelet(NODE):
        await kubelets.read(NODE)
    async with furnished.kubelet(NODE):
        await kubelets.read(NODE)

    assert len(furnished.requests.matching("nodes")) == 2


@pytest.mark.asyncio
async def test_a_node_that_is_gone_is_looked_up_once_for_each_read(
    kubelets: DirectKubelets, furnished: StandInCluster
) -> None:
    async with furnished.kubelet(NODE):
        await kubelets.read(NODE)
    for _ in range(2):
        state, _ = await state_of_failure(kubelets)
        assert state is SourceState.UNREACHABLE

    assert len(furnished.requests.matching("nodes")) == 3
    assert len(furnished.requests.matching("nodes/stats")) == 1


@pytest.mark.asyncio
async def test_an_address_that_another_node_has_now_is_read_anew(
    kubelets: DirectKubelets, furnished: StandInCluster
) -> None:
    """Node A moves, and node B takes its old address."""
    furnished.add_node("node-b")
    async with furnished.kubelet(NODE) as old:
        before = await kubelets.read(NODE)
    usurper = furnished.kubelet("node-b")
    usurper.port = old.port
    async with furnished.kubelet(NODE), usurper:
        after = await kubelets.read(NODE)

    assert (before.summary.node_name, after.summary.node_name) == (NODE, NODE)
    assert len(furnished.requests.matching("nodes")) == 2


@pytest.mark.asyncio
async def test_a_kubelet_that_stays_another_nodes_is_not_believed(
    kubelets: DirectKubelets, furnished: StandInCluster
) -> None:
    furnished.add_node("node-b")
    async with furnished.kubelet("node-b") as other:

        def point_at_the_other(node: JsonObject) -> None:
            node["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
            node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": other.port}}

        furnished.store.edit("nodes", "", NODE, point_at_the_other)
        state, message = await state_of_failure(kubelets)

    assert (state, message) == (SourceState.INVALID, "it answers for another node: 'node-b'")
    assert len(furnished.requests.matching("nodes")) == 1
    assert len(furnished.requests.matching("nodes/stats")) == 1


def list_addresses(cluster: StandInCluster, *addresses: str, kind: str = "InternalIP") -> None:
    def write(node: JsonObject) -> None:
        node["status"]["addresses"] = [{"type": kind, "address": address} for address in addresses]

    cluster.store.edit("nodes", "", NODE, write)


@pytest.mark.asyncio
async def test_what_the_api_server_does_is_no_kubelets_fault(
    kubelets: DirectKubelets, furnished: StandInCluster
) -> None:
    for trouble in (Trouble.HTML, Trouble.HALF):
        furnished.faults.switch_on("nodes", Fault(trouble))
        with pytest.raises(FetchError) as caught:
            await kubelets.read(NODE)
        assert (caught.value.state, caught.value.by_peer) == (SourceState.INVALID, False)
        furnished.faults.clear()


@pytest.mark.asyncio
async def test_where_a_node_is_counts_as_the_api_servers_and_never_longer_than_it_takes(
    cluster: ClusterClient, furnished: StandInCluster
) -> None:
    bodies = BodyMemory(BODY_BYTES)
    seen: list[tuple[int, int]] = []
    parse = nodes.parse

    def noting(body: bytes) -> Node:
        seen.append((bodies.api_server.held_bytes, bodies.peers.held_bytes))
        return parse(body)

    async with DirectKubelets(cluster, cluster, access(furnished), SystemClock(), bodies=bodies) as source:
        with pytest.MonkeyPatch.context() as patched, bodies.peers.holding():
            patched.setattr(nodes, "parse", noting)
            await attempt(source.read(NODE))

    [(own, peers)] = seen
    assert own > 0
    assert peers == 0
    assert bodies.held_bytes == 0


@pytest.mark.asyncio
async def test_a_node_with_another_address_is_noticed_while_its_kubelet_is_not_asked(
    cluster: ClusterClient, furnished: StandInCluster
) -> None:
    clock = FakeClock()
    async with DirectKubelets(cluster, cluster, access(furnished), clock) as source:
        assert source.answering(NODE) == frozenset()
        async with furnished.kubelet(NODE):
            await source.read(NODE)
            before = source.answering(NODE)
            list_addresses(furnished, "127.0.0.9")
            clock.advance(RELOCATED_AFTER_S - 1)
            assert source.answering(NODE) == before
            assert len(furnished.requests.matching("nodes")) == 1
            clock.advance(1)
            assert source.answering(NODE) == before
            await until(lambda: source.answering(NODE) - before)

    assert [url.host for url in source.answering(NODE)] == ["127.0.0.9"]
    assert len(furnished.requests.matching("nodes")) == 2


@pytest.mark.parametrize("dead", ["127.0.0.2", "::1", "fe80::1%lo", "not an address"])
@pytest.mark.asyncio
async def test_the_next_address_is_asked_where_one_is_dead(
    kubelets: DirectKubelets, furnished: StandInCluster, dead: str
) -> None:
    async with furnished.kubelet(NODE):
        list_addresses(furnished, dead, "127.0.0.1")
        for _ in range(2):
            assert (await kubelets.read(NODE)).summary.node_name == NODE

    assert len(furnished.requests.matching("nodes")) == 1


@pytest.mark.asyncio
async def test_an_address_that_hangs_costs_a_part_of_the_time_and_only_once(
    kubelets: DirectKubelets, furnished: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_kubelets, "CONNECT_S", 0.1)
    connections = 0

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read()
        writer.close()

    async with furnished.kubelet(NODE) as alive:
        silent = await asyncio.start_server(hang, "127.0.0.2", alive.port)
        list_addresses(furnished, "127.0.0.2", "127.0.0.1")
        for _ in range(3):
            assert (await kubelets.read(NODE)).summary.node_name == NODE
        silent.close()

    assert connections == 1


@pytest.mark.asyncio
async def test_whoever_is_not_verified_is_looked_for_at_addresses_of_the_first_type_only(
    cluster: ClusterClient, furnished: StandInCluster
) -> None:
    """The token goes to whoever answers."""
    anyone = client_context(None, verify=False)
    types = (AddressType.EXTERNAL_DNS, AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP)

    def write(node: JsonObject) -> None:
        listed = (("InternalIP", "127.0.0.2"), ("InternalIP", "127.0.0.3"), ("ExternalIP", "127.0.0.1"))
        node["status"]["addresses"] = [{"type": kind, "address": address} for kind, address in listed]

    for context, state in ((anyone, SourceState.UNREACHABLE), (trusting(furnished.authority), None)):
        reached = access(furnished, tls=lambda context=context: context, address_types=types)
        async with furnished.kubelet(NODE), DirectKubelets(cluster, cluster, reached, SystemClock()) as source:
            furnished.store.edit("nodes", "", NODE, write)
            outcome = await attempt(source.read(NODE))
            assert (outcome.state if isinstance(outcome, FetchError) else None) is state


@pytest.mark.asyncio
async def test_a_node_that_was_just_looked_up_is_not_looked_up_again(
    kubelets: DirectKubelets, furnished: StandInCluster
) -> None:
    async with furnished.kubelet(NODE):
        pass
    state, _ = await state_of_failure(kubelets)

    assert state is SourceState.UNREACHABLE
    assert len(furnished.requests.matching("nodes")) == 1


@pytest.mark.asyncio
async def test_a_kubelet_at_no_address_fails_as_the_first_one_did(
    kubelets: DirectKubelets, furnished: StandInCluster
) -> None:
    async with furnished.kubelet(NODE, pair=self_signed([NODE, "127.0.0.1"])):
        list_addresses(furnished, "127.0.0.1", "127.0.0.2")
        state, message = await state_of_failure(kubelets)

    assert state is SourceState.UNREACHABLE
    assert "self-signed certificate" in message


@pytest.mark.asyncio
async def test_cores_come_with_the_node(kubelets: DirectKubelets, furnished: StandInCluster) -> None:
    furnished.store.edit("nodes", "", NODE, lambda node: node["status"].update(capacity={"cpu": "1500m"}))
    async with furnished.kubelet(NODE):
        assert (await kubelets.read(NODE)).cpu_nanocores == 1_500_000_000


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (lambda cluster: self_signed([NODE, "127.0.0.1"]), "self-signed certificate"),
        (lambda cluster: Authority.create("another").serving([NODE, "127.0.0.1"]), "unable to get local issuer"),
        (lambda cluster: cluster.authority.serving([NODE, "127.0.0.9"]), "IP address mismatch"),
        (lambda cluster: cluster.authority.serving([NODE, "127.0.0.1"], days=-1), "certificate has expired"),
        (lambda cluster: cluster.authority.client("127.0.0.1"), "unsuitable certificate purpose"),
    ],
    ids=["self-signed", "another authority", "another address", "expired", "a client's"],
)
@pytest.mark.asyncio
async def test_a_kubelet_that_cannot_be_verified_never_gets_the_token(
    kubelets: DirectKubelets, furnished: StandInCluster, pair: Callable[[StandInCluster], PemPair], reason: str
) -> None:
    async with furnished.kubelet(NODE, pair=pair(furnished)):
        state, message = await state_of_failure(kubelets)

    assert state is SourceState.UNREACHABLE
    assert reason in message
    assert furnished.requests.matching("nodes/stats") == []


@pytest.mark.asyncio
async def test_a_self_signed_kubelet_is_read_where_verification_is_off(
    cluster: ClusterClient, furnished: StandInCluster
) -> None:
    anyone = client_context(None, verify=False)
    unverified = access(furnished, tls=lambda: anyone)

    async with (
        furnished.kubelet(NODE, pair=self_signed(["whatever"])),
        DirectKubelets(cluster, cluster, unverified, SystemClock()) as source,
    ):
        assert len((await source.read(NODE)).summary) == 1


@pytest.mark.parametrize("name", [NODE, f"{NODE}.example.org"])
@pytest.mark.asyncio
async def test_the_name_may_be_another_than_the_address(
    cluster: ClusterClient, furnished: StandInCluster, name: str
) -> None:
    pair = furnished.authority.serving([name])
    by_name = access(furnished, server_name=name.replace(NODE, "{node}"))

    async with (
        furnished.kubelet(NODE, pair=pair),
        DirectKubelets(cluster, cluster, by_name, SystemClock()) as source,
    ):
        assert len((await source.read(NODE)).summary) == 1


@pytest.mark.asyncio
async def test_a_missing_right_is_said_with_the_resource(
    kubelets: DirectKubelets, furnished: StandInCluster
) -> None:
    async with furnished.kubelet(NODE):
        await kubelets.read(NODE)
        furnished.access.rules.clear()
        state, message = await state_of_failure(kubelets)

    assert state is SourceState.FORBIDDEN
    assert message == f"HTTP 403: Forbidden (user={WORKER_USER}, verb=get, resource=nodes, subresource=stats)"


@pytest.mark.asyncio
async def test_a_node_that_may_not_be_looked_up(kubelets: DirectKubelets, furnished: StandInCluster) -> None:
    furnished.access.rules.clear()

    state, message = await state_of_failure(kubelets)

    assert state is SourceState.FORBIDDEN
    assert 'cannot get resource "nodes"' in message


@pytest.mark.asyncio
async def test_a_refused_token_is_read_again_before_the_read_fails(
    kubelets: DirectKubelets, furnished: StandInCluster, kubeconfig: Path
) -> None:
    async with furnished.kubelet(NODE):
        await kubelets.read(NODE)
        furnished.access.tokens["rotated"] = furnished.access.tokens.pop(WORKER_TOKEN)
        furnished.write_kubeconfig(kubeconfig, "rotated")

        assert len((await kubelets.read(NODE)).summary) == 1

    assert [request.user for request in furnished.requests.matching("nodes/stats")] == [
        WORKER_USER,
        "",
        WORKER_USER,
    ]


@pytest.mark.asyncio
async def test_an_unknown_token_is_tried_once_more_at_most(
    kubelets: DirectKubelets, furnished: StandInCluster
) -> None:
    async with furnished.kubelet(NODE):
        await kubelets.read(NODE)
        furnished.access.tokens.clear()
        state, message = await state_of_failure(kubelets)

    assert (state, message) == (SourceState.UNAUTHORIZED, "HTTP 401: Unauthorized")
    assert len(furnished.requests.matching("nodes/stats")) == 2


@pytest.mark.parametrize("shown", [None, "Basic dTpw"])
@pytest.mark.asyncio
async def test_without_a_token_no_kubelet_is_asked(
    cluster: ClusterClient, furnished: StandInCluster, shown: str | None
) -> None:
    class Nobody:
        async def authorized(self, ask: Callable[[Credentials], Awaitable[Received]]) -> Received:
            return await ask(Credentials(URL("https://api.example"), shown, tls=None))

    async with (
        furnished.kubelet(NODE),
        DirectKubelets(cluster, Nobody(), access(furnished), SystemClock()) as source,
    ):
        state, message = await state_of_failure(source)

    assert (state, message) == (SourceState.UNAUTHORIZED, "the worker has no bearer token to show to kubelets")
    assert furnished.requests.matching("nodes/stats") == []


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        (Fault(Trouble.ERROR, status=500), SourceState.UNREACHABLE),
        (Fault(Trouble.ERROR, status=504), SourceState.TIMEOUT),
        (Fault(Trouble.ERROR, status=404), SourceState.NOT_SERVED),
        (Fault(Trouble.HTML), SourceState.INVALID),
        (Fault(Trouble.HUGE, size_bytes=17 * 1024 * 1024), SourceState.INVALID),
        (Fault(Trouble.HALF), SourceState.INVALID),
        (Fault(Trouble.GZIP_BOMB), SourceState.INVALID),
        (Fault(Trouble.RESET), SourceState.UNREACHABLE),
    ],
    ids=lambda value: f"{value.trouble.name} {value.status}" if isinstance(value, Fault) else "",
)
@pytest.mark.asyncio
async def test_what_goes_wrong_is_a_state(
    kubelets: DirectKubelets, furnished: StandInCluster, fault: Fault, state: SourceState
) -> None:
    async with furnished.kubelet(NODE):
        with furnished.faults.on(f"kubelet/{NODE}", fault):
            assert (await state_of_failure(kubelets))[0] is state


@pytest.mark.parametrize("fault", [Fault(Trouble.ERROR, status=429), Fault(Trouble.ERROR), Fault(Trouble.RESET)])
@pytest.mark.asyncio
async def test_a_failure_of_a_moment_costs_no_answer(
    kubelets: DirectKubelets, furnished: StandInCluster, fault: Fault
) -> None:
    async with furnished.kubelet(NODE):
        furnished.faults.switch_on(f"kubelet/{NODE}", fault, times=1)

        read = await kubelets.read(NODE)

    assert len(read.summary) == 1
    assert len(furnished.requests.matching("nodes")) == 1


@pytest.mark.parametrize("trouble", [Trouble.HELD, Trouble.DRIP])
@pytest.mark.asyncio
async def test_a_slow_kubelet_costs_no_more_than_its_time(
    kubelets: DirectKubelets, furnished: StandInCluster, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_kubelets, "READ_DEADLINE_S", 0.3)
    async with furnished.kubelet(NODE):
        with furnished.faults.on(f"kubelet/{NODE}", Fault(trouble, delay_s=0.02)):
            state, message = await state_of_failure(kubelets)

    assert (state, message) == (SourceState.TIMEOUT, "no complete answer within 0.3 s")


@pytest.mark.asyncio
async def test_a_redirect_is_not_followed_with_our_token(
    kubelets: DirectKubelets, furnished: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(*_: object) -> web.Response:
        return web.Response(status=302, headers={"Location": f"{furnished.url}/api"})

    monkeypatch.setattr(furnished.kubelets, "summary", elsewhere)
    async with furnished.kubelet(NODE):
        asked = len(furnished.requests.entries)
        state, message = await state_of_failure(kubelets)

    assert (state, message) == (SourceState.INVALID, "answered with a redirect")
    assert [request.target for request in furnished.requests.entries[asked:]] == ["nodes", "nodes/stats"]


@pytest.mark.asyncio
async def test_the_environments_proxy_is_not_asked(
    cluster: ClusterClient, furnished: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")

    async with (
        furnished.kubelet(NODE),
        DirectKubelets(cluster, cluster, access(furnished), SystemClock()) as source,
    ):
        assert len((await source.read(NODE)).summary) == 1


@pytest.mark.parametrize("node", ["../pods", "node-a/proxy/exec", "", "NODE"])
@pytest.mark.asyncio
async def test_a_node_that_is_no_name_is_never_asked_for(
    kubelets: DirectKubelets, furnished: StandInCluster, node: str
) -> None:
    with pytest.raises(FetchError, match="not a Kubernetes name"):
        await kubelets.read(node)

    assert furnished.requests.entries == []


DUAL = Node(
    (
        NodeAddress("Hostname", "Worker-7"),
        NodeAddress("InternalIP", "10.0.0.7"),
        NodeAddress("InternalIP", "fd00::0007"),
        NodeAddress("ExternalIP", "2001:db8::7"),
    ),
    10255,
)


@pytest.mark.parametrize(
    ("types", "hosts"),
    [
        ([AddressType.INTERNAL_IP, AddressType.HOSTNAME], ["10.0.0.7", "[fd00::7]", "worker-7"]),
        ([AddressType.EXTERNAL_IP, AddressType.INTERNAL_IP], ["[2001:db8::7]", "10.0.0.7", "[fd00::7]"]),
        ([AddressType.EXTERNAL_DNS, AddressType.HOSTNAME], ["worker-7"]),
    ],
)
def test_addresses_are_tried_in_the_order_of_the_types(types: list[AddressType], hosts: list[str]) -> None:
    assert [str(url) for url in summary_urls(DUAL, types)] == [
        f"https://{host}:10255/stats/summary" for host in hosts
    ]


def test_of_many_addresses_a_few_are_tried_and_each_once() -> None:
    listed = ["10.0.0.1", "10.0.0.1", "FD00::0001", "fd00::1", *(f"10.0.1.{number}" for number in range(250))]
    node = Node(tuple(NodeAddress("InternalIP", address) for address in listed), None)
    hosts = [url.host for url in summary_urls(node, INTERNAL)]
    assert hosts == ["10.0.0.1", "fd00::1", "10.0.1.0", "10.0.1.1"]


def test_a_node_that_names_no_port_listens_where_kubelets_do() -> None:
    node = Node((NodeAddress("InternalIP", "fd00::7"),), None)
    assert [str(url) for url in summary_urls(node, INTERNAL)] == ["https://[fd00::7]:10250/stats/summary"]


def test_a_node_without_an_address_of_these_types() -> None:
    with pytest.raises(FetchError, match="no address of type ExternalDNS or InternalDNS") as caught:
        summary_urls(DUAL, [AddressType.EXTERNAL_DNS, AddressType.INTERNAL_DNS])
    assert caught.value.state is SourceState.UNREACHABLE


@pytest.mark.parametrize("address", ["a b", "evil.example/x?", "user@host", "fe80::1%eth0", "host:80", "-"])
def test_an_invalid_address_is_not_dialled(address: str) -> None:
    with pytest.raises(FetchError, match="the node has no address that can be used") as caught:
        summary_urls(Node((NodeAddress("InternalIP", address),), None), INTERNAL)
    assert caught.value.state is SourceState.INVALID


@pytest.mark.asyncio
async def test_the_whole_read_side_in_direct_mode(furnished: StandInCluster, kubeconfig: Path) -> None:
    options = ReadOptions(kubelets=access(furnished))
    async with furnished.kubelet(NODE), connect(Kubeconfig(str(kubeconfig)), options) as side:
        outcomes = [await side.reader.read("team-a", "web") for _ in range(2)]
        async with asyncio.TaskGroup() as readers:
            for _ in range(20):
                readers.create_task(side.reader.read("team-a", "web"))

    for outcome in outcomes:
        assert isinstance(outcome, Answer)
        assert outcome.usage.sample is not None
        assert [(report.name, report.state) for report in outcome.usage.sample.sources] == [("kubelet", "ok")]
    assert len(furnished.requests.matching("nodes/stats")) == 1
    assert furnished.requests.matching("nodes/proxy") == []
    assert furnished.requests.matching("pods.metrics.k8s.io") == []
