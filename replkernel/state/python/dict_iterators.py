"""Iterators of dicts, ordered dicts, sets and deques part-way: they go on over the real container.

What CPython keeps in them (how far, how large the container was) has no way in or out but their memory; the
layout is checked once before it is relied on.
Law: an iterator that its container's changes have made invalid stays invalid, or is refused by name.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.format.set_order import keeps_order
from replkernel.state.python.generators import spent
from replkernel.state.python.kinds import is_a
from replkernel.state.restore.loading import current

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_DICT = dict
_MAKERS = (dict.__iter__, dict.values, dict.items)
_REVERSED = 3
"""From this kind on, iterators go backwards."""

_USED, _POSITION, _DICT_LENGTH = 24, 32, 48
_SET_LENGTH = 40
_ORDERED_KIND = 16
_ORDERED_REVERSED, _ORDERED_KEYS, _ORDERED_VALUES = 1, 2, 4
_DEQUE_STATE, _STATE_OF_DEQUE = 40, 56
_STALE = -1
_WORD_BYTES = 8
_CHANGED = "The container that it goes over has changed meanwhile; one made anew would not know."


def _made(kind: int, owner: Any) -> Any:
    if kind < _REVERSED:
        return iter(_MAKERS[kind](owner))
    if kind == _REVERSED:
        return dict.__reversed__(owner)
    return reversed(_DICT.values(owner) if kind == _REVERSED + 1 else _DICT.items(owner))


_KINDS = {type(_made(kind, {})): kind for kind in range(6)}
_ORDERED_TYPE: type = type(iter(OrderedDict()))
_SET_TYPE: type = type(iter(set()))
_DEQUE_TYPE: type = type(iter(deque()))
_DEQUE_BACKWARDS: Any = type(reversed(deque()))
"""From Python 3.12 on no module has it, so that no payload may name it."""


def _word(thing: object, offset: int) -> Any:
    return ctypes.c_ssize_t.from_address(id(thing) + offset)


def _read(thing: object, offset: int) -> int:
    return int(_word(thing, offset).value)


@functools.cache
def readable() -> bool:
    """Tell whether iterators lie in memory as is known here."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != _WORD_BYTES:
        return False
    owner = dict.fromkeys(range(5))
    forward, backward, members = iter(owner), reversed(owner), iter({1, 2, 3})
    queue = deque((1,))
    steps, ordered = iter(queue), iter(OrderedDict(a=1).values())
    next(forward), next(forward), next(backward), next(members)
    if forward.__sizeof__() != _DICT_LENGTH + 8 or members.__sizeof__() != _SET_LENGTH + 8:
        return False
    if [_read(forward, at) for at in (_USED, _POSITION, _DICT_LENGTH)] != [5, 2, 3]:
        return False
    if [_read(backward, at) for at in (_USED, _POSITION, _DICT_LENGTH)] != [5, 3, 4]:
        return False
    if [_read(members, _USED), _read(members, _SET_LENGTH)] != [3, 2]:
        return False
    if _read(ordered, _ORDERED_KIND) & 0xFFFFFFFF != _ORDERED_VALUES:
        return False
    before = _read(queue, _STATE_OF_DEQUE)
    queue.append(2)
    return _read(steps, _DEQUE_STATE) == before == _read(queue, _STATE_OF_DEQUE) - 1


def _container(iterator: object, kind: type | tuple[type, ...]) -> Any:
    """Return what an iterator goes over; None when it is at its end."""
    return next((held for held in gc.get_referents(iterator) if is_a(held, kind)), None)


def _check_owner(context: ReducerContext, owner: dict[Any, Any]) -> None:
    if not readable():
        raise CannotTravel("How far it has gone cannot be read in this release of Python.")
    if owner is context.namespace or owner is sys.modules or "__spec__" in owner or "__dict__" in owner:
        raise CannotTravel("It goes over the names of a namespace, a module or a class.")


def reduce_dict_iterator(context: ReducerContext, iterator: object) -> Any:
    """Reduce an iterator of a dict's keys, values or items, forward or backward."""
    owner = _container(iterator, dict)
    if owner is None:
        return spent(iterator)
    _check_owner(context, owner)
    kind = _KINDS[type(iterator)]
    used = _read(iterator, _USED)
    if used < 0:
        return dict_iterator, (kind, owner, 0, 0, _STALE, 0)
    told = _passed(kind, owner, iterator), used, _read(iterator, _DICT_LENGTH)
    return dict_iterator, (kind, owner, len(owner), *told)


def _passed(kind: int, owner: dict[Any, Any], iterator: object) -> int:
    """Return how many of the dict's entries lie behind the iterator: places of deleted ones do not count."""
    goal, size = _read(iterator, _POSITION), len(owner)
    backward = kind >= _REVERSED
    last = _read(_DICT.__reversed__(owner), _POSITION)
    if last + 1 == size:
        return last - goal if backward else goal
    if _read(iterator, _USED) != size:
        raise CannotTravel(_CHANGED)
    # There are places of deleted entries: walk until there.
    walker = _made(_REVERSED if backward else 0, owner)
    sign = -1 if backward else 1
    passed = 0
    while sign * (goal - _read(walker, _POSITION)) > 0:
        if next(walker, walker) is walker or sign * (goal - _read(walker, _POSITION)) < 0:
            break
        passed += 1
    return passed


