"""The shape that the built-in process parts share: look, compare with the last look, pack when it differs.

Law: a part says nothing until the process differs from its birth, and from then on it always says something,
so that a change back to the first value travels as well. After `load`, `dump` returns the loaded bytes until
something changes. Looking and packing change nothing in the process; neither raises.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import compress, starmap
from operator import is_not
from typing import Any, ClassVar, Generic, TypeVar

from replkernel.records import ComponentId
from replkernel.state.process.plain import decode_plain, encode_plain, is_plain

Seen = TypeVar("Seen")

_NUMBERS = frozenset({bool, int, float})


def are_equal(first: object, second: object) -> bool:
    """Tell whether settings are equal: an array in one cannot say so, and counts as changed.

    True is not 1 and 0.0 not -0.0, for a notebook sees which of them it has.
    """
    try:
        return bool(first == second) and _are_alike(first, second)
    except Exception:
        return False


def _are_alike(first: Any, second: Any) -> bool:
    """Tell whether equal settings have the same numbers; as a rule most are the very same objects."""
    kind = type(first)
    if kind is not type(second):
        return not _NUMBERS.issuperset((kind, type(second)))
    if kind is dict:
        first, second = first.values(), list(map(second.__getitem__, first))
    elif kind is not list and kind is not tuple:
        return kind is not float or math.copysign(1.0, first) == math.copysign(1.0, second)
    return all(starmap(_are_alike, compress(zip(first, second, strict=True), map(is_not, first, second))))


class Part(ABC, Generic[Seen]):
    """One part of the process's state.

    `stuck` are sentences about what the part saw and cannot carry, as of the last `dump`: each is a reason
    to stay on this replica. `trouble` is the sentence of the last `load` that could not be followed.
    """

    cid: ClassVar[ComponentId]
    library: ClassVar[str] = ""
    """The module that must have been imported before the part has anything to look at."""

    def __init__(self) -> None:
        self.stuck: tuple[str, ...] = ()
        self.trouble = ""
        self._data: bytes | None = None
        self._waiting = False
        self._unreadable = False
        self._modules_at_load: int | None = None
        self._at_birth: bytes | None = None
        self._seen: Seen | None = self._look_if_ready()

    @abstractmethod
    def look(self) -> Seen | None:
        """Return a value that is equal to the last one exactly when nothing changed; None: nothing to see."""

    @abstractmethod
    def pack(self, seen: Seen) -> bytes | None:
        """Return the bytes that bring another process to `seen`; None: nothing that can travel."""

    @abstractmethod
    def apply(self, data: bytes) -> None:
        """Bring this process to what `pack` wrote elsewhere."""

    def ready(self) -> bool:
        """Tell whether the library that the part speaks of is imported."""
        return not self.library or self.library in sys.modules

    def dump(self) -> bytes | None:
        """Return the part's state as bytes; None while nothing differs from this process's birth."""
        if self._waiting and not self._apply_waiting():
            return self._data
        if not self.ready():
            return self._data
        try:
            seen = self.look()
            if self._unreadable:
                self._unreadable, self.stuck = False, ()
            if seen is self._seen or are_equal(seen, self._seen):
                return self._data
            self._note_birth()
            self._seen = seen
            if seen is not None:
                self._data = self.pack(seen) or self._data
        except Exception as error:
            self._unreadable = True
            self.stuck = (f"The state of {self.cid[1:]} cannot be read ({type(error).__name__}: {error}).",)
        return self._data

    def load(self, data: bytes) -> None:
        """Take over another process's bytes: at once, or as soon as the library they are for is imported."""
        if data == self._data and not self._waiting and self.dump() == data:
            return
        self._note_birth()
        self._data = data
        self._waiting = True
        self._modules_at_load = len(sys.modules)
        self._apply_waiting()

    def _note_birth(self) -> None:
        """Keep what the process had at birth before the first change to it: the history goes back there."""
        if self._data is not None or self._at_birth is not None or self._seen is None:
            return
        self._data = b""  # A part that has said something says so when there is nothing any more.
        try:
            self._at_birth = self.pack(self._seen)
        except Exception:
            self._at_birth = None
        finally:
            self._data = None

    def revert(self) -> None:
        """Bring the process back to what it was at birth, where that is known."""
        if self._at_birth is not None:
            self.load(self._at_birth)

    def look_anew(self) -> None:
        """Have the next `dump` say all that others need who have not gone back."""

    def settle(self) -> bool:
        """Apply what `load` had to put off, before user code runs; return True when nothing is left.

        What was loaded is applied once more when modules were imported meanwhile: an import may add
        warning filters, set variables or draw random numbers.
        """
        if self._modules_at_load is not None and self._modules_at_load != len(sys.modules):
            self._waiting = self._data is not None
        self._modules_at_load = None
        return self._apply_waiting()

    def _apply_waiting(self) -> bool:
        if not self._waiting:
            return True
        if self._data is None or not self.ready():
            return False
        self._waiting = False
        self.trouble = ""
        try:
            self.apply(self._data)
        except Exception as error:
            self.trouble = f"The state of {self.cid[1:]} could not be set ({type(error).__name__}: {error})."
        self._seen = self._look_if_ready()
        return True

    def _look_if_ready(self) -> Seen | None:
        if not self.ready():
            return None
        try:
            return self.look()
        except Exception:
            return None


class OptionsPart(Part[dict[str, Any]]):
    """A part that is a mapping of settings, of which only those travel that differ from a reference.

    A setting that was told once is told for ever, also when it is back at its reference value. A setting
    that vanished is told as removed.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()
        super().__init__()
        self._birth: dict[str, Any] = dict(self._seen or {})

    @abstractmethod
    def put(self, changed: Mapping[str, Any], removed: Iterable[str]) -> None:
        """Set the settings of `changed` and remove those of `removed`."""

    def reference(self) -> Mapping[str, Any]:
        """Return what every process starts from: by default the settings at this process's birth."""
        return self._birth

    def to_plain(self, name: str, value: object) -> Any:
        """Return the plain form of a setting; a value that is not plain stays behind and is told as stuck."""
        return value

    def revert(self) -> None:
        """Put back what every process starts from, as far as it was told otherwise."""
        reference = self.reference()
        told = {name: self.to_plain(name, reference[name]) for name in self._told if name in reference}
        self.put(told, [name for name in self._told if name not in reference])
        self.look_anew()

    def look_anew(self) -> None:
        """Have the next `dump` pack all that was ever told: what was loaded may say less."""
        self._seen = None

    def pack(self, seen: dict[str, Any]) -> bytes | None:
        """Write the settings that differ from the reference, and those told before."""
        reference = self.reference()
        changed: dict[str, Any] = {}
        stuck: list[str] = []
        for name, value in seen.items():
            if name not in self._told and name in reference and are_equal(reference[name], value):
                continue
            plain = self.to_plain(name, value)
            if is_plain(plain):
                changed[name] = plain
            else:
                stuck.append(f"The {self.cid[1:]} setting {name!r} holds a {type(value).__name__}.")
        removed = sorted(name for name in {*reference, *self._told} if name not in seen)
        self.stuck = tuple(stuck)
        self._told.update(changed, removed)
        return encode_plain((changed, removed)) if changed or removed else None

    def apply(self, data: bytes) -> None:
        """Set what another process told."""
        changed, removed = decode_plain(data)
        self._told.update(changed, removed)
        self.put(changed, removed)
