"""The bytes of a storage on a GPU: hashed there by chunks, of which those that changed are copied away.

Law: a digest tells one state of a chunk from another; it names nothing and never travels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from replkernel.errors import StateSuspended
from replkernel.gpu.backend import storage_bytes
from replkernel.gpu.device_copy import Batch, batches
from replkernel.objects.cutting import CHUNK_BYTES
from replkernel.state.capture.dump import size_mark

if TYPE_CHECKING:
    import torch

    from replkernel.gpu.in_place import Parked

BYTES_AT_ONCE = 32 * CHUNK_BYTES
"""So much is mixed at a time: 64 MiB of working memory beside the storage."""

WITH_THE_DRIVER = "The bytes are with the driver, until the next cell that runs with a GPU."

_MIX = (-7046029254386353131, -4417276706812531889)
_LOW_HALF = (1 << 32) - 1


class DeviceBuffer:
    """A storage as a buffer of a payload; one that is off the device is read, and digested, on the host."""

    def __init__(
        self, torch: ModuleType, storage: torch.UntypedStorage, parked: Parked | None = None
    ) -> None:
        self._torch = torch
        self._storage = storage
        self._parked = parked

    def __len__(self) -> int:
        return int(self._storage.nbytes() if self._parked is None else self._parked.size)

    def _pieces(self) -> list[Any]:
        if not len(self):
            return []  # Not even to look at none is free: a driver that has the device would be asked.
        return [storage_bytes(self._torch, self._storage)] if self._parked is None else self._parked.pieces

    def digest(self) -> bytes:
        """Return the digest of the bytes, computed where they are; off the device it is the same one."""
        known = self._known()
        if known is not None:
            return known
        sums = [
            _sums_of(self._torch, flat[start : start + BYTES_AT_ONCE])
            for flat in self._pieces()
            for start in range(0, flat.numel(), BYTES_AT_ONCE)
        ]
        chunks = self._torch.cat(sums).numpy().tobytes() if sums else b""
        return chunks + size_mark(len(self))

    def batches(self, wanted: Sequence[int]) -> Iterator[Batch]:
        """Yield these chunks, by their numbers, in batches; each is good until the next is asked for."""
        if not wanted:
            return
        if self._known() is not None:
            raise StateSuspended(WITH_THE_DRIVER)
        first = 0
        for flat in self._pieces():
            count = -(-flat.numel() // CHUNK_BYTES)
            own = [number - first for number in wanted if first <= number < first + count]
            for batch in batches(flat, own, CHUNK_BYTES):
                yield [(number + first, piece) for number, piece in batch]
            first += count

    def _known(self) -> bytes | None:
        """Return the digest of bytes that the driver has taken off the device; None: they can be read."""
        from replkernel.gpu.in_place import is_locked, locked_digest

        if not is_locked(self._storage):
            return None
        known = locked_digest(self._storage)
        if known is None:
            raise StateSuspended("The bytes are with the driver, and nobody knows what they were.")
        return known

    def host(self) -> memoryview:
        """Return the bytes in host memory."""
        if self._known() is not None:
            from replkernel.gpu.in_place import locked_bytes

            kept = locked_bytes(self._storage)
            if kept is None:
                raise StateSuspended(WITH_THE_DRIVER)
            return memoryview(kept)
        pieces = self._pieces()
        if not pieces:
            return memoryview(b"")
        flat = pieces[0] if len(pieces) == 1 else self._torch.cat(pieces)
        if flat.device.type == "cpu" and self._parked is None:
            flat = flat.clone()  # A storage that numpy has looked into cannot be emptied any more.
        return memoryview(flat.cpu().numpy()).cast("B")


def _sums_of(torch: ModuleType, flat: torch.Tensor) -> object:
    """Return the sums on the host, computed where the bytes are; on the host where the device has no room."""
    try:
        return _sums(torch, flat).cpu()
    except torch.OutOfMemoryError:
        return _sums(torch, flat.cpu())


def _sums(torch: ModuleType, flat: torch.Tensor) -> Any:
    """Return the sums of each chunk of bytes, a row for each; the last one counts as if zeros followed it."""
    whole = flat.numel() // CHUNK_BYTES * CHUNK_BYTES
    found = []
    if whole:
        found.append(_mixed(torch, flat[:whole].view(torch.int64).view(-1, CHUNK_BYTES // 8)))
    if whole < flat.numel():
        rest = torch.zeros(-(-(flat.numel() - whole) // 8) * 8, dtype=torch.uint8, device=flat.device)
        rest[: flat.numel() - whole].copy_(flat[whole:])
        found.append(_mixed(torch, rest.view(torch.int64).view(1, -1)))
    return torch.cat(found)


@functools.lru_cache(maxsize=4)
def _weights(torch: ModuleType, device: str, count: int) -> Any:
    generator = torch.Generator("cpu").manual_seed(0x5EED)
    low, high = -(2**63), 2**63 - 1
    made = torch.randint(low, high, (2, count), generator=generator, dtype=torch.int64, device="cpu")
    return made.to(device)


def _mixed(torch: ModuleType, words: torch.Tensor) -> Any:
    """Return two 64-bit sums over each row, mixed before they are weighted so that signs do not cancel."""
    weights = _weights(torch, str(words.device), CHUNK_BYTES // 8)
    sums = []
    for index, factor in enumerate(_MIX):
        mixed = words * factor
        mixed = mixed ^ ((mixed >> 32) & _LOW_HALF)
        sums.append((mixed * weights[index, : words.shape[1]]).sum(dim=1))
    return torch.stack(sums, dim=1)
