"""tqdm's bars, which are counted while they are open, and its wrappers of streams.

A wrapper asks the wrapped stream for every attribute, its own state included.

Law: imported only when tqdm is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tqdm.std import tqdm  # type: ignore[import-untyped]
from tqdm.utils import ObjectWrapper  # type: ignore[import-untyped]

from replkernel.loaders import loader
from replkernel.state.capture.refusals import as_a_whole

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def reduce_wrapper(pickler: UnitContext, wrapper: object) -> object:
    """Reduce a wrapper to its class and attributes, past what it answers in the stream's name."""
    return bare_wrapper, (type(wrapper),), vars(wrapper), None, None, set_attributes


def reduce_bar(pickler: UnitContext, bar: tqdm) -> object:
    """Reduce a bar to its class, whether it is among the open ones, and its attributes."""
    return bare_bar, (type(bar), bar in getattr(type(bar), "_instances", ())), dict(vars(bar))


@loader("tqdm:bare_bar")
def bare_bar(cls: Any, is_open: bool) -> object:
    """Make a bar without attributes, which counts as open only if it is (called by payloads)."""
    bar = cls.__new__(cls)
    if not is_open:
        cls._instances.discard(bar)
    return bar


@loader("tqdm:bare_wrapper")
def bare_wrapper(cls: type[Any]) -> object:
    """Make a wrapper around nothing yet (called by payloads)."""
    return object.__new__(cls)


@loader("tqdm:set_attributes")
def set_attributes(wrapper: object, attributes: dict[str, Any]) -> None:
    """Give a wrapper its own attributes (called by payloads)."""
    vars(wrapper).update(attributes)


FAMILIES = [(tqdm, as_a_whole(reduce_bar, tqdm)), (ObjectWrapper, reduce_wrapper)]
