"""``@warnings``: the list of warning filters, in order.

Which warnings were shown already is `warnings_shown`'s.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain


class WarningsPart(Part[list[Any]]):
    """``warnings.filters``.

    A category is told by its module and name; where it is not (yet) imported, its filter waits for `settle`.
    """

    cid = ComponentId("@warnings")

    def __init__(self) -> None:
        self._unresolved = False
        super().__init__()

    def look(self) -> list[Any]:
        """Return the filters: tuples that compare by identity first."""
        return list(warnings.filters)

    def pack(self, seen: list[Any]) -> bytes:
        """Write action, message, category, module and line of each filter."""
        return encode_plain([_told(entry) for entry in seen])

    def apply(self, data: bytes) -> None:
        """Replace the filters."""
        filters: list[Any] = []
        self._unresolved = False
        for action, message, (module_name, class_name), module, line in decode_plain(data):
            category = category_named(module_name, class_name)
            if category is None:
                self._unresolved = True
            else:
                filters.append((action, _matched(message), category, _matched(module), line))
        warnings.filters[:] = filters  # type: ignore[index]
        with warnings.catch_warnings():
            pass  # leaving it makes Python forget which warnings it has decided to pass over

    def settle(self) -> bool:
        """Resolve categories whose modules have been imported since `load`, unless the filters changed."""
        if self._unresolved and not self._waiting and self._data is not None and self.look() == self._seen:
            self._waiting = True
        return super().settle()


def _told(entry: Any) -> tuple[Any, ...]:
    action, message, category, module, line = entry
    return action, _pattern(message), (category.__module__, category.__qualname__), _pattern(module), line


def _pattern(pattern: Any) -> Any:
    """Return what a filter matches: None for all, text literally, or a compiled expression with its flags."""
    return pattern if pattern is None or isinstance(pattern, str) else (pattern.pattern, pattern.flags)


def _matched(told: Any) -> Any:
    return re.compile(*told) if isinstance(told, list) else told


def category_named(module_name: str, class_name: str) -> type[Warning] | None:
    """Return an imported category of warnings by its names."""
    found: Any = sys.modules.get(module_name)
    for part in class_name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Warning) else None
