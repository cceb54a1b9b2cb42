"""Looking at a cell and at what it left shows no warning: that is the cell's own affair.

Law: what Python remembers of warnings that were shown stays. `warnings.catch_warnings` has it forget all, so
that each cell would show them once more.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator


class _Ignored(tuple[object, ...]):
    """A filter that is equal to itself alone."""

    __slots__ = ()
    __eq__ = object.__eq__
    __hash__ = object.__hash__


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Show no warning in the block."""
    filters = vars(warnings)["filters"]
    if type(filters) is not list:
        yield
        return
    ignored = _Ignored(("ignore", None, Warning, None, 0))
    filters.insert(0, ignored)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            filters.remove(ignored)  # One step, so another thread's filter is never taken for ours.
