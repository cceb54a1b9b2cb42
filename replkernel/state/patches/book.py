"""The places in libraries that the notebook changed: their values travel, and go where the notebook goes.

What a library had at a place first is kept, so that a change taken back elsewhere is taken back here, and so
that a variable which holds the library's own object refers to the library's own on every replica.
Law: one book a process, as libraries are the process's; it holds library objects and pending values only.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from replkernel.loaders import loader
from replkernel.state.patches import places, registries
from replkernel.state.patches.places import PREFIX, Absent, Place
from replkernel.state.python.kinds import is_a, kind_of

UNKNOWN = places.UNKNOWN
"""What a library had at a place that was changed in the cell that imported it."""

_BY_TOKEN = (type, types.FunctionType, types.BuiltinFunctionType)


class Book:
    """The changed places by root.

    `waits` tells that modules are still to be imported, `look` finds changes, `at_once` tells what
    need not wait, `is_users` whether the user wrote a module: whatever its variables hold is told, for
    what they held first is another list on each replica, and unknown where the notebook imported it.
    """

    def __init__(self) -> None:
        self.waits: Callable[[], bool] = _never
        self.look: Callable[[], None] = _nothing
        self.at_once: Callable[[Any], bool] = _not_at_once
        self.is_users: Callable[[str], bool] = _is_nobodys
        self.notes: dict[str, None] = {}
        """Sentences about changes that cannot travel."""
        self._places: dict[str, Place] = {}
        self._originals: dict[str, Any] = {}
        self._tokens: dict[int, str] = {}
        self._pending: dict[str, Any] = {}
        self._put_here: set[str] = set()
        """The places whose changes have been made in this process."""
        self.troubles: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._places)

    def over(self, namespace: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the variables and the changed places under one roof."""
        return {**namespace, **values}

    def knows(self, root: str) -> bool:
        """Tell whether a place is in the book."""
        return root in self._places

    def enter(self, place: Place, original: object) -> None:
        """Note that the notebook changed a place, which held `original` before."""
        root = place.root()
        if root not in self._places:
            self._places[root] = place
            self._put_here.add(root)
            self._keep(root, original)

    def values(self) -> dict[str, Any]:
        """Look for changes, and return the value of every changed place by its root."""
        self.look()
        for place, first in registries.changed_places():
            self.enter(place, first)
        found = self.present()
        for root in self._places.keys() - found.keys():
            self._forget(root)
        return found

    def present(self) -> dict[str, Any]:
        """Return the value of every changed place, passing over those that are as they were."""
        found: dict[str, Any] = {}
        for root, place in list(self._places.items()):
            if root in self._pending:
                found[root] = self._pending[root]
                continue
            value = places.read(place)
            if not _is_as_before(place, value, self._originals[root]):
                found[root] = value
        return found

    def bind(self, root: str, value: object) -> None:
        """Put what another replica has at a place: at once, or when the notebook's modules are imported."""
        place = places.place_of(root)
        if place.module not in sys.modules or (self.waits() and not self.at_once(value)):
            self._places.setdefault(root, place)
            self._find_original(root, place)
            self._keep(root, _first(place, self._originals[root], value))
            self._pending[root] = value
        else:
            # What came before the module was imported, and was not put yet, is older.
            self._pending.pop(root, None)
            if not self._put(root, place, value):
                self._places[root] = place
                self._pending[root] = value

    def let_go(self, module: str) -> None:
        """Forget the places of a module that travels by value."""
        for root in [root for root, place in self._places.items() if place.module == module]:
            self._forget(root)

    def settle(self) -> None:
        """Put what `bind` put off, and what failed: once more after the others, on which it may depend."""
        pending, self._pending = self._pending, {}
        failed = [
            root for root, value in pending.items() if not self._put(root, places.place_of(root), value)
        ]
        for root in failed:
            self._put(root, places.place_of(root), pending[root])

    @contextmanager
    def as_it_is(self, module: str) -> Iterator[None]:
        """Keep what the places of a module hold from what is called now and would set them up anew."""
        known = [(root, place) for root, place in self._places.items() if place.module == module]
        before = [(place, places.read(place)) for root, place in known if root not in self._pending]
        try:
            yield
        finally:
            for place, value in before:
                if value is not Absent and not _is_as_before(place, places.read(place), value):
                    places.put(place, value)

    def restore(self, root: str) -> None:
        """Take back a change that was taken back elsewhere."""
        place, original = self._places.get(root), self._originals.get(root, UNKNOWN)
        waiting = self._pending.pop(root, None) is not None
        # What waits for an import is not there yet, but an older value may be.
        changed = not waiting or root in self._put_here
        if place is not None and changed and original is not UNKNOWN:
            try:
                if original is Absent:
                    places.remove(place)
                else:
                    places.put(place, original)
            except Exception as error:
                self._trouble(place, error)
        self._forget(root)

    def clear(self) -> None:
        """Take back every change."""
        for root in list(self._places):
            self.restore(root)
        self.notes.clear()
        self.troubles.clear()

    # -- originals -----------------------------------------------------------------------------------

    def token_of(self, value: object) -> str | None:
        """Return the root of the place that held `value` in its library; None for all other objects."""
        return self._tokens.get(id(value)) or registries.FIRST_ROOTS.get(id(value))

    def is_patched(self, module: str, qualname: str) -> bool:
        """Tell whether an import finds the notebook's under a qualified name, and not the library's own."""
        owner, _, name = qualname.rpartition(".")
        return Place(places.ATTRIBUTE, module, owner, name).root() in self._places

    def original(self, root: str) -> Any:
        """Return what this process's library has at a place by itself."""
        place = places.place_of(root)
        if place.module not in sys.modules:
            __import__(place.module)
        self._find_original(root, place)
        original = registries.FIRSTS.get(root, self._originals[root])
        if original is UNKNOWN or original is Absent:
            raise LookupError(f"{place.root()} is not here")
        return original

    def held(self, root: str) -> Any:
        """Return what is at a place, or will be once it is put there."""
        value = self._pending[root] if root in self._pending else places.read(places.place_of(root))
        if value is Absent:
            raise LookupError(f"{root} is not here yet")
        return value

    def _find_original(self, root: str, place: Place) -> None:
        """Keep what a place holds before the notebook's change of it comes here."""
        if self._originals.get(root, UNKNOWN) is UNKNOWN:
            there = place.module in sys.modules and (root not in self._places or root not in self._put_here)
            self._keep(root, places.read(place) if there else UNKNOWN)

    def _put(self, root: str, place: Place, value: object) -> bool:
        """Make a value what is at a place; tell whether that could be done."""
        try:
            original = places.read(place)
            known = self._originals.get(root, UNKNOWN)
            if value is Absent:
                places.remove(place)
            else:
                places.put(place, value)
        except Exception as error:
            self._trouble(place, error)
            self._forget(root)
            return False
        self.troubles.pop(root, None)
        self._places[root] = place
        if known is UNKNOWN and root not in self._put_here:
            self._keep(root, _first(place, original, value))
        self._put_here.add(root)
        return True

    def _trouble(self, place: Place, error: Exception) -> None:
        self.troubles[place.root()] = (
            f"{place.root()} could not be changed on this replica as the notebook changed it "
            f"({type(error).__name__}: {error})."
        )

    def _keep(self, root: str, original: object) -> None:
        by_token = is_a(original, _BY_TOKEN) and original is not Absent
        if not by_token and self.is_users(places.place_of(root).module):
            original = UNKNOWN
        self._originals[root] = original
        if by_token:
            # Several places may have held it: each replica tells it by the same of them.
            self._tokens[id(original)] = min(root, self._tokens.get(id(original), root))

    def _forget(self, root: str) -> None:
        self._places.pop(root, None)
        self._pending.pop(root, None)
        self._put_here.discard(root)
        original = self._originals.pop(root, None)
        if self._tokens.get(id(original)) == root:
            del self._tokens[id(original)]
            others = [other for other, held in self._originals.items() if held is original]
            if others:
                self._tokens[id(original)] = min(others)


