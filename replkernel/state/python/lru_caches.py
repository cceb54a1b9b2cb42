"""Functions wrapped by `functools.lru_cache`, with what they have cached, in order, and their statistics."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.python.cached_calls import WRAPPER, cached_by, put_cached, wrapped_by
from replkernel.state.python.modules import find_global

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def reduce_wrapper(pickler: UnitContext, wrapper: functools._lru_cache_wrapper[Any]) -> object:
    """Reduce a cached function."""
    name = getattr(wrapper, "__qualname__", "")
    module = getattr(wrapper, "__module__", None)
    if module != pickler.world.seeds.main_name and find_global(module, name) is wrapper:
        pickler.module_needed(module)
        return NotImplemented
    parameters = wrapper.cache_parameters()
    state = (dict(vars(wrapper)), *cached_by(wrapper))
    return (
        make_wrapper,
        (wrapped_by(wrapper), parameters["maxsize"], parameters["typed"]),
        state,
        None,
        None,
        fill_wrapper,
    )


@loader("functions:make_wrapper")
def make_wrapper(function: Callable[..., Any], maxsize: int | None, typed: bool) -> object:
    """Return an empty cached function (called by payloads)."""
    return functools.lru_cache(maxsize=maxsize, typed=typed)(function)


@loader("functions:fill_wrapper")
def fill_wrapper(wrapper: object, state: tuple[Any, ...]) -> None:
    """Give a cached function its attributes, contents and statistics (called by payloads)."""
    attributes, contents, hits, misses = state
    put_cached(wrapper, (contents, hits, misses))
    vars(wrapper).clear()
    vars(wrapper).update(attributes)


EXACT = {WRAPPER: reduce_wrapper}
