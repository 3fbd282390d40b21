"""Which proxy the environment names for a server."""

import pytest

from devicemanager.rules.proxies import proxy_of

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"https_proxy": PROXY}, PROXY),
        ({"HTTPS_PROXY": "", "https_proxy": PROXY}, PROXY),
        ({"HTTPS_PROXY": "proxy.example:3128"}, PROXY),
        ({"HTTPS_PROXY": "https://proxy.example"}, "https://proxy.example"),
        ({"HTTP_PROXY": PROXY}, None),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "api.example"}, None),
        ({"HTTPS_PROXY": PROXY, "no_proxy": "other.example, api.example"}, None),
    ],
)
def test_the_variable_of_the_servers_scheme_counts(environment: dict[str, str], expected: str | None) -> None:
    assert proxy_of("https", "api.example", 6443, environment) == expected


def test_plain_http_has_a_variable_of_its_own() -> None:
    environment = {"HTTP_PROXY": PROXY, "HTTPS_PROXY": "http://other.example"}
    assert proxy_of("http", "api.example", 80, environment) == PROXY


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.10", "::1"])
def test_this_machine_is_reached_directly(host: str) -> None:
    assert proxy_of("https", host, 6443, {"HTTPS_PROXY": PROXY}) is None


@pytest.mark.parametrize(
    ("exceptions", "host", "direct"),
    [
        ("*", "api.example", True),
        ("example", "api.example", True),
        (".example", "api.example", True),
        ("*.example", "api.example", True),
        ("API.Example", "api.example", True),
        ("api.example:6443", "api.example", True),
        ("api.example:443", "api.example", False),
        (".api.example", "api.example", False),
        ("pi.example", "api.example", False),
        ("api.example.org", "api.example", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1:6443", "10.0.0.1", True),
        ("10.0.0.1:443", "10.0.0.1", False),
        ("10.0.0.0/8", "10.0.0.1", True),
        ("10.0.0.7/8", "10.0.0.1", True),
        ("192.168.0.0/16", "10.0.0.1", False),
        ("10.0.0.0/8", "api.example", False),
        ("10.0.0.0/99", "10.0.0.1", False),
        ("0.0.1", "10.0.0.1", False),
        ("fd00::/8", "fd00::1", True),
        ("fd00::0001", "fd00::1", True),
        ("[fd00::1]:6443", "fd00::1", True),
        ("[fd00::1]:443", "fd00::1", False),
        (" , ,", "api.example", False),
    ],
)
def test_exceptions_are_understood_as_go_programs_do(exceptions: str, host: str, direct: bool) -> None:
    found = proxy_of("https", host, 6443, {"HTTPS_PROXY": PROXY, "NO_PROXY": exceptions})
    assert found == (None if direct else PROXY)
