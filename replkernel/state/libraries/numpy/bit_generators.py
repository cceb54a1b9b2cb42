"""numpy's bit generators: the one behind ``numpy.random``'s own functions travels by reference.

And classes of the notebook's own over generators and what they draw from: numpy's ways to copy these give
one of its own class, without attributes.
Law: imported only when numpy is; the state of numpy's own generator travels as `@numpy_random`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from replkernel.loaders import loader
from replkernel.state.capture.sentinels import plan_for_library
from replkernel.state.python import instances

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


_library: Any = np.random
_own_generator = _library.get_bit_generator
_MRO = type.__dict__["__mro__"]


def reduce_bit_generator(pickler: UnitContext, generator: object) -> object:
    """Reduce a bit generator: by reference where numpy's own functions draw from it."""
    if generator is _own_generator():
        pickler.unlinked.add(id(generator))
        return _own_generator, ()
    if instances.is_notebooks(type(generator)):
        return _reduce_child(generator, ())
    return plan_for_library(type(generator))(pickler, generator)


def reduce_source(pickler: UnitContext, source: object) -> Any:
    """Reduce a generator, or a `RandomState`."""
    if instances.is_notebooks(type(source)):
        return _reduce_child(source, _base_of(type(source)).__reduce__(source)[1])
    return plan_for_library(type(source))(pickler, source)


def _base_of(cls: type) -> Any:
    """Return numpy's class below the notebook's."""
    return next(base for base in _MRO.__get__(cls) if not instances.is_notebooks(base))


def _reduce_child(source: object, arguments: tuple[Any, ...]) -> Any:
    cls = type(source)
    base = _base_of(cls)
    _, _, *told = base.__reduce__(source)
    held = instances.held_in(source, instances.slots_of(cls))
    state = (*told, None)[0], instances.attributes_of(source), held
    return make_child, (cls, base, arguments), state, None, None, fill_child


@loader("numpy-random:make_child")
def make_child(cls: object, base: Any, arguments: tuple[Any, ...]) -> object:
    """Return a source of random numbers as numpy makes it, past the class's own way (called by payloads)."""
    made = base.__new__(cls)
    base.__init__(made, *arguments)
    return made


@loader("numpy-random:fill_child")
def fill_child(source: object, state: tuple[Any, dict[str, Any], dict[str, Any]]) -> None:
    """Put a source where it was, and give it its attributes (called by payloads)."""
    told, attributes, slots = state
    if told is not None:
        _base_of(type(source)).__setstate__(source, told)
    instances.attributes_of(source).update(attributes)
    instances.fill_slots(source, slots)


FAMILIES = [
    (np.random.BitGenerator, reduce_bit_generator),
    (np.random.Generator, reduce_source),
    (np.random.RandomState, reduce_source),
]
