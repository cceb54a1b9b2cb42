"""Threads that the kernel starts for itself: no debugger stops in them, nobody takes them for the notebook's.

A thread of the notebook's own binds it to its process, and may use tensors on a GPU at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_MARK = "_replkernel_own"


def own_thread(target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> threading.Thread:
    """Return a daemon thread of the kernel's own, which is not started yet."""
    return marked(threading.Thread(target=target, name=name, args=args, daemon=True))


def marked(thread: threading.Thread) -> threading.Thread:
    """Mark a thread as the kernel's own, and return it."""
    vars(thread).update({_MARK: True, "pydev_do_not_trace": True, "is_pydev_daemon_thread": True})
    return thread


def is_own(thread: threading.Thread) -> bool:
    """Tell whether a thread was made here."""
    return _MARK in vars(thread)
