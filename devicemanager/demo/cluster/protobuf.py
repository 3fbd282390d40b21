"""Parses the only protobuf body that the stand-in accepts: ``kubectl auth can-i`` of 1.37 sends it. Pure.

Kubernetes wraps a message in ``runtime.Unknown`` behind four magic bytes (apimachinery
``runtime/serializer/protobuf``). Field numbers are those of ``authorization/v1/generated.proto``.
"""

from collections.abc import Iterator
from typing import Final

from devicemanager.demo.cluster.selectors import JsonObject

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_RESOURCE_FIELDS: Final = {
    1: "namespace",
    2: "verb",
    3: "group",
    4: "version",
    5: "resource",
    6: "subresource",
    7: "name",
}
_PATH_FIELDS: Final = {1: "path", 2: "verb"}


class ProtobufError(ValueError):
    """The bytes are not the message they should be."""


def parse_self_subject_access_review(body: bytes) -> JsonObject:
    """A SelfSubjectAccessReview as JSON would carry it.

    Raises:
        ProtobufError: The body is anything else.
    """
    if not body.startswith(_MAGIC):
        raise ProtobufError("the body does not begin as a Kubernetes protobuf message does")
    unknown = dict(fields(body[len(_MAGIC) :]))
    kind = dict(fields(unknown.get(1, b""))).get(2, b"")
    if kind != b"SelfSubjectAccessReview":
        raise ProtobufError(f"only SelfSubjectAccessReview is understood, not {kind!r}")
    message = dict(fields(unknown.get(2, b"")))
    spec: JsonObject = {}
    for number, value in fields(message.get(2, b"")):
        if number == 1:
            spec["resourceAttributes"] = _texts(value, _RESOURCE_FIELDS)
        elif number == 2:
            spec["nonResourceAttributes"] = _texts(value, _PATH_FIELDS)
    return {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": spec,
    }


def _texts(message: bytes, names: dict[int, str]) -> dict[str, str]:
    return {
        names[number]: value.decode(errors="replace")
        for number, value in fields(message)
        if number in names and value
    }


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Length-delimited fields in order; the others are skipped."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        match key & 7:
            case 0:
                _, position = _varint(message, position)
            case 1:
                position += 8
            case 2:
                length, position = _varint(message, position)
                if position + length > len(message):
                    raise ProtobufError("a field is longer than the message")
                yield key >> 3, message[position : position + length]
                position += length
            case 5:
                position += 4
            case wire_type:
                raise ProtobufError(f"unknown wire type {wire_type}")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 64:
        byte = message[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return value, position
        shift += 7
    raise ProtobufError("a number does not end")
