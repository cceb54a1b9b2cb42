"""All records of a trace in order of time, to be played as often as there are policies.

Law: at most RUN_MAX records are in memory, and a BLOCK of each run that is read. More are sorted in runs of
RUN_MAX, which lie in a directory that goes with the spool, and are merged as they are read.
"""

from __future__ import annotations

import heapq
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType

import msgspec

from replkernel_scheduler.sim.records import Cell, Record, Session, order

RUN_MAX = 100_000
BLOCK = 256
"""So many records of a run are written and read at once."""
LENGTH_BYTES = 4


class Spool:
    """The records; `first` and `last` are the times of the first and the last, `work_gpu_s` their work.

    `widest` is the most GPUs that one of them asks for, `sizes` says how many ask for how much.
    """

    def __init__(self, records: Iterable[Record], run_max: int = RUN_MAX, within: Path | None = None) -> None:
        """Read all of `records`, in whatever order; what is sorted on the disk lies in `within`."""
        self._within = within
        self.sessions = self.cells = self.jobs = 0
        self.first, self.last = float("inf"), 0.0
        self.work_gpu_s = 0.0
        self.widest = 0
        self.sizes: Counter[tuple[int, int]] = Counter()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._runs: list[Path] = []
        stream = iter(records)
        self._kept = self._run(stream, run_max)
        while len(self._kept) == run_max:
            self._put_down(self._kept)
            self._kept = self._run(stream, run_max)

    def __len__(self) -> int:
        """Return how many records there are."""
        return self.sessions + self.cells + self.jobs

    def __iter__(self) -> Iterator[Record]:
        """Yield the records in order of time; of those at one time, as they were read, sessions first."""
        runs: list[Iterable[Record]] = [_picked_up(path) for path in self._runs]
        return heapq.merge(*runs, self._kept, key=order) if runs else iter(self._kept)

    def __enter__(self) -> Spool:
        """Return it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove what lies on the disk."""
        self.close()

    def close(self) -> None:
        """Remove what lies on the disk; nothing can be read after that."""
        if self._directory is not None:
            self._directory.cleanup()

    def _run(self, stream: Iterator[Record], run_max: int) -> list[Record]:
        run = list(islice(stream, run_max))
        for record in run:
            self.first = min(self.first, record.at)
            self.last = max(self.last, record.at)
            if isinstance(record, Session):
                self.sessions += 1
                continue
            gpus = record.gpus if isinstance(record, Cell) else record.width
            self.widest = max(self.widest, gpus)
            self.sizes[gpus, record.milli] += 1
            self.work_gpu_s += (record.milli / 1000 or gpus) * record.duration_s
            if isinstance(record, Cell):
                self.cells += 1
            else:
                self.jobs += 1
        run.sort(key=order)
        return run

    def _put_down(self, run: list[Record]) -> None:
        if self._directory is None:
            self._directory = temporary_directory(self._within)
        path = Path(self._directory.name) / f"{len(self._runs):05}"
        encode = msgspec.msgpack.Encoder().encode
        with path.open("wb") as file:
            for begin in range(0, len(run), BLOCK):
                data = encode(run[begin : begin + BLOCK])
                file.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)
        self._runs.append(path)


def temporary_directory(within: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """Return a new directory for what is sorted on the disk; in `within`, it goes with that at the latest."""
    return tempfile.TemporaryDirectory(prefix="replkernel-trace-", dir=within)


def _picked_up(path: Path) -> Iterator[Record]:
    decode = msgspec.msgpack.Decoder(list[Record]).decode
    with path.open("rb") as file:
        while head := file.read(LENGTH_BYTES):
            yield from decode(file.read(int.from_bytes(head, "big")))
