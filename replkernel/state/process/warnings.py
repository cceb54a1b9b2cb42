"""``@warnings``: the list of warning filters, in order.

Which warnings were shown already is `warnings_shown`'s.
"""

from __future__ import annotations

import re
import sys
import types
import warnings
from collections.abc import Iterator
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


def _matched(told: object) -> Any:
    return re.compile(*told) if isinstance(told, list) else told


def category_named(module_name: str, class_name: str) -> type[Warning] | None:
    """Return an imported category of warnings by its names."""
    found: object = sys.modules.get(module_name)
    for part in class_name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, Warning) else None


# ``@warnings_shown``: which warnings of libraries were shown, so that no replica shows them once more.
#
# Python notes that in a registry of each module, and forgets all of it when any filter changes.
# Law: a cell that shows no warning costs two comparisons. This part is settled last: what else is set may
# change filters for a moment.


REGISTRY, VERSION = "__warningregistry__", "version"
ENTRIES_MAX = 2_000

Shown = list[list[Any]]
"""A module's name, and text, category's module and name, and line of each warning that it has shown."""


class _Probe(UserWarning):
    """The category of a warning that nobody sees."""


class WarningsShownPart(Part[Shown]):
    """The registries of all modules but the notebook's own, which IPython clears before each cell."""

    cid = ComponentId("@warnings_shown")

    def __init__(self) -> None:
        self._news = False
        self._probing = False
        self._version: int | None = -1
        """The number of the filters for which `_shown` holds; None while `settle` has yet to enter it."""
        self._shown: Shown = []
        self._show: Any = None
        self._listen()
        super().__init__()

    def _listen(self) -> None:
        """Be told when a warning is shown, by standing before the function that Python calls for that."""
        if self._show is not None and vars(warnings).get("_showwarnmsg") is self._hear:
            return
        self._show = vars(warnings)["_showwarnmsg"]
        vars(warnings)["_showwarnmsg"] = self._hear

    def _hear(self, message: object) -> None:
        if self._probing:
            return
        self._news = True
        self._show(message)

    def look(self) -> Shown:
        """Return what has been shown since the filters changed last."""
        if self._version is None or (not self._news and not self._shown):
            return self._shown
        version = self._present_version()
        if self._news or version != self._version:
            self._news, self._version = False, version
            self._shown = list(_entries(version))
        return self._shown

    def pack(self, seen: Shown) -> bytes | None:
        """Write it."""
        return encode_plain(seen) if seen or self._data is not None else None

    def apply(self, data: bytes) -> None:
        """Remember what was shown elsewhere; `settle` enters it."""
        self._shown = decode_plain(data)
        self._version = None

    def revert(self) -> None:
        """Do nothing: what was shown has been shown."""

    def settle(self) -> bool:
        """Make the registries say what was shown, and nothing else."""
        done = super().settle()
        if done and (self._shown or self._data is not None):
            version = self._present_version()
            if version != self._version:
                _enter(self._shown, version)
                self._version = version
            self._seen = self._shown
        return done

    def _present_version(self) -> int:
        """Return the number that Python gives to the present filters: it is put into any registry used."""
        registry: dict[Any, Any] = {}
        self._probing = True
        try:
            warnings.warn_explicit("", _Probe, "", 1, registry=registry)
        except _Probe:
            pass
        finally:
            self._probing = False
        warnings.onceregistry.pop(("", _Probe), None)  # type: ignore[attr-defined]
        return int(registry.get(VERSION, -1))


def _registries() -> Iterator[tuple[str, dict[Any, Any]]]:
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and name not in ("__main__", "__mp_main__"):
            registry = vars(module).get(REGISTRY)
            if type(registry) is dict:
                yield name, registry


def _entries(version: int) -> Iterator[list[Any]]:
    count = 0
    for name, registry in _registries():
        if registry.get(VERSION) != version:
            continue
        shown = [_shown_key(key) for key in registry if type(key) is tuple and len(key) == 3]
        told = [entry for entry in shown if entry is not None]
        count += len(told)
        if told and count <= ENTRIES_MAX:
            yield [name, told]


def _shown_key(key: tuple[Any, ...]) -> list[Any] | None:
    text, category, line = key
    if type(text) is not str or not isinstance(category, type) or type(line) is not int:
        return None
    return [text, category.__module__, category.__qualname__, line]


def _enter(shown: Shown, version: int) -> None:
    told = {str(name): entries for name, entries in shown}
    for name, registry in _registries():
        if name not in told:
            registry.clear()
    for name, entries in told.items():
        module = sys.modules.get(name)
        if not isinstance(module, types.ModuleType):
            continue
        registry = vars(module).setdefault(REGISTRY, {})
        registry.clear()
        registry[VERSION] = version
        for text, module_name, class_name, line in entries:
            category = category_named(module_name, class_name)
            if category is not None:
                registry[text, category, line] = True
