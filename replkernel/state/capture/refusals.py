"""Objects that pickle would copy into something else, or whose copy would be a lie: refused by name."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pickle
import re
import subprocess
import sys
import types
from typing import TYPE_CHECKING, Any

from replkernel.state.capture.outcomes import CannotTravel, Reducer
from replkernel.state.hooks import DUMP_METHOD, LOAD_METHOD
from replkernel.state.python.finalizers import meet
from replkernel.state.python.kinds import module_of, qualname_of
from replkernel.state.python.paths import instance_dict

if TYPE_CHECKING:
    from replkernel.state.capture.contexts import UnitContext


def _refuse(reason: str) -> Reducer:
    def refuse(pickler: UnitContext, value: object) -> Any:
        raise CannotTravel(reason)

    return refuse


def of_unknown_release(library: str, error: str) -> Reducer:
    """Return what refuses the objects of a library that is not built as its reducers know.

    They would be copied as they say themselves: what shares memory with others would no longer do so.
    """
    root = library.partition(".")[0]
    version = getattr(sys.modules.get(root), "__version__", "")
    shown = f"{root} {version}" if type(version) is str and version else root
    return _refuse(
        f"replkernel does not know how this release of {shown} is built ({error}), and would copy its "
        "objects wrongly. Install one that it knows and restart the kernel."
    )


def as_a_whole(reducer: Reducer, cls: type) -> Reducer:
    """Return a reducer for a library's class with a finalizer: half of such an object is worse than none.

    The class is noted: the finalizer of a copy that is replaced must not run.
    """
    meet(cls)

    def reduce_owner(pickler: UnitContext, value: object) -> Any:
        if pickler.careful:
            pickler.probe(value)
        return reducer(pickler, value)

    return reduce_owner


def _refuse_process(pickler: UnitContext, process: Any) -> Any:
    if process.returncode is None:
        raise CannotTravel("A child process belongs to the process that started it.")
    return NotImplemented


def _refuse_executor(pickler: UnitContext, executor: Any) -> Any:
    state = vars(executor)
    if state.get("_shutdown_thread") and state.get("_processes", ()) is None:
        return NotImplemented  # One of processes that was shut down: it has let go of them.
    if state.get("_threads") or state.get("_processes") or "_threads" not in state:
        raise CannotTravel("The workers of an executor belong to its process.")
    return NotImplemented


_ENDED = ("CANCELLED", "CANCELLED_AND_NOTIFIED", "FINISHED")


def _refuse_pending(pickler: UnitContext, future: object) -> Any:
    """Refuse what a worker of this process, or nobody, will end: a copy would be waited for without end."""
    if (instance_dict(future) or {}).get("_state", "FINISHED") not in _ENDED:
        raise CannotTravel("Its result is still being computed by this process.")
    return NotImplemented


_ASYNC = _refuse("What an event loop works on belongs to its process.")


def in_words(error: Exception, kind: type) -> str:
    """Return why an object of a type cannot be copied, as one sentence for the user."""
    text = str(error)
    if isinstance(error, CannotTravel):
        return text
    if isinstance(error, pickle.PicklingError) or "pickle" in text or _OF_CYTHON in text:
        found = _ATTRIBUTE.search(text)
        if found is not None:
            return f"It is known by the name {found[1]}, under which nothing is found elsewhere."
        named = _TYPE.search(text)
        what = named[1] if named is not None else qualname_of(kind)
        if what == qualname_of(kind) and module_of(kind) == "__main__":
            return (
                f"Python cannot copy a {what} to another process, and its class does not say how. {_SAY_HOW}"
            )
        return f"Its library has no way to copy a {what} to another process."
    if isinstance(error, RecursionError):
        return (
            "It is nested too deeply (a chain of more than some 100,000 objects: keep them in a list), or "
            "what says how it is copied calls itself without end."
        )
    return f"Copying it failed ({type(error).__name__}: {text})."


_SAY_HOW = f"Give it a `{DUMP_METHOD}` and a `{LOAD_METHOD}`."
_OF_CYTHON = "no default __reduce__"
"""What a class that Cython has compiled says."""

_TYPE = re.compile(r"cannot pickle '([^']+)' object")
_ATTRIBUTE = re.compile(r"attribute lookup (\S+) on \S+ failed")

EXACT = {
    types.FrameType: _refuse("A frame belongs to its process."),
}
FAMILIES = [
    (subprocess.Popen, _refuse_process),
    (concurrent.futures.Executor, _refuse_executor),
    (concurrent.futures.Future, _refuse_pending),
    (asyncio.AbstractEventLoop, _ASYNC),
    (asyncio.futures._PyFuture, _ASYNC),  # type: ignore[attr-defined]
]
