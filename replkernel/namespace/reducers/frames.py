"""pandas: blocks with the references that copy-on-write counts, and indexes, which share memory with nothing.

An Index never changes, so frames that share one are not joined by it: each gets its own copy.
Law: imported only when pandas is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas._libs import internals
from pandas.core.internals import blocks as block_module
from pandas.core.internals import managers

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


def reduce_block(pickler: CapturePickler, block: Any) -> Any:
    """Reduce a block to its values, its place, and what counts who shares the values."""
    pickler.module_needed("pandas")
    place = block.mgr_locs.indexer
    return make_block, (block.values, place, block.ndim, block.refs)


def make_block(values: Any, place: Any, ndim: int, refs: Any) -> Any:
    """Return a block (called by payloads)."""
    return block_module.new_block(values, internals.BlockPlacement(place), ndim=ndim, refs=refs)


def reduce_refs(pickler: CapturePickler, refs: Any) -> Any:
    """Reduce a count of sharers: a new one, which the rebuilt blocks enter themselves."""
    return internals.BlockValuesRefs, ()


def reduce_manager(pickler: CapturePickler, manager: Any) -> Any:
    """Reduce a frame's manager."""
    return make_manager, (type(manager), tuple(manager.blocks), list(manager.axes))


def make_manager(cls: Any, blocks: tuple[Any, ...], axes: list[Any]) -> Any:
    """Return a manager (called by payloads)."""
    if issubclass(cls, managers.SingleBlockManager):
        return cls(blocks[0], axes[0], verify_integrity=False)
    return cls(blocks, axes, verify_integrity=False)


def reduce_index(pickler: CapturePickler, index: Any) -> Any:
    """Reduce an index; what it is made of is its own."""
    pickler.touched = True
    pickler.unlinked.add(id(index))
    reduced = index.__reduce__()
    solo = pickler.extras.setdefault("solo", {})
    for part in (reduced[1][1] if isinstance(reduced[1][-1], dict) else {}).values():
        for piece in part if isinstance(part, (list, tuple)) else (part,):
            _set_apart(pickler, solo, piece)
    return reduced


def _set_apart(pickler: CapturePickler, solo: dict[int, Any], piece: Any) -> None:
    if isinstance(piece, np.ndarray):
        solo[id(piece)] = piece
        pickler.unlinked.add(id(piece))
    elif isinstance(piece, pd.api.extensions.ExtensionArray):
        pickler.unlinked.add(id(piece))
        solo[id(piece)] = piece
        inner = [
            getattr(piece, name, None)
            for name in ("_ndarray", "_codes", "_data", "_mask", "_left", "_right", "_cache")
        ]
        for part in inner:
            if part is not None and part is not piece:
                solo[id(part)] = part
                pickler.unlinked.add(id(part))
                if isinstance(part, pd.api.extensions.ExtensionArray):
                    _set_apart(pickler, solo, part)


EXACT: dict[type, Any] = {internals.BlockValuesRefs: reduce_refs}
FAMILIES = [
    (managers.BlockManager, reduce_manager),
    (managers.SingleBlockManager, reduce_manager),
    (block_module.Block, reduce_block),
    (pd.Index, reduce_index),
]
