"""What the functions that a payload calls need to know of the process that rebuilds it.

A payload is a pickle; its callables take plain arguments, so the process around them is found here.
Law: there is at most one stack of loads, on the thread that rebuilds (or the deep one it waits for).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from replkernel.loaders import loader
from replkernel.state.python import finalizers
from replkernel.state.python.class_registry import ClassRegistry
from replkernel.state.restore.incoming import Incoming
from replkernel.state.seeds import Seeds
from replkernel.state.tombstone import lost


class NotInHand(Exception):
    """A payload refers to a class whose component has been received but cannot be rebuilt yet."""


class Load:
    """One payload being rebuilt: its buffers, this process's classes, and a way to demand more of them."""

    def __init__(
        self,
        seeds: Seeds,
        classes: ClassRegistry,
        buffers: Incoming,
        demand: Callable[[str], None],
        share: Callable[[Any, bytes], Any] = lambda value, name: value,
        *,
        lenient: bool = False,
    ) -> None:
        self.seeds = seeds
        self.classes = classes
        self.buffers = buffers
        self.demand = demand
        self.puts_off: list[Callable[[], Any]] | None = None
        """What fills containers when all objects are whole; None while they are filled as they come."""
        self.settle: list[Callable[[], Any]] = []
        """What is done when all containers are filled and sets have their order."""
        self.late: list[Callable[[], Any]] = []
        """What the thread that asked for the load does at its end: what belongs to a thread or context."""
        self.lenient = lenient
        """Whether what a user's hook does not load gets a tombstone, instead of failing the payload."""
        self.absent: list[Any] = []
        """The tombstones of what was not loaded, or stands on something that is not on this host."""
        self.shared: list[Any] = []
        """What the payload holds together with other components, in its order."""
        self.directories: dict[str | bytes, dict[str | bytes, os.DirEntry[Any]]] = {}
        """What was found in directories, and is not yet an entry of the payload's."""
        self.searches: dict[tuple[int, int, int, int], Any] = {}
        """By the ids of pattern and text, and its bounds: a search that finds matches again."""
        self.codes: set[bytes] = set()
        """The code objects that the payload has had so far, as bytes."""
        self._share = share
        self._watched: list[Any] = []
        """What was let go of, and a weak reference that is about to be replaced as well would tell of."""

    def share(self, value: object, name: bytes) -> Any:
        """Return this process's object for a value that several components hold."""
        found = self._share(value, name)
        self.shared.append(found)
        return found

    def fill_later(self, act: Callable[[], Any]) -> None:
        """Fill a container now, or at the end when its members may not have what they are hashed by yet."""
        if self.puts_off is None:
            act()
        else:
            self.puts_off.append(act)

    def let_go(self, values: list[Any]) -> None:
        """Keep the finalizers of what is about to be replaced from running; it lives on elsewhere."""
        if values:
            self._watched += finalizers.silence(values, self.classes.living(), self.seeds.ids)

    def finish(self) -> None:
        """Do what was left for the end."""
        for act in self.late:
            act()

    def resolve_class(self, class_id: str) -> type:
        """Return the notebook class of that id, rebuilding its component first when necessary."""
        found = self.classes.find(class_id)
        if found is None:
            self.demand(class_id)
            found = self.classes.find(class_id)
        if found is None:
            raise LookupError(f"the class {class_id.partition('@')[0]} of the notebook is not here")
        return found


_stack: list[Load] = []


@contextmanager
def active(load: Load) -> Iterator[None]:
    """Make `load` the one that the payload's callables see."""
    _stack.append(load)
    try:
        yield
    finally:
        _stack.pop()


def current() -> Load:
    """Return the load in progress."""
    return _stack[-1]


@loader("classes:resolve_class")
def resolve_class(class_id: str) -> type:
    """Return a notebook class by its id (called by payloads)."""
    return _stack[-1].resolve_class(class_id)


def absent(what: str, type_name: str, replica: str, reason: str) -> Any:
    """Return a tombstone for an object that stands on something outside, which is not on this host."""
    tombstone = lost(what, type_name, replica, 0, 0, "", reason)
    _stack[-1].absent.append(tombstone)
    return tombstone


def is_lenient() -> bool:
    """Tell whether what a user's hook does not load is to get a tombstone."""
    return bool(_stack) and _stack[-1].lenient


def take_buffer(data: bytes | int) -> Any:
    """Return in-band bytes as they are, and an out-of-band buffer by its number."""
    return _stack[-1].buffers[data] if type(data) is int else data


def fill_from(data: bytes | int, target: memoryview, own_map: int | None = None) -> None:
    """Fill memory with in-band bytes or an out-of-band buffer; `own_map` as `BlobCache.fill` says."""
    if not isinstance(data, int):
        target[:] = data
    elif type(data) is int:
        _stack[-1].buffers.fill(data, target, own_map)
    else:
        raise TypeError("a truth is no buffer's number")
