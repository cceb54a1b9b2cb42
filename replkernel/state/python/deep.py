"""Runs a function where deep recursion is safe: in a thread with a large stack, while this thread waits.

Law: the user sees nothing of it: no thread name is used up, recursion limit and stack size are put back.

Python 3.12 and 3.13 count calls within C by themselves, in each thread, and allow 1,500 or 10,000 of them
whatever its stack: 400 linked objects would be too many. The thread here may make as many as it has room for.
"""

from __future__ import annotations

import _thread
import contextvars
import ctypes
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

STACK_BYTES = 1024 * 1024 * 1024
"""Address space only; memory is used as far as the recursion goes."""

DEPTH_MAX = 400_000
"""The recursion limit inside; a level takes less than 2 KiB of stack."""

COUNTS_APART = (3, 12) <= sys.version_info < (3, 14)
"""Whether calls within C have a limit of their own."""
_WORDS = 32
"""So many integers of a thread's state are looked through, and none is changed but the right one."""
_C_LIMIT_MAX = 100_000
_OF_A_CALL = 16
"""A call from C to a function of Python counts four times there."""

Result = TypeVar("Result")


def run_deep(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, run on a large stack; what it raises is raised here."""
    outcome: list[Result] = []
    failure: list[BaseException] = []
    done = _thread.allocate_lock()
    done.acquire()

    context = contextvars.copy_context()

    def body() -> None:
        try:
            if COUNTS_APART:
                _allow_deep_calls()
            outcome.append(context.run(work))
        except BaseException as error:
            failure.append(error)
        finally:
            done.release()

    limit = sys.getrecursionlimit()
    stack = threading.stack_size(STACK_BYTES)
    try:
        sys.setrecursionlimit(max(limit, DEPTH_MAX))
        _thread.start_new_thread(body, ())
        threading.stack_size(stack)
        done.acquire()
    finally:
        threading.stack_size(stack)
        sys.setrecursionlimit(limit)
    if failure:
        raise failure[0].with_traceback(None)
    return outcome[0]


def _allow_deep_calls() -> None:
    """Let this thread, which ends soon, make as many calls within C as Python may make in it."""
    get = ctypes.pythonapi.PyThreadState_Get
    get.restype = ctypes.c_void_p
    words = (ctypes.c_int * _WORDS).from_address(get())
    limit = sys.getrecursionlimit()
    for place in range(1, _WORDS - 1):
        # What is left of Python's limit, that limit, what is left within C: in this order, since 3.12.
        if words[place] == limit and 0 < words[place - 1] <= limit and 0 < words[place + 1] <= _C_LIMIT_MAX:
            if _counts_calls(words, place + 1):
                words[place + 1] = DEPTH_MAX
            return


def _counts_calls(words: ctypes.Array[ctypes.c_int], place: int) -> bool:
    """Tell whether an integer is some less within a call of C, and afterwards as before."""
    seen: list[int] = []

    class Probe:
        def __repr__(self) -> str:
            seen.append(words[place])
            return ""

    before = words[place]
    repr(Probe())
    return len(seen) == 1 and 0 < before - seen[0] <= _OF_A_CALL and words[place] == before
