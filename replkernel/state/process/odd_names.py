"""``@odd_names``: entries of the namespace under keys that no name reaches, as of ``globals()[5] = 1``.

Law: ships nothing; what is there is told as stuck.
"""

from __future__ import annotations

from replkernel.records import ComponentId
from replkernel.state.names import Names, plain_name
from replkernel.state.process.part import Part
from replkernel.state.python.kinds import type_name

SHOWN_MAX = 10
_SHOWN = frozenset({int, float, bool, bytes, type(None)})


class OddNamesPart(Part[tuple[str, ...]]):
    """The keys of the namespace that are no names."""

    cid = ComponentId("@odd_names")

    def __init__(self, names: Names) -> None:
        self._names = names
        super().__init__()

    def look(self) -> tuple[str, ...]:
        """Return the keys as a user knows them."""
        namespace, keys = self._names.namespace, self._names.glance()
        if self._names.plain:
            return ()
        odd = [key for key in keys if key.__class__ is not str and plain_name(namespace, key) is None]
        return tuple(repr(key) if type(key) in _SHOWN else f"<{type_name(key)}>" for key in odd[:SHOWN_MAX])

    def pack(self, seen: tuple[str, ...]) -> bytes | None:
        """Tell that what they have stays here."""
        self.stuck = tuple(
            f"`globals()[{key}]` is no name: what it has stays in this process." for key in seen
        )
        return None

    def apply(self, data: bytes) -> None:
        """Do nothing: nothing is told."""
