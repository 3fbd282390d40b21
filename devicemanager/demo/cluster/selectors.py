"""Label and field selectors as the stand-in understands them. Pure.

Written apart from the worker's own selectors on purpose: a mistake in one must not hide behind the same mistake in
the other.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
"""A Kubernetes object as JSON."""

Predicate: TypeAlias = Callable[[JsonObject], bool]

_SET: Final = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s+\((?P<values>[^)]*)\)$")
_EQUALITY: Final = re.compile(r"^(?P<key>[^=!\s]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^=!,()\s]*)$")
_EXISTENCE: Final = re.compile(r"^(?P<negated>!?)\s*(?P<key>[^=!\s(),]+)$")
_BETWEEN: Final = re.compile(r",(?![^()]*\))")


class SelectorError(ValueError):
    """A selector that kube-apiserver would refuse with 400."""


def parse_labels(text: str) -> Predicate:
    """A label selector: ``a=b,c!=d,e in (x,y),f,!g``.

    Raises:
        SelectorError: A requirement cannot be understood.
    """
    requirements = [_label_requirement(part.strip()) for part in _BETWEEN.split(text) if part.strip()]

    def matches(candidate: JsonObject) -> bool:
        labels = candidate["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return matches


def _label_requirement(text: str) -> Callable[[Mapping[str, str]], bool]:
    if found := _SET.match(text):
        key = found["key"]
        values = {value.strip() for value in found["values"].split(",")}
        if found["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALITY.match(text):
        key, value = found["key"], found["value"]
        if found["operator"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTENCE.match(text):
        key, negated = found["key"], bool(found["negated"])
        return lambda labels: (key in labels) is not negated
    raise SelectorError(f"unable to parse requirement: {text!r}")


def parse_fields(text: str) -> Predicate:
    """A field selector: dotted paths, ``=``, ``==`` and ``!=``.

    Raises:
        SelectorError: A requirement cannot be understood.
    """
    requirements: list[tuple[list[str], str, bool]] = []
    for part in filter(None, text.split(",")):
        found = _EQUALITY.match(part)
        if found is None:
            raise SelectorError(f"invalid selector: {part!r}; can't understand {part!r}")
        requirements.append((found["key"].split("."), found["value"], found["operator"] != "!="))

    def matches(candidate: JsonObject) -> bool:
        return all((_field(candidate, path) == value) is wanted for path, value, wanted in requirements)

    return matches


def _field(candidate: JsonObject, path: list[str]) -> str:
    value: Any = candidate
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return "" if value is None else str(value)
