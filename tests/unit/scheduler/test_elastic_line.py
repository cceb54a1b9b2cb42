"""Who waits for a launch is asked in order of arrival, and nobody in vain; as if everybody were asked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from replkernel_scheduler.elastic.line import Line
from replkernel_scheduler.elastic.types import JobType, TrainingWanted

SIZES = [(1,), (1, 2), (2, 4), (4,), (8,)]


def wanted(number: int, sizes: tuple[int, ...]) -> TrainingWanted:
    return TrainingWanted(f"j{number}", JobType("t", 1, dict.fromkeys(sizes, 1.0)), 10.0)


@given(
    st.lists(st.sampled_from(SIZES), max_size=30),
    st.lists(st.integers(0, 29)),
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
)
def test_everybody_who_may_find_room_is_asked_once_in_order(
    kinds: list[tuple[int, ...]], gone: list[int], rooms: list[int]
) -> None:
    line, waiting = Line(), [wanted(number, sizes) for number, sizes in enumerate(kinds)]
    for each in waiting:
        line.join(each)
    for number in {number for number in gone if number < len(waiting)}:
        line.leave(f"j{number}")
    waiting = [each for each in waiting if each.job in line]
    assert len(line) == len(waiting)
    assert line.least() == min((each.type.least for each in waiting), default=0)
    for room in rooms:  # GPUs that became idle: whoever fits takes its fewest, and the next one has less.
        left, expected = room, []
        for each in waiting:
            if each.type.least <= left:
                left -= each.type.least
                expected.append(each.job)
        left, launched, asked = room, [], []
        line.changed()
        for each in line.in_order():
            asked.append(int(each.job[1:]))
            if each.type.least <= left:
                left -= each.type.least
                line.leave(each.job)
                line.changed()
                launched.append(each.job)
            else:
                line.in_vain(each)
        assert launched == expected
        assert asked == sorted(set(asked))
        assert len(asked) <= len(launched) + (len(launched) + 1) * len(SIZES)
        waiting = [each for each in waiting if each.job not in launched]
