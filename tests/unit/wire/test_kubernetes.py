"""Lists, watch events and errors, as every Kubernetes API sends them."""

import pytest

from devicemanager.errors import DocumentError
from devicemanager.wire import kubernetes


def test_a_page_keeps_its_items_as_they_came() -> None:
    page = kubernetes.parse_list_page(
        b'{"kind":"PodList","metadata":{"resourceVersion":"5","continue":"abc"},"items":[{"a": 1},{"b":2.50}]}'
    )

    assert (page.metadata.resource_version, page.metadata.continue_) == ("5", "abc")
    assert [bytes(item) for item in page.items or ()] == [b'{"a": 1}', b'{"b":2.50}']


@pytest.mark.parametrize("body", [b'{"items":null}', b"{}", b'{"metadata":{},"newer":[1]}'])
def test_a_page_may_be_empty(body: bytes) -> None:
    page = kubernetes.parse_list_page(body)

    assert not page.items
    assert (page.metadata.resource_version, page.metadata.continue_) == ("", "")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"<html>", b'{"items":{}}', b'{"metadata":7}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError, match="not a Kubernetes list"):
        kubernetes.parse_list_page(body)


def test_a_watch_line() -> None:
    line = kubernetes.parse_watch_line(b'{"type":"ADDED","object":{"metadata":{"uid":"u","resourceVersion":"7"}}}')

    assert line.type == "ADDED"
    metadata = kubernetes.parse_metadata(bytes(line.object))
    assert (metadata.uid, metadata.resource_version) == ("u", "7")


@pytest.mark.parametrize("body", [b'{"type":"ADDED"}', b'{"object":{}}', b'{"type":7,"object":{}}', b"7"])
def test_what_is_no_watch_line_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError):
        kubernetes.parse_watch_line(body)


def test_a_status_is_distinguished_from_other_bodies() -> None:
    status = kubernetes.parse_status(
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"NotFound",'
        b'"details":{"name":"web","group":"g","kind":"instances"},"code":404}'
    )

    assert status is not None
    assert (status.message, status.reason, status.code) == ("m", "NotFound", 404)


@pytest.mark.parametrize(
    "body", [b"404 page not found\n", b"{}", b'{"kind":"Pod"}', b'{"kind":"Status","code":""}']
)
def test_no_status_is_none(body: bytes) -> None:
    assert kubernetes.parse_status(body) is None
