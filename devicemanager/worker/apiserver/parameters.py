"""The parameters of a request. One that cannot be used refuses the request. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from devicemanager.rules.duration import parse_duration
from devicemanager.worker.apiserver import negotiation, status
from devicemanager.worker.apiserver.negotiation import Form, IncludeObject, Shape
from devicemanager.worker.apiserver.paging import Page, PageError, parse_page
from devicemanager.worker.apiserver.selectors import Selection, SelectorError, parse_selection

LONGEST_DEADLINE_S: Final = 25.0
"""Below the 60 s after which the front proxy drops the connection without an answer of ours."""


@dataclass(frozen=True, slots=True)
class ReadParameters:
    """What a read of one object may say.

    Attributes:
        deadline_s: Seconds that the caller waits; None when it does not say.
    """

    form: Form
    deadline_s: float | None


@dataclass(frozen=True, slots=True)
class ListParameters:
    """What a list may say."""

    form: Form
    deadline_s: float | None
    selection: Selection
    page: Page


def read_parameters(query: Mapping[str, str], accept: str) -> ReadParameters:
    """Parameters of a read.

    Raises:
        StatusError: 400 or 406.
    """
    return ReadParameters(_form(query, negotiation.for_object(accept)), _deadline_s(query))


def list_parameters(query: Mapping[str, str], accept: str) -> ListParameters:
    """Parameters of a list.

    Raises:
        StatusError: 400 or 406.
    """
    form = _form(query, negotiation.for_list(accept))
    try:
        selection = parse_selection(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        page = parse_page(query.get("limit", ""), query.get("continue", ""))
    except (SelectorError, PageError) as error:
        raise status.bad_request(str(error)) from error
    return ListParameters(form, _deadline_s(query), selection, page)


def _form(query: Mapping[str, str], form: Form | None) -> Form:
    if form is None:
        raise status.not_acceptable()
    return replace(form, include=_include(query.get("includeObject", ""))) if form.shape is Shape.TABLE else form


def _include(text: str) -> IncludeObject:
    try:
        return IncludeObject(text or IncludeObject.METADATA)
    except ValueError as error:
        raise status.bad_request(
            f"Unable to convert to Table as requested: includeObject: Invalid value: {_quoted(text)}: "
            "must be 'Metadata', 'Object', 'None', or empty"
        ) from error


def _deadline_s(query: Mapping[str, str]) -> float | None:
    text = query.get("timeout", "")
    if not text:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise status.bad_request(f"invalid timeout {_quoted(text)}: {error}") from error
    # 0 is how client libraries write "no timeout of mine".
    return min(seconds, LONGEST_DEADLINE_S) if seconds else None


def _quoted(text: str) -> str:
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else "?" for c in text[:64]) + '"'
