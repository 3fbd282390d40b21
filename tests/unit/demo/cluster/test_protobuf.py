"""The one protobuf body, as kubectl 1.37 sends it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.demo.cluster.protobuf import ProtobufError, parse_self_subject_access_review

_METADATA = b"\x0a\x00"


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def _review(spec: bytes, kind: bytes = b"SelfSubjectAccessReview") -> bytes:
    type_meta = _field(1, b"authorization.k8s.io/v1") + _field(2, kind)
    message = _METADATA + _field(2, spec) + _field(3, b"\x08\x00\x12\x00")
    return b"k8s\x00" + _field(1, type_meta) + _field(2, message) + _field(3, b"") + _field(4, b"")


def test_resource_attributes() -> None:
    attributes = b"".join(
        _field(number, value)
        for number, value in enumerate(
            [b"team-a", b"get", b"worker.gpustack.ai", b"*", b"instances", b"metrics", b""], start=1
        )
    )
    review = parse_self_subject_access_review(_review(_field(1, attributes)))
    assert review["spec"] == {
        "resourceAttributes": {
            "namespace": "team-a",
            "verb": "get",
            "group": "worker.gpustack.ai",
            "version": "*",
            "resource": "instances",
            "subresource": "metrics",
        }
    }


def test_path_attributes() -> None:
    review = parse_self_subject_access_review(_review(_field(2, _field(1, b"/metrics") + _field(2, b"get"))))
    assert review["spec"] == {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}


def test_fields_of_other_types_are_skipped() -> None:
    spec = b"\x48\x96\x01" + b"\x51" + bytes(8) + b"\x5d" + bytes(4) + _field(2, _field(1, b"/a"))
    assert parse_self_subject_access_review(_review(spec))["spec"] == {"nonResourceAttributes": {"path": "/a"}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\x00",
        _review(b"", kind=b"Pod"),
        _review(b"")[:-40],
        _review(b"\x80" * 11),
        _review(b"\x0b"),
    ],
    ids=["empty", "json", "only magic", "another kind", "cut", "endless number", "unknown wire type"],
)
def test_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(ProtobufError):
        parse_self_subject_access_review(body)


@given(st.binary())
def test_any_bytes_are_a_review_or_refused(body: bytes) -> None:
    try:
        review = parse_self_subject_access_review(b"k8s\x00" + body)
    except ProtobufError:
        return
    assert review["kind"] == "SelfSubjectAccessReview"
