"""``@ipython_magics``: aliases and magics that the notebook made.

A magic that is the notebook's function travels by its variable's name; one that no variable holds, and those
of a class of the notebook's, are places of the book. Magics of libraries come back with their extensions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from replkernel.records import ComponentId
from replkernel.state.libraries.ipython.notebook_function import FunctionsPart, is_users, variable_of
from replkernel.state.libraries.ipython.places import MAGICS, MODULE
from replkernel.state.patches.book import book
from replkernel.state.patches.places import ITEM, Absent, Place
from replkernel.state.process.plain import decode_plain, encode_plain

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

KINDS = ("line", "cell")


class MagicsPart(FunctionsPart[dict[str, dict[str, Any]]]):
    """``%alias``, ``%alias_magic``, ``@register_line_magic`` and ``@register_cell_magic``."""

    cid = ComponentId("@ipython_magics")

    def __init__(self, shell: InteractiveShell) -> None:
        self._tables: dict[str, dict[str, Any]] = {}
        self._functions: list[list[str]] = []
        super().__init__(shell)
        self._birth = self._seen or {kind: {} for kind in KINDS}
        self._classes = dict(shell.magics_manager.registry)

    def look(self) -> dict[str, dict[str, Any]]:
        """Return copies of the tables of magics; the last ones while they are equal."""
        magics = self._shell.magics_manager.magics
        if magics != self._tables:
            self._tables = {kind: dict(magics[kind]) for kind in KINDS}
        return self._tables

    def told(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield the magics by kind and name, with their variables."""
        for kind, name, variable in self._functions:
            yield (kind, name), variable

    def pack(self, seen: dict[str, dict[str, Any]]) -> bytes | None:
        """Write the shell aliases, magic aliases and notebook functions that came or changed since birth."""
        aliases: dict[str, str] = {}
        pointers: list[list[Any]] = []
        functions: list[list[str]] = []
        bound: dict[tuple[str, str], Any] = {}
        namespace = self._shell.user_ns
        self._enter_classes()
        for kind in KINDS:
            for name, magic in seen[kind].items():
                if self._birth[kind].get(name) is magic:
                    continue
                if type(magic).__name__ == "Alias":
                    aliases[name] = magic.cmd
                elif type(magic).__name__ == "MagicAlias":
                    pointers.append([kind, name, magic.magic_name, magic.magic_params])
                elif is_users(magic, namespace):
                    variable = variable_of(magic, namespace)
                    if variable is None:
                        before = self._birth[kind].get(name, Absent)
                        book.enter(Place(ITEM, MODULE, f"{MAGICS}.magics.{kind}", json.dumps(name)), before)
                    else:
                        functions.append([kind, name, variable])
                        bound[kind, name] = magic
        gone = sorted(name for name in self._birth["line"] if name not in seen["line"])
        self._functions, self._bound = functions, bound
        if self._data is None and not (aliases or pointers or functions or gone):
            return None
        return encode_plain((aliases, pointers, functions, gone))

    def _enter_classes(self) -> None:
        """Enter the instances of the notebook's classes of magics."""
        for name, instance in self._shell.magics_manager.registry.items():
            before = self._classes.get(name, Absent)
            if before is not instance and is_users(instance, self._shell.user_ns):
                book.enter(Place(ITEM, MODULE, f"{MAGICS}.registry", json.dumps(name)), before)

    def apply(self, data: bytes) -> None:
        """Define the aliases; magics of the notebook's functions follow as their variables come."""
        self._settled = False
        aliases, pointers, self._functions, gone = decode_plain(data)
        for kind, name in self._bound.keys() - {(kind, name) for kind, name, _ in self._functions}:
            self._unbind(kind, name)
        manager = self._shell.alias_manager
        line = self._shell.magics_manager.magics["line"]
        known = {name for name, magic in line.items() if type(magic).__name__ == "Alias"}
        for name in known - set(aliases) - set(self._birth["line"]):
            manager.undefine_alias(name)
        for name, command in aliases.items():
            if name not in known or line[name].cmd != command:
                manager.define_alias(name, command)
        for kind, name, target, params in pointers:
            self._shell.magics_manager.register_alias(name, target, kind, params)
        for name in gone:
            line.pop(name, None)
        self.bind()

    def _unbind(self, kind: str, name: str) -> None:
        """Take a function's magic away, unless another one is in its place, as one without a variable is."""
        table, bound = self._shell.magics_manager.magics[kind], self._bound.pop((kind, name))
        if table.get(name) is not bound:
            return
        if name in self._birth[kind]:
            table[name] = self._birth[kind][name]
        else:
            del table[name]

    def bind(self) -> bool:
        """Register the magics whose functions are here."""
        bound = False
        for kind, name, variable in self._functions:
            function = self._shell.user_ns.get(variable)
            if callable(function) and self._shell.magics_manager.magics[kind].get(name) is not function:
                self._shell.register_magic_function(function, magic_kind=kind, magic_name=name)
                bound = True
            if callable(function):
                self._bound[kind, name] = function
        return bound
