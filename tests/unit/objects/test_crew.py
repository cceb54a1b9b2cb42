"""The threads that share a blob: order, a bound on what is under way, and an orderly end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from replkernel.objects.crew import AHEAD, THREADS, each


@pytest.mark.parametrize("count", [0, 1, THREADS - 1, THREADS, 50])
def test_results_come_in_order(count: int) -> None:
    asked: list[int] = []
    assert list(each(lambda item: item * 2, range(count), lambda: asked.append(1))) == list(
        range(0, 2 * count, 2)
    )
    assert len(asked) == count


def test_items_are_taken_no_faster_than_results() -> None:
    taken = 0

    def source() -> Iterator[int]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield number

    results = each(lambda item: item, source())
    for number in range(20):
        assert next(results) == number
        assert taken <= number + AHEAD + 1
    results.close()  # type: ignore[attr-defined]


def test_after_progress_raised_nobody_is_at_work() -> None:
    begun: list[int] = []
    calls = 0

    def progress() -> None:
        nonlocal calls
        calls += 1
        if calls == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(each(begun.append, range(1000), progress))
    assert len(begun) <= 10 + AHEAD
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("blob-cache")]


def test_an_error_ends_the_rest() -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        return 1 // (item - 5)

    with pytest.raises(ZeroDivisionError):
        list(each(work, range(1000)))
    assert len(begun) <= 6 + AHEAD
