"""Threads: one that has not begun, or is over, travels; a running one is stuck. Locks are new ones.

They are held if they were held. Conditions, events, semaphores and queues are made of locks.
"""

from __future__ import annotations

import _thread
import gc
import queue
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.restore import loading

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


_OF_THE_PROCESS = ("_invoke_excepthook", "_ident", "_native_id", "_tstate_lock", "_handle")


def reduce_thread(context: ReducerContext, thread: threading.Thread) -> object:
    """Reduce a thread that does not run."""
    if thread is threading.main_thread():
        return threading.main_thread, ()
    started = vars(thread)["_started"].is_set()
    if started and threading.Thread.is_alive(thread):
        raise CannotTravel("A running thread cannot be copied.")
    state = dict(vars(thread))  # after asking: only then a thread that has ended unseen is marked as ended
    for name in _OF_THE_PROCESS:
        state.pop(name, None)
    if started:
        state["_ident"], state["_native_id"] = thread._ident, thread._native_id  # type: ignore[attr-defined]
    return make_thread, (type(thread), started), state, None, None, fill_thread


@loader("threads:make_thread")
def make_thread(cls: Any, started: bool) -> object:
    """Return a thread without its attributes (called by payloads)."""
    thread = cls.__new__(cls)
    threading.Thread.__init__(thread, name="replkernel")
    if started:
        threading._dangling.discard(thread)  # type: ignore[attr-defined]
        thread._is_stopped = True
        if sys.version_info >= _IN_A_RING:
            thread._handle = _thread._make_thread_handle(0)  # type: ignore[attr-defined]
            thread._handle._set_done()
    return thread


@loader("threads:fill_thread")
def fill_thread(thread: threading.Thread, state: dict[str, Any]) -> None:
    """Give a thread its attributes, and none that it lost when it ran (called by payloads)."""
    attributes = vars(thread)
    for name in attributes.keys() - state.keys() - set(_OF_THE_PROCESS):
        del attributes[name]
    attributes.update(state)


FAMILIES = [(threading.Thread, reduce_thread)]


_IN_A_RING = 3, 13
"""Since this release a SimpleQueue keeps its items in no list: the garbage collector sees each of them."""
_COUNT = re.compile(r"owner=(\d+) count=(\d+)")


def reduce_lock(context: ReducerContext, lock: Any) -> object:
    """Reduce a plain lock."""
    return make_lock, (lock.locked(),)


@loader("locks:make_lock")
def make_lock(held: bool) -> object:
    """Return a plain lock (called by payloads)."""
    lock = threading.Lock()
    if held:
        lock.acquire()
    return lock


def reduce_rlock(context: ReducerContext, lock: object) -> object:
    """Reduce a re-entrant lock: how often the main thread holds it."""
    found = _COUNT.search(repr(lock))
    owner, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if count and owner != threading.main_thread().ident:
        raise CannotTravel("The lock is held by another thread.")
    return make_rlock, (count,)


@loader("locks:make_rlock")
def make_rlock(count: int) -> object:
    """Return a re-entrant lock (called by payloads)."""
    lock = threading.RLock()
    for _ in range(count):
        loading.current().late.append(lock.acquire)
    return lock


def reduce_simple_queue(context: ReducerContext, simple: queue.SimpleQueue[Any]) -> object:
    """Reduce a SimpleQueue: what is in it is at the end of a list that the garbage collector sees."""
    count = simple.qsize()
    if not count:
        return queue.SimpleQueue, ()
    seen = gc.get_referents(simple)
    if sys.version_info >= _IN_A_RING:
        lists = [seen[:-1]] if seen[-1] is type(simple) and len(seen) == count + 1 else []
    else:
        lists = [held for held in seen if type(held) is list]
    if len(lists) != 1 or len(lists[0]) < count:
        raise CannotTravel("The items of a SimpleQueue cannot be seen without taking them out.")
    return queue.SimpleQueue, (), tuple(lists[0][-count:]), None, None, fill_simple_queue


@loader("locks:fill_simple_queue")
def fill_simple_queue(simple: queue.SimpleQueue[Any], items: tuple[Any, ...]) -> None:
    """Put the items into a SimpleQueue (called by payloads)."""
    for item in items:
        simple.put(item)


EXACT: dict[type, Any] = {
    _thread.LockType: reduce_lock,
    _thread.RLock: reduce_rlock,
    queue.SimpleQueue: reduce_simple_queue,
}
