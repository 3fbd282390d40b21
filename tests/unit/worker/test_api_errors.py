"""Error answers of an API server, in our own words."""

import json

import pytest

from devicemanager.worker.api_errors import fetch_error


def status(**details: object) -> bytes:
    document = {"kind": "Status", "message": "busy", "reason": "TooManyRequests", "code": 429}
    return json.dumps({**document, "details": details}).encode()


@pytest.mark.parametrize(
    ("header", "body", "expected"),
    [
        (None, status(retryAfterSeconds=7), 7),
        (3, status(retryAfterSeconds=7), 3),
        (3, status(), 3),
        (None, status(), None),
        (None, status(retryAfterSeconds=None), None),
        (None, status(retryAfterSeconds=-1), 0),
        (None, status(retryAfterSeconds="soon"), None),
        (None, b"Too many requests", None),
    ],
)
def test_when_to_come_back_is_what_the_head_says_or_else_the_status(
    header: int | None, body: bytes, expected: int | None
) -> None:
    assert fetch_error(429, body, header).retry_after_s == expected


def test_the_object_is_the_one_that_the_status_names() -> None:
    assert fetch_error(404, status(name="web")).object_name == "web"
    assert fetch_error(404, status(name="")).object_name is None
    assert fetch_error(404, b"404 page not found").object_name is None
