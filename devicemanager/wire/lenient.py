"""Lenient field types for peers' documents: a malformed field is absent, and the rest is read.

A peer may be older, newer, another program, or broken. Each type here turns what it cannot understand into an
absence instead of an error.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import islice
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError
from pydantic.alias_generators import to_camel

from devicemanager.errors import excerpt
from devicemanager.model.accelerator import Figure, Reason
from devicemanager.wire import timestamps
from devicemanager.wire.steps import Steps

LARGEST_INTEGER: Final = (1 << 63) - 1
"""The largest integer that all readers of JSON in this chain hold exactly."""

_REASONS_LIMIT: Final = 64
"""Read of one object: four times as many as a card has figures and checks."""

_REASONS: Final = {reason.value: reason for reason in Reason}

Item = TypeVar("Item", bound=BaseModel)


class Document(BaseModel):
    """A JSON object with camelCase keys; keys that are not known here are a newer peer's, and ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)


def valid_items(model: type[Item], raw: Iterable[object]) -> Steps[list[Item]]:
    """The valid ones of the elements of an array; a step for each."""
    accept = item_or_none(model)
    found = []
    for each in raw:
        item = accept(each)
        if item is not None:
            found.append(item)
        yield
    return found


def item_or_none(model: type[Item]) -> Callable[[object], Item | None]:
    """A validator that gives None for anything else than this object."""

    def accept(raw: object) -> Item | None:
        try:
            return model.model_validate(raw)
        except ValidationError:
            return None

    return accept


def _array(raw: object) -> object:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise ValueError("must be an array")  # noqa: TRY004 - pydantic reports a ValueError, not a TypeError
    return raw


def _figure(raw: object) -> Figure:
    if raw is None:
        return Reason.NOT_REPORTED
    if not isinstance(raw, int) or isinstance(raw, bool) or not 0 <= raw <= LARGEST_INTEGER:
        return Reason.INVALID_DATA
    return raw


def _reason(raw: object) -> Reason | None:
    if raw is None or raw == "":
        return None
    return _REASONS.get(raw, Reason.NOT_REPORTED) if isinstance(raw, str) else Reason.NOT_REPORTED


def _reasons(raw: object) -> dict[str, Reason]:
    if not isinstance(raw, dict):
        return {}
    named = islice(raw.items(), _REASONS_LIMIT)
    return {key: reason for key, value in named if (reason := _reason(value)) is not None}


def _flag(raw: object) -> bool | Reason:
    if raw is None:
        return Reason.NOT_REPORTED
    return raw if isinstance(raw, bool) else Reason.INVALID_DATA


def _time(raw: object) -> datetime | None:
    moment = timestamps.parse_any(raw)
    if moment is None and not timestamps.is_zero(raw):
        raise ValueError("must be an RFC 3339 time")
    return moment


def _line(raw: object) -> str | None:
    return excerpt(raw) or None if isinstance(raw, str) else None


def _lines(raw: object) -> dict[str, str]:
    if not isinstance(raw, dict):
        return {}
    named = islice(raw.items(), _REASONS_LIMIT)
    return {excerpt(key): line for key, value in named if (line := _line(value)) is not None}


ArrayField = Annotated[list[object], PlainValidator(_array)]
"""An array, whose elements are not looked at yet; null is an empty one."""

OptionalArrayField = Annotated[list[object], PlainValidator(lambda raw: raw if isinstance(raw, list) else [])]
"""The same, and anything else than an array is an empty one."""

FigureField = Annotated[Figure, PlainValidator(_figure)]
"""An integer of 0..2^63-1. Null or missing is ``not_reported``, all else ``invalid_data``."""

FlagField = Annotated[bool | Reason, PlainValidator(_flag)]
"""true or false, with the same two absences."""

ReasonField = Annotated[Reason | None, PlainValidator(_reason)]
"""Why something is absent; words that are not ours are ``not_reported``. None when nothing is said."""

ReasonsField = Annotated[dict[str, Reason], PlainValidator(_reasons)]
"""Key -> reason; empty for anything else than an object."""

LineField = Annotated[str | None, PlainValidator(_line)]
"""One line for a person, printable and short; None for what is not text."""

LinesField = Annotated[dict[str, str], PlainValidator(_lines)]
"""Key -> one line for a person; empty for anything else than an object."""

TimeField = Annotated[datetime | None, PlainValidator(_time)]
"""RFC 3339, as UTC, of any year; None for the zero time of Go programs (year 1). All else is invalid."""

NameField = Annotated[str, Field(strict=True, max_length=256)]
"""Text that may be empty, but must be text."""

KeyField = Annotated[str, Field(strict=True, min_length=1, max_length=256)]
"""The identifier of an item, which is invalid without it."""
