"""What a kind of object store must offer: whole objects under keys, and faults told in plain words.

A backend knows one library and nothing of digests, kernels or settings; `ObjectStore` knows the rest.
Law: an object is seen whole or not at all, every call returns within bounded time, and no library's own
exception leaves a backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol, runtime_checkable

CONNECT_TIMEOUT_S = 4.0
"""A server that has not taken a connection after so long cannot be reached."""

ANSWER_TIMEOUT_S = 20.0
"""A server that has been silent for so long does not answer."""

OBJECT_BYTES_MAX = 64 * 2**20
"""No object is larger; what is larger is not read, for somebody else may have put it there."""

ATTEMPTS = 2
"""A call is tried so often before it fails; waiting longer is for whoever calls."""


class Backend(Protocol):
    """A flat space of objects. Keys are segments of letters, digits, ``.``, ``_``, ``-``, joined by ``/``.

    Every method may raise StoreFault. Methods are called from several threads at once.
    """

    warning: str
    """A sentence for the user about what this kind of store cannot do; empty for most."""

    def put(self, key: str, data: bytes) -> None:
        """Store `data` under `key`, in place of what was there."""

    def put_file(self, key: str, path: Path, data: bytes) -> None:
        """Store the file at `path`, whose bytes are `data`, by whatever way is cheapest."""

    def settle(self) -> None:
        """Return when everything that was put survives a loss of power."""

    def get(self, key: str) -> bytes:
        """Return the object; raise NoSuchObject when there is none, UnfitObject when it is none of ours."""

    def age_s(self, key: str) -> float | None:
        """Return the seconds since the object was last put, or None when there is none."""

    def delete(self, key: str) -> None:
        """Remove the object if it is there."""

    def walk(self, under: str) -> Iterator[tuple[str, float]]:
        """Yield key and age in seconds of every object whose key begins with the segments `under`."""

    def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class KeepsFiles(Protocol):
    """What a backend offers as well when its objects are files of this machine: they are stored as they are.

    Other stores are given chunks packed where that pays.
    """

    def file_of(self, key: str) -> Path:
        """Return the object's file, which never changes under a blob's key."""


@runtime_checkable
class Withdraws(Protocol):
    """What a backend offers as well when it can tell who made an object, and take one out of sight and back.

    Each step is atomic: of any number of makers one has made it, and who looks sees the whole object or none.
    """

    def make_file(self, key: str, path: Path, data: bytes) -> bool:
        """Store the file at `path` unless there is an object, which becomes young; tell if it was stored."""

    def hide(self, key: str) -> str | None:
        """Take an object out of sight; return what brings it back, None when there is none."""

    def show(self, key: str, token: str) -> bool:
        """Bring it back, unless another one is there by now: then tell so by False, and delete it."""

    def drop(self, token: str) -> None:
        """Delete what is out of sight."""


@runtime_checkable
class MakesOnce(Protocol):
    """What a backend offers as well when it can store an object only if there is none, in one atomic step.

    Whether the server at hand keeps to that is tried out (`ObjectStore.probe`).
    """

    def make(self, key: str, data: bytes) -> bool:
        """Store the object unless there is one; tell if it was stored."""


@runtime_checkable
class TellsRoom(Protocol):
    """What a backend offers as well when it knows how much more it can take."""

    def free_bytes(self) -> int:
        """Return how many bytes more it takes."""


@runtime_checkable
class TellsSizes(Protocol):
    """What a backend offers as well when it can list how large objects are."""

    def sizes(self, under: str) -> Iterator[tuple[str, int]]:
        """Yield key and bytes of every object whose key begins with the segments `under`."""


@runtime_checkable
class TellsExposure(Protocol):
    """What a backend offers as well when it knows whether others on the network can read what is stored."""

    exposed: str
    """A clause that says so and names the fix; empty where nobody can."""


class NoSuchObject(Exception):
    """There is no object under the key that was asked for."""


class UnfitObject(Exception):
    """What lies under the key is none that was put there: the clause says why. It has not been read."""


class ObjectExists(Exception):
    """There is an object under the key already."""


class StoreFault(Exception):
    """A backend's failure: `problem` and `fix` are clauses of the sentence that the user reads.

    `refused` tells that the store said no and that trying again soon does not help.
    """

    def __init__(self, problem: str, fix: str, *, refused: bool = False) -> None:
        super().__init__(f"{problem}; {fix}")
        self.problem = problem
        self.fix = fix
        self.refused = refused


def full(detail: str) -> StoreFault:
    """Return the fault of a store without room."""
    return StoreFault(f"has no room left ({detail})", "free some space or name another store")


def unreachable(detail: str, fix: str) -> StoreFault:
    """Return the fault of a server that takes no connection."""
    return StoreFault(f"cannot be reached ({detail})", fix)


def silent(fix: str) -> StoreFault:
    """Return the fault of a server that took the request and does not answer."""
    return StoreFault(f"did not answer within {ANSWER_TIMEOUT_S:g} s", fix)
