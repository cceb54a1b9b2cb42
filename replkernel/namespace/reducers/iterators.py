"""Generators: those that are over, or have not begun, can be made again; one in flight is stuck.

Iterators of sequences and of itertools pickle themselves without being consumed; those that are over say that
they are new ones of something empty, and are made as what they are.
"""

from __future__ import annotations

import types
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any

from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


def reduce_generator(pickler: CapturePickler, generator: types.GeneratorType[Any, Any, Any]) -> Any:
    """Reduce a generator that is over."""
    if generator.gi_frame is None:
        return spent_generator, (generator.__name__, generator.__qualname__)
    raise CannotTravel("A generator in flight keeps its place in a frame, which cannot be copied.")


_SAMPLES: dict[str, Any] = {
    "list": lambda: iter([0]),
    "list backwards": lambda: reversed([0]),
    "tuple": lambda: iter((0,)),
    "ASCII": lambda: iter("a"),
    "text": lambda: iter("\N{LATIN SMALL LETTER E WITH ACUTE}"),
    "bytes": lambda: iter(b"a"),
    "bytearray": lambda: iter(bytearray(b"a")),
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
}
_KINDS = {type(make()): kind for kind, make in (_SAMPLES | _OF_CONTAINERS).items()}


def reduce_sequence_iterator(pickler: CapturePickler, iterator: Any) -> Any:
    """Reduce an iterator of a sequence."""
    made = iterator.__reduce__()
    return made if len(made) > 2 or len(made[1][0]) else spent(iterator)


def spent(iterator: Any) -> Any:
    """Return how an iterator of its type is made that is over."""
    return spent_iterator, (_KINDS[type(iterator)],)


def spent_iterator(kind: str) -> Any:
    """Return an iterator that is over (called by payloads)."""
    iterator = (_SAMPLES.get(kind) or _OF_CONTAINERS[kind])()
    for _ in iterator:
        pass
    return iterator


def _nothing() -> Any:
    yield None


def spent_generator(name: str, qualname: str) -> Any:
    """Return a generator that is over (called by payloads)."""
    generator = _nothing()
    generator.__name__, generator.__qualname__ = name, qualname
    generator.close()
    return generator


def reduce_coroutine(pickler: CapturePickler, coroutine: Any) -> Any:
    """Refuse a coroutine."""
    raise CannotTravel("A coroutine keeps its place in a frame, which cannot be copied.")


EXACT: dict[type, Any] = {
    types.GeneratorType: reduce_generator,
    types.CoroutineType: reduce_coroutine,
    types.AsyncGeneratorType: reduce_coroutine,
    **{type(make()): reduce_sequence_iterator for make in _SAMPLES.values()},
}
