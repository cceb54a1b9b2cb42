"""Coroutines and asynchronous generators that have not begun arrive as the calls that made them."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from tests.support.notebook import Notebook, pair

JOBS = (
    "async def job(n, *rest, sink, **more):\n  sink.append((n, rest, more))\n  return n * 2\n"
    "async def ticks(n, by=1):\n  for i in range(n): yield i * by\n"
    "def outer(n):\n  async def inner(): return n\n  return inner()\n"
    "sink = []\n"
)


async def _all(steps: Any) -> list[Any]:
    return [step async for step in steps]


def test_a_coroutine_that_has_not_begun_begins_elsewhere() -> None:
    one, two = pair()
    made = "co = job(4, 5, sink=sink, k=6); ag = ticks(3); co.__name__ = 'mine'; own = outer([7])"
    two.take(one.run(JOBS + made, 1))
    one.take(two.run("ticks.__defaults__ = (9,); sink.append('before')", 2))
    assert (one["co"].__name__, one["co"].__qualname__) == ("mine", "job")
    assert asyncio.run(one["co"]) == 8
    assert asyncio.run(one["own"]) == [7]
    assert asyncio.run(_all(one["ag"])) == [0, 1, 2]
    assert one["sink"] == ["before", (4, (5,), {"k": 6})]
    two["co"].close()
    two["own"].close()


def test_one_that_was_awaited_elsewhere_is_not_missed_here() -> None:
    one, two = pair()
    two.take(
        one.run(JOBS + "cos = [job(1, sink=sink)]; held = job(inner := job(2, sink=sink), sink=sink)", 1)
    )
    one.take(two.run("cos.append(job(3, sink=sink))", 2))
    two.take(one.run("import asyncio\nfor co in cos: asyncio.run(co)\nheld.close(); inner.close()", 3))
    gc.collect()
    assert two["sink"] == [(1, (), {}), (3, (), {})]


def test_one_that_is_dropped_is_missed_as_ever(recwarn: Any) -> None:
    one, two = pair()
    two.take(one.run(JOBS + "co = job(1, sink=sink)", 1))
    one.take(two.run("del co", 2))
    gc.collect()
    assert [str(said.message) for said in recwarn.list] == ["coroutine 'job' was never awaited"]


def test_one_that_is_over_is_over_elsewhere() -> None:
    source = "import asyncio\nasync def all_of(steps): return [step async for step in steps]\n"
    one, two = pair()
    two.take(one.run(JOBS + source + "ag = ticks(2); ag.__name__ = 'mine'; got = asyncio.run(all_of(ag))", 1))
    two.take(one.run("again = 1", 2))
    assert (two["got"], two["ag"].__name__, two["ag"].ag_frame) == ([0, 1], "mine", None)
    assert asyncio.run(_all(two["ag"])) == []


def test_one_in_flight_stays() -> None:
    one = Notebook("r1")
    delta = one.run(
        "async def ticks():\n  yield 1\n  yield 2\n"
        "ag = ticks()\ntry: ag.__anext__().send(None)\nexcept StopIteration: pass",
        1,
    )
    assert [pin.type_name for component in delta.components for pin in component.pins] == ["async_generator"]
