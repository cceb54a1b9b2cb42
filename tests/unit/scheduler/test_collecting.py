"""When the scheduler's process lets Python collect garbage: in quiet moments, and at last in any."""

from __future__ import annotations

from replkernel_server.scheduling.collecting import LATEST_S, WHOLE_S, YOUNG_MIN, Collecting


def test_a_few_new_objects_are_not_worth_a_collection() -> None:
    assert not Collecting(0.0).due(10 * LATEST_S, YOUNG_MIN - 1, quiet=True)


def test_a_quiet_moment_is_used() -> None:
    assert Collecting(0.0).due(1.0, YOUNG_MIN, quiet=True)


def test_a_busy_scheduler_collects_now_and_then() -> None:
    collecting = Collecting(0.0)
    moments = [at for at in range(300) if collecting.due(float(at), YOUNG_MIN, quiet=False)]
    assert moments == [60, 120, 180, 240]


def test_old_objects_are_looked_at_a_few_times_a_day() -> None:
    collecting = Collecting(0.0)
    assert not collecting.whole_due(WHOLE_S - 1)
    assert collecting.whole_due(WHOLE_S)
    assert not collecting.whole_due(WHOLE_S + 1)
