"""``@modules``: which modules the notebook has imported since birth, in order.

Law: `load` imports nothing, it only remembers; `import_all` imports, and a module that fails is passed over.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from itertools import islice
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.patches import imported_sources, strays
from replkernel.state.patches.book import book
from replkernel.state.patches.imported_sources import at_hand
from replkernel.state.patches.looks import DEBUGGERS
from replkernel.state.patches.own_modules import is_own, own_modules
from replkernel.state.patches.places import place_of_module
from replkernel.state.patches.strays import is_loaded_by_notebook, registered
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain
from replkernel.state.restore.suppressed_output import nothing_shown

OWN_ROOTS = frozenset({
    "IPython", "__main__", "__mp_main__", "astroid", "asttokens", "comm", "executing", "ipykernel",
    "jedi", "jupyter_client", "jupyter_core", "parso", "prompt_toolkit", "pure_eval", "pyfastcdc", "pygments",
    "replkernel", "stack_data", "tornado", "traitlets", "wcwidth", "zmq",
})  # fmt: skip
"""What the kernel itself imports, late or early; a notebook's own use of these travels by its variables."""

MODULES_MAX = 20_000

NEWEST = 8
"""So many of the newest modules are looked at to see whether there are new ones."""


class ModulesPart(Part[list[str]]):
    """The modules of ``sys.modules`` that were not there at birth.

    `import_errors` says of each module of the last `import_all` that failed why it did.
    """

    cid = ComponentId("@modules")

    def __init__(self) -> None:
        self._stamp: tuple[Any, ...] = ()
        self._names: list[str] = []
        self._remembered: dict[str, None] = {}
        self._missing: list[str] = []
        self.import_errors: dict[str, str] = {}
        super().__init__()
        self._birth = frozenset(self._seen or ())

    @property
    def missing(self) -> tuple[str, ...]:
        """The remembered modules that `import_all` has yet to try, in order."""
        return tuple(name for name in self._missing if name not in sys.modules)

    def look(self) -> list[str]:
        """Return the names of all modules, in the order of their import.

        While their number and the newest of them are the same, no copy is made: an import adds at the end.
        """
        stamp = (len(sys.modules), *islice(reversed(sys.modules), NEWEST))
        if stamp != self._stamp:
            self._stamp, self._names = stamp, list(sys.modules)
        strays = {name for name, _ in registered()}
        return [name for name in self._names if name not in strays] if strays else self._names

    def pack(self, seen: list[str]) -> bytes | None:
        """Write the remembered names and those that came since birth, compressed."""
        for name, _ in registered():
            self._remembered.pop(name, None)
        for name in seen:
            if name not in self._birth and name not in self._remembered and _travels(name):
                self._remembered[name] = None
        if not self._remembered:
            return None
        names = list(self._remembered)[:MODULES_MAX]
        return zlib.compress(encode_plain(names), 1)

    def apply(self, data: bytes) -> None:
        """Remember the names in their order, without importing anything."""
        names = decode_plain(zlib.decompress(data))
        self._remembered = dict.fromkeys([*names, *self._remembered])
        self._missing = [
            name
            for name in self._remembered
            if name not in sys.modules and not book.knows(place_of_module(name).root())
        ]

    def import_all(self) -> tuple[str, ...]:
        """Import what is remembered and not there; return the names that could not be imported.

        A failing import is tried again only after the next `load`.
        """
        missing, self._missing = self._missing, []
        failed: list[str] = []
        for name in missing:
            if name in sys.modules or book.knows(place_of_module(name).root()):
                continue
            try:
                with at_hand(), nothing_shown():
                    importlib.import_module(name)
            except (Exception, SystemExit) as error:
                failed.append(name)
                self.import_errors[name] = f"{type(error).__name__}: {error}"
        if missing:
            self._seen = self.look()
        return tuple(failed)


def _travels(name: str) -> bool:
    """Tell whether a module is the notebook's and can be imported by its name.

    The private submodules of a package come with its public ones.
    """
    root, _, below = name.partition(".")
    if root in OWN_ROOTS or root.startswith(DEBUGGERS):
        return False
    if any(part.startswith("_") for part in below.split(".") if below):
        return False
    module = sys.modules.get(name)
    if is_loaded_by_notebook(module):
        return False
    try:
        spec = object.__getattribute__(module, "__dict__").get("__spec__")
    except AttributeError:
        return False
    return spec is not None and getattr(spec, "name", None) == name and not name.startswith("_virtualenv")


# ``@own_modules``: the texts that the user's modules were imported from, and are imported from elsewhere.
#
# Law: a module is imported anew only where another one of its name was; its data follows, strays go by value.


class OwnModulesPart(Part[dict[str, tuple[bytes, str]]]):
    """The texts of the modules that the user wrote; those imported after a point are not there before it."""

    cid = ComponentId("@own_modules")

    def __init__(self) -> None:
        self._told: frozenset[str] = frozenset()
        """The modules that were last told."""
        self._taken_out: set[str] = set()
        """Those that were taken out on the way back to a point before their import."""
        super().__init__()

    def look(self) -> dict[str, tuple[bytes, str]]:
        """Return text and file of each module that does not stray."""
        strays.look()
        texts, files = imported_sources.texts, imported_sources.files
        return {
            name: (texts[name], files[name])
            for name, module in own_modules()
            if name in texts and not strays.is_stray(module)
        }

    def pack(self, seen: dict[str, tuple[bytes, str]]) -> bytes | None:
        """Write the texts, compressed."""
        return zlib.compress(encode_plain(seen), 1) if seen or self._data is not None else None

    def apply(self, data: bytes) -> None:
        """Know the texts; import those modules anew that were made from others here."""
        decoded: dict[str, tuple[bytes, str]] = decode_plain(zlib.decompress(data))
        told = {name: text for name, (text, _) in decoded.items()}
        self._told = frozenset(told)
        texts = imported_sources.texts
        other = [
            name
            for name, text in told.items()
            if (module := sys.modules.get(name)) is not None
            and is_own(name)
            and (strays.is_stray(module) or texts.get(name, text) != text)
        ]
        texts.update(told)
        imported_sources.files.update({name: file for name, (_, file) in decoded.items()})
        for name in other:
            del sys.modules[name]
            strays.begin_anew(name)
        other += [name for name in told if name in self._taken_out and name not in sys.modules]
        self._taken_out.difference_update(told)
        with imported_sources.at_hand(), nothing_shown():
            for name in other:
                importlib.import_module(name)

    def revert(self) -> None:
        """Have none of them, as at birth."""
        self._told = frozenset()

    def look_anew(self) -> None:
        """Take out what is not of the point that the process went back to: an import makes it anew."""
        texts = imported_sources.texts
        for name, module in own_modules():
            if name in texts and name not in self._told and not strays.is_stray(module):
                del sys.modules[name]
                strays.begin_anew(name)
                self._taken_out.add(name)

    def settle(self) -> bool:
        """Look at what was imported meanwhile, before a cell can change it."""
        strays.look()
        return super().settle()
