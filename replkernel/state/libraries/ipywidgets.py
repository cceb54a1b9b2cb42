"""Widgets: each comes back with the comm that pages know it by, so what they show goes on.

A comm is its process's own: of it only the id travels.
Law: imported only when ipywidgets is; pages hear neither of a rebuilt widget nor of the end of the former,
until they are told what the rebuilt ones hold.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import comm
import ipywidgets  # type: ignore[import-untyped]
import traitlets
from IPython import get_ipython
from ipywidgets.widgets import widget as widgets  # type: ignore[import-untyped]

from replkernel.loaders import loader
from replkernel.state.libraries import traitlets as observed
from replkernel.state.python import finalizers, instances
from replkernel.state.python.kinds import module_of

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext

ALIVE = "_instances"
"""The name under which ipywidgets keeps all widgets that are not closed, by the ids of their comms."""

_STATE, _TRAITS, _COMM = 2, "_trait_values", "comm"
_TARGET = "jupyter.widget"
_DRAWN = ("ipympl", "plotly")
"""Libraries whose widgets stand for figures, which bring them back themselves."""

log = logging.getLogger(__name__)

_rebuilt: dict[str, None] = {}
"""The ids of the comms of widgets that were rebuilt here, and of which no page has been told."""


def reduce_widget(pickler: UnitContext, value: object) -> Any:
    """Reduce a widget to its traits, its observers and the id of its comm; one without a comm is closed."""
    finalizers.meet(type(value))
    if pickler.careful:
        pickler.probe(value)
    if _draws(value):
        return observed.reduce_observed(pickler, value)
    if observed.is_users(type(value)):
        maker, arguments, attributes, *_ = observed.reduce_traits(pickler, value)
        attributes, comm_id = _without_comm(attributes)
        return maker, arguments, (attributes, comm_id), None, None, fill_users
    reduced = observed.reduce_observed(pickler, value)
    if type(reduced) is not tuple or len(reduced) <= _STATE:
        return reduced
    state = reduced[_STATE]
    told, observers = state if type(state) is tuple else (state, [])
    if type(told) is not dict or _TRAITS not in told:
        return reduced
    told, comm_id = _without_comm(told)
    return *reduced[:_STATE], (told, observers, comm_id), None, None, fill


def _without_comm(attributes: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return an instance's attributes without its comm, and the id of that."""
    traits = dict(attributes[_TRAITS])
    held = traits.pop(_COMM, None)
    return {**attributes, _TRAITS: traits}, "" if held is None else str(held.comm_id)


@loader("ipywidgets:fill")
def fill(instance: widgets.Widget, state: tuple[dict[str, Any], list[Any], str]) -> None:
    """Give a widget its traits, its observers, and its end of the comm (called by payloads)."""
    told, observers, comm_id = state
    observed.fill(instance, (told, observers))
    _connect(instance, comm_id)


@loader("ipywidgets:fill_users")
def fill_users(instance: object, state: tuple[dict[str, Any], str]) -> None:
    """Give a widget of a notebook's class what it holds, and its end of the comm (called by payloads)."""
    attributes, comm_id = state
    instances.fill_plain(instance, attributes)
    _connect(instance, comm_id)


def _connect(instance: widgets.Widget, comm_id: str) -> None:
    """Have messages of pages about this widget reach it, and not the one whose place it takes."""
    instance._trait_values[_COMM] = None
    _forget(comm_id or _attributes_of(instance).get("_model_id") or "")
    if not comm_id:
        return
    manager = comm.get_comm_manager()
    made: Any = comm.create_comm(target_name=_TARGET, comm_id=comm_id, primary=False)
    if getattr(made, "kernel", made) is None:  # Until it has sent something, a widget takes it for dead.
        made.kernel = getattr(get_ipython(), "kernel", None)
    manager.register_comm(made)
    if _TARGET not in manager.targets:
        ipywidgets.register_comm_target()
    instance._trait_values[_COMM] = made
    made.on_msg(instance._handle_msg)
    getattr(widgets, ALIVE)[comm_id] = instance
    _rebuilt[comm_id] = None


