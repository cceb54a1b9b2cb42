"""A checkpoint: the committed state of a kernel as one document, with what it takes to trust and to order it.

Pure. Laws: a document that was cut, changed, written by another release or without the kernel's key is
refused by name; a newer group's checkpoints come after those of an older one, whatever its late leader
writes. It never holds a secret. Its seal is a keyed BLAKE3 (a MAC) of its name and of the digest of header
and body. The key follows from the one that signs the kernel's messages, which a kernel has for life.
"""

from __future__ import annotations

import hmac
import re
import struct
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec
from blake3 import blake3

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.records import Digest, Fence, KernelId, ReplicaId, Seq

CHECKPOINT_VERSION = 2
UNSEALED_VERSION = 1
"""Checkpoints of the first release, which bear no seal."""

CHECKPOINTS_KEPT = 3
"""So many of a kernel's newest checkpoints stay in the store."""

CHUNKS_KEPT = 32
"""All but the newest keep no more chunks (of 2 MiB, most of them) than this beside those that it names."""

CHECKPOINT = "checkpoint"
MARK = "mark"
GENERATION_MAX = 999_999
_MAGIC = b"replkernel-checkpoint-2\n"
_UNSEALED_MAGIC = b"replkernel-checkpoint\n"
_KEY_CONTEXT = "replkernel 2026-11-26 seal of checkpoints"
_PLACE = re.compile(r"([0-9]{6})-([0-9]{16})")
_LENGTH = struct.Struct(">I")
_DIGEST_BYTES = 32


class CheckpointDamaged(ReplkernelError):
    """A checkpoint cannot be used; the message is one clause."""


class CheckpointForeign(CheckpointDamaged):
    """A checkpoint does not bear the kernel's seal; the message is one clause."""


class CheckpointUnsealed(CheckpointForeign):
    """A checkpoint bears no seal at all, as those of the first release."""


class Place(NamedTuple):
    """Where in an incarnation's history a state is: its group, and the entry of that group's log."""

    generation: int
    entry: int


class CheckpointHeader(msgspec.Struct, frozen=True):
    """What a checkpoint says of itself. `created` is the writer's wall clock, for people."""

    version: int
    kernel_id: KernelId
    incarnation: str
    generation: int
    index: int
    seq: Seq
    newest_seq: Seq
    fence: Fence
    execution_count: int
    executor: ReplicaId
    created: float

    @property
    def place(self) -> Place:
        """Return where in the incarnation's history this state is."""
        return Place(self.generation, self.index)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CheckpointHeader)


def digest_of(data: bytes) -> Digest:
    """Return the digest of a document or a body."""
    return Digest(blake3(data).hexdigest())


def seal_key(kernel_key: bytes) -> bytes:
    """Return the key of a kernel's seals, which tells nothing of the one that signs its messages."""
    return blake3(kernel_key, derive_key_context=_KEY_CONTEXT).digest()


def encode_checkpoint(header: CheckpointHeader, body: bytes, key: bytes) -> bytes:
    """Return the document, sealed with a key that `seal_key` has made."""
    head = _encoder.encode(header)
    rest = b"".join((_LENGTH.pack(len(head)), head, body))
    digest = blake3(rest).digest()
    name = document_name(CHECKPOINT, header.kernel_id, header.incarnation, header.place)
    return b"".join((_MAGIC, digest, _seal(name, digest, key), rest))


def _seal(name: str, digest: bytes, key: bytes) -> bytes:
    return blake3(b"".join((name.encode(), b"\0", digest)), key=key).digest()


def check_seal(data: bytes, name: str, key: bytes) -> None:
    """Raise CheckpointForeign unless who has the key has written a document of this name.

    Whether its header and body are whole is not looked at.
    """
    if data.startswith(_UNSEALED_MAGIC):
        raise CheckpointUnsealed("it bears no seal: an earlier release wrote it, or somebody else")
    sealed = len(_MAGIC) + _DIGEST_BYTES
    if not data.startswith(_MAGIC) or len(data) < sealed + _DIGEST_BYTES:
        raise CheckpointDamaged("it is cut short or no checkpoint at all")
    said = data[sealed : sealed + _DIGEST_BYTES]
    if not hmac.compare_digest(said, _seal(name, data[len(_MAGIC) : sealed], key)):
        raise CheckpointForeign("it does not bear this kernel's seal: somebody else wrote or changed it")


