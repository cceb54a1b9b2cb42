"""``@ipython_traits``: how the notebook set the shell's completer, and which formatters are enabled.

Law: these objects are the shell's for its life, so their tables of traits are found once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import OptionsPart

COMPLETER, DISPLAY, FORMATTER = "completer.", "display.", "formatter."
BESIDE = ("ipython_display_formatter", "mimebundle_formatter")
"""The formatters that stand beside the table of formatters by type of content."""


class ShellTraitsPart(OptionsPart):
    """``%config IPCompleter.…``, ``DisplayFormatter.active_types``, ``formatters["text/html"].enabled``."""

    cid = ComponentId("@ipython_traits")

    def __init__(self, shell: Any) -> None:
        self._owners: dict[str, tuple[Any, str]] = {}
        self._traits: list[tuple[str, dict[str, Any], str]] = []
        for key, owner, name in _settings(shell):
            getattr(owner, name, None)  # a trait's default comes to life when it is first asked for
            self._owners[key] = owner, name
            self._traits.append((key, owner._trait_values, name))
        super().__init__()

    def look(self) -> dict[str, Any]:
        """Return the settings; lists and dictionaries as they are now."""
        found = {key: values[name] for key, values, name in self._traits if name in values}
        for key, value in found.items():
            if type(value) is list or type(value) is dict:
                found[key] = value.copy()
        return found

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set the traits, which formatters are active before each of them: the one switches the others."""
        for key in sorted(changed, key=_formatters_last):
            owner, name = self._owners[key]
            setattr(owner, name, changed[key])


def _formatters_last(key: str) -> bool:
    return key.startswith(FORMATTER)


def _settings(shell: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield each setting with its owner and the name of its trait."""
    for name in shell.Completer.trait_names(config=True):
        yield COMPLETER + name, shell.Completer, name
    display = shell.display_formatter
    yield f"{DISPLAY}active_types", display, "active_types"
    for path, formatter in [
        *display.formatters.items(),
        *((name, getattr(display, name)) for name in BESIDE),
    ]:
        yield f"{FORMATTER}{path}.enabled", formatter, "enabled"
