"""Selectors as the stand-in understands them."""

import pytest

from devicemanager.demo.cluster.selectors import SelectorError, parse_fields, parse_labels

POD = {"metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}}, "spec": {"nodeName": "n", "x": None}}
BARE = {"metadata": {"name": "bare"}}


@pytest.mark.parametrize(
    ("text", "pod", "bare"),
    [
        ("", True, True),
        ("app=web", True, False),
        ("app==web", True, False),
        ("app!=web", False, True),
        ("app = web", True, False),
        ("app=", False, False),
        ("app in (db, web)", True, False),
        ("app notin (db)", True, True),
        ("app", True, False),
        ("!app", False, True),
        ("app=web,tier in (front,back),!gone", True, False),
    ],
)
def test_labels(text: str, *, pod: bool, bare: bool) -> None:
    matches = parse_labels(text)
    assert (matches(POD), matches(BARE)) == (pod, bare)


@pytest.mark.parametrize("text", ["a=b=c", "in (x)", "a in x", "a,=b", "a in (b"])
def test_labels_that_make_no_sense(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_labels(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("metadata.name=web", True),
        ("metadata.name!=web", False),
        ("spec.nodeName==n,metadata.name=web", True),
        ("spec.missing.deeper=", True),
        ("spec.x=", True),
    ],
)
def test_fields(text: str, *, expected: bool) -> None:
    assert parse_fields(text)(POD) is expected


def test_fields_that_make_no_sense() -> None:
    with pytest.raises(SelectorError):
        parse_fields("metadata.name")
