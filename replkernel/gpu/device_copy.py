"""Bytes between a device and the host, in chunks: through pinned buffers, on a stream beside the notebook's.

While one buffer is read or filled by the host, the next is copied by the device. Law: a chunk that is handed
out is good until the next batch is asked for; two buffers at most are taken; elsewhere it is a plain copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from replkernel.gpu.torch_library import torch

BATCH_CHUNKS = 16
"""So many chunks are copied at a time: 32 MiB."""

Batch = list[tuple[int, memoryview]]


def batches(flat: torch.Tensor, wanted: Sequence[int], chunk_bytes: int) -> Iterator[Batch]:
    """Yield these chunks of a flat tensor of bytes, by their numbers, in batches of host memory."""
    side = _Side(flat.device)
    parts = [wanted[start : start + BATCH_CHUNKS] for start in range(0, len(wanted), BATCH_CHUNKS)]
    rooms = [side.room(min(len(wanted), BATCH_CHUNKS) * chunk_bytes) for _ in parts[:2]]
    done: list[Any] = []
    for index, part in enumerate(parts[:1]):
        done.append(_fetch(flat, part, rooms[index], chunk_bytes, side))
    for index, part in enumerate(parts):
        if index + 1 < len(parts):
            done.append(_fetch(flat, parts[index + 1], rooms[(index + 1) % 2], chunk_bytes, side))
        side.wait(done[index])
        host = memoryview(rooms[index % 2].numpy()).cast("B")
        sizes = [min(chunk_bytes, flat.numel() - number * chunk_bytes) for number in part]
        starts = range(0, len(part) * chunk_bytes, chunk_bytes)
        yield [
            (number, host[start : start + size])
            for number, start, size in zip(part, starts, sizes, strict=True)
        ]


def _fetch(flat: torch.Tensor, part: Sequence[int], room: Any, chunk_bytes: int, side: _Side) -> Any:
    with side.entered():
        for place, number in enumerate(part):
            piece = flat[number * chunk_bytes : (number + 1) * chunk_bytes]
            start = place * chunk_bytes
            room[start : start + piece.numel()].copy_(piece, non_blocking=side.beside)
        return side.mark()


def fill(flat: torch.Tensor, source: object, piece_bytes: int) -> None:
    """Copy bytes of the host into a flat tensor of bytes, which may lie on a device."""
    side, host = _Side(flat.device), torch.frombuffer(source, dtype=torch.uint8)
    if not side.beside:
        flat.copy_(host)
        return
    rooms = [side.room(min(piece_bytes, host.numel())) for _ in range(2)]
    marks: list[Any] = [None, None]
    with side.entered():
        for number, start in enumerate(range(0, host.numel(), piece_bytes)):
            piece, room = host[start : start + piece_bytes], rooms[number % 2]
            side.wait(marks[number % 2])  # The device still reads what lay there.
            room[: piece.numel()].copy_(piece)
            flat[start : start + piece.numel()].copy_(room[: piece.numel()], non_blocking=True)
            marks[number % 2] = side.mark()
    for mark in marks:
        side.wait(mark)


class _Side:
    """A stream beside the notebook's on a CUDA device; nothing at all elsewhere."""

    def __init__(self, device: torch.device) -> None:
        self.beside = device.type == "cuda"
        self._stream: Any = None
        if self.beside:
            cuda: Any = torch.cuda
            self._stream = cuda.Stream(device)
            self._stream.wait_stream(cuda.current_stream(device))

    def room(self, size: int) -> Any:
        """Return host memory that the device copies to by itself, where there is one."""
        return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=self.beside)

    def entered(self) -> Any:
        """Have copies go by this stream inside."""
        cuda: Any = torch.cuda
        return cuda.stream(self._stream) if self.beside else contextlib.nullcontext()

    def mark(self) -> object:
        """Return what stands for all copies so far."""
        return self._stream.record_event() if self.beside else None

    def wait(self, mark: Any) -> None:
        """Wait until the copies before a mark are done."""
        if mark is not None:
            mark.synchronize()
