"""Proves that a component was rebuilt as it was captured: what was built is dumped again and compared.

The dump is the one that the baseline needs anyway. Equal bytes are the rule and cost one hash; else the two
dumps are compared by what they mean. Law: what is not proven is never called proven, and an object whose dump
is no function of its value is dumped once more before anybody calls it wrong.
"""

from __future__ import annotations

import logging
import sys
import types
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import msgspec

from replkernel.errors import WITHIN
from replkernel.state.capture.dump import BufferDigests, Dump, digest_of_stream
from replkernel.state.format.dump_graph import Source, Unreadable
from replkernel.state.format.stream import Head
from replkernel.state.python.kinds import derives
from replkernel.state.verify.canonical import Difference, Undecided, compare
from replkernel.state.world import World

COMPARED_BYTES_MAX = 256 * 1024
"""Longer streams that differ in their bytes are not compared by meaning: that takes 0.8 µs a byte."""

log = logging.getLogger(__name__)


class Proof(Enum):
    """What is known of a component that was rebuilt here."""

    PROVEN = "proven"
    OPEN = "not proven"
    UNFAITHFUL = "unfaithful"


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of one comparison; `differences` are what makes the component unfaithful.

    `cause` is why, where that is known; `lost` are tombstones for what could not be loaded.
    """

    proof: Proof
    differences: tuple[Difference, ...] = ()
    cause: str = ""
    lost: tuple[Any, ...] = ()

    def sentence(self) -> str:
        """Return why a component is unfaithful."""
        if self.cause:
            return self.cause
        return self.differences[0].sentence()


_PROVEN, _OPEN = Verdict(Proof.PROVEN), Verdict(Proof.OPEN)


class Received(msgspec.Struct, frozen=True):
    """What is kept of a payload while its component is built: its head and the digests of its bytes."""

    head: Head
    fingerprint: bytes


def received(head: Head, stream: Any, digests: Sequence[bytes]) -> Received:
    """Return what proving a payload needs; `digests` are those of its buffers."""
    return Received(head, digest_of_stream([stream]) + b"".join(digests))


def judge(
    world: World,
    came: Received,
    dump: Dump,
    payload: Callable[[], Source],
    again: Callable[[], Dump | None],
    pinned: Sequence[str] = (),
) -> Verdict:
    """Compare what came with the dump of what was built from it.

    `payload` reads what came once more, `again` dumps what was built once more; both only where bytes differ.
    What lies at or below a path in `pinned` is known to be lost, in part or wholly.
    """
    head = dump.head()
    if dump.fingerprint == came.fingerprint and head == came.head:
        return _PROVEN
    if head.roots != came.head.roots or sum(map(len, dump.parts)) > COMPARED_BYTES_MAX:
        return _OPEN
    classes = ClassFacts(world)
    try:
        built = source_of(dump)
        differences = compare(payload(), built, classes)
        if not differences:
            return _PROVEN
        differences = [found for found in differences if not any(_below(found.path, pin) for pin in pinned)]
        if not differences:
            return _OPEN
        second = again()
        noise = compare(built, source_of(second), classes) if second is not None else []
    except (Unreadable, Undecided) as error:
        log.info("%s cannot be proven: %s", ", ".join(came.head.roots), error)
        return _OPEN
    except Exception:
        log.exception("%s cannot be proven: its dumps could not be compared", ", ".join(came.head.roots))
        return _OPEN
    shaky = {difference.path for difference in noise}
    firm = [difference for difference in differences if difference.path not in shaky]
    ours = tuple(difference for difference in firm if not difference.library)
    if ours:
        return Verdict(Proof.UNFAITHFUL, ours)
    if firm:
        log.warning("%s is not what it was after its library has loaded it", firm[0].path)
    return _OPEN


def _below(path: str, place: str) -> bool:
    place = place.removesuffix(WITHIN)
    return path.startswith(place) and path[len(place) : len(place) + 1] in ("", ".", "[", " ")


class _DumpBuffers:
    """The buffers of a dump made here."""

    def __init__(self, dump: Dump) -> None:
        self._dump = dump

    def digest(self, number: int) -> bytes:
        """Return a buffer's digest; one on a device is brought here, for devices have hashes of their own."""
        buffer = self._dump.buffers[number]
        if isinstance(buffer, memoryview):
            return self._dump.digests[number]
        return BufferDigests().of(memoryview(buffer.host()), None)

    def read(self, number: int) -> Any:
        """Return a buffer's bytes."""
        buffer = self._dump.buffers[number]
        return buffer if isinstance(buffer, memoryview) else buffer.host()


class PayloadBuffers:
    """The buffers of a payload, read when they are asked for."""

    def __init__(self, read: Callable[[int], Any]) -> None:
        self._read = read

    def digest(self, number: int) -> bytes:
        """Return a buffer's digest."""
        return BufferDigests().of(memoryview(self._read(number)), None)

    def read(self, number: int) -> Any:
        """Return a buffer's bytes."""
        return self._read(number)


def source_of(dump: Dump) -> Source:
    """Return a dump as a source of comparison."""
    return Source(dump.head(), b"".join(dump.parts), _DumpBuffers(dump))


class ClassFacts:
    """What is to be known of classes by their names; looks, and imports nothing."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _find(self, name: tuple[Any, ...]) -> Any:
        if name[0] == "class":
            return self._world.classes.find(name[1])
        found: object = sys.modules.get(name[1])
        for part in name[2].split("."):
            found = vars(found).get(part) if isinstance(found, (type, types.ModuleType)) else None
        return found

    def is_set(self, name: tuple[Any, ...]) -> bool:
        """Tell whether a class is a kind of set."""
        found = self._find(name)
        if not isinstance(found, type):
            return False
        return derives(found, set) or derives(found, frozenset)

    def has_loader(self, name: tuple[Any, ...]) -> bool:
        """Tell whether a class, or a function, belongs to a library that loads its objects in its own way."""
        if name[1].partition(".")[0] in sys.stdlib_module_names:
            return False
        found = self._find(name)
        if not isinstance(found, type):
            return found is not None
        return any(
            not _LOADING.isdisjoint(_DICT.__get__(base)) for base in _MRO.__get__(found) if base is not object
        )


_MRO, _DICT = type.__dict__["__mro__"], type.__dict__["__dict__"]
_LOADING = frozenset({"__setstate__", "__reduce__", "__reduce_ex__"})
