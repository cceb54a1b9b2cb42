"""The names of the namespace that the shell made and that are not captured: each replica has its own.

Law: a name that the user bound to something else is the user's, and is captured like any other.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import islice
from types import MethodType
from typing import Any

from replkernel.kernel.history import ReplicatedHistory
from replkernel.state.names import WORD_BYTES, Names, identities

SHELL_NAMES = (
    "In", "Out", "_ih", "_oh", "_dh", "exit", "quit", "open", "get_ipython",
    "__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtin__", "__builtins__",
)  # fmt: skip

_ABSENT = object()


class OwnNames(set[str]):
    """The names that are the shell's own now; brought up to date by `refresh`."""

    def __init__(self, names: Names, history: ReplicatedHistory) -> None:
        super().__init__()
        self._names = names
        self._history = history
        namespace = names.namespace
        self._shells = {name: namespace[name] for name in SHELL_NAMES if name in namespace}
        self.version = 0
        """Grows when a name is the shell's no more."""
        self._inputs: dict[str, str] = {}
        self._rows = _Rows()
        self._asked = 0
        """So many keys of the namespace have been asked whether they are names of sources."""
        self._inputs_known = 0
        self._astray: set[str] = set()
        """Names of sources that are bound to something else, or to nothing."""
        self._epoch = 0
        self._lock = threading.RLock()
        self.refresh()

    def refresh(self) -> None:
        """Look at what the names are bound to: the shell's objects, and the sources of cells in ``_i3``.

        A subshell may do so while the main thread captures: no name of the shell's is missing in between.
        """
        with self._lock:
            recent = self._history.recent_inputs()
            self._refresh_inputs(recent)
            get = self._names.namespace.get
            for name, value in (*recent.items(), *self._shells.items()):
                if _same(get(name, _ABSENT), value):
                    self.add(name)
                elif name in self:
                    self.discard(name)
                    self.version += 1

    def _refresh_inputs(self, recent: Mapping[str, str]) -> None:
        """Look at the names of sources: those that came since, and whether all others are as they were."""
        inputs = self._history.input_names
        keys = self._names.look()
        as_before = self._epoch == self._names.epoch and inputs is self._inputs
        if self._are_bound(keys) and as_before:
            self._add_inputs(keys)
            if not self._has_come_home():
                return
        self._rows, self._asked = _Rows(), 0
        self._inputs, self._epoch = inputs, self._names.epoch
        self._inputs_known, self._astray = 0, set()
        found = self._add_inputs(keys)
        gone = self.difference(found, recent, self._shells)
        if gone:
            self.difference_update(gone)
            self.version += 1

    def _are_bound(self, keys: list[Any]) -> bool:
        """Tell whether all names of sources that were known are bound to what they were bound to."""
        rebound = self._names.rebound()
        if rebound is None:
            return self._rows.hold(tuple(self._names.namespace.values()))
        names = [key for key in map(keys.__getitem__, rebound) if key in self._inputs and key in self]
        get = self._names.namespace.get
        return all(get(name, _ABSENT) is self._inputs[name] for name in names)

    def _add_inputs(self, keys: list[Any]) -> set[str]:
        """Add what of the keys that nobody has asked about are names of sources, and return these names."""
        found: set[str] = set()
        get, bound = self._inputs.get, self._names.namespace.get
        fresh_keys = keys[self._asked :]
        for place, key in enumerate(fresh_keys, self._asked):
            if type(key) is str and key[:2] == "_i":
                source = get(key)
                if source is not None and bound(key, _ABSENT) is source:
                    found.add(key)
                    self._rows.add(place, source)
        self._asked += len(fresh_keys)
        self.update(found)
        fresh = list(islice(reversed(self._inputs), len(self._inputs) - self._inputs_known))
        self._inputs_known += len(fresh)
        self._astray.update(name for name in fresh if name not in found)
        return found

    def _has_come_home(self) -> bool:
        """Tell whether a name that was something else's is bound to its source."""
        get, inputs = self._names.namespace.get, self._inputs
        return any(get(name, _ABSENT) is inputs[name] for name in self._astray)


class _Rows:
    """Values that stand one behind the other in a namespace, row by row, by their identities.

    Somebody else keeps them.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, bytearray]] = []

    def add(self, place: int, value: object) -> None:
        """Take the value at a place behind all others."""
        start = place * WORD_BYTES
        if not self._rows or sum(self._last()) != start:
            self._rows.append((start, bytearray()))
        self._rows[-1][1].extend(identities((value,)))

    def _last(self) -> tuple[int, int]:
        start, known = self._rows[-1]
        return start, len(known)

    def hold(self, values: tuple[Any, ...]) -> bool:
        """Tell whether the values are what they were."""
        now = memoryview(identities(values))
        return all(now[start : start + len(known)] == known for start, known in self._rows)


def _same(one: object, other: object) -> bool:
    """Tell whether both are one object, or the same method of one object (made anew at each look)."""
    return one is other or (type(one) is MethodType and type(other) is MethodType and one == other)
