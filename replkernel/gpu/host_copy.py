"""Room in host memory for what was on a device: in large pieces, pinned where the device copies faster then.

Law: a small storage lies in one piece; a large one begins a piece of its own, so that windows of a digest
fall on the same bytes as on the device.
"""

from __future__ import annotations

from typing import Any

from replkernel.gpu.backend import storage_bytes
from replkernel.gpu.torch_library import torch

PIECE_BYTES = 256 * 2**20
"""A power of two: torch keeps freed pinned memory in such sizes and hands it out again."""
ALIGNED = 512
SPARE = 8
"""A last piece is an eighth larger than what is left, for the gaps between small storages."""


class HostRoom:
    """The pieces that one suspension of `total` bytes fills. `pinned`: the device copies by itself."""

    def __init__(self, total: int, *, pinned: bool, piece_bytes: int = PIECE_BYTES) -> None:
        self._left = total
        self._pinned = pinned
        self._piece_bytes = piece_bytes
        self._piece: Any = None
        self._used = 0

    def take(self, size: int) -> list[Any]:
        """Return tensors of bytes that together have `size`; raises RuntimeError where memory is short."""
        left, self._left = self._left, self._left - size
        if size > self._piece_bytes:
            whole, rest = divmod(size, self._piece_bytes)
            return [self._make(self._piece_bytes) for _ in range(whole)] + (
                [self._make(rest)] if rest else []
            )
        if self._piece is None or self._used + size > self._piece.numel():
            some = max(size, min(self._piece_bytes, left + left // SPARE))
            self._piece, self._used = self._make(some), 0
        start, self._used = self._used, self._used + -(-size // ALIGNED) * ALIGNED
        return [self._piece[start : start + size]]

    def _make(self, size: int) -> object:
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=self._pinned)


def fetch(storage: torch.UntypedStorage, pieces: list[Any], *, beside: bool) -> None:
    """Copy a storage to the host; `beside`: the copy goes on while this returns."""
    flat, start = storage_bytes(torch, storage), 0
    for piece in pieces:
        end = start + piece.numel()
        piece.copy_(flat[start:end], non_blocking=beside)
        start = end


def give_back(storage: torch.UntypedStorage, pieces: list[Any], *, beside: bool) -> None:
    """Copy bytes on the host into a storage of their size."""
    flat, start = storage_bytes(torch, storage), 0
    for piece in pieces:
        end = start + piece.numel()
        flat[start:end].copy_(piece, non_blocking=beside)
        start = end
