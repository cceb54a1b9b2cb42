"""What a cell is about to name: variables read, bound and deleted, and whether it wants a GPU.

Used to order captures, to fetch ahead, and to ask for GPUs. Law: it is never taken as proof that something
did not change, and asking it changes nothing: no property is read, no user code runs.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from replkernel.state.analysis.cell_text import CellText, join, read_cell
from replkernel.state.analysis.reach import Reach
from replkernel.state.analysis.sources import executed_texts, imported_calls_use_gpu, imports_local_source

CELLS_CACHED = 512
_BUILTIN_NAMES = frozenset(vars(builtins))


class CellNames(msgspec.Struct, frozen=True):
    """The names of a cell and of the notebook's code that it reaches.

    `anything` means that every name may be read, bound or deleted. `needs_gpu` tells that the cell, code
    that it reaches, or a value that it reads mentions or lies on a GPU.
    """

    reads: frozenset[str]
    binds: frozenset[str]
    deletes: frozenset[str]
    anything: bool
    needs_gpu: bool


def analyse(source: str, namespace: Mapping[str, Any]) -> CellNames:
    """Return what `source` names when it runs as a cell in `namespace`."""
    text = _cell_text(source)
    reach = Reach(namespace)
    reach.follow(text.reads, text.mentions)
    gpu = text.gpu or reach.gpu
    if not gpu and text.imports and imports_local_source(text.imports):
        gpu = _imports_gpu(source)
    reads = {name for name in text.reads | reach.reads if name in namespace or name not in _BUILTIN_NAMES}
    return CellNames(
        reads=frozenset(reads),
        binds=text.binds | reach.binds,
        deletes=text.deletes | reach.deletes,
        anything=text.anything or reach.anything,
        needs_gpu=gpu,
    )


@functools.lru_cache(maxsize=CELLS_CACHED)
def _cell_text(source: str) -> CellText:
    text = read_cell(source)
    if not text.executes:
        return text
    executed = executed_texts(source)
    if executed is None:
        return text
    known = join([text, *map(read_cell, executed)])
    inner_open = any(read_cell(inner).anything for inner in executed)
    return msgspec.structs.replace(known, anything=inner_open, reads=known.reads - {"exec", "eval"})


@functools.lru_cache(maxsize=CELLS_CACHED)
def _imports_gpu(source: str) -> bool:
    return imported_calls_use_gpu(source)
