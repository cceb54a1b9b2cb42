"""``@ipython_extensions``: extensions that the notebook loaded, and the mode of autoreload.

Law: `load` imports nothing that is not there; `settle` loads what is left.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.libraries.ipython.places import MODULE as SHELL_MODULE
from replkernel.state.patches import imported_sources
from replkernel.state.patches.book import book
from replkernel.state.patches.own_modules import held_by_modules, is_own
from replkernel.state.patches.strays import registered
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain
from replkernel.state.python.kinds import kind_of

log = logging.getLogger(__name__)

AUTORELOAD_MODES = {
    (False, False, False): "off",
    (True, False, False): "explicit",
    (True, True, False): "all",
    (True, True, True): "complete",
}


class ExtensionsPart(Part[tuple[Any, ...]]):
    """``%load_ext`` and ``%autoreload`` with its ``%aimport`` lists."""

    cid = ComponentId("@ipython_extensions")

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._order: list[str] = []
        self._modules = len(sys.modules)
        self._timed = 0
        self._edited: list[str] = []
        self._told: tuple[dict[str, float], dict[str, str]] | None = None
        self._may_import = False
        super().__init__()

    def look(self) -> tuple[Any, ...]:
        """Return the loaded extensions and autoreload's mode."""
        loaded = self._shell.extension_manager.loaded
        reloader = self._reloader() if loaded else None
        if reloader is None:
            return (frozenset(loaded), None)
        mode = (reloader.enabled, reloader.check_all, reloader.autoload_obj)
        watched = tuple(sorted(reloader.modules)), tuple(sorted(reloader.skip_modules))
        return (frozenset(loaded), mode, *watched, self._times(reloader), self._texts(reloader))

    def pack(self, seen: tuple[Any, ...]) -> bytes:
        """Write the extensions in the order in which they were first seen."""
        loaded, mode, *watched = seen
        self._order = [name for name in self._order if name in loaded]
        self._order.extend(sorted(name for name in loaded if name not in self._order))
        texts = dict(watched.pop()) if watched else {}
        times = dict(watched.pop()) if watched else {}
        return encode_plain(
            (self._order, None if mode is None else [*map(bool, mode)], watched, times, texts)
        )

    def ready(self) -> bool:
        """Tell whether everything that `load` named is imported already."""
        if self._may_import or not self._waiting or self._data is None:
            return True
        return all(name in sys.modules for name in decode_plain(self._data)[0])

    def settle(self) -> bool:
        """Load the extensions that are left, importing them."""
        if self._waiting and self._data is not None:
            self._may_import = True
        done = super().settle()
        self._may_import = False
        if self._shell.extension_manager.loaded and len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._note_imports()
        self._settle_times()
        self._settle_texts()
        return done

    def _settle_texts(self) -> None:
        """Have autoreload know the texts that modules were imported from: a file may have another by now."""
        deduper: Any = getattr(self._reloader(), "deduper_reloader", None)
        for name, text in imported_sources.texts.items() if deduper is not None else ():
            if name in sys.modules:
                deduper.source_by_modname.setdefault(name, text.decode(errors="replace"))

    def _settle_times(self) -> None:
        """Have autoreload know of the modules that were rebuilt what it knew of them elsewhere."""
        reloader = self._reloader() if self._told is not None else None
        if reloader is None:
            return
        self._set_times(reloader)
        self._told = None
        named = registered()
        for value in [*self._shell.user_ns.values(), *held_by_modules()] if named else ():
            name, module = getattr(value, "__name__", ""), getattr(value, "__module__", "")
            if (
                kind_of(value) in (type, types.FunctionType)
                and (scope := _scope_of(module, named)) is not None
            ):
                known = reloader.old_objects.setdefault((module, name), [])
                if scope.get(name) is not value and all(held() is not value for held in known):
                    known.append(weakref.ref(value))
        self._seen = self.look()

    def _note_imports(self) -> None:
        """Have autoreload learn the times of modules that were imported while state was rebuilt.

        It would take them after the cell, which may have changed their files by then.
        """
        note = getattr(self._shell.magics_manager.registry.get("AutoreloadMagics"), "post_execute_hook", None)
        if note is not None:
            with contextlib.suppress(Exception):
                note()
            self._seen = self.look()

    def apply(self, data: bytes) -> None:
        """Load and unload extensions, then set autoreload's mode."""
        names, mode, watched, times, texts = decode_plain(data)
        self._order = list(names)
        self._load_extensions(names)
        self._unload_extensions([name for name in self._shell.extension_manager.loaded if name not in names])
        reloader = self._reloader()
        if reloader is None or mode is None:
            return
        reloader.enabled, reloader.check_all, reloader.autoload_obj = mode
        modules, skipped = watched
        reloader.modules.update(dict.fromkeys(modules, True))
        reloader.skip_modules.update(dict.fromkeys(skipped, True))
        self._told = times, texts
        self._set_times(reloader)

    def _times(self, reloader: Any) -> tuple[tuple[str, float], ...]:
        """Return the times that autoreload knows of the files of modules that no installation owns."""
        times = reloader.modules_mtimes
        if len(times) != self._timed:
            self._timed = len(times)
            self._edited = sorted(name for name in times if is_own(name))
        return tuple([(name, times[name]) for name in self._edited if name in times])

    def _texts(self, reloader: Any) -> tuple[tuple[str, str], ...]:
        """Return the texts of the modules that it reloaded, as it knows them."""
        sources = getattr(getattr(reloader, "deduper_reloader", None), "source_by_modname", {})
        return tuple([(name, sources[name]) for name, _ in registered() if name in sources])

    def _set_times(self, reloader: Any) -> None:
        """Have autoreload believe here what it does elsewhere of modules that were imported or rebuilt here.

        It takes a file's present time and text for that of the code, though it may have been edited between.
        Where it has tried a file in vain, it is not to try that again.
        """
        times, texts = self._told or ({}, {})
        sources = getattr(getattr(reloader, "deduper_reloader", None), "source_by_modname", {})
        strays = {name for name, _ in registered()}
        for name, time in times.items():
            if name in strays:
                reloader.modules_mtimes[name] = time
                sources[name] = texts.get(name, "")
            elif time > reloader.modules_mtimes.get(name, time):
                reloader.modules_mtimes[name] = time
            elif time < reloader.modules_mtimes.get(name, 0.0):
                reloader.modules_mtimes[name] = time
                sources[name] = imported_sources.texts.get(name, b"").decode(errors="replace")

    def _load_extensions(self, names: list[str]) -> None:
        manager = self._shell.extension_manager
        failed: list[str] = []
        for name in names:
            if name in manager.loaded:
                continue
            try:
                with contextlib.redirect_stdout(io.StringIO()), self._state_as_it_is():
                    manager.load_extension(name)
            except Exception as error:
                failed.append(f"{name} ({type(error).__name__}: {error})")
        if failed:
            self.trouble = (
                f"The IPython extensions {', '.join(failed)} cannot be loaded on this host; install them."
            )

    def _unload_extensions(self, names: list[str]) -> None:
        """Unload extensions that were unloaded elsewhere.

        What one would take back may be gone already, for the shell's tables come as well, in any order. So
        it counts as unloaded however its own code ends.
        """
        manager = self._shell.extension_manager
        for name in names:
            try:
                with contextlib.redirect_stdout(io.StringIO()), self._state_as_it_is():
                    manager.unload_extension(name)
            except Exception as error:
                log.info("The extension %s did not take back all of itself: %r", name, error)
                manager.loaded.discard(name)

    @contextlib.contextmanager
    def _state_as_it_is(self) -> Iterator[None]:
        """Take back what an extension changes in the namespace, and where the notebook changed the shell.

        Both come from elsewhere.
        """
        namespace = self._shell.user_ns
        before = dict(namespace)
        try:
            with book.as_it_is(SHELL_MODULE):
                yield
        finally:
            for name in [name for name in namespace if name not in before]:
                del namespace[name]
            for name, value in before.items():
                if namespace.get(name) is not value:
                    namespace[name] = value

    def _reloader(self) -> Any:
        magics = self._shell.magics_manager.registry.get("AutoreloadMagics")
        return getattr(magics, "_reloader", None)


def _scope_of(module: object, named: list[tuple[str, types.ModuleType]]) -> dict[str, Any] | None:
    return next((vars(held) for name, held in named if name == module), None)
