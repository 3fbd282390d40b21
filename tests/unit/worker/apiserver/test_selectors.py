"""Selectors: what they select, and what they refuse."""

import pytest

from devicemanager.worker.apiserver.selectors import SelectorError, parse_selection, pinned_name

OBJECTS = {
    "web": {"app": "web", "tier": "front", "size": "3"},
    "db": {"app": "db", "size": "12", "example.org/owner": "x"},
    "bare": {},
}


def selected(labels: str = "", fields: str = "") -> set[str]:
    selection = parse_selection(labels, fields)
    return {name for name, own in OBJECTS.items() if selection.matches("ns", name, own)}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("", {"web", "db", "bare"}),
        ("app=web", {"web"}),
        ("app==web", {"web"}),
        (" app = web ", {"web"}),
        ("app!=web", {"db", "bare"}),
        ("app in (web, db)", {"web", "db"}),
        ("app notin (web)", {"db", "bare"}),
        ("app", {"web", "db"}),
        ("!app", {"bare"}),
        ("app,tier", {"web"}),
        ("app,!tier", {"db"}),
        ("size>3", {"db"}),
        ("size<12", {"web"}),
        ("example.org/owner=x", {"db"}),
        ("app=", set()),
        ("app in ()", set()),
        ("app=in", set()),
    ],
)
def test_labels(labels: str, expected: set[str]) -> None:
    assert selected(labels) == expected


@pytest.mark.parametrize(
    "labels",
    [
        "=",
        "app=web,",
        ",",
        "app in web",
        "app in (web",
        "app!web",
        "-app",
        "app=-x",
        "a b",
        "size>big",
        "app=web=x",
        "é=x",
        "/x",
        "x/",
        "(",
        "a" * 64,
    ],
)
def test_labels_that_are_refused(labels: str) -> None:
    with pytest.raises(SelectorError, match="unable to parse requirement: "):
        parse_selection(labels, "")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("metadata.name=web", {"web"}),
        ("metadata.name==web", {"web"}),
        ("metadata.name!=web", {"db", "bare"}),
        ("metadata.namespace=ns", {"web", "db", "bare"}),
        ("metadata.namespace=other", set()),
        ("metadata.name!=web,metadata.name!=db", {"bare"}),
    ],
)
def test_fields(fields: str, expected: set[str]) -> None:
    assert selected(fields=fields) == expected


def test_fields_that_are_refused() -> None:
    with pytest.raises(SelectorError) as unknown:
        parse_selection("", "spec.node=x")
    assert str(unknown.value) == (
        '"spec.node" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )
    with pytest.raises(SelectorError, match="invalid selector"):
        parse_selection("", "metadata.name")


def test_a_field_selector_pins_a_name_only_by_equality() -> None:
    assert pinned_name("metadata.namespace=a,metadata.name=x") == "x"
    assert pinned_name("metadata.name!=x") is None
    assert pinned_name("") is None


@pytest.mark.parametrize("term", ["a=b", "!a", "a", "a in (b)"])
def test_a_label_selector_of_more_terms_than_anybody_writes_is_refused(term: str) -> None:
    """Each is compared with every object of a list."""
    parse_selection(",".join([term] * 128), "")
    with pytest.raises(SelectorError, match="a selector has at most 128 terms"):
        parse_selection(",".join([term] * 129), "")
    with pytest.raises(SelectorError, match="a selector has at most 128 terms"):
        parse_selection(",".join([term] * 20_000), "")


def test_a_field_selector_of_too_many_terms_is_refused_too() -> None:
    terms = ",".join(["metadata.name!=a"] * 129)
    for parse in (pinned_name, lambda text: parse_selection("", text)):
        with pytest.raises(SelectorError, match="a selector has at most 128 terms"):
            parse(terms)
