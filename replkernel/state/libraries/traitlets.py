"""Objects with traits: traitlets copies one without those who observe it, of which a move must keep each.

Law: imported only when traitlets is; no trait is asked for its value. A library's class makes its own
observers itself.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import traitlets

from replkernel.loaders import loader
from replkernel.state.capture import library_instances
from replkernel.state.patches.own_modules import is_own
from replkernel.state.python import instances
from replkernel.state.python.kinds import module_of
from replkernel.state.python.paths import instance_dict

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

_STATE = 2
"""Where in a reduction the state is."""
_WIDGETS = "ipywidgets.widgets.widget"


def is_users(cls: type) -> bool:
    """Tell whether a class with traits is the notebook's own."""
    return issubclass(cls, traitlets.HasTraits) and (module_of(cls) == "__main__" or is_own(module_of(cls)))


def _is_users_own(cls: type) -> bool:
    """Tell whether a class with traits is the notebook's own and no widget, which has a comm as well."""
    widget = vars(sys.modules.get(_WIDGETS, object)).get("Widget")
    return is_users(cls) and not (widget is not None and issubclass(cls, widget))


def reduce_traits(pickler: UnitContext, value: object) -> Any:
    """Reduce an object with its traits' values, observers and validators."""
    return instances.make_plain, (type(value),), instance_dict(value), None, None, instances.fill_plain


def _has_traits(cls: type) -> bool:
    return issubclass(cls, traitlets.HasTraits)


def reduce_observed(pickler: UnitContext, value: object) -> Any:
    """Reduce a library's object with traits as its class does, with those who were asked to observe it."""
    reduced = library_instances.reduce_told(pickler, value)
    observers = _observers(value)
    if not observers or type(reduced) is not tuple or len(reduced) <= _STATE:
        return reduced
    if pickler.careful:
        pickler.probe(observers)
    return *reduced[:_STATE], (reduced[_STATE], observers), None, None, fill


def _observers(value: object) -> list[tuple[Any, Any, list[Any]]]:
    """Return who observes which trait for which kind of change, but for the handlers of the class itself."""
    told = (instance_dict(value) or {}).get("_trait_notifiers", {})
    found = [
        (name, kind, [one for one in handlers if not isinstance(one, traitlets.EventHandler)])
        for name, kinds in told.items()
        for kind, handlers in kinds.items()
    ]
    return [entry for entry in found if entry[-1]]


@loader("traitlets:fill")
def fill(instance: traitlets.HasTraits, state: tuple[Any, list[tuple[Any, Any, list[Any]]]]) -> None:
    """Give an object its state and its observers (called by payloads)."""
    told, observers = state
    instance.__setstate__(told)
    for name, kind, handlers in observers:
        own = instance._trait_notifiers.setdefault(name, {}).setdefault(kind, [])
        own.extend(handlers)


TESTED_MODULES = ("traitlets.traitlets",)
TESTS = [(_is_users_own, reduce_traits)]
NATURAL = [(_has_traits, reduce_observed)]
