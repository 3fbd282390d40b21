"""Reads from a certificate what :mod:`ssl` does not show of our own: when it expires, and what it is for.

The server must know that to warn and to report it, and must not import ``cryptography`` for it, which costs
8 MiB resident. The walk follows RFC 5280, section 4.1; nothing is verified here.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_FIELDS_BEFORE_VALIDITY: Final = 3
"""Serial number, signature algorithm and issuer lie between the optional version and the validity."""


SERVER_AUTH: Final = bytes.fromhex("2b06010505070301")
CLIENT_AUTH: Final = bytes.fromhex("2b06010505070302")
_ANY_USAGE: Final = bytes.fromhex("551d2500")
_EXTENDED_KEY_USAGE: Final = bytes.fromhex("551d25")
_EXTENSIONS: Final = 0xA3


def may_be_used(certificate: bytes, usage: bytes) -> bool:
    """Whether a certificate, DER, may be used so: its extended key usage has it, or there is none.

    Raises:
        ValueError: The bytes are not a certificate.
    """
    body = _content(_content(certificate, _SEQUENCE), _SEQUENCE)
    extensions = b"".join(content for tag, content in _elements(body) if tag == _EXTENSIONS)
    for _, extension in _elements(_content(extensions, _SEQUENCE) if extensions else b""):
        parts = [content for _, content in _elements(extension)]
        if parts[:1] == [_EXTENDED_KEY_USAGE]:
            usages = {content for _, content in _elements(_content(parts[-1], _SEQUENCE))}
            return not usages.isdisjoint((usage, _ANY_USAGE))
    return True


def not_after(certificate: bytes) -> datetime:
    """The last moment at which a certificate, DER, is valid, aware UTC.

    Raises:
        ValueError: The bytes are not a certificate.
    """
    body = _content(_content(certificate, _SEQUENCE), _SEQUENCE)
    at = 0
    if body[:1] == bytes([_VERSION]):
        _, _, at = _element(body, at)
    for _ in range(_FIELDS_BEFORE_VALIDITY):
        _, _, at = _element(body, at)
    tag, validity, _ = _element(body, at)
    if tag != _SEQUENCE:
        raise ValueError("a certificate without a validity")
    _, _, end_of_not_before = _element(validity, 0)
    tag, moment, _ = _element(validity, end_of_not_before)
    return _time(tag, moment)


def _time(tag: int, moment: bytes) -> datetime:
    text = moment.decode("ascii")
    match tag:
        case t if t == _UTC_TIME:
            # Two digits of the year: 50..99 are 19xx (RFC 5280, 4.1.2.5.1).
            text = ("19" if text[:2] >= "50" else "20") + text
        case t if t == _GENERALIZED_TIME:
            pass
        case _:
            raise ValueError("a validity that does not end in a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _content(data: bytes, tag: int) -> bytes:
    found, content, _ = _element(data, 0)
    if found != tag:
        raise ValueError("not a DER certificate")
    return content


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element, one after the other."""
    at = 0
    while at < len(data):
        tag, content, at = _element(data, at)
        yield tag, content


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Tag, content and end of the element that begins at ``at``."""
    if at + 2 > len(data):
        raise ValueError("a certificate that ends too early")
    length = data[at + 1]
    start = at + 2
    if length >= 0x80:
        size = length & 0x7F
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    end = start + length
    if end > len(data):
        raise ValueError("a certificate that ends too early")
    return data[at], data[start:end], end
