"""multiprocessing's processes: one that has not begun, or is over, travels; a running one is stuck.

Law: the key by which a process and its children know each other is in no payload. Each process has its own.
"""

from __future__ import annotations

import os
from multiprocessing import process
from typing import TYPE_CHECKING, Any

from replkernel.loaders import loader
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_OF_THE_PROCESS = ("_parent_pid", "_popen", "_sentinel")
_KEY: Any = process.AuthenticationString  # type: ignore[attr-defined]
_NOWHERE = -1
"""The descriptor by which others wait for a process that is over."""


def reduce_process(context: ReducerContext, own: process.BaseProcess) -> object:
    """Reduce a process that does not run."""
    if own is process.current_process():
        context.unlinked.add(id(own))
        return current, ()
    state = dict(vars(own))
    began = state.get("_popen")
    if began is not None and began.poll() is None:
        raise CannotTravel("A child process belongs to the process that started it.")
    for name in _OF_THE_PROCESS:
        state.pop(name, None)
    ended = None if began is None else (type(began), began.pid, began.returncode)
    return make_process, (type(own), ended), state, None, None, fill_process


@loader("multiprocessing:current")
def current() -> object:
    """Return this process (called by payloads)."""
    return process.current_process()


@loader("multiprocessing:make_process")
def make_process(cls: Any, ended: tuple[Any, int, int] | None) -> object:
    """Return a process without its attributes (called by payloads)."""
    made = cls.__new__(cls)
    made._parent_pid, made._popen = os.getpid(), None
    if ended is not None:
        kind, pid, returncode = ended
        made._sentinel, made._popen = _NOWHERE, kind.__new__(kind)
        vars(made._popen).update(pid=pid, returncode=returncode, finalizer=None, sentinel=_NOWHERE)
    return made


@loader("multiprocessing:fill_process")
def fill_process(made: process.BaseProcess, state: dict[str, Any]) -> None:
    """Give a process its attributes (called by payloads)."""
    vars(made).update(state)


def reduce_key(context: ReducerContext, key: bytes) -> object:
    """Reduce the key of this process to that of who rebuilds it; leave another to Python, which refuses."""
    own = process.current_process().authkey
    if key is own:
        context.unlinked.add(id(key))
    return (own_key, (key is not own,)) if key == own else NotImplemented


@loader("multiprocessing:own_key")
def own_key(copied: bool) -> object:
    """Return the key of this process, or a copy of it, as each manager has (called by payloads)."""
    own = process.current_process().authkey
    return _KEY(own) if copied else own


FAMILIES = [(process.BaseProcess, reduce_process)]
EXACT = {_KEY: reduce_key}
