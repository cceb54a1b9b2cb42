"""The sources of all executed cells, the same on every replica, so that tracebacks and `inspect` agree.

Owns the log of cells, its blocks (`@cells/0007`, immutable once full, so that a long notebook never ships
its whole history again) and the names of cell files, which depend on the kernel and not on the process.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import ipykernel.compiler
import ipykernel.debugger
import msgspec
from ipykernel.compiler import XCachingCompiler

from replkernel.records import ComponentId

CELLS_PREFIX = "@cells/"
BLOCK_CELLS_MAX = 8
BLOCK_BYTES_MAX = 2 * 1024
"""A block, which each of its cells ships, is closed at so many cells or characters, whichever comes first."""

LOOK_BACK_CELLS = 8
"""How far back the log looks for the record of the cell that is being compiled (subshells interleave)."""


class Cell(msgspec.Struct, array_like=True):
    """One executed cell: source as typed and as run (see `code_beside`), file name, place in In and Out.

    `name` is empty while the cell was not compiled. `listed` tells that it is in ``In``; `has_out` that
    it set ``Out[number]``, whose text is `out` unless that is long.
    """

    number: int
    raw: str
    code: str | None = None
    name: str = ""
    listed: bool = False
    has_out: bool = False
    out: str | None = None

    def parsed(self) -> str:
        """Return the source as Python ran it."""
        return _ended(self.raw) if self.code is None else self.code


def _ended(source: str) -> str:
    return source if source.endswith("\n") else source + "\n"


def code_beside(raw: str, code: str) -> str | None:
    """Return the source as run, None where it is the one as typed with an end of line: most cells' is."""
    return None if code == _ended(raw) else code


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Cell])


def cell_directory(kernel_id: str, env: Mapping[str, str]) -> str:
    """Return the directory of a kernel's cell files: stock's form, with the kernel's number for the pid."""
    base = next((env[name] for name in ("TMPDIR", "TEMP", "TMP") if env.get(name)), "/tmp")  # noqa: S108
    number = int.from_bytes(hashlib.sha256(kernel_id.encode()).digest()[:4], "big")
    return os.path.join(os.path.abspath(base), f"ipykernel_{number}")


def name_cells_by(directory: str) -> None:
    """Make the compiler and the debugger of this process name cell files below `directory`."""

    def get_tmp_directory() -> str:
        return directory

    ipykernel.compiler.get_tmp_directory = get_tmp_directory
    ipykernel.debugger.get_tmp_directory = get_tmp_directory  # type: ignore[attr-defined]


class CellBlock:
    """One process part: up to BLOCK_CELLS_MAX cells. `finish` completes its cells before they are dumped."""

    def __init__(self, log: CellLog, index: int) -> None:
        self.cid = ComponentId(f"{CELLS_PREFIX}{index:04d}")
        self.cells: list[Cell] = []
        self.characters = 0
        self._log = log
        self._closed: bytes | None = None
        self._marks: tuple[int, frozenset[int]] | None = None

    def full(self) -> bool:
        """Tell whether the next cell belongs into another block."""
        return len(self.cells) >= BLOCK_CELLS_MAX or self.characters >= BLOCK_BYTES_MAX

    def dump(self) -> bytes | None:
        """Return the block's cells as bytes: as loaded until a cell is added, for ever once it is full."""
        if self._closed is not None:
            return self._closed
        self._log.finish(self.cells)
        data = _encoder.encode(self.cells)
        if self._log.blocks[-1] is not self:
            self._closed = data
        return data

    def append(self, cell: Cell) -> None:
        """Add one cell."""
        self.cells.append(cell)
        self.characters += len(cell.raw)
        self._closed = self._marks = None

    def load(self, data: bytes) -> None:
        """Take the cells of another replica in place of the block's own."""
        self.cells = _decoder.decode(data)
        self.characters = sum(len(cell.raw) for cell in self.cells)
        self._closed, self._marks = data, None
        self._log.loaded(self.cells)

    def marks(self, first: int = 0) -> tuple[int, frozenset[int]]:
        """Return how many cells from index `first` on are in In, and the numbers of those that set Out."""
        if first <= 0 and self._marks is not None:
            return self._marks
        cells = self.cells[max(first, 0) :]
        marks = sum(cell.listed for cell in cells), frozenset(cell.number for cell in cells if cell.has_out)
        if first <= 0 and self._closed is not None and self._log.blocks[-1] is not self:
            self._marks = marks
        return marks


