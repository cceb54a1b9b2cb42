"""The notebook's hooks in its shell as places of the book: transformers, formatters, what it bound there.

Law: what stands for the shell is found by the same path in every process. A formatter counts as the
notebook's whoever made it: a library registers one because a cell called it. The formats of figures are
`figure_formats`'.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

from replkernel.state.libraries.ipython.config import SHELL_TRAITS
from replkernel.state.libraries.ipython.notebook_function import is_users
from replkernel.state.libraries.matplotlib.figure_formats import is_figure_format
from replkernel.state.patches.book import Book
from replkernel.state.patches.places import ATTRIBUTE, CONTENT, ENTRY, ITEM, Absent, Place, class_label
from replkernel.state.python.kinds import kind_of

MODULE, SHELL = "IPython.core.interactiveshell", "InteractiveShell._instance"
_TRAITS = f"{SHELL}._trait_values"
_MANAGER = f"{_TRAITS}.input_transformer_manager"
MAGICS = f"{_TRAITS}.magics_manager._trait_values"
_DISPLAY = f"{_TRAITS}.display_formatter._trait_values"
_HANDLER = ("custom_exceptions", "CustomTB")
_BESIDE = ("ipython_display_formatter", "mimebundle_formatter")
"""The formatters that stand beside the table of formatters by type of content."""

BY_CLASS, BY_NAME, BY_OBJECT = "type_printers", "deferred_printers", "singleton_printers"
"""Printers for classes, for classes by their names, and for single objects by their ids."""

_TOLD_OTHERWISE = frozenset({*_HANDLER, *SHELL_TRAITS, "active_eventloop"})
_FUNCTIONS = (types.FunctionType, types.MethodType)

_TABLES = (BY_CLASS, BY_NAME, BY_OBJECT)

_NAMEABLE = re.compile(r"[\w/+]+")
"""The names of formatters that can be a step of a place's path."""

Tables = dict[tuple[str, str], dict[Any, Any]]


class ShellHooks:
    """The hooks of one shell, and what it had at its process's birth."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._formatters: list[Any] = []
        self._traits: dict[tuple[str, str], dict[str, Any]] = {}
        """Where the shell's formatters keep their tables: asking for them as traits costs more."""
        self._lists = {path: list(values) for path, values in self._transformers().items()}
        self._printers: Tables = {where: dict(table) for where, table in self.tables().items()}
        self._handler = {name: vars(shell).get(name, Absent) for name in _HANDLER}
        self._attributes = dict(vars(shell))

    def enter(self, book: Book, namespace: Mapping[str, Any]) -> None:
        """Enter the places where the notebook has put something of its own."""
        for path, values in self._transformers().items():
            if any(is_users(value, namespace) for value in values):
                book.enter(Place(CONTENT, MODULE, path, ""), self._lists[path])
        for where, table in self.tables().items():
            self._enter_printers(book, where, table)
        if self._shell.custom_exceptions:
            for name in _HANDLER:
                book.enter(Place(ATTRIBUTE, MODULE, SHELL, name), self._handler[name])
        for name in self.bound():
            book.enter(Place(ATTRIBUTE, MODULE, SHELL, name), self._attributes.get(name, Absent))

    def bound(self) -> dict[str, int]:
        """Return what was bound on the shell since its birth, by ids: new names, functions in old ones."""
        first = self._attributes
        return {
            name: id(value)
            for name, value in list(vars(self._shell).items())
            if value is not first.get(name, Absent)
            and (kind_of(value) in _FUNCTIONS or not (name in first or name.startswith("_")))
            and name not in _TOLD_OTHERWISE
            and name.isidentifier()
        }

    def enter_event(self, book: Book, event: str, before: list[Any]) -> None:
        """Enter all callbacks of an event, one of which no variable holds."""
        book.enter(Place(CONTENT, MODULE, f"{SHELL}.events.callbacks.{event}", ""), before)

    def tables(self) -> Tables:
        """Return all tables of printers, by the path of their formatter and their own name."""
        display = self._shell.display_formatter
        formatters = display.formatters
        live = [*formatters.items(), *((name, getattr(display, name)) for name in _BESIDE)]
        if live != self._formatters:
            self._formatters = live
            paths = [*(f"formatters.{name}" for name in formatters), *_BESIDE]
            self._traits = {
                (path, name): formatter._trait_values
                for path, (_, formatter) in zip(paths, live, strict=True)
                for name in _TABLES
                if getattr(formatter, name) is not None  # A trait is there once it has been asked for.
            }
        return {where: traits[where[1]] for where, traits in self._traits.items()}

    def _enter_printers(self, book: Book, where: tuple[str, str], table: dict[Any, Any]) -> None:
        path, name = where
        before = self._printers.get(where, {})
        for key in _differing(before, table):
            if name == BY_CLASS and is_figure_format(key, table.get(key)):
                continue
            if name == BY_OBJECT or not _NAMEABLE.fullmatch(path.removeprefix("formatters.")):
                kind = path.removeprefix("formatters.")
                note = f"A formatter for {kind} was registered in a way that has no name elsewhere."
                book.notes[note] = None
                continue
            owner = f"{_DISPLAY}.{path}._trait_values.{name}"
            if name == BY_CLASS:
                first = (key, before[key]) if key in before else Absent
                book.enter(Place(ENTRY, MODULE, owner, class_label(key)), first)
            else:
                book.enter(Place(ITEM, MODULE, owner, json.dumps(key)), before.get(key, Absent))

    def _transformers(self) -> dict[str, list[Any]]:
        manager = self._shell.input_transformer_manager
        return {
            f"{_TRAITS}.ast_transformers": self._shell.ast_transformers,
            f"{_TRAITS}.input_transformers_post": self._shell.input_transformers_post,
            f"{_MANAGER}.cleanup_transforms": manager.cleanup_transforms,
            f"{_MANAGER}.line_transforms": manager.line_transforms,
            f"{_MANAGER}.token_transformers": manager.token_transformers,
        }


def _differing(before: dict[Any, Any], now: dict[Any, Any]) -> Iterator[Any]:
    """Return the keys under which something else is now."""
    for key, printer in now.items():
        if key not in before or before[key] is not printer:
            yield key
    yield from (key for key in before if key not in now)
