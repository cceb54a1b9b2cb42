"""The bytes of a storage on a GPU: hashed there, and copied to the host only when they are to be written.

Law: the digest tells one state of this process's memory from another; it names nothing and never travels.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from replkernel.errors import StateSuspended
from replkernel.gpu.backend import storage_bytes

if TYPE_CHECKING:
    from replkernel.gpu.in_place import Parked

WORDS_AT_ONCE = 1 << 23
"""So many 8-byte words are mixed at a time: 64 MiB of working memory beside the storage."""

_MIX = (-7046029254386353131, -4417276706812531889)
_LOW_HALF = (1 << 32) - 1


class DeviceBuffer:
    """A storage as a buffer of a payload; one that is off the device is read, and digested, on the host."""

    def __init__(self, torch: Any, storage: Any, parked: Parked | None = None) -> None:
        self._torch = torch
        self._storage = storage
        self._parked = parked

    def __len__(self) -> int:
        return int(self._storage.nbytes() if self._parked is None else self._parked.size)

    def _pieces(self) -> list[Any]:
        return [storage_bytes(self._torch, self._storage)] if self._parked is None else self._parked.pieces

    def digest(self) -> bytes:
        """Return the digest of the bytes, computed where they are; off the device it is the same one."""
        known = self._known()
        if known is not None:
            return known
        torch = self._torch
        out, sums = len(self).to_bytes(8, "little"), []
        for flat in self._pieces():
            whole = flat.numel() // 8 * 8
            words = flat[:whole].view(torch.int64)
            for start in range(0, words.numel(), WORDS_AT_ONCE):
                sums.append(_mixed(torch, words[start : start + WORDS_AT_ONCE]))
            out += bytes(flat[whole:].tolist())
        if sums:
            out += torch.stack(sums).cpu().numpy().tobytes()
        return out

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
            raise StateSuspended("The bytes are with the driver, until the next cell that runs with a GPU.")
        pieces = self._pieces()
        flat = pieces[0] if len(pieces) == 1 else self._torch.cat(pieces)
        return memoryview(flat.cpu().numpy()).cast("B")


@functools.lru_cache(maxsize=4)
def _weights(torch: Any, device: str, count: int) -> Any:
    generator = torch.Generator("cpu").manual_seed(0x5EED)
    low, high = -(2**63), 2**63 - 1
    made = torch.randint(low, high, (2, count), generator=generator, dtype=torch.int64, device="cpu")
    return made.to(device)


def _mixed(torch: Any, words: Any) -> Any:
    """Return two 64-bit sums over words, mixed before they are weighted so that signs do not cancel."""
    weights = _weights(torch, str(words.device), WORDS_AT_ONCE)
    sums = []
    for index, factor in enumerate(_MIX):
        mixed = words * factor
        mixed = mixed ^ ((mixed >> 32) & _LOW_HALF)
        sums.append((mixed * weights[index, : words.numel()]).sum())
    return torch.stack(sums)
