"""Label and field selectors, by the grammar of Kubernetes. Pure.

Label selectors: ``a=b, c==d, e!=f, g in (x,y), h notin (z), i, !j, k>1, l<2``.
Field selectors: ``metadata.name`` and ``metadata.namespace`` with ``=``, ``==`` and ``!=``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from devicemanager.errors import excerpt

FIELDS: Final = ("metadata.name", "metadata.namespace")

_TOKEN: Final = re.compile(r"\s*(==|!=|=|,|\(|\)|!|<|>|[^\s,()!=<>]+)")
_SYMBOLS: Final = frozenset({"==", "!=", "=", ",", "(", ")", "!", "<", ">"})
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_PREFIX_LIMIT: Final = 253

TERMS_LIMIT: Final = 128
"""Of one selector: each is compared with every object of a list, of which there may be thousands."""


class SelectorError(ValueError):
    """A selector cannot be used; the text is for the caller."""


class Operator(StrEnum):
    """How a requirement compares."""

    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"
    GREATER = ">"
    LESS = "<"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One comma-separated term. ``=`` is ``in`` with one value, ``!=`` is ``notin`` with one."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels satisfy the term; a label that is not there satisfies ``!=`` and ``notin``."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.EXISTS:
                return value is not None
            case Operator.ABSENT:
                return value is None
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.GREATER | Operator.LESS:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        if value is None or not _INTEGER.fullmatch(value):
            return False
        (bound,) = self.values
        return int(value) > int(bound) if self.operator is Operator.GREATER else int(value) < int(bound)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One term of a field selector."""

    field: str
    value: str
    equal: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection are asked for."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldRequirement, ...] = ()

    def matches(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Whether an object is selected."""
        own = {"metadata.name": name, "metadata.namespace": namespace}
        return all((own[term.field] == term.value) is term.equal for term in self.fields) and all(
            requirement.matches(labels) for requirement in self.labels
        )


def parse_selection(label_selector: str, field_selector: str) -> Selection:
    """Parse both selectors of a list; empty text selects everything.

    Raises:
        SelectorError: Either is malformed, or names a field that cannot be selected by.
    """
    return Selection(parse_labels(label_selector), parse_fields(field_selector))


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse a label selector.

    Raises:
        SelectorError: It is malformed.
    """
    return _Parser(text).requirements() if text.strip() else ()


def parse_fields(text: str) -> tuple[FieldRequirement, ...]:
    """Parse a field selector.

    Raises:
        SelectorError: It is malformed, or names another field than ``FIELDS``.
    """
    terms = _field_terms(text)
    for term in terms:
        if term.field not in FIELDS:
            known = ", ".join(f'"{field}"' for field in FIELDS)
            raise SelectorError(f'"{excerpt(term.field)}" is not a known field selector: only {known}')
    return terms


def pinned_name(field_selector: str) -> str | None:
    """The name that a field selector demands, which makes a list a request for that object; else None.

    Raises:
        SelectorError: It is malformed.
    """
    for term in _field_terms(field_selector):
        if term.field == "metadata.name" and term.equal:
            return term.value
    return None


def _field_terms(text: str) -> tuple[FieldRequirement, ...]:
    terms = [term for term in text.split(",") if term.strip()]
    if len(terms) > TERMS_LIMIT:
        raise _too_many()
    return tuple(map(_field_term, terms))


def _field_term(term: str) -> FieldRequirement:
    for operator, equal in (("!=", False), ("==", True), ("=", True)):
        field, found, value = term.partition(operator)
        if found:
            return FieldRequirement(field.strip(), value.strip(), equal)
    raise SelectorError(f"invalid selector: '{excerpt(term)}'; can't understand '{excerpt(term)}'")


def _too_many() -> SelectorError:
    return SelectorError(f"a selector has at most {TERMS_LIMIT} terms")


class _Parser:
    """Recursive descent over the tokens of one label selector."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def requirements(self) -> tuple[Requirement, ...]:
        found = [self._requirement()]
        while self._take(","):
            if len(found) >= TERMS_LIMIT:
                raise _too_many()
            found.append(self._requirement())
        if self._peek() is not None:
            raise self._unexpected("',' or 'end of string'")
        return tuple(found)

    def _requirement(self) -> Requirement:
        if self._take("!"):
            return Requirement(self._key(), Operator.ABSENT)
        key = self._key()
        match self._peek():
            case None | ",":
                return Requirement(key, Operator.EXISTS)
            case "=" | "==" | "!=" as symbol:
                self._at += 1
                operator = Operator.NOT_IN if symbol == "!=" else Operator.IN
                return Requirement(key, operator, frozenset({self._value()}))
            case "in" | "notin":
                return self._set(key)
            case "<" | ">":
                return self._bound(key)
            case _:
                raise self._unexpected("in, notin, =, ==, !=, gt, lt")

    def _bound(self, key: str) -> Requirement:
        operator = Operator(self._next("an operator"))
        value = self._value()
        if not _INTEGER.fullmatch(value):
            raise self._refused(f"for '{operator}', the value must be an integer, not '{excerpt(value)}'")
        return Requirement(key, operator, frozenset({value}))

    def _set(self, key: str) -> Requirement:
        operator = Operator(self._next("an operator"))
        if not self._take("("):
            raise self._unexpected("'('")
        values = [self._value()]
        while self._take(","):
            values.append(self._value())
        if not self._take(")"):
            raise self._unexpected("',' or ')'")
        return Requirement(key, operator, frozenset(values))

    def _key(self) -> str:
        key = self._next("a label key")
        prefix, slash, name = key.rpartition("/")
        if not _NAME.fullmatch(name) or (slash and (len(prefix) > _PREFIX_LIMIT or not _PREFIX.fullmatch(prefix))):
            raise self._refused(f"invalid label key '{excerpt(key)}'")
        return key

    def _value(self) -> str:
        """A value, which may be empty: ``a=`` selects objects whose label is empty."""
        if self._peek() in {None, ",", ")"}:
            return ""
        value = self._next("a value")
        if not _NAME.fullmatch(value):
            raise self._refused(f"invalid label value '{excerpt(value)}'")
        return value

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, symbol: str) -> bool:
        if self._peek() != symbol:
            return False
        self._at += 1
        return True

    def _next(self, expected: str) -> str:
        token = self._peek()
        if token is None or (token in _SYMBOLS and token not in {"<", ">"}):
            raise self._unexpected(expected)
        self._at += 1
        return token

    def _unexpected(self, expected: str) -> SelectorError:
        found = self._peek() or ""
        return self._refused(f"found '{excerpt(found)}', expected: {expected}")

    def _refused(self, why: str) -> SelectorError:
        return SelectorError(f"unable to parse requirement: {why}")
