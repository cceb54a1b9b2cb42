"""Cells and variables of a kernel, for whoever has its record: sent, looked at, interrupted, listed.

All of it blocks for seconds at most; nobody here waits for a cell's end. Laws: a cell has the id that its
sender gave it, which is that of its message, so it runs once however often it is sent; the router's journal
remembers it, whoever ends meanwhile.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from replkernel.client.by_record import KernelLine, NoReply, known_record
from replkernel.client.history import LOOK_LIMIT_S, Refused, awake
from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.launch.kernel_record import KernelRecord, router_lives
from replkernel.protocol.progress import REQUEST as PROGRESS
from replkernel.protocol.progress import Execution, ProgressAnswer
from replkernel.protocol.sent_cells import (
    CELLS_TOLD_MAX,
    UNFINISHED_MAX,
    Bounds,
    NewCell,
    Row,
    SentCell,
    SentCells,
    told,
)
from replkernel.protocol.variables import REQUEST as VARIABLES
from replkernel.protocol.variables import VariablesDocument
from replkernel.router.core.contents import Content, ExecuteOptions
from replkernel.router.core.replay import DETACHED

OUTPUTS = "replkernel_outputs_request"
TAKEN_LIMIT_S = 10.0
"""A router that has not taken a cell by then is not waited for: the cell may be sent again."""
LOOK_S = 0.02
PAGES_MAX = 50
"""So many answers are read of one list of executions at most."""
NOTHING = Bounds(0, 0)

Shape = TypeVar("Shape")


class _Page(Content, frozen=True):
    executions: tuple[Row, ...] = ()
    more: bool = False


def send(kernel_id: str, env: Mapping[str, str], wanted: NewCell) -> SentCell:
    """Have a cell run in its turn, and return how it stands once the kernel has it; raises Refused.

    One that the kernel has already is not sent again.
    """
    cell = wanted.cell or uuid.uuid4().hex
    with KernelLine(_served(kernel_id, env)) as line:
        rows = _rows(line)
        row = next((row for row in rows if row.msg_id == cell), None)
        if row is None:
            if sum(not row.over for row in rows) >= UNFINISHED_MAX:
                why = f"{UNFINISHED_MAX} cells of this kernel wait or run already: wait for some to end."
                raise Refused("full", why)
            _post(line, cell, wanted)
            row = _taken(line, cell)
        if row.code_digest != ExecuteOptions(code=wanted.code).code_digest:
            raise Refused("taken", f"Another cell has the id {cell}: give this one an id of its own.")
        return told(cell, row, _execution(line, cell), NOTHING)


def look(kernel_id: str, env: Mapping[str, str], cell: str, bounds: Bounds = NOTHING) -> SentCell:
    """Return how a cell stands, with its outputs; one that the kernel does not know is `lost`."""
    with KernelLine(_served(kernel_id, env)) as line:
        row = _row(line, cell, outputs=True)
        return told(cell, row, None if row is None else _execution(line, cell), bounds)


def is_over(kernel_id: str, env: Mapping[str, str], cell: str) -> bool:
    """Tell whether nothing more is to be waited for: a cell has been answered, or is not known."""
    with KernelLine(_served(kernel_id, env)) as line:
        row = _row(line, cell, outputs=False)
        return row is None or row.over


def listed(kernel_id: str, env: Mapping[str, str]) -> SentCells:
    """Return the last cells that the kernel knows of, whoever sent them."""
    with KernelLine(_served(kernel_id, env)) as line:
        rows = _rows(line)
        known = {each.msg_id: each for each in _executions(line)}
        shown = rows[-CELLS_TOLD_MAX:]
        cells = tuple(told(row.msg_id, row, known.get(row.msg_id), NOTHING) for row in shown)
        return SentCells(cells, len(rows) - len(shown))


def interrupt(kernel_id: str, env: Mapping[str, str], cell: str) -> SentCell:
    """Interrupt a cell that runs, and return how it stands then; one that is over is left alone."""
    with KernelLine(_served(kernel_id, env)) as line:
        rows = _rows(line)
        row = next((row for row in rows if row.msg_id == cell), None)
        if row is not None and not row.over:
            if row.started is None and any(not each.over and each.started for each in rows):
                raise Refused("not-running", f"Cell {cell} waits behind another one: interrupt that first.")
            line.control("interrupt_request", {"msg_id": cell}, LOOK_LIMIT_S)
            row = _row(line, cell, outputs=False)
        return told(cell, row, None if row is None else _execution(line, cell), NOTHING)


def variables(kernel_id: str, env: Mapping[str, str]) -> VariablesDocument:
    """Return the kernel's variables, also while a cell runs; raises Refused."""
    with KernelLine(awake(kernel_id, env)) as line:
        return _ask(line, VARIABLES, {}, VariablesDocument)


def _served(kernel_id: str, env: Mapping[str, str]) -> KernelRecord:
    record = known_record(kernel_id, env)
    if not router_lives(record):
        raise Refused("hibernated", f"Kernel {kernel_id} hibernates, or nobody serves it: resume it first.")
    return record


def _post(line: KernelLine, cell: str, wanted: NewCell) -> None:
    content = {
        "code": wanted.code,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": False,
    }
    client = f"{DETACHED}{uuid.uuid4().hex}"
    line.post(cell, f"cell-{cell}", client, content, wanted.metadata(cell))


def _taken(line: KernelLine, cell: str) -> Row:
    deadline = time.monotonic() + TAKEN_LIMIT_S
    while (row := _row(line, cell, outputs=False)) is None:
        if time.monotonic() > deadline:
            why = (
                f"The kernel has not taken cell {cell} yet. If you have sent it before, it may have run and "
                "be forgotten: look at the variables. Otherwise send it again by this id."
            )
            raise Refused("unheard", why)
        time.sleep(LOOK_S)
    return row


def _row(line: KernelLine, cell: str, *, outputs: bool) -> Row | None:
    page = _ask(line, OUTPUTS, {"msg_ids": [cell], "outputs": outputs}, _Page)
    return next(iter(page.executions), None)


def _rows(line: KernelLine) -> list[Row]:
    """Return all executions that the journal has, without their outputs, in the order of their beginnings."""
    found: dict[str, Row] = {}
    since = 0
    for _ in range(PAGES_MAX):
        page = _ask(line, OUTPUTS, {"since": since, "outputs": False}, _Page)
        found |= {row.msg_id: row for row in page.executions}
        if not page.more or not page.executions:
            break
        since = page.executions[-1].version
    last = float("inf")
    return sorted(found.values(), key=lambda row: (row.started or last, row.version))


def _executions(line: KernelLine) -> list[Execution]:
    found: dict[str, Execution] = {}
    since = 0
    for _ in range(PAGES_MAX):
        page = _ask(line, PROGRESS, {"since": since}, ProgressAnswer)
        found |= {each.msg_id: each for each in page.executions}
        if not page.executions or page.version == since:
            break
        since = page.version
    return list(found.values())


def _execution(line: KernelLine, cell: str) -> Execution | None:
    return next((each for each in _executions(line) if each.msg_id == cell), None)


def _ask(line: KernelLine, request: str, content: Mapping[str, Any], shape: type[Shape]) -> Shape:
    try:
        return msgspec.convert(line.control(request, content, LOOK_LIMIT_S), shape)
    except NoReply as error:
        why = "Its process starts, or its code holds the interpreter, so it cannot be asked; ask again."
        raise Refused("busy", why) from error
    except UNREADABLE as error:
        raise ReplkernelError("Its answer is not understood; is it of this version?") from error
