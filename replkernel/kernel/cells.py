"""The sources of all executed cells, the same on every replica, so that tracebacks and `inspect` agree.

Owns the log of cells, its blocks (`@cells/0007`) and the names of cell files, which depend on the kernel and
not on the process. Law: a full block is told once more when eight of its size become one, and so on: twenty
thousand cells are some dozens of blocks, and each cell travels a few times.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
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

MERGED_BLOCKS = 8
"""So many blocks of one size become one …"""
MERGED_CHARACTERS_MAX = 256 * 1024
"""… unless that would be longer than this: large cells are not told again and again."""

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


def source_of(cell: Cell) -> tuple[Any, ...]:
    """Return what tracebacks have of a cell."""
    return cell.number, cell.name, cell.code, cell.raw


def code_beside(raw: str, code: str) -> str | None:
    """Return the source as run, None where it is the one as typed with an end of line: most cells' is."""
    return None if code == _ended(raw) else code


_encoder = msgspec.msgpack.Encoder()


class Merged(msgspec.Struct):
    """The cells of `span` blocks that have become one, under the name of the first."""

    span: int
    cells: list[Cell]


_decoder = msgspec.msgpack.Decoder(list[Cell] | Merged)


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
    """One process part: up to BLOCK_CELLS_MAX cells, or `span` full blocks that became one at `index`."""

    def __init__(self, log: CellLog, index: int) -> None:
        self.cid = ComponentId(f"{CELLS_PREFIX}{index:04d}")
        self.index = index
        self.span = 1
        self.cells: list[Cell] = []
        self.characters = 0
        self._log = log
        self._closed: bytes | None = None
        self._marks: tuple[int, frozenset[int], int] | None = None

    @classmethod
    def merged(cls, log: CellLog, parts: Sequence[CellBlock]) -> CellBlock:
        """Return one block with the cells of full ones that stand in a row."""
        block = cls(log, parts[0].index)
        block.span = sum(part.span for part in parts)
        block.cells = [cell for part in parts for cell in part.cells]
        block.characters = sum(part.characters for part in parts)
        block._closed = _encoder.encode(Merged(block.span, block.cells))
        return block

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
        read = _decoder.decode(data)
        known = set(map(source_of, self.cells))
        self.span, self.cells = (read.span, read.cells) if isinstance(read, Merged) else (1, read)
        self.characters = sum(len(cell.raw) for cell in self.cells)
        self._closed, self._marks = data, None
        known.update(map(source_of, self._log.replaced_by(self)))
        self._log.loaded([cell for cell in self.cells if source_of(cell) not in known])

    def marks(self, first: int = 0) -> tuple[int, frozenset[int], int]:
        """Return how many cells from index `first` on are in In, the numbers of those that set Out, and the
        highest of these, else -1.
        """
        if first <= 0 and self._marks is not None:
            return self._marks
        cells = self.cells[max(first, 0) :]
        outs = frozenset(cell.number for cell in cells if cell.has_out)
        marks = sum(cell.listed for cell in cells), outs, max(outs, default=-1)
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
            last = self.blocks[-1]
            if last.full():
                self._merge()
                self.blocks.append(CellBlock(self, last.index + last.span))
            self.blocks[-1].append(cell)

    def _merge(self) -> None:
        """Make one block of the last ones, which are full, when there are enough of one size."""
        while True:
            parts = self.blocks[-MERGED_BLOCKS:]
            alike = len(parts) == MERGED_BLOCKS and len({part.span for part in parts}) == 1
            if not alike or sum(part.characters for part in parts) > MERGED_CHARACTERS_MAX:
                return
            for part in parts:
                self.finish(part.cells)
            self.blocks[-MERGED_BLOCKS:] = [CellBlock.merged(self, parts)]

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

    def marks_since(self, first: int, oldest: int = 0) -> tuple[int, set[int], int]:
        """Return how many cells from index `first` on are in In, the numbers of those that set Out, from
        `oldest` on, and the highest number of any that did, else -1.
        """
        marks = list(self._marks_since(first))
        found = [outs for _, outs, highest in marks if highest >= oldest]
        numbers = {number for outs in found for number in outs if number >= oldest}
        return sum([one[0] for one in marks]), numbers, max(one[2] for one in marks)

    def _marks_since(self, first: int) -> Iterator[tuple[int, frozenset[int], int]]:
        for block in self.blocks:
            yield block.marks(first)
            first -= len(block.cells)

    def closed_cells(self) -> int:
        """Return how many cells are in other blocks than the last one: they stay as they are."""
        return len(self) - len(self.blocks[-1].cells)

    def texts_since(self, first: int) -> dict[int, str]:
        """Return the texts of outputs, by cell number, from index `first` on."""
        return {cell.number: cell.out for cell in self.since(first) if cell.out is not None}

    def block(self, cid: str) -> CellBlock:
        """Return the block of component `cid`, made when there is none yet."""
        index = int(cid.removeprefix(CELLS_PREFIX))
        with self._lock:
            place = bisect_left(self.blocks, index, key=lambda block: block.index)
            if place == len(self.blocks) or self.blocks[place].index != index:
                self.blocks.insert(place, CellBlock(self, index))
            return self.blocks[place]

    def replaced_by(self, block: CellBlock) -> list[Cell]:
        """Take out the blocks that have become `block`, and return their cells."""
        gone: list[Cell] = []
        with self._lock:
            for other in self.blocks.copy():
                if block.index < other.index < block.index + block.span:
                    self.blocks.remove(other)
                    gone += other.cells
        return gone

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
