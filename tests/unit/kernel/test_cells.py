"""The log of cells: what one replica recorded, another's tracebacks know; full blocks stay as they are."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from replkernel.kernel.cells import (
    BLOCK_BYTES_MAX,
    BLOCK_CELLS_MAX,
    MERGED_BLOCKS,
    MERGED_CHARACTERS_MAX,
    Cell,
    CellCompiler,
    CellLog,
    cell_directory,
)


@pytest.fixture
def log() -> Iterator[CellLog]:
    """Return an empty log; the sources that a test publishes are forgotten."""
    before = set(linecache.cache)
    yield CellLog(lambda cells: None)
    for name in set(linecache.cache) - before:
        del linecache.cache[name]


def copy(source: CellLog) -> CellLog:
    """Return another replica's log after the blocks of `source` have travelled."""
    target = CellLog(lambda cells: None)
    for block in source.blocks:
        data = block.dump()
        assert data is not None
        target.block(block.cid).load(data)
    return target


def test_sources_travel(log: CellLog) -> None:
    log.add(Cell(1, "def f():\n    return 1\n", listed=True))
    log.compiled("def f():\n    return 1\n", "def f():\n    return 1\n", 1, "/tmp/ipykernel_1/5.py")
    linecache.cache.pop("/tmp/ipykernel_1/5.py", None)
    target = copy(log)
    assert linecache.getlines("/tmp/ipykernel_1/5.py") == ["def f():\n", "    return 1\n"]
    assert target.numbers_by_name == {"/tmp/ipykernel_1/5.py": 1}
    assert list(target) == list(log)


def test_function_of_another_replicas_cell_has_source(log: CellLog) -> None:
    source = "def doubled(x):\n    return 2 * x\n"
    log.compiled(source, source, 3, "<cell 3>")
    copy(log)
    space: dict[str, object] = {}
    exec(compile(source, "<cell 3>", "exec"), space)
    assert inspect.getsource(space["doubled"]) == source  # type: ignore[arg-type]


def test_one_record_for_a_cell_that_is_listed_and_compiled(log: CellLog) -> None:
    log.add(Cell(1, "%who", "get_ipython().run_line_magic('who', '')\n", listed=True))
    log.compiled("%who", "get_ipython().run_line_magic('who', '')\n", 1, "<one>")
    assert [(cell.raw, cell.parsed(), cell.name) for cell in log] == [
        ("%who", "get_ipython().run_line_magic('who', '')\n", "<one>")
    ]


def test_a_source_as_run_that_only_ends_its_line_is_not_told_twice(log: CellLog) -> None:
    source = "total = sum(values)"
    log.compiled(source, source + "\n", 1, "<one>")
    (block,) = log.blocks
    assert (block.dump() or b"").count(source.encode()) == 1
    assert [(cell.raw, cell.parsed()) for cell in copy(log)] == [(source, source + "\n")]


def test_a_cell_without_an_end_of_line_travels_without_one(log: CellLog) -> None:
    log.compiled("x = 1", "x = 1", 1, "<silent>")
    assert [cell.parsed() for cell in copy(log)] == ["x = 1"]


def test_a_small_cell_ships_little_beside_itself_wherever_its_block_stands(log: CellLog) -> None:
    known: dict[str, bytes] = {}
    for number in range(1, BLOCK_CELLS_MAX * MERGED_BLOCKS + 1):
        name = f"/tmp/ipykernel_1282939731/{number:010}.py"
        log.compiled("m = arr.mean()", "m = arr.mean()\n", number, name)
        told = {block.cid: block.dump() or b"" for block in log.blocks}
        assert sum(len(data) for cid, data in told.items() if known.get(cid) != data) < 600
        known = {**known, **told}


def test_silent_cells_are_logged_but_not_listed(log: CellLog) -> None:
    log.compiled("x = 1", "x = 1", 1, "<silent>")
    assert [cell.listed for cell in log] == [False]


def test_full_blocks_are_dumped_once(log: CellLog) -> None:
    for number in range(1, BLOCK_CELLS_MAX + 2):
        log.add(Cell(number, f"x = {number}", listed=True))
    first, second = log.blocks
    assert first.dump() is first.dump()
    before = second.dump()
    log.add(Cell(99, "y = 1", listed=True))
    assert second.dump() != before
    assert len(first.cells) == BLOCK_CELLS_MAX


