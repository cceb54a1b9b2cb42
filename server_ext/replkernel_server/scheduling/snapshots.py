"""A snapshot: the image of a core behind one event, as bytes that tell whether they are whole.

Law: pure; it neither reads nor writes a journal. What cannot be used raises SnapshotUnfit with the reason.
"""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Iterable, Iterator

import msgspec
from replkernel_scheduler.harvest.image import HarvestImage, JobsImage
from replkernel_scheduler.image import FORMAT, CoreImage

from replkernel.errors import UNREADABLE
from replkernel_server.errors import ServerError
from replkernel_server.scheduling.journal_tables import SnapshotHead

PART_BYTES = 1024 * 1024
IMAGE_BYTES_MAX = 1024 * 1024 * 1024
"""An image is at most so large; one of 10,000 hosts and 100,000 kernels has some 70 MB, 7 when packed."""
LEVEL = 1


class SnapshotUnfit(ServerError):
    """A snapshot cannot be used; the text says why, as the end of a sentence."""


class Document(msgspec.Struct, frozen=True, array_like=True):
    """What a snapshot holds: a core, the state of its dice, and the jobs beside (None: of a time without)."""

    core: CoreImage
    dice: tuple[int, tuple[int, ...], float | None]
    jobs: JobsImage | None = None


def encode(image: HarvestImage, dice: random.Random) -> bytes:
    """Return the bytes of a snapshot; raises SnapshotUnfit for one that is too large."""
    version, state, gauss = dice.getstate()
    plain = msgspec.msgpack.encode(Document(image.core, (version, state, gauss), image.jobs))
    if len(plain) > IMAGE_BYTES_MAX:
        raise SnapshotUnfit(f"has {len(plain)} bytes, and {IMAGE_BYTES_MAX} are the limit")
    return zlib.compress(plain, LEVEL)


def head_of(data: bytes, number: int, at: float, wall: float, proof: int, made: float) -> SnapshotHead:
    """Return the row for a snapshot behind event `number`, which has these times and this check."""
    parts = (len(data) + PART_BYTES - 1) // PART_BYTES
    head = SnapshotHead(number, FORMAT, at, wall, proof, made, parts, "")
    return msgspec.structs.replace(head, digest=_digest(head, data))


def parts_of(data: bytes) -> Iterator[bytes]:
    """Yield the pieces that are kept one by one."""
    for begin in range(0, len(data), PART_BYTES):
        yield data[begin : begin + PART_BYTES]


def decode(head: SnapshotHead, parts: Iterable[bytes]) -> Document:
    """Return what a snapshot holds; raises SnapshotUnfit if it is not what was written."""
    if head.format != FORMAT:
        raise SnapshotUnfit(f"is of format {head.format}, and this program reads format {FORMAT}")
    if not 0 < head.parts <= IMAGE_BYTES_MAX // PART_BYTES:
        raise SnapshotUnfit(f"has {head.parts} parts")
    data = b"".join(parts)
    if _digest(head, data) != head.digest:
        raise SnapshotUnfit("is not what was written")
    try:
        unpacking = zlib.decompressobj()
        plain = unpacking.decompress(data, IMAGE_BYTES_MAX)
        if not unpacking.eof:
            raise SnapshotUnfit(f"has more than {IMAGE_BYTES_MAX} bytes")
        return msgspec.msgpack.decode(plain, type=Document)
    except (zlib.error, *UNREADABLE) as error:
        raise SnapshotUnfit(f"does not fit ({error})") from error


def dice_of(document: Document) -> random.Random:
    """Return the dice as they lay."""
    dice = random.Random()  # noqa: S311 - a choice, no secret
    try:
        dice.setstate(document.dice)
    except (ValueError, TypeError) as error:
        raise SnapshotUnfit(f"has no state of dice ({error})") from error
    return dice


def _digest(head: SnapshotHead, data: bytes) -> str:
    told = (head.number, head.format, head.at, head.wall, head.proof, head.made, head.parts)
    return hashlib.sha256(repr(told).encode() + data).hexdigest()
