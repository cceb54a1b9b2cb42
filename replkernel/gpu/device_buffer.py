"""The bytes of a storage on a GPU: hashed there, and copied to the host only when they are to be written.

Law: the digest tells one state of this process's memory from another; it names nothing and never travels.
"""

from __future__ import annotations

import functools
from typing import Any

WORDS_AT_ONCE = 1 << 23
"""So many 8-byte words are mixed at a time: 64 MiB of working memory beside the storage."""

_MIX = (-7046029254386353131, -4417276706812531889)
_LOW_HALF = (1 << 32) - 1


class DeviceBuffer:
    """A storage as a buffer of a payload."""

    def __init__(self, torch: Any, storage: Any) -> None:
        self._torch = torch
        self._storage = storage

    def __len__(self) -> int:
        return int(self._storage.nbytes())

    def digest(self) -> bytes:
        """Return the digest of the bytes, computed where they are."""
        torch = self._torch
        size = len(self)
        flat = torch.empty(0, dtype=torch.uint8, device=self._storage.device).set_(self._storage)
        whole = size // 8 * 8
        words = flat[:whole].view(torch.int64)
        sums = []
        for start in range(0, words.numel(), WORDS_AT_ONCE):
            sums.append(_mixed(torch, words[start : start + WORDS_AT_ONCE]))
        out = size.to_bytes(8, "little") + bytes(flat[whole:].tolist())
        if sums:
            out += torch.stack(sums).cpu().numpy().tobytes()
        return out

    def host(self) -> memoryview:
        """Return the bytes in host memory."""
        flat = self._torch.empty(0, dtype=self._torch.uint8, device=self._storage.device).set_(self._storage)
        return memoryview(flat.cpu().numpy()).cast("B")


@functools.lru_cache(maxsize=4)
def _weights(torch: Any, device: str) -> Any:
    generator = torch.Generator().manual_seed(0x5EED)
    low, high = -(2**63), 2**63 - 1
    return torch.randint(low, high, (2, WORDS_AT_ONCE), generator=generator, dtype=torch.int64).to(device)


def _mixed(torch: Any, words: Any) -> Any:
    """Return two 64-bit sums over words, mixed before they are weighted so that signs do not cancel."""
    weights = _weights(torch, str(words.device))
    sums = []
    for index, factor in enumerate(_MIX):
        mixed = words * factor
        mixed = mixed ^ ((mixed >> 32) & _LOW_HALF)
        sums.append((mixed * weights[index, : words.numel()]).sum())
    return torch.stack(sums)
