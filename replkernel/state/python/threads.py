"""Threads: one that has not begun, or is over, travels; a running one is stuck."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_OF_THE_PROCESS = ("_invoke_excepthook", "_ident", "_native_id", "_tstate_lock", "_handle")


def reduce_thread(context: ReducerContext, thread: threading.Thread) -> object:
    """Reduce a thread that does not run."""
    if thread is threading.main_thread():
        return threading.main_thread, ()
    started = vars(thread)["_started"].is_set()
    if started and threading.Thread.is_alive(thread):
        raise CannotTravel("A running thread cannot be copied.")
    state = dict(vars(thread))  # after asking: only then a thread that has ended unseen is marked as ended
    for name in _OF_THE_PROCESS:
        state.pop(name, None)
    if started:
        state["_ident"], state["_native_id"] = thread._ident, thread._native_id  # type: ignore[attr-defined]
    return make_thread, (type(thread), started), state, None, None, fill_thread


@loader("threads:make_thread")
def make_thread(cls: Any, started: bool) -> object:
    """Return a thread without its attributes (called by payloads)."""
    thread = cls.__new__(cls)
    threading.Thread.__init__(thread, name="replkernel")
    if started:
        threading._dangling.discard(thread)  # type: ignore[attr-defined]
        thread._is_stopped = True
    return thread


@loader("threads:fill_thread")
def fill_thread(thread: threading.Thread, state: dict[str, Any]) -> None:
    """Give a thread its attributes, and none that it lost when it ran (called by payloads)."""
    attributes = vars(thread)
    for name in attributes.keys() - state.keys() - set(_OF_THE_PROCESS):
        del attributes[name]
    attributes.update(state)


FAMILIES = [(threading.Thread, reduce_thread)]
