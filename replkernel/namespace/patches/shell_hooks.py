"""The notebook's hooks in its shell as places of the book: transformers, formatters, a handler of exceptions.

Law: what stands for the shell is found by the same path in every process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replkernel.namespace.patches.book import Book
from replkernel.namespace.patches.places import ATTRIBUTE, CONTENT, ENTRY, Absent, Place, class_label
from replkernel.namespace.process_parts.notebook_function import is_notebooks

MODULE, SHELL = "IPython.core.interactiveshell", "InteractiveShell._instance"
_TRAITS = f"{SHELL}._trait_values"
_MANAGER = f"{_TRAITS}.input_transformer_manager"
_FORMATTERS = f"{_TRAITS}.display_formatter._trait_values.formatters"
_HANDLER = ("custom_exceptions", "CustomTB")


class ShellHooks:
    """The hooks of one shell, and what it had at its process's birth."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._lists = {path: list(values) for path, values in self._transformers().items()}
        self._printers = {name: dict(table) for name, table in self._tables().items()}
        self._handler = {name: vars(shell).get(name, Absent) for name in _HANDLER}

    def enter(self, book: Book, namespace: Mapping[str, Any]) -> None:
        """Enter the places where the notebook has put something of its own."""
        for path, values in self._transformers().items():
            if any(is_notebooks(value, namespace) for value in values):
                book.enter(Place(CONTENT, MODULE, path, ""), self._lists[path])
        for name, table in self._tables().items():
            for cls, printer in table.items():
                if is_notebooks(printer, namespace):
                    before = self._printers[name].get(cls)
                    place = Place(
                        ENTRY, MODULE, f"{_FORMATTERS}.{name}._trait_values.type_printers", class_label(cls)
                    )
                    book.enter(place, Absent if before is None else (cls, before))
        if self._shell.custom_exceptions:
            for name in _HANDLER:
                book.enter(Place(ATTRIBUTE, MODULE, SHELL, name), self._handler[name])

    def enter_event(self, book: Book, event: str, before: list[Any]) -> None:
        """Enter all callbacks of an event, one of which no variable holds."""
        book.enter(Place(CONTENT, MODULE, f"{SHELL}.events.callbacks.{event}", ""), before)

    def _transformers(self) -> dict[str, list[Any]]:
        manager = self._shell.input_transformer_manager
        return {
            f"{_TRAITS}.ast_transformers": self._shell.ast_transformers,
            f"{_TRAITS}.input_transformers_post": self._shell.input_transformers_post,
            f"{_MANAGER}.cleanup_transforms": manager.cleanup_transforms,
            f"{_MANAGER}.line_transforms": manager.line_transforms,
            f"{_MANAGER}.token_transformers": manager.token_transformers,
        }

    def _tables(self) -> dict[str, dict[Any, Any]]:
        formatters = self._shell.display_formatter.formatters
        return {name: formatter.type_printers for name, formatter in formatters.items()}
