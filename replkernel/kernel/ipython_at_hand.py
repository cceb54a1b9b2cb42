"""Modules that are imported outside a cell find ``get_ipython``, as they do inside one.

IPython offers it to all modules during cells only, and some decide by it where they are: without it, pandas
takes a process for a terminal, and prints frames in another width.
Law: what IPython itself offers is left alone; nothing stays behind.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Iterator

_NAME = "get_ipython"


class ZMQInteractiveShell:
    """Says that this will be a kernel, before it has a shell; libraries also ask what its class is called."""

    kernel = None


@contextlib.contextmanager
def ipython_at_hand(get_ipython: Callable[[], object] = ZMQInteractiveShell) -> Iterator[None]:
    """Offer `get_ipython` to modules that are imported meanwhile; by default, that of a kernel to come."""
    offered = not hasattr(builtins, _NAME)
    if offered:
        setattr(builtins, _NAME, get_ipython)
    try:
        yield
    finally:
        if offered and getattr(builtins, _NAME, None) is get_ipython:
            delattr(builtins, _NAME)
