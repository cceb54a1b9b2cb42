"""The times that `replkernel book` understands, and what it prints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from replkernel.cli.booking import describe, seconds_of, seconds_until
from replkernel.errors import ReplkernelError
from replkernel.protocol.status import BookingStatus

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def test_a_time_of_day_is_the_next_one() -> None:
    assert seconds_until("12:30", NOON) == 1800.0
    assert seconds_until("11:30", NOON) == 23.5 * 3600


def test_a_date_with_a_time_is_that_one() -> None:
    assert seconds_until((NOON + timedelta(days=2)).isoformat(), NOON) == 2 * 86_400.0
    with pytest.raises(ReplkernelError, match="is over"):
        seconds_until((NOON - timedelta(hours=1)).isoformat(), NOON)


@pytest.mark.parametrize("text", ["25:00", "soon", "10"])
def test_a_word_that_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ReplkernelError, match="10:00"):
        seconds_until(text, NOON)


def test_how_long_has_a_unit() -> None:
    assert [seconds_of(text) for text in ("90m", "2h", "1.5d")] == [5400.0, 7200.0, 129_600.0]
    with pytest.raises(ReplkernelError, match="90m, 2h or 1d"):
        seconds_of("2")


def test_a_booking_is_one_line() -> None:
    one = BookingStatus("b", 8, "group class", 0.0, 7200.0, "open", 6, "H100")
    (line,) = describe((one,), NOON.timestamp())
    assert line.startswith("b: 8 H100 GPUs for group class, ") and line.endswith("; 6 ready")