def test_of_thousands_of_cells_there_are_dozens_of_blocks_and_each_is_told_a_few_times(log: CellLog) -> None:
    count, shipped, longest = 5_000, 0, 0
    known: dict[str, bytes] = {}
    for number in range(1, count + 1):
        log.add(Cell(number, f"value_{number} = compute({number})", listed=True))
        for block in log.blocks:
            data = block.dump()
            assert data is not None
            if known.get(block.cid) is not data:
                known[block.cid] = data
                shipped += len(data)
        longest = max(longest, len(log.blocks))
    whole = sum(len(block.dump() or b"") for block in log.blocks)
    assert longest <= MERGED_BLOCKS * 4 + 1
    # While its block is open a cell is told 4.5 times in the middle, then once for each size of block.
    assert shipped < whole * (BLOCK_CELLS_MAX + 4)


def test_blocks_that_became_one_take_the_place_of_theirs_elsewhere(log: CellLog) -> None:
    others: dict[str, bytes] = {}
    target = CellLog(lambda cells: None)
    learnt: list[str] = []
    target.watch = SimpleNamespace(learn=learnt.append)  # type: ignore[assignment]
    for number in range(1, BLOCK_CELLS_MAX * MERGED_BLOCKS * 2 + 3):
        log.compiled(f"x = {number}", f"x = {number}\n", number, f"<{number}>")
        for block in log.blocks:
            data = block.dump() or b""
            if others.get(block.cid) != data:
                others[block.cid] = data
                target.block(block.cid).load(data)
    assert list(target) == list(log)
    assert [(block.index, block.span) for block in target.blocks] == [(0, 8), (8, 8), (16, 1)]
    assert learnt == [f"x = {number}\n" for number in range(1, len(log) + 1)]
    target.add(Cell(1000, "here now"))
    assert [cell.number for cell in target][-1] == 1000


def test_blocks_of_large_cells_stay_apart(log: CellLog) -> None:
    for number in range(1, 3 * MERGED_BLOCKS):
        log.add(Cell(number, "#" * (MERGED_CHARACTERS_MAX // MERGED_BLOCKS + 1)))
    assert {block.span for block in log.blocks} == {1}


def test_large_cells_close_their_block(log: CellLog) -> None:
    log.add(Cell(1, "#" * BLOCK_BYTES_MAX))
    log.add(Cell(2, "x"))
    assert [len(block.cells) for block in log.blocks] == [1, 1]


def test_cells_since_an_index_cross_blocks(log: CellLog) -> None:
    for number in range(BLOCK_CELLS_MAX + 3):
        log.add(Cell(number, "x", listed=number % 2 == 0, has_out=number > BLOCK_CELLS_MAX))
    assert [cell.number for cell in log.since(BLOCK_CELLS_MAX + 1)] == [
        BLOCK_CELLS_MAX + 1,
        BLOCK_CELLS_MAX + 2,
    ]
    assert log.marks_since(0)[1] == {BLOCK_CELLS_MAX + 1, BLOCK_CELLS_MAX + 2}
    assert log.marks_since(BLOCK_CELLS_MAX)[0] == 2


def test_cell_files_are_named_for_the_kernel_not_the_process() -> None:
    first = cell_directory("kernel-a", {"TMPDIR": "/scratch"})
    assert first == cell_directory("kernel-a", {"TMPDIR": "/scratch"})
    assert first != cell_directory("kernel-b", {"TMPDIR": "/scratch"})
    assert first.startswith("/scratch/ipykernel_")
    assert first.rpartition("_")[2].isdigit()


def test_compiler_records_and_recognises(log: CellLog) -> None:
    compiler = CellCompiler()
    compiler.use(log)
    name = compiler.cache("a = 1\n", 4, raw_code="a = 1")
    assert [(cell.number, cell.raw, cell.name) for cell in log] == [(4, "a = 1", name)]
    data = log.blocks[0].dump()
    assert data is not None
    elsewhere = CellCompiler()
    other = CellLog(lambda cells: None)
    elsewhere.use(other)
    other.block("@cells/0000").load(data)
    assert elsewhere.format_code_name(name) == ("Cell", "In[4]")


def test_marks_of_full_blocks_are_kept_and_agree_after_travelling(log: CellLog) -> None:
    for number in range(1, BLOCK_CELLS_MAX * (MERGED_BLOCKS + 2) + 3):
        log.add(Cell(number, "x", listed=number % 3 != 0, has_out=number % 2 == 0))
    count = len(log)
    for read in (log, copy(log), log):
        for first in (0, 1, BLOCK_CELLS_MAX, BLOCK_CELLS_MAX + 5, count):
            since = list(read)[first:]
            assert read.marks_since(first)[0] == sum(cell.listed for cell in since)
            outs = {cell.number for cell in since if cell.has_out}
            assert read.marks_since(first)[1:] == (outs, max(outs, default=-1))
            assert read.marks_since(first, 40)[1] == {number for number in outs if number >= 40}
    log.blocks[0].load(log.blocks[1].dump() or b"")
    assert log.marks_since(0)[0] == sum(cell.listed for cell in log)
