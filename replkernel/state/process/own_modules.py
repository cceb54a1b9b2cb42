"""``@own_modules``: the texts that the user's modules were imported from, and are imported from elsewhere.

Law: a module is imported anew only where another one of its name was; its data follows, strays go by value.
"""

from __future__ import annotations

import importlib
import sys
import zlib

from replkernel.records import ComponentId
from replkernel.state.patches import imported_sources, strays
from replkernel.state.patches.own_modules import is_own, own_modules
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain
from replkernel.state.restore.suppressed_output import unheard


class OwnModulesPart(Part[dict[str, tuple[bytes, str]]]):
    """The texts of the modules that the user wrote."""

    cid = ComponentId("@own_modules")

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
        with imported_sources.at_hand(), unheard():
            for name in other:
                importlib.import_module(name)

    def settle(self) -> bool:
        """Look at what was imported meanwhile, before a cell can change it."""
        strays.look()
        return super().settle()
