"""``@pandas_options``: pandas options that differ from their defaults.

Those that hold a function are places, for a function is a value of the notebook's.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import OptionsPart, are_equal

FORMAT = "\0format"
_METHOD = types.BuiltinMethodType


def plain_format(value: object) -> object:
    """Return a value; of a text's own ``format``, as formatters often are, the text."""
    method = value
    if type(method) is _METHOD and method.__name__ == "format" and type(method.__self__) is str:
        return {FORMAT: method.__self__}
    return value


def made_format(told: Any) -> object:
    """Return what `plain_format` told."""
    return told[FORMAT].format if type(told) is dict and FORMAT in told else told


class PandasOptionsPart(OptionsPart):
    """``pandas.set_option`` for the whole process."""

    cid = ComponentId("@pandas_options")
    library = "pandas"

    def __init__(self) -> None:
        self._tree: dict[str, Any] = {}
        self._options: dict[str, Any] = {}
        super().__init__()

    def look(self) -> dict[str, Any]:
        """Return the options by their full names; the last ones while they are equal."""
        tree = sys.modules["pandas._config.config"]._global_config
        if not are_equal(tree, self._tree):
            self._tree, self._options = _copied(tree), dict(_leaves(tree))
        return self._options

    def reference(self) -> Mapping[str, Any]:
        """Return the registered defaults."""
        registered = sys.modules["pandas._config.config"]._registered_options
        return {name: option.defval for name, option in registered.items()}

    def to_plain(self, name: str, value: object) -> object:
        """Return the value, or the text of a formatter."""
        return plain_format(value)

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set options, passing over those that this version does not know."""
        pandas = sys.modules["pandas"]
        known = sys.modules["pandas._config.config"]._registered_options
        for name, told in changed.items():
            value = made_format(told)
            if name in known and not are_equal(pandas.get_option(name), value):
                pandas.set_option(name, value)


def _copied(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree of options in dictionaries of its own."""
    return {name: _copied(value) if type(value) is dict else value for name, value in options.items()}


def _leaves(options: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in options.items():
        if type(value) is dict:
            found.extend(_leaves(value, f"{prefix}{name}."))
        elif type(value) is not types.FunctionType:
            found.append((prefix + name, value))
    return found
