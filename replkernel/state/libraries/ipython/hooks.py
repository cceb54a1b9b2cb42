"""``@ipython_hooks``: the notebook's own functions among IPython's callbacks, transformers and formatters.

A callback on a cell event travels by its variable's name; all other hooks of the notebook are places of the
book of libraries, so that one which cannot travel is lost by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from replkernel.records import ComponentId
from replkernel.state.libraries.ipython.notebook_function import FunctionsPart, is_users, variable_of
from replkernel.state.libraries.ipython.places import ShellHooks
from replkernel.state.patches.book import book
from replkernel.state.process.plain import decode_plain, encode_plain

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


TRANSFORMERS = ("input_transformers_cleanup", "input_transformers_post", "ast_transformers")


class HooksPart(FunctionsPart[list[Any]]):
    """``events.register``, input and AST transformers, custom exception handlers, display formatters."""

    cid = ComponentId("@ipython_hooks")

    def __init__(self, shell: InteractiveShell) -> None:
        self._tables: list[Any] = []
        self._events: list[list[str]] = []
        self._hooks = ShellHooks(shell)
        self._first = {event: functions[:] for event, functions in shell.events.callbacks.items()}
        super().__init__(shell)

    def look(self) -> list[Any]:
        """Return copies of every table in which a notebook can hook; the last ones while they are equal."""
        shell = self._shell
        manager = shell.input_transformer_manager
        live: list[Any] = [
            shell.events.callbacks,
            [*getattr(shell, TRANSFORMERS[0], ()), *shell.input_transformers_post, *shell.ast_transformers],
            [*manager.cleanup_transforms, *manager.line_transforms, *manager.token_transformers],
            shell.custom_exceptions,
            self._hooks.bound(),
            list(self._hooks.tables().values()),
        ]
        if live == self._tables:
            return self._tables
        callbacks, *between, printers = live
        copies = {event: functions[:] for event, functions in callbacks.items()}
        self._tables = [copies, *between, [dict(table) for table in printers]]
        return self._tables

    def told(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield the events with their callbacks' variables."""
        for event, variable in self._events:
            yield (event, variable), variable

    def pack(self, seen: list[Any]) -> bytes | None:
        """Write the events' callbacks by their variables; what else the notebook hooked is in the book."""
        callbacks = seen[0]
        namespace = self._shell.user_ns
        events: list[list[str]] = []
        bound: dict[tuple[str, str], Any] = {}
        for event, functions in callbacks.items():
            for function in functions:
                if not is_users(function, namespace):
                    continue
                variable = variable_of(function, namespace)
                if variable is None:
                    self._hooks.enter_event(book, event, self._first.get(event, []))
                else:
                    events.append([event, variable])
                    bound[event, variable] = function
        self._hooks.enter(book, namespace)
        self._events, self._bound = events, bound
        return encode_plain(events) if events or self._data is not None else None

    def apply(self, data: bytes) -> None:
        """Register the callbacks whose variables are there; the others follow in `settle`."""
        self._settled = False
        self._events = decode_plain(data)
        self.bind()

    def bind(self) -> bool:
        """Bring the registered callbacks in line with the told ones; return True when something changed."""
        changed = False
        wanted = {(event, variable) for event, variable in self._events}
        for key in [key for key in self._bound if key not in wanted]:
            changed = self._unregister(key) or changed
        for event, variable in self._events:
            function = self._shell.user_ns.get(variable)
            key = (event, variable)
            if not callable(function) or self._bound.get(key) is function:
                continue
            self._unregister(key)
            if function not in self._shell.events.callbacks[event]:
                self._shell.events.register(event, function)
            self._bound[key] = function
            changed = True
        return changed

    def _unregister(self, key: tuple[str, str]) -> bool:
        function = self._bound.pop(key, None)
        if function is None or function not in self._shell.events.callbacks[key[0]]:
            return False
        self._shell.events.unregister(key[0], function)
        return True
