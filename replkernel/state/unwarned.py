"""Looking at a cell and at what it left shows no warning: that is the cell's own affair.

Law: what Python remembers of warnings that were shown stays. `warnings.catch_warnings` has it forget all, so
that each cell would show them once more.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

_IGNORED = ("ignore", None, Warning, None, 0)


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Show no warning in the block."""
    filters = vars(warnings)["filters"]
    if type(filters) is not list:
        yield
        return
    filters.insert(0, _IGNORED)
    try:
        yield
    finally:
        at = next((index for index, one in enumerate(filters) if one is _IGNORED), None)
        if at is not None:
            del filters[at]
