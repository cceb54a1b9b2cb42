"""pandas: blocks with the references that copy-on-write counts, and indexes, which share memory with nothing.

The values of an Index never change, and join nobody; its name may be set by all who share it.
Law: imported only when pandas is.
"""

from __future__ import annotations

import copyreg
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas._libs import internals
from pandas.core.arrays import arrow
from pandas.core.generic import NDFrame
from pandas.core.indexes import base as base_module
from pandas.core.indexes.frozen import FrozenList
from pandas.core.internals import blocks as block_module
from pandas.core.internals import managers

from replkernel.loaders import loader
from replkernel.state.python import instances
from replkernel.state.python.kinds import module_of

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

PROTOCOL = 5
LAST_OFFSET_BYTES = 8
"""Arrow leaves the offset behind the last text out when it counts an array's bytes."""


def reduce_block(pickler: UnitContext, block: block_module.Block) -> object:
    """Reduce a block to its values, its place, and what counts who shares the values."""
    pickler.module_needed("pandas")
    place = block.mgr_locs.indexer
    if type(place) is slice:
        # Of numpy's numbers; where it is rebuilt it becomes one of Python's.
        place = slice(*(None if end is None else int(end) for end in (place.start, place.stop, place.step)))
    return make_block, (block.values, place, block.ndim, block.refs)


@loader("pandas:make_block")
def make_block(values: object, place: object, ndim: int, refs: object) -> object:
    """Return a block (called by payloads)."""
    return block_module.new_block(values, internals.BlockPlacement(place), ndim=ndim, refs=refs)


def reduce_refs(pickler: UnitContext, refs: object) -> object:
    """Reduce a count of sharers: a new one, which the rebuilt blocks enter themselves."""
    return internals.BlockValuesRefs, ()


def reduce_manager(pickler: UnitContext, manager: managers.BaseBlockManager) -> object:
    """Reduce a frame's manager; the names of its class's own attributes are no link between frames."""
    pickler.unlinked.update((id(pd.DataFrame._metadata), id(pd.Series._metadata)))
    return make_manager, (type(manager), tuple(manager.blocks), list(manager.axes))


@loader("pandas:make_manager")
def make_manager(cls: type[Any], blocks: tuple[Any, ...], axes: list[Any]) -> object:
    """Return a manager (called by payloads)."""
    if issubclass(cls, managers.SingleBlockManager):
        return cls(blocks[0], axes[0], verify_integrity=False)
    return cls(blocks, axes, verify_integrity=False)


def reduce_index(pickler: UnitContext, index: pd.Index) -> Any:
    """Reduce an index, whose name may change; what it is made of never does, and is its own."""
    pickler.touched = True
    cls = type(index)
    levelled = cls.__reduce__ is pd.MultiIndex.__reduce__
    reduced = _levels_and_codes(index) if levelled else index.__reduce__()
    alone = pickler.notes.alone
    for part in (reduced[1][1] if isinstance(reduced[1][-1], dict) else {}).values():
        for piece in part if isinstance(part, (list, tuple)) else (part,):
            _set_apart(pickler, alone, piece)
    if reduced[1][0] is pd.Index and reduced[1][1]["data"].dtype == object:
        reduced = make_index, (reduced[1][1]["data"], reduced[1][1]["name"])
    told = _shown_parts(index)
    return (*reduced[:2], told, None, None, fill_index) if told else reduced


def _levels_and_codes(index: pd.Index) -> Any:
    """Return what a MultiIndex is made of, as pandas tells it, without making the levels that it shows."""
    parts = {
        "levels": list(index._levels),
        "codes": list(index._codes),
        "sortorder": index.sortorder,
        "names": list(index._names),
    }
    return base_module._new_Index, (type(index), parts)


def _holders(container: pd.Index) -> list[int]:
    return [sys.getrefcount(held) for held in container]


_UNHELD = _holders([object()])[0]
"""So many references has what its container alone holds."""


def _is_held(container: object) -> bool:
    return any(count > _UNHELD for count in _holders(container))


def _shown_parts(index: pd.Index) -> dict[str, Any]:
    """Return the indexes that an index has shown as its parts, and gives again, where somebody has them.

    Such are the levels of a MultiIndex and the ends of an IntervalIndex.
    """
    told: dict[str, Any] = {}
    if vars(index).get("_no_setting_name"):
        told["_no_setting_name"] = True
    shown = {
        name: value
        for name, value in vars(index).get("_cache", {}).items()
        if isinstance(value, (pd.Index, FrozenList)) and value is not index
    }
    for name in list(shown):
        value = shown.pop(name)
        if _is_held([value]) or (isinstance(value, FrozenList) and _is_held(value)):
            told[name] = value
    return told


@loader("pandas:fill_index")
def fill_index(index: pd.Index, told: dict[str, Any]) -> None:
    """Have an index give the parts that it has shown (called by payloads)."""
    if told.get("_no_setting_name"):
        index._no_setting_name = True
    index._cache.update((name, part) for name, part in told.items() if name != "_no_setting_name")


