"""Callbacks that wait on the event loop: the notebook's bind it, those of the kernel and of tasks never."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import types
from typing import Any

import pytest
from tornado.ioloop import IOLoop, PeriodicCallback
from zmq.eventloop import zmqstream

from replkernel.records import ReplicaId, Seq
from replkernel.state.process.parts import Baseline, process_pins
from replkernel.state.python.asyncio import callbacks as loop_callbacks

NOTEBOOK = types.ModuleType("__main__")
exec("def later(*args): pass\nclass Box:\n    def later(self, *args): pass\nbox = Box()", vars(NOTEBOOK))
LATER: Any = vars(NOTEBOOK)["later"]
BOX: Any = vars(NOTEBOOK)["box"]


def _reasons() -> list[str]:
    return [pin.reason for pin in process_pins(Seq(4), ReplicaId("r2"), Baseline(None, ()))]


async def test_a_callback_pins_until_it_is_cancelled_or_has_run() -> None:
    loop, hits = asyncio.get_running_loop(), list[str]()
    assert _reasons() == []
    handle = loop.call_later(58, hits.append, "late")
    (reason,) = _reasons()
    assert reason.startswith("A callback waits on the event loop: list.append in 58 s, at ")
    handle.cancel()
    assert _reasons() == []
    loop.call_soon(hits.append, "soon")
    assert _reasons() == ["A callback waits on the event loop: list.append at once."]
    await asyncio.sleep(0)
    assert hits == ["soon"]
    assert _reasons() == []


async def test_many_callbacks_of_one_function_are_one_pin() -> None:
    loop = asyncio.get_running_loop()
    handles = [loop.call_at(loop.time() + 30 + number, LATER) for number in range(3)]
    (pin,) = process_pins(Seq(4), ReplicaId("r2"), Baseline(None, ()))
    assert pin.name == "callback later"
    assert pin.reason.startswith("3 callbacks wait on the event loop: later, the next in 30 s, at ")
    for handle in handles:
        handle.cancel()


@pytest.mark.parametrize(
    ("callback", "label"),
    [
        (LATER, "later"),
        (functools.partial(functools.partial(LATER, 1), 2), "later"),
        (functools.partial(contextvars.copy_context().run, LATER, 3), "later"),
        (BOX.later, "Box.later"),
        (type(BOX), "Box"),
        (print, "print"),
        ([].append, "list.append"),
        (asyncio.Event().set, "Event.set"),
    ],
)
async def test_whatever_the_notebook_has_called_later_is_named(callback: Any, label: str) -> None:
    handle = asyncio.get_running_loop().call_later(20, callback)
    (reason,) = _reasons()
    assert f": {label} in 20 s" in reason
    handle.cancel()


async def test_a_callback_that_ends_a_future_later_is_named() -> None:
    loop = asyncio.get_running_loop()
    handle = loop.call_later(20, loop.create_future().set_result, 1)
    (reason,) = _reasons()
    assert "Future.set_result" in reason
    handle.cancel()


async def test_tornados_wrappers_are_seen_through() -> None:
    loop, made = IOLoop.current(), []
    timeout = loop.call_later(20, LATER, 1, named=made)
    assert "later in 20 s" in _reasons()[0]
    loop.remove_timeout(timeout)
    loop.add_callback([].append, 2)
    assert "list.append at once" in _reasons()[0]
    await asyncio.sleep(0)
    periodic = PeriodicCallback(LATER, 20_000)
    periodic.start()
    assert "later in 20 s" in _reasons()[0]
    periodic.stop()
    assert _reasons() == []


async def test_a_coroutine_that_another_thread_hands_over_pins_before_its_task_is_there() -> None:
    async def job() -> int:
        return 1

    future = asyncio.run_coroutine_threadsafe(job(), asyncio.get_running_loop())
    assert any("job" in reason for reason in _reasons())
    await asyncio.wrap_future(future)


async def test_a_callback_of_the_kernel_or_of_a_task_pins_nothing() -> None:
    loop = IOLoop.current()
    stream = object.__new__(zmqstream.ZMQStream)
    loop.call_later(20, stream._handle_events)
    loop.add_callback(loop.add_callback, loop.time)
    PeriodicCallback(loop.time, 20_000).start()  # type: ignore[arg-type]
    asyncio.get_running_loop().call_later(20, functools.partial(loop.time))

    async def rest() -> None:
        await asyncio.wait_for(asyncio.sleep(30), 40)

    task = asyncio.create_task(rest())
    for _ in range(2):
        await asyncio.sleep(0)
        reasons = _reasons()
        assert len(reasons) <= 2
        assert all("task" in reason for reason in reasons)
    task.cancel()
    assert all("task" in reason for reason in _reasons())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_no_more_than_a_bounded_number_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_callbacks, "LOOKED_AT_MAX", 10)
    handles = [asyncio.get_running_loop().call_later(20, LATER) for _ in range(30)]
    assert _reasons()[0].startswith("At least 10 callbacks wait")
    for handle in handles:
        handle.cancel()


class _Silent(type):
    def __getattribute__(cls, name: str) -> Any:
        raise AssertionError(name)


async def test_no_code_of_an_object_runs() -> None:
    class Loud(metaclass=_Silent):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        def __call__(self) -> None:
            """Do nothing."""

        def __eq__(self, other: object) -> bool:
            raise AssertionError

        def __hash__(self) -> int:
            raise AssertionError

        def __repr__(self) -> str:
            raise AssertionError

    handle = asyncio.get_running_loop().call_later(20, Loud())
    assert "Loud in 20 s" in _reasons()[0]
    handle.cancel()
