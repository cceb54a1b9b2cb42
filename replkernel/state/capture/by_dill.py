"""The last resort before a tombstone: what dill, or whoever registered a type with dill, says of an object.

Only the way is dill's: what it leads to is dumped by our own reducers, so that what is shared stays so, and
verified like everything else.
Law: dill's own ways are taken only where they find the very object again, proven here and now: some make
another thing of it (a list of an iterator, an empty capsule), which no comparison of bytes would show.
"""

from __future__ import annotations

import sys
from typing import Any

Reduction = tuple[Any, ...]


class _Recorder:
    """Stands for the pickler that a function registered with dill is given, and keeps what that says."""

    def __init__(self) -> None:
        self.said: list[Reduction] = []

    def save_reduce(
        self,
        func: Any,
        args: tuple[Any, ...],
        state: Any = None,
        listitems: Any = None,
        dictitems: Any = None,
        state_setter: Any = None,
        *,
        obj: Any = None,
    ) -> None:
        """Keep a reduction, as `object.__reduce__` would return it."""
        self.said.append((func, args, state, listitems, dictitems, state_setter))


def reduction_registered(value: object) -> Reduction | None:
    """Return the reduction by a function that somebody registered for the type with `dill.register`, or None.

    Raises what that function raises.
    """
    if "dill._dill" not in sys.modules:
        return None
    save = _registered(type(value))
    if save is None or _is_dills(save):
        return None
    return _only(save, value)


def reduction_by_name(value: object) -> Reduction | None:
    """Return dill's own reduction where calling it here gives `value` itself; else None."""
    save = _registered(type(value))
    if save is None or not _is_dills(save):
        return None
    try:
        found = _only(save, value)
        if found is None or found[2:] != (None,) * 4:
            return None
        return found if found[0](*found[1]) is value else None
    except Exception:  # dill asks a pickler of its own for more than a reduction: that is no name.
        return None


def _registered(kind: type) -> Any:
    import dill._dill

    return dict.get(dill._dill.Pickler.dispatch, kind)


def _is_dills(save: object) -> bool:
    return str(getattr(save, "__module__", "")).partition(".")[0] in ("dill", "pickle")


def _only(save: Any, value: object) -> Reduction | None:
    recorder = _Recorder()
    save(recorder, value)
    return recorder.said[0] if len(recorder.said) == 1 else None