def _first(place: Place, original: object, value: object) -> Any:
    """Return what a library had first, when rebuilding or an import may have put `value` there already."""
    if not _is_as_before(place, value, original):
        return original
    return Absent if place.kind == places.ITEM and value is not Absent else UNKNOWN


def _is_as_before(place: Place, value: Any, original: Any) -> bool:
    """Tell whether a place holds what it held first; a list made for the reading is told by what is in it."""
    if value is original:
        return True
    held = place.kind in (places.ATTRIBUTE, places.ITEM)
    if type(value) is type(original) and (type(value) is tuple or not held):
        if is_a(value, (tuple, list)):
            return len(value) == len(original) and all(map(_is, value, original))
        if is_a(value, set):
            return set(map(id, value)) == set(map(id, original))
    return type(value) is type(original) and kind_of(value) in places.PLAIN and bool(value == original)


def _is(one: object, other: object) -> bool:
    return one is other


def _never() -> bool:
    return False


def _not_at_once(_value: object) -> bool:
    return False


def _is_nobodys(_module: str) -> bool:
    return False


def _nothing() -> None:
    """Find nothing."""


book = Book()
"""The book of this process."""


@loader("patches:original")
def original(root: str) -> Any:
    """Return a library's own object, though the notebook put another in its place (called by payloads)."""
    return book.original(root)


def is_place(root: str) -> bool:
    """Tell whether a name of a component is that of a place."""
    return root.startswith(PREFIX)