@loader("pandas:make_index")
def make_index(data: object, name: object) -> Any:
    """Return an index of objects over the array itself: pandas' own way takes a view (called by payloads)."""
    return pd.Index._simple_new(data, name)


def _set_apart(pickler: UnitContext, alone: dict[int, object], piece: object) -> None:
    if isinstance(piece, np.ndarray):
        alone[id(piece)] = piece
        pickler.unlinked.add(id(piece))
    elif isinstance(piece, pd.api.extensions.ExtensionArray):
        pickler.unlinked.add(id(piece))
        _set_arrow_apart(pickler, getattr(piece, "_pa_array", None))
        alone[id(piece)] = piece
        inner = [
            getattr(piece, name, None)
            for name in ("_ndarray", "_codes", "_data", "_mask", "_left", "_right", "_cache")
        ]
        for part in inner:
            if part is not None and part is not piece:
                alone[id(part)] = part
                pickler.unlinked.add(id(part))
                if isinstance(part, pd.api.extensions.ExtensionArray):
                    _set_apart(pickler, alone, part)


def _set_arrow_apart(pickler: UnitContext, text: arrow.ArrowExtensionArray) -> None:
    """Keep the memory of an index of text from joining those who share the index."""
    apart = pickler.notes.apart
    for chunk in () if text is None else text.chunks:
        apart.update((buffer.address, text) for buffer in chunk.buffers() if buffer is not None)


def is_pandas_array(cls: type) -> bool:
    """Tell whether a class is one of pandas' own arrays that keep what they have computed beside them."""
    return module_of(cls).startswith("pandas.") and issubclass(cls, pd.api.extensions.ExtensionArray)


def reduce_extension(pickler: UnitContext, values: arrow.ArrowExtensionArray) -> object:
    """Reduce such an array without what it has computed, which comes and goes when it is looked at."""
    pickler.module_needed("pandas")
    chunk = _only_chunk(values)
    if chunk is not None:
        state = {name: value for name, value in vars(values).items() if name != "_cache"}
        return copyreg.__newobj__, (type(values),), state | {"_pa_array": chunk}  # type: ignore[attr-defined]
    reduced = values.__reduce_ex__(PROTOCOL)
    if type(reduced) is tuple and len(reduced) > 2:
        return (*reduced[:2], _without_cache(reduced[2]), *reduced[3:])
    return reduced


def _only_chunk(values: arrow.ArrowExtensionArray) -> object:
    """Return the one chunk that a text array consists of, if it is all of its memory.

    pandas' own way joins the chunks, which reads and writes every offset even when there is one.
    """
    if getattr(type(values), "__getstate__", None) is not arrow.ArrowExtensionArray.__getstate__:
        return None
    chunks = vars(values)["_pa_array"]
    if chunks.num_chunks != 1:
        return None
    chunk = chunks.chunk(0)
    if chunk.offset or chunk.get_total_buffer_size() - chunk.nbytes > LAST_OFFSET_BYTES:
        return None
    return chunk


def _without_cache(state: Any) -> object:
    """Return the state without what was computed: an entry of a dictionary, or a dictionary at the end."""
    if type(state) is dict:
        return {name: value for name, value in state.items() if name != "_cache"}
    if type(state) is tuple and state and type(state[-1]) is dict:
        rest = _without_cache(state[-1])
        return (*state[:-1], rest) if rest else state[:-1]
    return state


_NOT_TOLD = frozenset({"_cache", "_cacher", "_is_copy"})
"""What pandas has computed, or notes of who a frame was taken from."""


def reduce_frame(pickler: UnitContext, frame: NDFrame) -> object:
    """Reduce a frame or series with the attributes that the notebook gave it, of which pandas tells none."""
    pickler.module_needed("pandas")
    cls: Any = type(frame)
    if cls.__getstate__ is not NDFrame.__getstate__ or cls.__reduce_ex__ is not object.__reduce_ex__:
        return NotImplemented
    held = {name: value for name, value in vars(frame).items() if name not in _NOT_TOLD}
    state = {name: value for name, value in held.items() if _is_given(frame, name)}
    if "_item_cache" in state:
        state["_item_cache"] = {}
    return instances.make_plain, (type(frame),), state, None, None, instances.fill_plain


def _is_given(frame: NDFrame, name: str) -> bool:
    """Tell whether an attribute is the notebook's, and not an accessor of pandas that was used before."""
    return name not in frame._accessors or module_of(type(vars(frame)[name])) == "__main__"


TESTS = [(is_pandas_array, reduce_extension)]
EXACT: dict[type, Any] = {internals.BlockValuesRefs: reduce_refs}
FAMILIES = [
    (managers.BlockManager, reduce_manager),
    (managers.SingleBlockManager, reduce_manager),
    (block_module.Block, reduce_block),
    (pd.Index, reduce_index),
    (NDFrame, reduce_frame),
]