def decode_checkpoint(data: bytes, name: str, key: bytes) -> tuple[CheckpointHeader, bytes]:
    """Return header and body of the document that is stored as `name`; raises CheckpointDamaged."""
    check_seal(data, name, key)
    digest = data[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES]
    return _parts(data, len(_MAGIC) + 2 * _DIGEST_BYTES, digest, name, CHECKPOINT_VERSION)


def decode_unsealed(data: bytes, name: str) -> tuple[CheckpointHeader, bytes]:
    """Return header and body of a document of the first release; raises CheckpointDamaged.

    Anybody may have written it.
    """
    if not data.startswith(_UNSEALED_MAGIC):
        raise CheckpointDamaged("it is cut short or no checkpoint at all")
    start = len(_UNSEALED_MAGIC) + _DIGEST_BYTES
    return _parts(data, start, data[len(_UNSEALED_MAGIC) : start], name, UNSEALED_VERSION)


def _parts(data: bytes, named: int, digest: bytes, name: str, version: int) -> tuple[CheckpointHeader, bytes]:
    """Return header and body of what begins at `named`, if all of it is as its digest says."""
    start = named + _LENGTH.size
    if len(data) < start:
        raise CheckpointDamaged("it is cut short or no checkpoint at all")
    if blake3(memoryview(data)[named:]).digest() != digest:
        raise CheckpointDamaged("its bytes are not those that were written")
    (length,) = _LENGTH.unpack(data[named:start])
    try:
        header = _decoder.decode(data[start : start + length])
    except UNREADABLE as error:
        raise CheckpointDamaged(f"its header cannot be read ({error})") from error
    if header.version != version:
        raise CheckpointDamaged(f"it has version {header.version}, this release reads {version}")
    if name != document_name(CHECKPOINT, header.kernel_id, header.incarnation, header.place):
        raise CheckpointDamaged("it is not what its name says")
    return header, data[start + length :]


def document_name(what: str, kernel_id: KernelId, incarnation: str, place: Place) -> str:
    """Return the name of a checkpoint, or of the mark that goes with it."""
    return f"{kernel_id}/{what}-{incarnation}-{place.generation:06d}-{place.entry:016d}"


def place_of(name: str, what: str, kernel_id: KernelId, incarnation: str) -> Place | None:
    """Return the place that a document's name tells, None when it is none of this incarnation's."""
    prefix = f"{kernel_id}/{what}-{incarnation}-"
    numbers = _PLACE.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
    return None if numbers is None else Place(int(numbers[1]), int(numbers[2]))


def newest_first(names: Iterable[str], what: str, kernel_id: KernelId, incarnation: str) -> list[Place]:
    """Return the places of this incarnation's documents among `names`, the newest first."""
    found = (place_of(name, what, kernel_id, incarnation) for name in names)
    return sorted((place for place in found if place is not None), reverse=True)


def costly(newest: AbstractSet[Digest], older: Iterable[tuple[Place, AbstractSet[Digest]]]) -> list[Place]:
    """Return those of the `older` checkpoints that keep too much which the `newest` does without.

    They come newest first, each with the chunks that it names.
    """
    gone: list[Place] = []
    extra: set[Digest] = set()
    for place, named in older:
        extra |= named - newest
        if gone or len(extra) > CHUNKS_KEPT:
            gone.append(place)
    return gone


def founding_mark(kernel_id: KernelId, incarnation: str, generation: int) -> str:
    """Return the name of the mark that keeps what a group of this generation is being founded from."""
    return f"{kernel_id}/{MARK}-{incarnation}-founding-{generation:06d}"


def founded(names: Iterable[str], kernel_id: KernelId, incarnation: str, generation: int) -> list[str]:
    """Return those of `names` that are marks of foundings up to this generation: they have served."""
    newest = founding_mark(kernel_id, incarnation, generation)
    first = founding_mark(kernel_id, incarnation, 0)
    return [name for name in names if first <= name <= newest and len(name) == len(newest)]


def outdated(places: Iterable[Place], kept: int = CHECKPOINTS_KEPT) -> list[Place]:
    """Return the places whose checkpoints can go: all but the newest."""
    return sorted(places, reverse=True)[kept:]
