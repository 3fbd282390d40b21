"""HTTP responses, made from documents, answers and errors.

Bodies are bytes and content types are whole strings: aiohttp would add parameters of its own otherwise, and clients
compare the whole.
"""

from io import BytesIO
from typing import Final

from aiohttp import hdrs, web
from multidict import CIMultiDict

from devicemanager.worker.apiserver.documents import JSON, StaticDocument, encode
from devicemanager.worker.apiserver.resources import Reply
from devicemanager.worker.apiserver.status import StatusError

AT_ONCE_BYTES: Final = 256 * 1024
"""Of a body; the encryption of so much takes half a millisecond."""

_NO_SUCH_PAGE: Final = b"404 page not found\n"
_PLAIN_TEXT: Final = "text/plain; charset=utf-8"


def accept(request: web.Request) -> str:
    """What the caller accepts; several headers are one list."""
    return ",".join(request.headers.getall(hdrs.ACCEPT, ()))


def static(request: web.Request, document: StaticDocument) -> web.Response:
    """A document made beforehand; nothing but its tag for a caller that holds it."""
    headers = {hdrs.CONTENT_TYPE: document.content_type, **document.headers}
    if document.etag is not None:
        headers[hdrs.ETAG] = document.etag
        if document.etag in _held(request):
            del headers[hdrs.CONTENT_TYPE]
            return web.Response(status=304, headers=headers)
    return web.Response(body=document.body, headers=headers)


def reply(good: Reply) -> web.Response:
    """A good answer about an object, or several."""
    headers = CIMultiDict({hdrs.CONTENT_TYPE: JSON})
    headers.extend((hdrs.WARNING, warning) for warning in good.warnings)
    # What aiohttp is given as a file goes out in pieces, so that a list of 20 MiB is not encrypted at once.
    body = good.body if len(good.body) <= AT_ONCE_BYTES else BytesIO(good.body)
    return web.Response(body=body, headers=headers)


def failure(request: web.Request, error: StatusError) -> web.Response:
    """An error, as JSON also for a caller that does not accept it."""
    headers = {hdrs.CONTENT_TYPE: JSON, **error.headers}
    response = web.Response(status=error.code, body=encode(error.document()), headers=headers)
    if hdrs.UPGRADE in request.headers:
        response.force_close()
    return response


def no_such_page() -> web.Response:
    """Outside the API group there are no ``Status`` objects."""
    headers = {hdrs.CONTENT_TYPE: _PLAIN_TEXT, "X-Content-Type-Options": "nosniff"}
    return web.Response(status=404, body=_NO_SUCH_PAGE, headers=headers)


def _held(request: web.Request) -> set[str]:
    """The tags that the caller holds."""
    tags = ",".join(request.headers.getall(hdrs.IF_NONE_MATCH, ())).split(",")
    return {tag.strip().removeprefix("W/") for tag in tags}
