"""``@matplotlib``: rcParams that differ from matplotlib's defaults. The backend is left alone."""

from __future__ import annotations

import contextlib
import enum
import importlib
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from replkernel.namespace.process_parts.part import OptionsPart
from replkernel.records import ComponentId

LEFT_ALONE = ("backend", "backend_fallback", "interactive", "toolbar", "webagg.port")
CYCLE = "\0cycle"
INTERACTIVE = "\0interactive"
PYPLOT = "matplotlib.pyplot"
INLINE = "matplotlib_inline.backend_inline"


class MatplotlibPart(OptionsPart):
    """``matplotlib.rcParams``, styles and themes included."""

    cid = ComponentId("@matplotlib")
    library = "matplotlib"

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._stamp: list[Any] = []
        super().__init__()

    def ready(self) -> bool:
        """Tell whether matplotlib is imported to its end."""
        return "rcParams" in vars(sys.modules.get("matplotlib", object))

    def look(self) -> dict[str, Any]:
        """Return the settings; lists are copied, because they can be changed in place."""
        settings = sys.modules["matplotlib"].rcParams
        values = list(dict.values(settings))
        drawing = [bool(dict.get(settings, "interactive")), INLINE in sys.modules]
        stamp: list[Any] = [
            drawing if PYPLOT in sys.modules else None,
            values,
            list(dict.keys(settings)),
            [value[:] for value in values if type(value) is list],
        ]
        if stamp != self._stamp:
            self._stamp = stamp
            self._settings = {
                name: value[:] if type(value) is list else value
                for name, value in dict.items(settings)
                if name not in LEFT_ALONE
            }
            if PYPLOT in sys.modules:
                self._settings[INTERACTIVE] = drawing
        return self._settings

    def reference(self) -> Mapping[str, Any]:
        """Return matplotlib's own defaults; not its lists, which are changed in place together with ours."""
        defaults = dict.items(sys.modules["matplotlib"].rcParamsDefault)
        return {name: value for name, value in defaults if type(value) is not list}

    def pack(self, seen: dict[str, Any]) -> bytes | None:
        """Write the settings; what is left alone counts as neither changed nor removed."""
        reference = self.reference()
        return super().pack({**{name: reference[name] for name in LEFT_ALONE if name in reference}, **seen})

    def to_plain(self, name: str, value: Any) -> Any:
        """Return the value, a property cycle as a mapping of its keys to their values."""
        if type(value).__name__ == "Cycler":
            return {CYCLE: value.by_key()}
        return value.value if isinstance(value, enum.Enum) else value

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set what this version of matplotlib knows."""
        matplotlib: Any = sys.modules["matplotlib"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if INTERACTIVE in changed and PYPLOT in sys.modules:
                _set_interactive(*changed[INTERACTIVE])
            for name, value in changed.items():
                if name in matplotlib.rcParamsDefault and name not in LEFT_ALONE:
                    is_cycle = type(value) is dict and CYCLE in value
                    matplotlib.rcParams[name] = _cycle(value[CYCLE]) if is_cycle else value


def _set_interactive(interactive: bool, inline: bool) -> None:
    """Turn pyplot's interactive mode on or off, after the inline backend: it turns it on when it begins."""
    if inline and INLINE not in sys.modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(INLINE)
    if sys.modules["matplotlib"].is_interactive() != interactive:
        pyplot: Any = sys.modules[PYPLOT]
        (pyplot.ion if interactive else pyplot.ioff)()


def _cycle(by_key: dict[str, list[Any]]) -> Any:
    cycles = [sys.modules["cycler"].cycler(key, values) for key, values in by_key.items()]
    total = cycles[0]
    for cycle in cycles[1:]:
        total = total + cycle
    return total
