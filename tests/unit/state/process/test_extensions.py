"""Extensions of IPython that another process loaded or unloaded: what comes from there decides the shell."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.events import EventManager
from IPython.core.extensions import ExtensionManager
from IPython.core.interactiveshell import InteractiveShellABC

from replkernel.state.libraries.ipython.extensions import ExtensionsPart
from replkernel.state.process.plain import encode_plain

EXTENSION = "an_extension_of_the_notebook"
EVENT = "post_run_cell"


@InteractiveShellABC.register
class Shell:
    """As much of a shell as extensions and their part see."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.events = EventManager(self, {EVENT: None})
        self.builtin_trap = contextlib.nullcontext()
        self.magics_manager = SimpleNamespace(registry={})
        self.extension_manager = ExtensionManager(shell=self)

    @property
    def hooks(self) -> list[Any]:
        return self.events.callbacks[EVENT]


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """Return a module whose extension hooks into the shell, and takes that back when it is unloaded."""

    def hook(result: object) -> None:
        """Do nothing."""

    def load(shell: Shell) -> None:
        shell.events.register(EVENT, hook)
        shell.user_ns["pushed"] = "by load"

    def unload(shell: Shell) -> None:
        shell.user_ns["pushed"] = "by unload"
        shell.events.unregister(EVENT, hook)

    module = types.ModuleType(EXTENSION)
    vars(module).update(hook=hook, load_ipython_extension=load, unload_ipython_extension=unload)
    monkeypatch.setitem(sys.modules, EXTENSION, module)
    return module


def told(*names: str) -> bytes:
    """Return what a process tells that has these extensions loaded."""
    return encode_plain(([*names], None, [], {}, {}))


def test_an_extension_unloaded_elsewhere_is_unloaded_here(extension: types.ModuleType) -> None:
    shell = Shell()
    part = ExtensionsPart(shell)
    part.load(told(EXTENSION))
    assert shell.hooks == [extension.hook]
    part.load(told())
    assert not shell.extension_manager.loaded
    assert not shell.hooks
    assert not part.trouble


def test_an_extension_whose_hook_is_gone_already_is_unloaded_without_a_word(
    extension: types.ModuleType,
) -> None:
    shell = Shell()
    part = ExtensionsPart(shell)
    part.load(told(EXTENSION))
    shell.hooks.clear()  # As the table of callbacks does that comes from elsewhere, before or after.
    part.load(told())
    assert not shell.extension_manager.loaded
    assert not part.trouble


def test_one_extension_that_fails_to_unload_keeps_no_other_loaded(
    extension: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = types.ModuleType("another_extension")
    vars(other).update(load_ipython_extension=lambda shell: None, unload_ipython_extension=lambda shell: None)
    monkeypatch.setitem(sys.modules, other.__name__, other)
    shell = Shell()
    part = ExtensionsPart(shell)
    part.load(told(EXTENSION, other.__name__))
    shell.hooks.clear()
    part.load(told())
    assert not shell.extension_manager.loaded
    assert part.dump() == told()


def test_unloading_an_extension_here_leaves_the_names_that_it_pushed_elsewhere(
    extension: types.ModuleType,
) -> None:
    shell = Shell()
    part = ExtensionsPart(shell)
    part.load(told(EXTENSION))
    shell.user_ns["pushed"] = "by a cell elsewhere"
    part.load(told())
    assert shell.user_ns == {"pushed": "by a cell elsewhere"}


def test_an_extension_without_a_way_to_unload_stays_loaded(extension: types.ModuleType) -> None:
    del extension.unload_ipython_extension
    shell = Shell()
    part = ExtensionsPart(shell)
    part.load(told(EXTENSION))
    part.load(told())
    assert shell.extension_manager.loaded == {EXTENSION}


def test_autoreload_does_not_try_again_here_what_it_has_tried_elsewhere() -> None:
    shell = Shell()
    sources = {"edited": "the text that was imported"}
    reloader = SimpleNamespace(
        enabled=False, check_all=False, autoload_obj=False, modules={}, skip_modules={}, old_objects={},
        modules_mtimes={"edited": 1.0}, deduper_reloader=SimpleNamespace(source_by_modname=sources),
    )  # fmt: skip
    shell.magics_manager.registry["AutoreloadMagics"] = SimpleNamespace(_reloader=reloader)
    ExtensionsPart(shell).load(
        encode_plain(([], [True, True, False], [[], []], {"edited": 2.0, "later": 3.0}, {}))
    )
    assert reloader.modules_mtimes == {"edited": 2.0}
    assert sources == {"edited": "the text that was imported"}