@loader("iterators:dict_iterator")
def dict_iterator(kind: int, owner: object, size: int, passed: int, used: int, length: int) -> Any:
    """Return an iterator of a dict, which may be still to be filled (called by payloads)."""
    iterator = _made(kind, owner)
    if not readable():
        raise LookupError("how iterators lie in memory is not known in this release of Python")
    _word(iterator, _USED).value = used
    _word(iterator, _POSITION).value = size - 1 - passed if kind >= _REVERSED else passed
    _word(iterator, _DICT_LENGTH).value = length
    return iterator


def reduce_ordered_iterator(context: ReducerContext, iterator: Iterator[Any]) -> Any:
    """Reduce an iterator of an OrderedDict."""
    owner = _container(iterator, OrderedDict)
    if owner is None:
        return spent(iterator)
    _check_owner(context, owner)
    try:
        left = len(iterator.__reduce__()[1][0])
    except RuntimeError:
        raise CannotTravel(_CHANGED) from None
    return ordered_iterator, (_read(iterator, _ORDERED_KIND) & 0xFFFFFFFF, owner, len(owner), left)


@loader("iterators:ordered_iterator")
def ordered_iterator(kind: int, owner: OrderedDict[Any, Any], size: int, left: int) -> Any:
    """Return an iterator of an OrderedDict (called by payloads)."""
    if len(owner) != size:
        raise LookupError("the container of an iterator is not whole yet")
    view: Any = OrderedDict.keys(owner)
    if not kind & _ORDERED_KEYS:
        view = OrderedDict.values(owner)
    elif kind & _ORDERED_VALUES:
        view = OrderedDict.items(owner)
    iterator = reversed(view) if kind & _ORDERED_REVERSED else iter(view)
    next(islice(iterator, size - left, size - left), None)
    return iterator


def reduce_set_iterator(context: ReducerContext, iterator: Iterator[Any]) -> Any:
    """Reduce an iterator of a set; of a frozenset, which never changes, to what is left of it."""
    owner = _container(iterator, (set, frozenset))
    if owner is None:
        return spent(iterator)
    if readable() and _read(iterator, _USED) == _STALE:
        return stale_set_iterator, (owner,)
    try:
        left = iterator.__reduce__()[1][0]
    except RuntimeError:
        raise CannotTravel(_CHANGED) from None
    if is_a(owner, frozenset):
        return iter, (left,), 0
    if not readable() or _read(iterator, _USED) != len(owner):
        raise CannotTravel(_CHANGED)
    if 0 < len(left) < len(owner) and not keeps_order(owner):
        raise CannotTravel("The order of its set is not kept, and so what is left is not known.")
    return set_iterator, (owner, left)


@loader("iterators:stale_set_iterator")
def stale_set_iterator(owner: set[Any]) -> Any:
    """Return an iterator that has said that its set has changed, and always will (called by payloads)."""
    iterator = set.__iter__(owner)
    if not readable():
        raise LookupError("how iterators lie in memory is not known in this release of Python")
    _word(iterator, _USED).value = _STALE
    return iterator


@loader("iterators:set_iterator")
def set_iterator(owner: set[Any], left: list[Any]) -> object:
    """Return an iterator of a set, which is brought to its place at the end (called by payloads)."""
    iterator = set.__iter__(owner)
    current().settle.append(functools.partial(_settle, iterator, owner, left))
    return iterator


def _settle(iterator: object, owner: set[Any], left: list[Any]) -> None:
    size = len(owner)
    walker = set.__iter__(owner)
    next(islice(walker, size - len(left), size - len(left)), None)
    place = _read(walker, _POSITION)
    if 0 < len(left) < size and set(walker) != set(left):
        raise LookupError("the members of a set came back in another order than its iterator needs")
    _word(iterator, _USED).value = size
    _word(iterator, _POSITION).value = place
    _word(iterator, _SET_LENGTH).value = len(left)


def reduce_deque_iterator(context: ReducerContext, iterator: Iterator[Any]) -> object:
    """Reduce an iterator of a deque; one whose deque has changed raises as before."""
    owner = _container(iterator, deque)
    if owner is None or not readable():
        raise CannotTravel("How far it has gone cannot be read in this release of Python.")
    backward = type(iterator) is _DEQUE_BACKWARDS
    if _read(iterator, _DEQUE_STATE) == _read(owner, _STATE_OF_DEQUE):
        made = iterator.__reduce__()
        return (deque_backwards, made[1]) if backward else made
    return stale_deque_iterator, (reversed if backward else type(iterator), owner)


@loader("iterators:deque_backwards")
def deque_backwards(owner: object, passed: int = 0) -> Any:
    """Return an iterator that goes backwards over a deque (called by payloads)."""
    return _DEQUE_BACKWARDS(owner, passed)


@loader("iterators:stale_deque_iterator")
def stale_deque_iterator(kind: Callable[[object], Any], owner: object) -> Any:
    """Return an iterator of a deque that has changed since (called by payloads)."""
    iterator = kind(owner)
    _word(iterator, _DEQUE_STATE).value = _STALE
    return iterator


EXACT: dict[type, Any] = {
    **dict.fromkeys(_KINDS, reduce_dict_iterator),
    _ORDERED_TYPE: reduce_ordered_iterator,
    _SET_TYPE: reduce_set_iterator,
    _DEQUE_TYPE: reduce_deque_iterator,
    _DEQUE_BACKWARDS: reduce_deque_iterator,
}
