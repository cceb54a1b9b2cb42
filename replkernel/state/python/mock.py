"""Mocks of `unittest.mock` and the calls they remember, read and made past their own methods.

Each mock has a class of its own, which asking a mock for an attribute would fill with new ones.
Law: no attribute of a mock is asked for; what a mock is, its dictionary and its class say.
"""

from __future__ import annotations

import unittest.mock
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.python.paths import instance_dict

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_Call: object = unittest.mock._Call


def reduce_mock(context: ReducerContext, mock: object) -> object:
    """Reduce a mock: its class, then all that its dictionary has."""
    context.touched = True
    context.module_needed("unittest.mock")
    return make_mock, (type(mock),), dict(instance_dict(mock) or {}), None, None, fill


@loader("mock:make_mock")
def make_mock(cls: type[Any]) -> object:
    """Return a mock of that very class, with nothing in it (called by payloads)."""
    return object.__new__(cls)


def reduce_call(context: ReducerContext, call: Any) -> object:
    """Reduce a call that a mock remembers: a tuple that answers for every name."""
    context.module_needed("unittest.mock")
    items = tuple(tuple.__iter__(call))
    return make_call, (type(call), items), dict(instance_dict(call) or {}), None, None, fill


@loader("mock:make_call")
def make_call(cls: type[Any], items: tuple[Any, ...]) -> object:
    """Return a call of a name with arguments (called by payloads)."""
    return tuple.__new__(cls, items)


@loader("mock:fill")
def fill(made: object, state: dict[str, Any]) -> None:
    """Give a mock or a call its attributes, past what setting them would do (called by payloads)."""
    attributes = instance_dict(made)
    assert attributes is not None
    attributes.update(state)


FAMILIES = [(unittest.mock.NonCallableMock, reduce_mock), (_Call, reduce_call)]
