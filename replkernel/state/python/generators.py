"""Generators and coroutines: those that are over, or have not begun, are made again; one in flight is stuck.

Iterators of sequences and of itertools pickle themselves without being consumed; those that are over say that
they are new ones of something empty, and are made as what they are.
"""

from __future__ import annotations

import contextlib
import ctypes
import dis
import functools
import gc
import inspect
import sys
import types
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.python.finalizers import meet
from replkernel.state.restore import loading
from replkernel.state.unwarned import unwarned

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


class AsItIs:
    """Gives an iterator itself to whoever asks for one: its own ``__iter__`` may begin anew."""

    __slots__ = ("source",)

    def __init__(self, source: object) -> None:
        self.source = source

    def __iter__(self) -> Any:
        return self.source


def reduce_generator(context: ReducerContext, generator: types.GeneratorType[Any, Any, Any]) -> object:
    """Reduce a generator that is over, or one that has not begun: to the call that made it."""
    names = generator.__name__, generator.__qualname__
    if generator.gi_frame is None:
        return spent_generator, names
    made = _call_that_made(generator, generator.gi_frame)
    if made is None:
        raise CannotTravel("A generator in flight keeps its place in a frame, which cannot be copied.")
    return make_generator, (*made, *names)


def _call_that_made(
    made: object, frame: types.FrameType
) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """Return function and arguments of the call that made what has not begun; None for what has."""
    code = frame.f_code
    if not _has_returned_it(code.co_code, frame.f_lasti):
        return None
    for held in gc.get_referents(made):
        if type(held) is types.FunctionType and held.__code__ is code:
            return held, *_arguments(code, frame.f_locals)
    return None


_RETURN_GENERATOR, _POP_TOP = dis.opmap["RETURN_GENERATOR"], dis.opmap["POP_TOP"]
"""The last instruction of a call that makes a generator, and the one behind it. At one of the two, that of
Python 3.13 at the second, a generator waits to begin."""


def _has_returned_it(instructions: bytes, last: int) -> bool:
    """Tell whether the last instruction of a frame was to return its generator."""
    if last < 0:
        return False
    before = instructions[last - 2] if last >= 2 and instructions[last] == _POP_TOP else None
    return _RETURN_GENERATOR in (instructions[last], before)


