"""Objects of numpy beside arrays: rows of structured arrays, flat iterators, ufuncs, limits of numbers.

Law: imported only when numpy is; a flat iterator is taken again and moved on, and consumed by nobody.
"""

from __future__ import annotations

import collections
import gc
import importlib
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.capture.refusals import as_a_whole
from replkernel.state.libraries.numpy.bare_arrays import address

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

STEPS_MAX = 10_000_000
"""A flat iterator that is further on than this is not moved there again."""


def reduce_row(pickler: UnitContext, row: Any) -> object:
    """Reduce an element of a structured array, which looks at the array's memory."""
    base = row.base
    if base is None or row.dtype.names is None or not isinstance(base, np.ndarray):
        return NotImplemented
    plain = np.asarray(base)
    rest = _row_address(row) - address(plain)
    index = [0] * plain.ndim
    for axis in sorted(range(plain.ndim), key=lambda axis: -plain.strides[axis]):
        step = plain.strides[axis]
        index[axis], rest = divmod(rest, step) if step > 0 else (0, rest)
    fits = all(0 <= place < size for place, size in zip(index, plain.shape, strict=True))
    if rest or not fits or plain.dtype != row.dtype:
        raise CannotTravel("The array that this row looks at is not known.")
    return take_row, (base, tuple(index))


def _row_address(row: object) -> int:
    from replkernel.state.python.views import address_of

    return address_of(row)


@loader("numpy:take_row")
def take_row(base: Any, index: object) -> object:
    """Return an element of a structured array (called by payloads)."""
    return base[index]


def reduce_flat(pickler: UnitContext, flat: np.flatiter[Any]) -> object:
    """Reduce a flat iterator to its array and its place."""
    if flat.index > STEPS_MAX:
        raise CannotTravel(f"It is more than {STEPS_MAX} elements on its way.")
    return take_flat, (flat.base, flat.index)


@loader("numpy:take_flat")
def take_flat(base: np.ndarray[Any, Any], index: int) -> object:
    """Return a flat iterator at its place (called by payloads)."""
    flat = base.flat
    for _ in range(index):
        next(flat)
    return flat


def reduce_broadcast(pickler: UnitContext, together: np.broadcast) -> object:
    """Reduce arrays that are gone through together to these arrays, and the place."""
    if together.index > STEPS_MAX:
        raise CannotTravel(f"It is more than {STEPS_MAX} elements on its way.")
    return take_broadcast, (tuple(flat.base for flat in together.iters), together.index)


@loader("numpy:take_broadcast")
def take_broadcast(arrays: tuple[Any, ...], index: int) -> object:
    """Return arrays that are gone through together, at their place (called by payloads)."""
    together = np.broadcast(*arrays)
    collections.deque(itertools.islice(together, index), maxlen=0)
    return together


def reduce_ufunc(pickler: UnitContext, function: np.ufunc) -> object:
    """Reduce a ufunc that `frompyfunc` made to the function behind it."""
    name = function.__name__
    if not name.endswith(" (vectorized)"):
        return NotImplemented
    behind = [held for held in gc.get_referents(function) if callable(held)]
    if len(behind) != 1:
        raise CannotTravel("The function behind this ufunc is not known.")
    return make_ufunc, (behind[0], function.nin, function.nout, function.identity)


@loader("numpy:make_ufunc")
def make_ufunc(function: Callable[..., Any], nin: int, nout: int, identity: object) -> object:
    """Return a ufunc (called by payloads)."""
    return np.frompyfunc(function, nin, nout, identity=identity)


def reduce_limits(pickler: UnitContext, limits: np.finfo[Any] | np.iinfo[Any]) -> object:
    """Reduce the limits of a type of numbers, which numpy keeps one object for."""
    pickler.unlinked.add(id(limits))
    return type(limits), (limits.dtype,)


def reduce_calendar(pickler: UnitContext, calendar: np.busdaycalendar) -> object:
    """Reduce a calendar of working days."""
    return np.busdaycalendar, (calendar.weekmask.tolist(), calendar.holidays.tolist())


def reduce_archive(pickler: UnitContext, archive: np.lib.npyio.NpzFile) -> object:
    """Reduce what `numpy.load` returned for a file of several arrays, open or closed."""
    state = dict(vars(archive))
    has_fields = type(state.pop("f", None)) is _Fields
    return make_archive, (type(archive), has_fields), state, None, None, fill_archive


@loader("numpy:make_archive")
def make_archive(cls: Any, has_fields: bool) -> object:
    """Return an archive without its file; its `f` knows it by a weak reference (called by payloads)."""
    archive = cls.__new__(cls)
    vars(archive)["f"] = _Fields(archive) if has_fields else None
    return archive


@loader("numpy:fill_archive")
def fill_archive(archive: np.lib.npyio.NpzFile, state: dict[str, Any]) -> None:
    """Give an archive its file (called by payloads)."""
    vars(archive).update(state)


def reduce_fields(pickler: UnitContext, fields: object) -> object:
    """Reduce the `f` of an archive, which answers for the archive in everything."""
    try:
        archive = object.__getattribute__(fields, "_obj").__repr__.__self__
    except ReferenceError:
        archive = None
    if type(archive) is not np.lib.npyio.NpzFile or vars(archive).get("f") is not fields:
        raise CannotTravel("The archive of these arrays is gone.")
    return getattr, (archive, "f")


_Fields = importlib.import_module("numpy.lib._npyio_impl").BagObj

EXACT: dict[type, Any] = {
    np.broadcast: reduce_broadcast,
    np.busdaycalendar: reduce_calendar,
    np.flatiter: reduce_flat,
    np.ufunc: reduce_ufunc,
    np.finfo: reduce_limits,
    np.lib.npyio.NpzFile: as_a_whole(reduce_archive, np.lib.npyio.NpzFile),
    _Fields: reduce_fields,
}
FAMILIES = [(np.void, reduce_row)]
