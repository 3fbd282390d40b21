"""Durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.rules.duration import format_duration, human_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15.0),
        ("1m30s", 90.0),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("1h", 3600.0),
        ("1h2m3s4ms", 3723.004),
        ("0", 0.0),
        ("0s", 0.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds, abs=1e-9)


@pytest.mark.parametrize(
    "text", ["", "15", "s", "-1s", "1 s", "1S", "1d", "1e3s", ".5s", "1.s", "nan", "inf", "\u0661s", "1s\n"]
)
def test_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(15.0, "15s"), (90.0, "1m30s"), (0.05, "50ms"), (1.5, "1s500ms"), (0.0, "0s"), (3600.0, "1h"), (60.0, "1m")],
)
def test_durations_are_spelled_as_people_write_them(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_spelled_reads_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, rel=1e-12)


@given(st.text() | st.from_regex(r"\A[0-9.]*(ms|s|m|h)?\Z"))
def test_any_text_is_a_duration_or_a_clear_refusal(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert 0 <= seconds < float("inf")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (130, "2m10s"),
        (599, "9m59s"),
        (600, "10m"),
        (659, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (172799, "47h"),
        (172800, "2d"),
        (10**9, "11574d"),
    ],
)
def test_ages_as_kubectl_writes_them(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text
