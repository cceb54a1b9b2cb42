"""The last resort before a tombstone: what somebody registered with dill for a type says of an object.

Only the way is that function's: what it leads to is dumped by our own reducers, so that what is shared stays
so, and verified like everything else.
Law: dill is not imported for it, which would change pickle's own tables; and dill's own ways are not taken:
some make another thing of an object (a list of an iterator, a second owner of a capsule's memory).
"""

from __future__ import annotations

import sys
from typing import Any

from replkernel.state.capture.outcomes import CannotTravel
from replkernel.state.capture.registered import in_short
from replkernel.state.python.kinds import qualname_of

Reduction = tuple[Any, ...]


class _Recorder:
    """Stands for the pickler that a function registered with dill is given, and keeps what that says."""

    def __init__(self) -> None:
        self.said: list[Reduction] = []

    def save_reduce(
        self,
        func: object,
        args: tuple[Any, ...],
        state: object = None,
        listitems: object = None,
        dictitems: object = None,
        state_setter: object = None,
        *,
        obj: object = None,
    ) -> None:
        """Keep a reduction, as `object.__reduce__` would return it."""
        self.said.append((func, args, state, listitems, dictitems, state_setter))


def reduction_registered(value: object) -> Reduction | None:
    """Return the reduction by a function that somebody registered for the type with `dill.register`, or None.

    Raises CannotTravel where that function fails.
    """
    dill: Any = sys.modules.get("dill._dill")
    save = None if dill is None else dict.get(dill.Pickler.dispatch, type(value))
    if save is None or str(getattr(save, "__module__", "")).partition(".")[0] in ("dill", "pickle"):
        return None
    recorder = _Recorder()
    try:
        save(recorder, value)
    except Exception as error:
        name = qualname_of(type(value))
        told = in_short(error)
        raise CannotTravel(f"What was registered with dill for a {name} failed ({told}).") from error
    return recorder.said[0] if len(recorder.said) == 1 else None
