"""Error responses of both servers, for requests that came to no handler or whose handler failed."""

import json
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong

HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


def error_response(status: int, message: str) -> web.Response:
    """A response that says what is wrong, after which the connection closes."""
    body = json.dumps({"message": message}).encode() + b"\n"
    response = web.Response(status=status, body=body, content_type="application/json")
    response.force_close()
    return response


def error_response_unless_started(request: web.BaseRequest, status: int, message: str) -> web.Response:
    """The same, in place of a response that failed.

    Raises:
        ConnectionError: A part of it was sent already.
    """
    if request.writer.output_size > 0:
        raise ConnectionError("part of a response was sent already")
    return error_response(status, message)


def refusal_reason(error: BaseException | None) -> str:
    """Why a request head was refused, without a byte of it: aiohttp's messages quote headers, and so secrets."""
    match error:
        case LineTooLong():
            return "request line or header too long"
        case BadHttpMethod():
            return "not an HTTP request"
        case _:
            return "bad request"
