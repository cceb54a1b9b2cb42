"""The journal of a live scheduler (a file of SQLite) as a trace: what its users did, and what they got.

Cells come from the rows of the accounts, sessions from the events of kernels. Law: nothing is written, so
the scheduler may run meanwhile. A cell that still runs or waits has no row, and is not there; where events
went with a snapshot, a session lasts from its first cell to its last one. Times are the scheduler's own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from math import ceil

import msgspec

from replkernel_scheduler.events import Event, KernelEnded, KernelReported, KernelStarted
from replkernel_scheduler.gangs.desk import GANGS_REQUEST
from replkernel_scheduler.sim.errors import TraceUnreadable
from replkernel_scheduler.sim.records import AHEAD_S, Cell, Record, Seen, Session
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.types import CellUsage

VERSIONS = (1, 2)
SESSIONS_MAX = 200_000
MAGIC = "SQLite format 3"
BUSY_S = 5.0
PACKED = (".gz", ".xz", ".zst")


def looks_like(line: str) -> bool:
    """Say whether a file's first line is that of a database."""
    return line.startswith(MAGIC)


def records(file: TraceFile) -> Iterator[Record]:
    """Yield all sessions and then the cells; raise TraceUnreadable."""
    if file.path.suffix in PACKED:
        raise TraceUnreadable(f"{file.path} is a packed journal: unpack it first.")
    try:
        address = f"{file.path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as database:
            found = database.execute("SELECT version FROM replkernel_head").fetchall()
            if [version for (version,) in found if version not in VERSIONS] or len(found) != 1:
                raise TraceUnreadable(
                    f"{file.path} is a journal of another version: play it with its own program."
                )
            yield from _sessions(file, database)
            begun: set[str] = set()
            for row in _usages(file, database):
                cell = file.take(partial(_cell_in, row, begun))
                if cell is not None:
                    yield cell
    except sqlite3.Error as error:
        raise TraceUnreadable(f"{file.path} cannot be read as a scheduler's journal: {error}.") from error


def _usages(file: TraceFile, database: sqlite3.Connection) -> Iterator[str]:
    query = "SELECT usage FROM replkernel_usage ORDER BY number, part"
    for file.line, (row,) in enumerate(database.execute(query), 1):
        yield row


def _cell_in(row: str, begun: set[str]) -> Cell | None:
    return _cell(_usage(row), begun)


def _usage(row: str) -> CellUsage:
    return msgspec.json.decode(row, type=CellUsage)


def _cell(usage: CellUsage, begun: set[str]) -> Cell | None:
    if not usage.busy_s:
        return None
    seen = Seen(usage.host, usage.queued_s, usage.leased_s)
    milli = round(usage.gpus * 1000) if usage.gpus < 1 else 0
    return Cell(
        _session_of(usage, begun), usage.asked_at, usage.busy_s, ceil(usage.gpus), seen=seen, milli=milli
    )


def _session_of(usage: CellUsage, begun: set[str]) -> str:
    """Return whose cell a row is; `begun` are the cells on several hosts that have a row already.

    The hosts of such a cell compute at once: the first row is the kernel's, each other host has a session.
    """
    if not usage.request.startswith(GANGS_REQUEST):
        return usage.kernel_id
    gang, _, _ = usage.request.rpartition(".")
    if gang in begun:
        return f"{usage.kernel_id} {usage.host}"
    begun.add(gang)
    return usage.kernel_id


def _sessions(file: TraceFile, database: sqlite3.Connection) -> Iterator[Session]:
    """Yield who was there, from when until when."""
    found: dict[str, Session] = {}
    ended: set[str] = set()
    last = 0.0
    for at, event in _kernel_events(file, database):
        last = at
        if isinstance(event, KernelEnded):
            ended.add(event.kernel_id)
            _stretch(file, found, Session(event.kernel_id, at, at, 0), new=False)
        else:
            spec = event.kernel
            ended.discard(spec.kernel_id)
            _stretch(file, found, Session(spec.kernel_id, at, at, spec.gpus, spec.user))
    told = set(found)
    begun: set[str] = set()
    for row in _usages(file, database):
        try:
            usage = _usage(row)
        except msgspec.MsgspecError:
            continue  # It is told of when its cell is read.
        cell = _cell(usage, begun)
        if cell is not None:
            ahead_s = 0.0 if cell.session in told else AHEAD_S
            ends = cell.at + usage.queued_s + usage.leased_s
            begins = max(0.0, cell.at - ahead_s)
            _stretch(file, found, Session(cell.session, begins, ends, cell.gpus, usage.user))
    for session in found.values():
        stays = session.session in told and session.session not in ended
        yield msgspec.structs.replace(session, ends=max(session.ends, last)) if stays else session


def _stretch(file: TraceFile, found: dict[str, Session], session: Session, *, new: bool = True) -> None:
    """Have a session last for as long as both say."""
    known = found.get(session.session)
    if known is None:
        if new and len(found) == SESSIONS_MAX:
            raise TraceUnreadable(
                f"{file.path} has more than {SESSIONS_MAX} sessions: use a shorter journal."
            )
        if new:
            found[session.session] = session
        return
    found[session.session] = Session(
        session.session,
        min(known.at, session.at),
        max(known.ends, session.ends),
        max(known.gpus, session.gpus),
        known.user,
    )


def _kernel_events(
    file: TraceFile, database: sqlite3.Connection
) -> Iterator[tuple[float, KernelStarted | KernelReported | KernelEnded]]:
    decode = msgspec.json.Decoder(Event).decode
    query = (
        'SELECT number, at, event FROM replkernel_event WHERE event LIKE \'{"type":"Kernel%\' ORDER BY number'
    )
    for number, at, text in database.execute(query):
        try:
            event = decode(text)
        except msgspec.MsgspecError as error:
            raise TraceUnreadable(f"{file.path}: event {number} does not fit ({error}).") from error
        if isinstance(event, KernelStarted | KernelReported | KernelEnded):
            yield at, event
