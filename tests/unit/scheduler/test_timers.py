"""Timers against a plain model: the earliest is next, the first set among equals, whatever was cancelled."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.timers import TimerKey, Timers

from tests.support.examples import examples

acts = st.tuples(
    st.sampled_from(["set", "set", "cancel", "pop"]),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.4, 0.9, 1.0, 7.5]),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(acts, max_size=60))
def test_timers_are_a_sorted_table(story: list[tuple[str, int, float]]) -> None:
    timers, model, number, base = Timers(), dict[TimerKey, tuple[float, int]](), 0, 0.0
    for act, name, after in story:
        key: TimerKey = ("lease", str(name))
        if act == "set":
            number += 1
            timers.set(key, base + after)
            model[key] = (base + after, number)
        elif act == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        elif model:
            first = min(model, key=lambda key: model[key])
            assert timers.next_at() == model[first][0]
            base = max(base, model.pop(first)[0])
            assert timers.pop() == first
        first_at = min((at for at, _ in model.values()), default=None)
        assert first_at is None or timers.soonest <= first_at, "nobody would be asked in time"
        assert timers.next_at() == first_at
        assert timers.at(key) == (model[key][0] if key in model else None)


def test_cancelled_timers_leave_nothing_behind() -> None:
    timers = Timers()
    for number in range(1000):
        timers.set(("lease", str(number)), number / 100 + 600_000.0)
        timers.cancel(("lease", str(number)))
    assert timers.next_at() is None
    assert not timers._seconds
    assert not timers._front
