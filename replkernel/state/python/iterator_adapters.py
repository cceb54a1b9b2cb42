"""Iterators that go over others (`enumerate`, `zip`, those of itertools): made again over these as they are.

Python makes each from its sources by asking them for an iterator once more. What has an ``__iter__`` of its
own may begin anew then, count it, or print.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.python.generators import AsItIs, reduce_slice, reduction_of
from replkernel.state.python.hidden_parts import reduce_groupby

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext
    from replkernel.state.library import ReducerContext

_DICT = type.__dict__["__dict__"]
_MRO = type.__dict__["__mro__"]

_SOURCES: dict[Any, slice] = {
    enumerate: slice(0, 1),
    filter: slice(1, 2),
    map: slice(1, None),
    zip: slice(0, None),
    itertools.accumulate: slice(0, 1),
    itertools.compress: slice(0, 2),
    itertools.cycle: slice(0, 1),
    itertools.dropwhile: slice(1, 2),
    itertools.filterfalse: slice(1, 2),
    itertools.groupby: slice(0, 1),
    itertools.islice: slice(0, 1),
    itertools.starmap: slice(1, 2),
    itertools.takewhile: slice(1, 2),
    itertools.zip_longest: slice(0, None),
}
"""Which arguments of each are what it goes over."""

_OWN_REDUCERS: dict[Any, Any] = {itertools.groupby: reduce_groupby, itertools.islice: reduce_slice}


_WARNING = frozenset(
    kind for kind in vars(itertools).values() if isinstance(kind, type) and sys.version_info >= (3, 12)
)
"""Those of itertools that warn when they are asked how they are copied."""


def reduce_adapter(pickler: UnitContext, iterator: object) -> object:
    """Reduce an iterator of others; where one of these has its own ``__iter__``, to what does not call it."""
    kind = type(iterator)
    own = _OWN_REDUCERS.get(kind)
    made = reduction_of(iterator) if own is None else own(pickler, iterator)
    if made[0] is not kind or not any(_answers(type(source)) for source in made[1][_SOURCES[kind]]):
        return made if own is not None or kind in _WARNING else NotImplemented
    # A source of `zip_longest` at its end is told as an empty tuple.
    arguments = tuple(iter(()) if type(argument) is tuple else argument for argument in made[1])
    reduced = make_over, (kind, arguments), *made[2:]
    return pickler.checked(iterator, reduced) if pickler.careful else reduced


def _answers(cls: type) -> bool:
    """Tell whether a class says in Python what goes over its instances."""
    found = next(
        (_DICT.__get__(base)["__iter__"] for base in _MRO.__get__(cls) if "__iter__" in _DICT.__get__(base)),
        None,
    )
    return isinstance(found, types.FunctionType)


@loader("iterators:make_over")
def make_over(kind: Callable[..., Any], arguments: tuple[Any, ...]) -> object:
    """Return an iterator over others, none of which is asked for anything (called by payloads)."""
    over = list(arguments)
    over[_SOURCES[kind]] = [AsItIs(source) for source in over[_SOURCES[kind]]]
    return kind(*over)


def _reduce_as_told(context: ReducerContext, iterator: object) -> object:
    """Reduce an iterator as it says, but without the warning."""
    return reduction_of(iterator)


EXACT: dict[type, Any] = {
    **{kind: _reduce_as_told for kind in _WARNING if kind is not itertools.pairwise},
    **dict.fromkeys(_SOURCES, reduce_adapter),
}
