"""Runs a function where deep recursion is safe: in a thread with a large stack, while this thread waits.

Law: the user sees nothing of it: no thread name is used up, recursion limit and stack size are put back.
"""

from __future__ import annotations

import _thread
import contextvars
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

STACK_BYTES = 1024 * 1024 * 1024
"""Address space only; memory is used as far as the recursion goes."""

DEPTH_MAX = 400_000
"""The recursion limit inside; a level takes less than 2 KiB of stack."""

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