def _arguments(code: types.CodeType, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call, whose code has not begun."""
    names = code.co_varnames
    positional = tuple(values[name] for name in names[: code.co_argcount])
    count = code.co_argcount + code.co_kwonlyargcount
    by_name = {name: values[name] for name in names[code.co_argcount : count]}
    if code.co_flags & inspect.CO_VARARGS:
        positional += values[names[count]]
        count += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        by_name |= values[names[count]]
    return positional, by_name


@loader("iterators:make_generator")
def make_generator(
    function: Callable[..., Any],
    positional: tuple[Any, ...],
    by_name: dict[str, Any],
    name: str,
    qualname: str,
) -> object:
    """Return a generator or coroutine that has not begun (called by payloads)."""
    generator = function(*positional, **by_name)
    generator.__name__, generator.__qualname__ = name, qualname
    if type(generator) is types.CoroutineType:
        meet(types.CoroutineType)
    return generator


_SAMPLES: dict[str, Any] = {
    "list": lambda: iter([0]),
    "list backwards": lambda: reversed([0]),
    "tuple": lambda: iter((0,)),
    "ASCII": lambda: iter("a"),
    "text": lambda: iter("\N{LATIN SMALL LETTER E WITH ACUTE}"),
    "bytes": lambda: iter(b"a"),
    "bytearray": lambda: iter(bytearray(b"a")),
    "array": lambda: iter(array("b", [0])),
}
_OF_CONTAINERS: dict[str, Any] = {
    "keys": lambda: iter({0: 0}),
    "values": lambda: iter({0: 0}.values()),
    "items": lambda: iter({0: 0}.items()),
    "keys backwards": lambda: reversed({0: 0}),
    "values backwards": lambda: reversed({0: 0}.values()),
    "items backwards": lambda: reversed({0: 0}.items()),
    "ordered dict": lambda: iter(OrderedDict({0: 0})),
    "set": lambda: iter({0}),
    "deque": lambda: iter(deque([0])),
    "deque backwards": lambda: reversed(deque([0])),
    "backwards": lambda: reversed((0,)),
    "slice": lambda: islice([0], 1),
    "memory": lambda: iter(memoryview(b"a")),
}
_KINDS = {type(make()): kind for kind, make in (_SAMPLES | _OF_CONTAINERS).items()}


def reduce_sequence_iterator(context: ReducerContext, iterator: Iterator[Any]) -> object:
    """Reduce an iterator of a sequence; one of a list may be in it, and is brought to its place last."""
    made = iterator.__reduce__()
    kind = type(iterator)
    if len(made) > 2 and (kind is _BACKWARDS or (kind in _OF_WHAT_SHRINKS and made[2])):
        return *made, None, None, go_on
    return made if len(made) > 2 or len(made[1][0]) else spent(iterator)


_OF_LISTS: type = type(iter([]))
_OF_WHAT_SHRINKS = frozenset({_OF_LISTS, *(type(_SAMPLES[kind]()) for kind in ("bytearray", "array"))})
_BACKWARDS: type = type(reversed([]))


@loader("iterators:go_on")
def go_on(iterator: Any, place: int) -> None:
    """Bring an iterator of a list to its place, when the list is full (called by payloads)."""
    iterator.__setstate__(place)
    loading.current().settle.append(lambda: _put(iterator, place))


def _put(iterator: Any, place: int) -> None:
    """Set the place of an iterator; one behind the end of what became shorter in memory: no call does."""
    iterator.__setstate__(place)
    made = iterator.__reduce__()
    if made[-1] != place and _readable() and _words(iterator)[0] == made[-1]:
        _words(iterator)[0] = place


def spent(iterator: object) -> Any:
    """Return how an iterator of its type is made that is over."""
    return spent_iterator, (_KINDS[type(iterator)],)


@loader("iterators:spent_iterator")
def spent_iterator(kind: str) -> object:
    """Return an iterator that is over (called by payloads)."""
    iterator = (_SAMPLES.get(kind) or _OF_CONTAINERS[kind])()
    for _ in iterator:
        pass
    return iterator


def reduction_of(iterator: object) -> Any:
    """Return how an iterator of itertools says that it is made; from Python 3.12 on it warns when asked."""
    with unwarned():
        return iterator.__reduce__()


def reduce_slice(context: ReducerContext, iterator: Iterator[Any]) -> object:
    """Reduce an islice; one that is over has let go of its source."""
    made = reduction_of(iterator)
    return spent(iterator) if type(made[1][0]) is _NOTHING and made[1][1:] == (0,) else made


_NOTHING = _OF_LISTS
_INDEX, _SEQUENCE = 16, 24
_WORD_BYTES = 8


def _words(thing: object) -> Any:
    return (ctypes.c_ssize_t * 2).from_address(id(thing) + _INDEX)


@functools.cache
def _readable() -> bool:
    """Tell whether a `reversed` lies in memory as is known here."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != _WORD_BYTES:
        return False
    sample = (1, 2, 3)
    iterator = reversed(sample)
    return list(_words(iterator)) == [2, id(sample)]


def reduce_reversed(context: ReducerContext, iterator: Iterator[Any]) -> object:
    """Reduce what goes backwards over a sequence of the notebook's, however long that is by now."""
    made = iterator.__reduce__()
    if len(made) == 2:
        return spent(iterator)
    if not _readable():
        return made
    return make_reversed, (made[1][0], made[2])


@loader("iterators:make_reversed")
def make_reversed(sequence: object, index: int) -> Any:
    """Return an iterator that goes on backwards; the sequence is asked nothing (called by payloads)."""
    if not _readable():
        raise LookupError("how iterators lie in memory is not known in this release of Python")
    none = ()
    iterator = reversed(none)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(sequence))
    _words(iterator)[:] = [index, id(sequence)]
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(none))
    return iterator


