"""Which names of the namespace are the user's: all but IPython's own and those that nobody gave.

Law: the same as asking of each name anew; only what came since is asked, for old notebooks have many.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from replkernel.state.names import Names
from replkernel.state.process.odd_names import plain_names

OF_NOBODY = (
    "__compiled_fn_", "__resume_at_", "__builtins_dict__", "__import_", "__nested_resume_fns",
    "__warningregistry__",
)  # fmt: skip
"""Names that `torch.compile` puts among the user's, which each process makes when it compiles; and the table
of warnings that a cell has shown: IPython deletes it before the next one, and an undo would take that back.
"""


class UserNames:
    """The user's names of one namespace. `ignore` are IPython's own.

    These may become more at any time; a set of them that can become fewer says so by its `version`, and has
    looked at the names right before these are asked for.
    """

    def __init__(self, names: Names, ignore: AbstractSet[str]) -> None:
        self._names = names
        self._ignore = ignore
        self._found: list[str] = []
        self._asked = 0
        """So many of the namespace's keys have been asked about."""
        self._as_of = (0, 0)

    def now(self) -> list[str]:
        """Return them in the order of the namespace."""
        names, ignore = self._names, self._ignore
        version = getattr(ignore, "version", None)
        keys = names.look() if version is None else names.glance()
        if not names.plain:
            self._as_of = (-1, -1)
            return self._of(plain_names(names.namespace, keys))
        as_of = (names.epoch, version or 0)
        if as_of != self._as_of or not ignore.isdisjoint(self._found):
            self._found, self._asked, self._as_of = [], 0, as_of
        fresh = keys[self._asked :]
        self._found += self._of(fresh)
        self._asked += len(fresh)
        return self._found.copy()

    def _of(self, keys: Any) -> list[str]:
        ignore = self._ignore
        return [
            name
            for name in keys
            if name not in ignore and not (name[:2] == "__" and name.startswith(OF_NOBODY))
        ]
