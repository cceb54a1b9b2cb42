"""The names of the namespace that the shell made and that are not captured: each replica has its own.

Law: a name that the user bound to something else is the user's, and is captured like any other.
"""

from __future__ import annotations

from itertools import islice
from operator import is_
from types import MethodType
from typing import Any

from replkernel.kernel.history import ReplicatedHistory

SHELL_NAMES = (
    "In", "Out", "_ih", "_oh", "_dh", "exit", "quit", "open", "get_ipython",
    "__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtin__", "__builtins__",
)  # fmt: skip

_ABSENT = object()


class OwnNames(set[str]):
    """The names that are the shell's own now; brought up to date by `refresh`."""

    def __init__(self, namespace: dict[str, Any], history: ReplicatedHistory) -> None:
        super().__init__()
        self._namespace = namespace
        self._history = history
        self._shells = {name: namespace[name] for name in SHELL_NAMES if name in namespace}
        self._inputs: dict[str, str] | None = None
        """The sources by name as of the last look, when all of these names were ours, and their number."""
        self._inputs_known = 0
        self.refresh()

    def refresh(self) -> None:
        """Look at what the names are bound to: the shell's objects, and the sources of cells in ``_i3``.

        A subshell may do so while the main thread captures: no name of the shell's is missing in between.
        """
        history, get = self._history, self._namespace.get
        names = history.input_names
        ours = all(map(is_, map(get, names), names.values()))
        if ours and names is self._inputs:
            self.update(islice(names, self._inputs_known, None))
        else:
            inputs = {name for name, value in list(names.items()) if get(name, _ABSENT) is value}
            self.update(inputs)
            self.intersection_update(inputs.union(history.recent_inputs(), self._shells))
        self._inputs, self._inputs_known = (names, len(names)) if ours else (None, 0)
        for name, value in (*history.recent_inputs().items(), *self._shells.items()):
            if _same(get(name, _ABSENT), value):
                self.add(name)
            else:
                self.discard(name)


def _same(one: object, other: object) -> bool:
    """Tell whether both are one object, or the same method of one object (made anew at each look)."""
    return one is other or (type(one) is MethodType and type(other) is MethodType and one == other)