def _forget(comm_id: str) -> None:
    """Let go of this process's end of a comm, and of its widget, without a word to pages."""
    former = comm.get_comm_manager().comms.pop(comm_id, None)
    if former is not None:
        former._closed = True
    replaced = getattr(widgets, ALIVE).pop(comm_id, None)
    if replaced is not None:
        replaced._trait_values[_COMM] = None
    _rebuilt.pop(comm_id, None)


def tell_pages() -> None:
    """Have pages show what the widgets hold that were rebuilt here since they were told last."""
    alive = getattr(widgets, ALIVE)
    for comm_id, held in list(comm.get_comm_manager().comms.items()):
        if comm_id not in alive and isinstance(_owner(held), widgets.Widget):
            _forget(comm_id)  # Another process has closed it.
    rebuilt = [alive[comm_id] for comm_id in _rebuilt if comm_id in alive]
    _rebuilt.clear()
    for instance in rebuilt:
        try:
            instance.send_state()
        except Exception:
            log.exception("A widget could not tell what it holds")


def _owner(held: object) -> object:
    """Return whom a comm gives its messages."""
    return getattr(getattr(held, "_msg_callback", None), "__self__", None)


def all_travel(comms: Iterable[Any]) -> bool:
    """Tell whether all these comms for widgets are those of widgets that every process has, or of figures.

    A class that is derived from a figure's is neither: libraries bring back figures of their own alone.
    """
    return all(
        issubclass(kind, widgets.Widget) and (_is_drawn(kind) or not any(map(_is_drawn, kind.__mro__)))
        for kind in {type(_owner(held)) for held in comms}
    )


def show_again(comm_id: str) -> None:
    """Have pages show what a widget holds, as though it had been rebuilt, when they are told next."""
    if comm_id in getattr(widgets, ALIVE):
        _rebuilt[comm_id] = None


def _draws(instance: object) -> bool:
    return _is_drawn(type(instance))


def _is_drawn(kind: type) -> bool:
    return module_of(kind).partition(".")[0] in _DRAWN


def called_back() -> Iterator[str]:
    """Yield the ids, as places are named by them, of widgets that call something of others', and of those
    that hold such: they live on though no variable leads to them.
    """
    known: dict[int, bool] = {}
    for comm_id, instance in list(getattr(widgets, ALIVE).items()):
        if _lives_on(instance, known) and not _draws(instance):
            yield json.dumps(comm_id)


def _lives_on(instance: object, known: dict[int, bool]) -> bool:
    key = id(instance)
    if key not in known:
        known[key] = False  # Until it is known: a widget may hold itself.
        attributes: dict[str, Any] = _attributes_of(instance)
        traits = attributes.get(_TRAITS, {})
        children = traits.get("children")
        known[key] = _calls(instance, attributes, traits) or any(
            _lives_on(child, known)
            for child in (children if type(children) is tuple else ())
            if isinstance(child, widgets.Widget)
        )
    return known[key]


def _calls(instance: object, attributes: dict[str, Any], traits: dict[str, Any]) -> bool:
    """Tell whether a widget calls anything but its own methods when something happens to it."""
    handlers = [
        handler
        for kinds in attributes.get("_trait_notifiers", {}).values()
        for named in kinds.values()
        for handler in named
        if not isinstance(handler, traitlets.EventHandler)
    ]
    for held in (*attributes.values(), *traits.values()):
        if type(held) is widgets.CallbackDispatcher:
            handlers += held.callbacks
    return any(getattr(handler, "__self__", None) is not instance for handler in handlers)


_attributes_of = vars(traitlets.HasDescriptors)["__dict__"].__get__
"""Returns the attributes of an instance past what its class may define, and quickly: it is asked often."""

FAMILIES = [(widgets.Widget, reduce_widget)] if hasattr(widgets, ALIVE) else []
