"""Objects of the standard library whose parts only the garbage collector can see: they are asked nothing.

``itertools.pairwise``, ``functools.cmp_to_key``, what ``struct.iter_unpack`` returns, the buffer of a BytesIO
and the scanner of a JSONDecoder have no reduction of their own; that of ``itertools.groupby`` forgets the
group at work once its item was taken.
"""

from __future__ import annotations

import collections
import functools
import gc
import io
import itertools
import json
import struct
import sys
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.generators import AsItIs, reduction_of

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_GROUP: Any = type(next(itertools.groupby([0]))[1])
_WITHOUT_ITEM = 3
"""So many parts a groupby has when its group has taken the item: source, function, key of the group."""
_KEY: object = functools.cmp_to_key(lambda one, other: 0)
_SCANNER: object = getattr(json.JSONDecoder(), "scan_once")  # noqa: B009
_SCANNED_BY = ("strict", "object_hook", "object_pairs_hook", "parse_float", "parse_int", "parse_constant")


def _parts(value: object) -> list[Any]:
    return [part for part in gc.get_referents(value) if part is not type(value)]


def reduce_pairwise(context: ReducerContext, pairs: object) -> object:
    """Reduce a pairwise iterator: what it reads from, and the item that it has read already."""
    parts = _parts(pairs)
    if sys.version_info >= (3, 13):
        parts.pop()  # The pair that it gave last, to be filled anew where nobody holds it.
    source, *read = parts or [iter(())]
    return make_pairwise, _unwrapped(source, tuple(read))


def _unwrapped(source: object, read: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return what is read from and what was read, past the chain by which `make_pairwise` joined the two."""
    while type(source) is itertools.chain and not (read and _first_part(source)):
        chain: Any = source
        state = reduction_of(chain)[2:]
        if not state:
            break
        following, *active = state[0]
        if active and not following.__length_hint__():
            source = active[0]
        elif not active and (first := _first_part(source)):
            read, source = first
        else:
            break
    return source, read


def _first_part(chain: Any) -> Any:
    """Return the item read before and the source, of a chain that has not begun; None for other chains."""
    state = reduction_of(chain)[2:]
    if not state or len(state[0]) != 1:
        return None
    _, (parts,), index = state[0][0].__reduce__()
    if index or type(parts) is not tuple or len(parts) != 2 or type(parts[0]) is not tuple:
        return None
    read, source = parts
    return (read, source.source if type(source) is AsItIs else source) if len(read) == 1 else None


@loader("iterators:make_pairwise")
def make_pairwise(source: Iterator[Any], read: tuple[Any, ...]) -> Any:
    """Return a pairwise iterator that has read as much (called by payloads)."""
    itself = AsItIs(source)
    return itertools.pairwise(itertools.chain(read, itself) if read else itself)


def reduce_key(context: ReducerContext, key: object) -> object:
    """Reduce what `cmp_to_key` returned, or one of the keys that it makes."""
    compare, *value = _parts(key)
    return make_key, (compare, tuple(value))


@loader("iterators:make_key")
def make_key(compare: Callable[..., Any], value: tuple[Any, ...]) -> object:
    """Return a key, or what makes keys (called by payloads)."""
    made = functools.cmp_to_key(compare)
    return made(*value) if value else made


def reduce_groupby(context: ReducerContext, groups: object) -> object:
    """Reduce a groupby: where its item was taken by the group at work, with the key of that group."""
    parts = _parts(groups)
    if len(parts) != _WITHOUT_ITEM:
        return reduction_of(groups)
    return make_groupby, tuple(parts)


@loader("iterators:make_groupby")
def make_groupby(source: Any, key: Any, current: object) -> Any:
    """Return a groupby whose group at work has taken the last item (called by payloads)."""
    made: Any = itertools.groupby(AsItIs(source), key)
    made.__setstate__((current, None, current))
    next(_GROUP(made, current))
    return made


def reduce_scanner(context: ReducerContext, scanner: object) -> object:
    """Reduce the scanner of a JSONDecoder."""
    try:
        return make_scanner, tuple(getattr(scanner, name) for name in _SCANNED_BY)
    except AttributeError:
        raise CannotTravel("This scanner does not tell what it scans for.") from None


@loader("iterators:make_scanner")
def make_scanner(*settings: Any) -> object:
    """Return a scanner (called by payloads)."""
    made: Any = type(_SCANNER)
    return made(types.SimpleNamespace(**dict(zip(_SCANNED_BY, settings, strict=True))))


def reduce_unpacking(context: ReducerContext, unpacking: Any) -> object:
    """Reduce what goes through packed values: how they are packed, what has them, and how many are left."""
    packing, *source = _parts(unpacking) or (struct.Struct("b"), b"")
    return make_unpacking, (packing, *source, unpacking.__length_hint__())


@loader("iterators:make_unpacking")
def make_unpacking(packing: Any, source: object, left: int) -> object:
    """Return what goes through packed values, with so many left (called by payloads)."""
    unpacking: Any = packing.iter_unpack(source)
    collections.deque(itertools.islice(unpacking, unpacking.__length_hint__() - left), maxlen=0)
    return unpacking


def reduce_memory_buffer(context: ReducerContext, buffer: object) -> object:
    """Reduce what the memoryviews of a BytesIO look at to the BytesIO."""
    (file,) = _parts(buffer)
    return memory_buffer, (file,)


@loader("iterators:memory_buffer")
def memory_buffer(file: io.BytesIO) -> object:
    """Return what a memoryview of a BytesIO looks at (called by payloads)."""
    return file.getbuffer().obj


EXACT: dict[type, Any] = {
    type(struct.iter_unpack("b", b"")): reduce_unpacking,
    type(io.BytesIO().getbuffer().obj): reduce_memory_buffer,
    itertools.pairwise: reduce_pairwise,
    type(_KEY): reduce_key,
    **({} if type(_SCANNER) is types.FunctionType else {type(_SCANNER): reduce_scanner}),
}
