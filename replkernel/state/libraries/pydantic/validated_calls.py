"""Functions whose calls pydantic validates: a validator is compiled, and made again from the function.

Law: imported only when pydantic's decorator is; the validator is made at the first call, with all names here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic._internal import _validate_call as library

from replkernel.loaders import loader

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext


def reduce_call(context: ReducerContext, call: library.ValidateCallWrapper) -> object:
    """Reduce what validates a function's calls to the function, and how they are validated."""
    context.module_needed("pydantic")
    state = (call.function, dict(call.config_wrapper.config_dict), call.validate_return)
    return make_call, (), state, None, None, fill_call


@loader("pydantic:make_call")
def make_call() -> object:
    """Return what will validate a function's calls (called by payloads)."""
    return object.__new__(library.ValidateCallWrapper)


@loader("pydantic:fill_call")
def fill_call(call: Any, state: tuple[Any, dict[str, Any], bool]) -> None:
    """Have it validate a function's calls, from the first one on (called by payloads)."""
    function, config, validates_return = state
    deferred = {**config, "defer_build": True}
    library.ValidateCallWrapper.__init__(call, function, deferred, validates_return, None)  # type: ignore[arg-type]
    call.config_wrapper.config_dict.clear()
    call.config_wrapper.config_dict.update(config)


EXACT: dict[type, Any] = {library.ValidateCallWrapper: reduce_call}