_MEMORY_ITERATOR: type = type(iter(memoryview(b"")))


@functools.cache
def _tells_its_place() -> bool:
    """Tell whether an iterator of a memoryview lies in memory as is known here."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != _WORD_BYTES:
        return False
    sample = memoryview(b"abc")
    iterator = iter(sample)
    next(iterator)
    return list(_words(iterator)) == [1, id(sample)]


def reduce_memory_iterator(context: ReducerContext, iterator: object) -> object:
    """Reduce an iterator of a memoryview."""
    view = next((held for held in gc.get_referents(iterator) if type(held) is memoryview), None)
    if view is None:
        return spent(iterator)
    if not _tells_its_place():
        raise CannotTravel("How far it has gone cannot be read in this release of Python.")
    return memory_iterator, (view, _words(iterator)[0])


@loader("iterators:memory_iterator")
def memory_iterator(view: memoryview, passed: int) -> Any:
    """Return an iterator of a memoryview (called by payloads)."""
    iterator = iter(view)
    next(islice(iterator, passed, passed), None)
    return iterator


def _nothing() -> Any:
    yield None


@loader("iterators:spent_generator")
def spent_generator(name: str, qualname: str) -> Any:
    """Return a generator that is over (called by payloads)."""
    generator = _nothing()
    generator.__name__, generator.__qualname__ = name, qualname
    generator.close()
    return generator


def reduce_coroutine(context: ReducerContext, coroutine: types.CoroutineType[Any, Any, Any]) -> object:
    """Reduce a coroutine that is over, or has not begun."""
    names = coroutine.__name__, coroutine.__qualname__
    if coroutine.cr_frame is None:
        code = coroutine.cr_code
        return spent_coroutine, (*names, code.co_filename, code.co_firstlineno)
    made = _call_that_made(coroutine, coroutine.cr_frame)
    if made is None:
        raise CannotTravel("A coroutine keeps its place in a frame, which cannot be copied.")
    meet(types.CoroutineType)
    return make_generator, (*made, *names)


def reduce_asynchronous_generator(
    context: ReducerContext, generator: types.AsyncGeneratorType[Any, Any]
) -> object:
    """Reduce an asynchronous generator that is over, or has not begun."""
    names = generator.__name__, generator.__qualname__
    if generator.ag_frame is None:
        return spent_asynchronous_generator, names
    made = _call_that_made(generator, generator.ag_frame)
    if made is None:
        raise CannotTravel("A coroutine keeps its place in a frame, which cannot be copied.")
    return make_generator, (*made, *names)


async def _nothing_asynchronously() -> Any:
    return
    yield


@loader("iterators:spent_asynchronous_generator")
def spent_asynchronous_generator(name: str, qualname: str) -> Any:
    """Return an asynchronous generator that is over (called by payloads)."""
    generator = _nothing_asynchronously()
    generator.__name__, generator.__qualname__ = name, qualname
    with contextlib.suppress(StopAsyncIteration):
        generator.__anext__().send(None)
    return generator


async def _nothing_awaited() -> None:
    """Do nothing."""


@loader("iterators:spent_coroutine")
def spent_coroutine(name: str, qualname: str, file: str, line: int) -> object:
    """Return a coroutine that is over, and where it says it was defined (called by payloads)."""
    code = _nothing_awaited.__code__.replace(co_filename=file, co_firstlineno=line)
    coroutine = types.FunctionType(code, {})()
    coroutine.__name__, coroutine.__qualname__ = name, qualname
    coroutine.close()
    return coroutine


EXACT: dict[type, Any] = {
    types.GeneratorType: reduce_generator,
    types.CoroutineType: reduce_coroutine,
    types.AsyncGeneratorType: reduce_asynchronous_generator,
    **{type(make()): reduce_sequence_iterator for make in _SAMPLES.values()},
    reversed: reduce_reversed,
    _MEMORY_ITERATOR: reduce_memory_iterator,
}
