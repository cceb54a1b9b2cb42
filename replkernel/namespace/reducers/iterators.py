"""Generators: those that are over, or have not begun, can be made again; one in flight is stuck.

Iterators of containers and of itertools pickle themselves without being consumed.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from replkernel.namespace.reducers.outcome import CannotTravel

if TYPE_CHECKING:
    from replkernel.namespace.pickling import CapturePickler


def reduce_generator(pickler: CapturePickler, generator: types.GeneratorType[Any, Any, Any]) -> Any:
    """Reduce a generator that is over."""
    if generator.gi_frame is None:
        return spent_generator, (generator.__name__, generator.__qualname__)
    raise CannotTravel("A generator in flight keeps its place in a frame, which cannot be copied.")


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
}
