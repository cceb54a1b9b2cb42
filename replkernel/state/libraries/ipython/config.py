"""``@ipython_config``, ``@inline_backend``: what ``%config``, ``%precision``, ``%xmode`` … change."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from IPython.utils.ipstruct import Struct

from replkernel.records import ComponentId
from replkernel.state.process.part import OptionsPart

SHELL_TRAITS = (
    "ast_node_interactivity", "autoawait", "autocall", "automagic", "cache_size", "colors", "history_length",
    "quiet", "separate_in", "separate_out", "separate_out2", "show_rewritten_input", "sphinxify_docstring",
    "system_raise_on_error", "wildcards_case_sensitive",
)  # fmt: skip
PLAIN_TEXT_TRAITS = ("pprint", "float_precision", "max_width", "max_seq_length", "newline", "verbose")
SHELL = "shell."
PLAIN_TEXT = "text/plain."
OVER_TRAITS = "over traits"
"""What is bound on the shell itself, where the notebook put a plain value in place of its class's trait."""

_SHELL_KEYS = tuple((SHELL + name, name) for name in SHELL_TRAITS)
_PLAIN_TEXT_KEYS = tuple((PLAIN_TEXT + name, name) for name in PLAIN_TEXT_TRAITS)


class ShellConfigPart(OptionsPart):
    """The shell's own traits, its traceback mode, and how values are printed."""

    cid = ComponentId("@ipython_config")

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        for owner, names in ((shell, SHELL_TRAITS), (self._plain_text(), PLAIN_TEXT_TRAITS)):
            for name in names:
                getattr(owner, name, None)  # a trait's default comes to life when it is first asked for
        super().__init__()

    def look(self) -> dict[str, Any]:
        """Return the settings."""
        shell = self._shell
        values = shell._trait_values
        found = {key: values[name] for key, name in _SHELL_KEYS if name in values}
        plain = self._plain_text()._trait_values
        found.update([(key, plain[name]) for key, name in _PLAIN_TEXT_KEYS if name in plain])
        attributes = vars(shell)
        found[OVER_TRAITS] = {name: attributes[name] for name in SHELL_TRAITS if name in attributes}
        found["xmode"] = shell.InteractiveTB.mode
        found["call_pdb"] = bool(shell.call_pdb)
        found["logstart"] = bool(shell.logger.log_active)
        found["dir_stack"] = list(shell.dir_stack)
        found["future"] = shell.compile.flags
        found["doctest_mode"] = dict(shell.meta.get("doctest_mode", {}))
        found["auto_magic"] = shell.magics_manager._trait_values.get("auto_magic", True)
        return found

    def pack(self, seen: dict[str, Any]) -> bytes | None:
        """Write what differs from birth; a log file is stuck."""
        data = super().pack(seen)
        if seen["logstart"]:
            self.stuck = (*self.stuck, "%logstart writes a log file from this process.")
        return data

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set the shell's traits, traceback mode and printing."""
        shell = self._shell
        for name, value in changed.items():
            if name.startswith(SHELL):
                setattr(shell, name[len(SHELL) :], value)
            elif name.startswith(PLAIN_TEXT):
                setattr(self._plain_text(), name[len(PLAIN_TEXT) :], value)
            elif name == OVER_TRAITS:
                attributes = vars(shell)
                for trait in attributes.keys() & set(SHELL_TRAITS):
                    del attributes[trait]
                attributes.update(value)
            elif name == "xmode":
                shell.InteractiveTB.set_mode(value)
            elif name == "call_pdb":
                shell.call_pdb = value
            elif name == "dir_stack":
                shell.dir_stack[:] = value
            elif name == "future":
                shell.compile.flags = value
            elif name == "doctest_mode":
                shell.meta[name] = Struct(value)
            elif name == "auto_magic":
                shell.magics_manager.auto_magic = value

    def _plain_text(self) -> Any:
        return self._shell.display_formatter.formatters["text/plain"]


class InlineBackendPart(OptionsPart):
    """``%config InlineBackend.…``: figure formats, print arguments, whether figures close after a cell."""

    cid = ComponentId("@inline_backend")
    library = "matplotlib.figure"

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        super().__init__()

    def look(self) -> dict[str, Any]:
        """Return the inline backend's configuration, its defaults while it has none."""
        module = sys.modules.get("matplotlib_inline.config")
        backend: Any = None if module is None else module.InlineBackend._instance
        found: dict[str, Any] = dict(self.reference())
        if backend is None:
            return found
        values = backend._trait_values
        for name in ("figure_format", "print_figure_kwargs", "close_figures", "rc"):
            value = values.get(name, found[name])
            found[name] = dict(value) if isinstance(value, dict) else value
        if "figure_formats" in values:
            found["figure_formats"] = sorted(values["figure_formats"])
        return found

    def reference(self) -> Mapping[str, Any]:
        """Return the inline backend's defaults."""
        return {
            "figure_format": "",
            "figure_formats": ["png"],
            "print_figure_kwargs": {"bbox_inches": "tight"},
            "close_figures": True,
            "rc": {},
        }

    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set the inline backend's configuration."""
        from matplotlib_inline.config import InlineBackend

        backend = InlineBackend.instance(parent=self._shell)
        backend.shell = self._shell
        if backend not in self._shell.configurables:
            self._shell.configurables.append(backend)
        for name, value in changed.items():
            if name == "figure_format":
                backend._trait_values[name] = value  # setting it would set the formats as well
            else:
                setattr(backend, name, set(value) if name == "figure_formats" else value)


# ``@ipython_traits``: how the notebook set the shell's completer, and which formatters are enabled.
#
# Law: these objects are the shell's for its life, so their tables of traits are found once.


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
