"""What may be a name."""

import pytest

from devicemanager.rules.object_names import is_name, is_peer_name


@pytest.mark.parametrize(
    "text", ["a", "worker.accelerators.svc", "*.example.com", "node_1", "10.0.0.1", "fd00::1", "::", "x" * 63]
)
def test_a_peer_has_a_dns_name_or_an_address(text: str) -> None:
    assert is_peer_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "a..b",
        ".a",
        "a.",
        "::::",
        "1:2:3",
        "a b",
        "a:1",
        "*",
        "a.*.b",
        "-a",
        "x" * 64,
        ".".join(["a"] * 128),
    ],
)
def test_anything_else_is_no_name_of_a_peer(text: str) -> None:
    assert not is_peer_name(text)


@pytest.mark.parametrize("text", ["", "A", "a..b", "-a", "a" * 254, "a\n"])
def test_what_kubernetes_refuses_is_no_name(text: str) -> None:
    assert not is_name(text)
