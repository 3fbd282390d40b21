import pytest
from aiohttp import web
from pytest_aiohttp.plugin import AiohttpClient

from devicemanager.serving.probes import PING, Check, Probe, Shutdown, handler
from tests.tls_peers import Logged

pytestmark = pytest.mark.asyncio


class Answering:
    """A check whose answer a test sets."""

    def __init__(self, name: str) -> None:
        self.says: str | None = None
        self.check = Check(name, lambda: self.says)


async def ask(aiohttp_client: AiohttpClient, probe: Probe, query: str = "") -> tuple[int, str]:
    app = web.Application()
    app.router.add_get("/readyz", handler(probe))
    client = await aiohttp_client(app)
    async with client.get(f"/readyz{query}") as response:
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        return response.status, await response.text()


@pytest.mark.parametrize(
    ("query", "text"),
    [
        pytest.param("", "ok", id="for-machines"),
        pytest.param("?verbose", "[+]ping ok\n[+]collector ok\nreadyz check passed\n", id="verbose"),
        pytest.param(
            "?verbose&exclude=ping",
            "[+]ping excluded: ok\n[+]collector ok\nreadyz check passed\n",
            id="excluded",
        ),
        pytest.param(
            "?verbose=1&exclude=b&exclude=a",
            "[+]ping ok\n[+]collector ok\n"
            "warn: some health checks cannot be excluded: no matches for 2 of the names\n"
            "readyz check passed\n",
            id="unknown-names",
        ),
    ],
)
async def test_what_passing_looks_like(aiohttp_client: AiohttpClient, query: str, text: str) -> None:
    probe = Probe("readyz", [PING, Answering("collector").check], Logged().log)

    assert await ask(aiohttp_client, probe, query) == (200, text)


async def test_a_failure_names_the_check_and_withholds_the_reason(aiohttp_client: AiohttpClient) -> None:
    collector = Answering("collector")
    collector.says = "secret"

    answer = await ask(aiohttp_client, Probe("readyz", [PING, collector.check], Logged().log))

    assert answer == (500, "[+]ping ok\n[-]collector failed: reason withheld\nreadyz check failed\n")


async def test_an_excluded_failure_passes(aiohttp_client: AiohttpClient) -> None:
    collector = Answering("collector")
    collector.says = "down"

    answer = await ask(aiohttp_client, Probe("readyz", [PING, collector.check], Logged().log), "?exclude=collector")

    assert answer == (200, "ok")


async def test_the_log_says_each_change_once_with_its_reason() -> None:
    logged, collector = Logged(), Answering("collector")
    probe = Probe("readyz", [PING, collector.check], logged.log)
    for says in (None, "down", "still down", None, None):
        collector.says = says
        probe.problems()

    assert logged.events("probe_failing") == [
        {"log_level": "warning", "probe": "readyz", "problems": {"collector": "down"}}
    ]
    assert logged.events("probe_passing") == [{"log_level": "info", "probe": "readyz"}]


async def test_shutdown_fails_readiness_from_its_beginning_on() -> None:
    shutdown = Shutdown()
    probe = Probe("readyz", [shutdown.check], Logged().log)
    before = probe.problems()
    shutdown.begin()

    assert (before, probe.problems()) == ({}, {"shutdown": "shutting down"})


@pytest.mark.parametrize(
    ("problem", "answer"),
    [
        (None, (200, "[+]ping ok\n[+]collector ok (driver_not_loaded)\nreadyz check passed\n")),
        ("secret", (500, "[+]ping ok\n[-]collector failed: driver_not_loaded\nreadyz check failed\n")),
    ],
)
async def test_a_check_with_a_state_says_it_and_no_more(
    aiohttp_client: AiohttpClient, problem: str | None, answer: tuple[int, str]
) -> None:
    check = Check("collector", lambda: problem, state=lambda: "driver_not_loaded")

    assert await ask(aiohttp_client, Probe("readyz", [PING, check], Logged().log), "?verbose") == answer
