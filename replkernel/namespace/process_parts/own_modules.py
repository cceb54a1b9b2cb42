"""``@own_modules``: which code the user's modules run, so that a module reloaded here is reloaded elsewhere.

Law: a module is reloaded only where it was imported before and its code differs; its data follows it.
"""

from __future__ import annotations

import importlib
import sys

from replkernel.namespace.patches.own_modules import code_digest, own_modules
from replkernel.namespace.process_parts.part import Part
from replkernel.namespace.process_parts.plain import decode_plain, encode_plain
from replkernel.records import ComponentId


class OwnModulesPart(Part[dict[str, str]]):
    """The digests of the code of the modules that the user wrote."""

    cid = ComponentId("@own_modules")

    def look(self) -> dict[str, str]:
        """Return the digest of each module's code."""
        return {name: code_digest(module) for name, module in own_modules()}

    def pack(self, seen: dict[str, str]) -> bytes | None:
        """Write the digests."""
        return encode_plain(seen) if seen or self._data is not None else None

    def apply(self, data: bytes) -> None:
        """Reload the modules whose code is another one here; raise when that does not help."""
        stale = []
        for name, digest in decode_plain(data).items():
            module = sys.modules.get(name)
            if module is None or code_digest(module) == digest:
                continue
            importlib.invalidate_caches()
            if code_digest(importlib.reload(module)) != digest:
                stale.append(name)
        if stale:
            raise ImportError(f"the file of {', '.join(stale)} has changed since the notebook imported it")