class Watch(Protocol):
    """Whoever wants to know of code before it runs."""

    def expect(self, source: str) -> None:
        """Take the source of a cell, as Python runs it."""

    def go_on(self) -> None:
        """Note that the cell's next statement is about to run."""

    def learn(self, source: str) -> None:
        """Take the source of a cell that ran on another replica."""


class CellLog:
    """All cells that the kernel executed, on whichever replica, oldest first.

    `finish` is called with the cells of an open block before it is dumped; `numbers_by_name` maps file
    names to cell numbers (the shell's compiler owns it).
    """

    prefix = CELLS_PREFIX

    def __init__(self, finish: Callable[[list[Cell]], None]) -> None:
        self.finish = finish
        self.blocks: list[CellBlock] = [CellBlock(self, 0)]
        self.numbers_by_name: dict[str, int] = {}
        self.watch: Watch | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Cell]:
        for block in self.blocks:
            yield from block.cells

    def __len__(self) -> int:
        return sum(len(block.cells) for block in self.blocks)

    def add(self, cell: Cell) -> None:
        """Append one cell."""
        with self._lock:
            if self.blocks[-1].full():
                self.blocks.append(CellBlock(self, len(self.blocks)))
            self.blocks[-1].append(cell)

    def compiled(self, raw: str, code: str, number: int, name: str) -> None:
        """Record that a cell was compiled under the file name `name`."""
        for cell in self._newest():
            if cell.number == number and not cell.name and cell.raw == raw:
                cell.code = code_beside(raw, code)
                cell.name = name
                return
        self.add(Cell(number, raw, code_beside(raw, code), name))

    def since(self, first: int) -> Iterator[Cell]:
        """Yield the cells from index `first` on."""
        for block in self.blocks:
            if first < len(block.cells):
                yield from block.cells[max(first, 0) :]
            first -= len(block.cells)

    def marks_since(self, first: int) -> tuple[int, set[int]]:
        """Return how many cells from index `first` on are in In, and the numbers of those that set Out."""
        marks = list(self._marks_since(first))
        return sum([listed for listed, _ in marks]), set[int]().union(*[outs for _, outs in marks])

    def _marks_since(self, first: int) -> Iterator[tuple[int, frozenset[int]]]:
        for block in self.blocks:
            yield block.marks(first)
            first -= len(block.cells)

    def texts_since(self, first: int) -> dict[int, str]:
        """Return the texts of outputs, by cell number, from index `first` on."""
        return {cell.number: cell.out for cell in self.since(first) if cell.out is not None}

    def block(self, cid: str) -> CellBlock:
        """Return the block of component `cid`, made when there is none yet."""
        index = int(cid.removeprefix(CELLS_PREFIX))
        with self._lock:
            while len(self.blocks) <= index:
                self.blocks.append(CellBlock(self, len(self.blocks)))
        return self.blocks[index]

    def loaded(self, cells: list[Cell]) -> None:
        """Give tracebacks the sources of cells that another replica compiled."""
        for cell in cells:
            if cell.name:
                code = cell.parsed()
                lines = [line + "\n" for line in code.splitlines()]
                linecache.cache[cell.name] = (len(code), None, lines, cell.name)
                self.numbers_by_name[cell.name] = cell.number
                if self.watch is not None:
                    self.watch.learn(code)

    def _newest(self) -> Iterator[Cell]:
        seen = 0
        for block in reversed(self.blocks):
            for cell in reversed(block.cells):
                if seen == LOOK_BACK_CELLS:
                    return
                seen += 1
                yield cell


class CellCompiler(XCachingCompiler):
    """The shell's compiler; every cell that it compiles is entered in the kernel's log of cells."""

    log_of_cells: CellLog | None = None
    watch: Watch | None = None

    def use(self, cells: CellLog) -> None:
        """Enter cells in `cells` from now on, and know those that came from other replicas."""
        self.log_of_cells = cells
        cells.numbers_by_name = self._filename_map

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> Any:
        """Cache a cell as stock does, and record it."""
        name = super().cache(transformed_code, number, raw_code=raw_code)
        if self.log_of_cells is not None:
            raw = transformed_code if raw_code is None else raw_code
            self.log_of_cells.compiled(raw, transformed_code, number, name)
        if self.watch is not None and threading.current_thread() is threading.main_thread():
            self.watch.expect(transformed_code)
        return name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compile a statement as stock does; those before it have run."""
        if self.watch is not None and threading.current_thread() is threading.main_thread():
            self.watch.go_on()
        return super().__call__(*args, **kwargs)
