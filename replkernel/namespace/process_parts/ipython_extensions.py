"""``@ipython_extensions``: extensions that the notebook loaded, and the mode of autoreload.

Law: `load` imports nothing that is not there; `settle` loads what is left.
"""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any

from replkernel.namespace.process_parts.part import Part
from replkernel.namespace.process_parts.plain import decode_plain, encode_plain
from replkernel.records import ComponentId

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
        return (frozenset(loaded), mode, *watched)

    def pack(self, seen: tuple[Any, ...]) -> bytes:
        """Write the extensions in the order in which they were first seen."""
        loaded, mode, *watched = seen
        self._order = [name for name in self._order if name in loaded]
        self._order.extend(sorted(name for name in loaded if name not in self._order))
        return encode_plain((self._order, None if mode is None else [*map(bool, mode)], watched))

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
        return done

    def apply(self, data: bytes) -> None:
        """Load and unload extensions, then set autoreload's mode."""
        names, mode, watched = decode_plain(data)
        manager = self._shell.extension_manager
        self._order = list(names)
        self._load_extensions(names)
        with contextlib.redirect_stdout(io.StringIO()):
            for name in [name for name in manager.loaded if name not in names]:
                manager.unload_extension(name)
        reloader = self._reloader()
        if reloader is None or mode is None:
            return
        reloader.enabled, reloader.check_all, reloader.autoload_obj = mode
        modules, skipped = watched
        reloader.modules.update(dict.fromkeys(modules, True))
        reloader.skip_modules.update(dict.fromkeys(skipped, True))

    def _load_extensions(self, names: list[str]) -> None:
        manager = self._shell.extension_manager
        failed: list[str] = []
        for name in names:
            if name in manager.loaded:
                continue
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    manager.load_extension(name)
            except Exception as error:
                failed.append(f"{name} ({type(error).__name__}: {error})")
        if failed:
            self.trouble = (
                f"The IPython extensions {', '.join(failed)} cannot be loaded on this host; install them."
            )

    def _reloader(self) -> Any:
        magics = self._shell.magics_manager.registry.get("AutoreloadMagics")
        return getattr(magics, "_reloader", None)
