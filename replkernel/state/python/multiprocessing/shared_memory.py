"""Blocks of `multiprocessing.shared_memory`: they belong to their host, and arrays over them look into them.

A copy would be attached to the same block under its name, while the arrays over it would be copies of it; and
the first process to end would remove the block for all.
"""

from __future__ import annotations

from multiprocessing import shared_memory
from typing import TYPE_CHECKING

from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def refuse_block(context: ReducerContext, block: object) -> object:
    """Refuse a block of shared memory."""
    raise CannotTravel("Shared memory belongs to the host on which it was made, and to the processes there.")


FAMILIES = [(shared_memory.SharedMemory, refuse_block)]
