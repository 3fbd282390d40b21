"""RFC 3339 times."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from devicemanager.wire import timestamps


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-08-12T09:15:00Z", datetime(2026, 8, 12, 9, 15, tzinfo=UTC)),
        ("2026-08-12t09:15:00z", datetime(2026, 8, 12, 9, 15, tzinfo=UTC)),
        ("2026-08-12T09:15:04.512873401Z", datetime(2026, 8, 12, 9, 15, 4, 512873, tzinfo=UTC)),
        ("2000-01-01T00:00:00Z", datetime(2000, 1, 1, tzinfo=UTC)),
        ("2026-08-12T09:15:04.5Z", datetime(2026, 8, 12, 9, 15, 4, 500000, tzinfo=UTC)),
        ("2026-08-12T11:15:00+02:00", datetime(2026, 8, 12, 9, 15, tzinfo=UTC)),
        ("2026-08-11T23:15:00-10:00", datetime(2026, 8, 12, 9, 15, tzinfo=UTC)),
    ],
)
def test_reads_what_kubernetes_and_go_write(text: str, moment: datetime) -> None:
    parsed = timestamps.parse(text)
    assert parsed == moment
    assert parsed.tzinfo is UTC


@pytest.mark.parametrize(
    "value",
    [
        None,
        5,
        "",
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+05:00",
        "1754-08-30T22:43:41.128654848Z",
        "1970-01-01T00:00:00Z",
        "1999-12-31T23:59:59.999999Z",
        "2000-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-01:00",
        "2026-08-12T09:15:00",
        "2026-08-12 09:15:00Z",
        "2026-08-12",
        "2026-13-12T09:15:00Z",
        "2026-08-12T24:15:00Z",
        "2026-08-12T09:15:00.Z",
        "2026-08-12T09:15:00+24:00",
        "2026-08-12T09:15:00Z ",
        "\u0662026-08-12T09:15:00Z",
        "2026-W33-3T09:15:00Z",
    ],
)
def test_anything_else_and_a_time_before_2000_is_no_time(value: object) -> None:
    assert timestamps.parse(value) is None


def test_a_clock_that_was_never_set_can_be_read() -> None:
    assert timestamps.parse_any("1970-01-01T00:00:05Z") == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert timestamps.parse_any("0001-01-01T00:00:00Z") is None


@pytest.mark.parametrize(
    ("value", "zero"),
    [
        ("0001-01-01T00:00:00Z", True),
        ("0001-01-01T00:00:00+08:00", True),
        ("0001", False),
        ("1970-01-01T00:00:00Z", False),
        (None, False),
        (1, False),
    ],
)
def test_the_zero_time(value: object, zero: bool) -> None:
    assert timestamps.is_zero(value) is zero


def test_writes_whole_seconds_of_utc() -> None:
    moment = datetime(2026, 8, 12, 11, 15, 4, 999_999, tzinfo=timezone(timedelta(hours=2)))
    assert timestamps.seconds(moment) == "2026-08-12T09:15:04Z"
    assert timestamps.seconds(datetime(33, 1, 2, tzinfo=UTC)) == "0033-01-02T00:00:00Z"
