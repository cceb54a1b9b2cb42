"""multiprocessing's contexts, of which a process has one for each way to start another: found by its name."""

from __future__ import annotations

import multiprocessing.context as contexts
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from replkernel.state.library import ReducerContext

_BY_NAME: dict[str, Any] = contexts._concrete_contexts  # type: ignore[attr-defined]


def reduce_context(context: ReducerContext, own: BaseContext) -> object:
    """Reduce multiprocessing's own context to its name; leave another, or one with attributes, to pickle."""
    for name, known in _BY_NAME.items():
        if known is own and not vars(own):
            context.unlinked.add(id(own))
            return context_named, (name,)
    return NotImplemented


@loader("multiprocessing:context_named")
def context_named(name: str) -> object:
    """Return the context of a start method (called by payloads)."""
    return _BY_NAME[name]


EXACT = {type(context): reduce_context for context in _BY_NAME.values()}
