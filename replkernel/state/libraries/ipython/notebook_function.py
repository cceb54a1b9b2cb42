"""Functions that a notebook handed to IPython: whose they are, which variable holds them, parts of such.

Law: no attribute of a user's object is read through its own class; a function travels by its variable's name.
"""

from __future__ import annotations

import types
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from replkernel.state.patches.own_modules import is_own
from replkernel.state.process.part import Part, Seen

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

NOTEBOOK_MODULE = "__main__"
_class_vars = vars(type)["__dict__"].__get__


def is_notebooks(value: object, namespace: Mapping[str, Any]) -> bool:
    """Tell whether a callable was defined in the notebook: a function, a bound method, or an instance."""
    kind, held = type(value), cast("Any", value)
    if kind is types.MethodType:
        return is_notebooks(held.__func__, namespace) or is_notebooks(held.__self__, namespace)
    if kind is types.FunctionType:
        return held.__globals__ is namespace
    module = _class_vars(kind).get("__module__")
    return type(module) is str and module == NOTEBOOK_MODULE


def is_users(value: object, namespace: Mapping[str, Any]) -> bool:
    """Tell whether a callable was defined in the notebook, or in a module of the user's."""
    return is_notebooks(value, namespace) or _is_of_own_module(value)


def _is_of_own_module(value: object) -> bool:
    kind, held = type(value), cast("Any", value)
    if kind is types.MethodType:
        return _is_of_own_module(held.__func__) or _is_of_own_module(held.__self__)
    module = held.__module__ if kind is types.FunctionType else _class_vars(kind).get("__module__")
    return type(module) is str and is_own(module)


def variable_of(value: object, namespace: Mapping[str, Any]) -> str | None:
    """Return the first variable that holds this very object; IPython's output history does not count."""
    for name, held in list(namespace.items()):
        if held is value and not name.startswith("_"):
            return name
    return None


class FunctionsPart(Part[Seen]):
    """A part that tells the notebook's functions by the variables that hold them."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell: Any = shell
        self._bound: dict[tuple[str, str], Any] = {}
        """The functions that are told, by where they are."""
        self._settled = True
        """Whether what was loaded last has been settled: variables may lag behind until then."""
        super().__init__()

    @abstractmethod
    def told(self) -> Iterable[tuple[tuple[str, str], str]]:
        """Return where the told functions are, and the variables that hold them."""

    @abstractmethod
    def bind(self) -> bool:
        """Put the told functions whose variables are here where they belong; tell whether any changed."""

    def dump(self) -> bytes | None:
        """Look anew also where a variable does not hold its function any more: that is a place then."""
        namespace = self._shell.user_ns
        if self._settled and any(
            namespace.get(variable) is not self._bound.get(place) for place, variable in self.told()
        ):
            self._seen = None
        return super().dump()

    def settle(self) -> bool:
        """Put functions in place that have arrived, or have been replaced, in the namespace."""
        done = super().settle()
        if self.bind():
            self._seen = self.look()
        self._settled = True
        return done
