"""Locks: new ones, held if they were held. Conditions, events, semaphores and queues are made of these."""

from __future__ import annotations

import _thread
import queue
import re
import threading
from typing import TYPE_CHECKING, Any

from replkernel.namespace import loading
from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler

_COUNT = re.compile(r"owner=(\d+) count=(\d+)")


def reduce_lock(pickler: CapturePickler, lock: Any) -> Any:
    """Reduce a plain lock."""
    return make_lock, (lock.locked(),)


def make_lock(held: bool) -> Any:
    """Return a plain lock (called by payloads)."""
    lock = threading.Lock()
    if held:
        lock.acquire()
    return lock


def reduce_rlock(pickler: CapturePickler, lock: Any) -> Any:
    """Reduce a re-entrant lock: how often the main thread holds it."""
    found = _COUNT.search(repr(lock))
    owner, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if count and owner != threading.main_thread().ident:
        raise CannotTravel("The lock is held by another thread.")
    return make_rlock, (count,)


def make_rlock(count: int) -> Any:
    """Return a re-entrant lock (called by payloads)."""
    lock = threading.RLock()
    for _ in range(count):
        loading.current().late.append(lock.acquire)
    return lock


def reduce_simple_queue(pickler: CapturePickler, simple: Any) -> Any:
    """Reduce an empty SimpleQueue; what is in one cannot be seen without taking it out."""
    if not simple.empty():
        raise CannotTravel("The items of a SimpleQueue cannot be seen without taking them out.")
    return queue.SimpleQueue, ()


EXACT: dict[type, Any] = {
    _thread.LockType: reduce_lock,
    _thread.RLock: reduce_rlock,
    queue.SimpleQueue: reduce_simple_queue,
}
