"""How much of the time checking takes: whatever checks cost, and however cells come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replkernel.kernel.duty import (
    AUDIT_SAVED_S,
    HOLD_SAVED_S,
    HOLD_SHARE,
    PATIENCE_MAX_S,
    PATIENCE_MIN_S,
    PAUSE_MAX_S,
    Allowance,
    AuditTimes,
)

MINUTE_S = 60.0


def audits_of(cost_s: float, minutes: int, *, urgent: bool) -> list[tuple[float, float]]:
    """Have one audit after the other, as soon as each may begin; return when each began and ended."""
    times, now, seen = AuditTimes(), 0.0, []
    times.urgent = urgent
    while now < minutes * MINUTE_S:
        now += times.delay_s(now)
        seen.append((now, now + cost_s))
        now += cost_s
        times.took(cost_s, now)
    return seen


@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize("cost_s", [0.05, 0.4, 1.5])
def test_audits_take_a_fifth_of_any_minute_at_most(cost_s: float, urgent: bool) -> None:
    seen = audits_of(cost_s, 5, urgent=urgent)
    assert len(seen) > 5, "minutes of them"
    for start, _ in seen:
        worked = sum(max(0.0, min(end, start + MINUTE_S) - max(began, start)) for began, end in seen)
        assert worked <= 0.2 * MINUTE_S + cost_s


def test_saved_up_audits_are_made_at_once() -> None:
    times = AuditTimes()
    times.urgent = True
    times.took(AUDIT_SAVED_S / 2, 100.0)
    assert times.delay_s(100.0) == 0.0
    times.took(AUDIT_SAVED_S, 101.0)
    assert times.delay_s(101.0) > 1.0


def test_nothing_waits_for_ever_and_a_move_does_not_wait() -> None:
    times = AuditTimes()
    times.took(1000.0, 5.0)
    assert times.delay_s(5.0) == pytest.approx(PAUSE_MAX_S)
    times.moves = True
    assert times.delay_s(5.0) == 0.0
    assert times.spare(5.0, crowded=False)


def test_after_giving_way_a_check_waits_for_a_longer_quiet_moment_each_time() -> None:
    times, now = AuditTimes(), 0.0
    for patience_s in (
        PATIENCE_MIN_S,
        2 * PATIENCE_MIN_S,
        4 * PATIENCE_MIN_S,
        PATIENCE_MAX_S,
        PATIENCE_MAX_S,
    ):
        times.gave_way()
        assert not times.spare(now, crowded=False)
        assert times.spare(now, crowded=True)
        times.captured(0.0, now)
        assert times.delay_s(now) == pytest.approx(patience_s)
        assert times.delay_s(now + patience_s) == 0.0
        now += 10.0
    times.finished()
    assert times.spare(now, crowded=False)
    assert times.delay_s(now) == 0.0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 0.1)), max_size=60))
def test_time_spent_within_the_allowance_is_never_more_than_its_share(
    steps: list[tuple[float, float]],
) -> None:
    allowance, now, spent = Allowance(HOLD_SHARE, HOLD_SAVED_S, HOLD_SAVED_S), 0.0, 0.0
    allowance.spend(0.0, now)
    for pause_s, wish_s in steps:
        now += pause_s
        used_s = min(wish_s, max(0.0, allowance.left_s(now)))
        allowance.spend(used_s, now)
        spent += used_s
        assert spent <= HOLD_SAVED_S + HOLD_SHARE * now + 1e-9
