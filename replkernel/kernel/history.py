"""The history of one kernel, whichever replica ran its cells: a log of cells, a session in history.sqlite.

A replica opens the database only when somebody asks or it runs a cell; a standby never creates a session.
The session is known by the moment of the kernel's first cell, so every replica finds the same row, and
a host with a database of its own gets one row there. A kernel that begins with another one's state has a
session of its own.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
import sys
import threading
from typing import TYPE_CHECKING, Any, cast

from IPython.core.history import HistoryAccessor, HistoryManager
from traitlets import default

from replkernel.kernel.cells import Cell, CellLog, code_beside
from replkernel.kernel.interrupts import PutOffInterrupts

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


OUT_CHARACTERS_MAX = 16 * 1024
"""The text of an output longer than this is not kept for ``%history -o`` on other replicas."""

FIRST_SAVE_S = 0.1
"""So long the first cell of a process is left alone before its source goes into the database."""

_ADD_INPUT = "INSERT OR IGNORE INTO history VALUES (?, ?, ?, ?)"
_REPLACE_INPUT = "REPLACE INTO history VALUES (?, ?, ?, ?)"
_REPLACE_OUTPUT = "REPLACE INTO output_history VALUES (?, ?, ?)"


class ReplicatedHistory(HistoryManager):
    """IPython's history manager, lazy about its database and fed by the kernel's log of cells."""

    def __init__(self, shell: InteractiveShell, **traits: Any) -> None:
        self._ends = threading.Event()
        self.cells = CellLog(self._finish)
        self.interrupts = PutOffInterrupts()
        """What keeps SIGINT from the lock of the saving thread's flag: broken there, it is never released."""
        self.kernel_id = ""
        """Whose cells these are; `started` is never of the kernel that it was forked from."""
        self.first = 0
        self.started = ""
        self.input_names: dict[str, str] = {}
        """The names ``_i1``, ``_i2``, … with the sources that they were given."""
        self._constructing = True
        self._session_lock = threading.RLock()
        self._replace_from = sys.maxsize
        self._runs_cells = False
        HistoryAccessor.__init__(self, shell=shell, **traits)
        self.db_input_cache_lock = threading.Lock()
        self.db_output_cache_lock = threading.Lock()
        self.using_thread = bool(self.enabled and str(self.hist_file) != ":memory:")
        self._instances.add(self)
        self._forget_session()
        self._constructing = False

    @property
    def out(self) -> dict[int, Any]:
        """The dict that users know as ``Out``."""
        return cast("dict[int, Any]", self.output_hist)

    def init_db(self) -> None:
        """Connect to the database, but not at construction: see `_open_database`."""
        if not self._constructing:
            self._connect()

    def _connect(self) -> None:
        """Connect to the database; IPython closes it at the exit, once it has ended the session.

        In a process that opens it late, the exit's turn of IPython's own finalizer comes before that.
        """
        super().init_db()
        finalizer = getattr(self, "_finalizer", None)
        if finalizer is not None:
            finalizer.atexit = False

    @default("db")
    def _open_database(self) -> object:
        with self._session_lock:
            self._connect()
            return self._trait_values["db"]

    @default("session_number")
    def _find_session(self) -> int:
        """Return the number of the kernel's session in this host's database; 0 while there is none.

        Only a process that has run a cell adds it.
        """
        if not self.started or not self.enabled:
            return 0
        with self._session_lock:
            try:
                return self._open_session()
            except sqlite3.OperationalError:
                self.log.error(
                    "Failed to create a history session in %s; history is kept in memory.", self.hist_file
                )
                self.hist_file = ":memory:"
                self._connect()
                return self._open_session()

    def _open_session(self) -> int:
        number = self._known_session()
        if number or not self._runs_cells:
            return number
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            number = self._known_session()
            if number:
                return number
            added = self.db.execute("INSERT INTO sessions VALUES (NULL, ?, NULL, NULL, '')", (self.started,))
            number = int(added.lastrowid)
            lines = list(zip(self.input_hist_parsed, self.input_hist_raw, strict=False))[
                : self._known_lines()
            ]
            self.db.executemany(
                "INSERT OR IGNORE INTO history VALUES (?, ?, ?, ?)",
                [(number, line, *both) for line, both in enumerate(lines) if line],
            )
            return number

    def _known_session(self) -> int:
        """Return the number of the row that the kernel has in this database, or 0."""
        row = self.db.execute("SELECT session FROM sessions WHERE start == ?", (self.started,)).fetchone()
        return 0 if row is None else int(row[0])

    def _known_lines(self) -> int:
        """Return how many entries of In came from other replicas: a new database gets those at once."""
        return min(self._replace_from, len(self.input_hist_raw)) if self._replace_from != sys.maxsize else 0

    def _forget_session(self) -> None:
        self._trait_values.pop("session_number", None)

    def new_session(self, conn: object = None) -> None:
        """Begin another session; its row is written when the session is first needed."""
        with self._session_lock:
            self.started = "" if self._constructing else _now()
            if conn is None:
                self.first = len(self.cells)
                self.input_names = {}
            self._replace_from = sys.maxsize
            self._forget_session()

    def end_session(self) -> None:
        """Close the session's row, when this replica has opened it."""
        if self._trait_values.get("session_number") and "db" in self._trait_values:
            super().end_session()

    def stop_saving(self) -> None:
        """End the saving thread; what it has not written is written when the session ends."""
        self._stop_save_thread()

    def _stop_save_thread(self) -> None:
        """Stop the saving thread, also before a fork."""
        self._ends.set()
        super()._stop_save_thread()

    def close(self) -> None:
        """Stop the saving thread and close the database, when there is one."""
        self._stop_save_thread()
        if "db" in self._trait_values:
            self.db.close()

    def store_inputs(self, line_num: int, source: str, source_raw: str | None = None) -> None:
        """Store a cell's source as stock does, and enter it in the kernel's log of cells."""
        if not self.started:
            self.started = _now()
        self._runs_cells = True
        if not self._trait_values.get("session_number"):
            self._forget_session()
        before = len(self.input_hist_raw)
        with self.interrupts.postponed():
            super().store_inputs(line_num, source, source_raw)
            raw = source if source_raw is None else source_raw
            listed = len(self.input_hist_raw) > before
            self.cells.add(Cell(line_num, raw, code_beside(raw, source), listed=listed))
            if listed:
                self.input_names[f"_i{line_num}"] = self._i00

    def store_output(self, line_num: int) -> None:
        """Store a cell's output as stock does."""
        with self.interrupts.postponed():
            super().store_output(line_num)

    def skip(self, line_num: int) -> None:
        """Leave the line of a cell empty that was counted and then lost with its replica."""
        self.input_hist_parsed.append("")
        self.input_hist_raw.append("")
        self.cells.add(Cell(line_num, "", listed=True))

    def recent_inputs(self) -> dict[str, str]:
        """Return the names of the last cells' sources with what they were given."""
        return {"_i": self._i, "_ii": self._ii, "_iii": self._iii}

    def writeout_cache(self, conn: sqlite3.Connection | None = None) -> None:
        """Write what waits; the saving thread opens no database while a first cell may be running."""
        if conn is not None and "db" not in self._trait_values:
            self._ends.wait(FIRST_SAVE_S)
        super().writeout_cache(conn)

    def _writeout_input_cache(self, conn: sqlite3.Connection) -> None:
        """Write new lines; no number of a line is ever told to be taken, as it is the kernel's own.

        One that a lost replica wrote and nobody committed gives way to ours; where others have gone on since
        we ran ours, theirs stays.
        """
        number = self.session_number
        with conn:
            for line, source, raw in self.db_input_cache:
                write = _ADD_INPUT if line < self._replace_from else _REPLACE_INPUT
                conn.execute(write, (number, line, source, raw))

    def _writeout_output_cache(self, conn: sqlite3.Connection) -> None:
        """Write new outputs, in place of those of a lost replica."""
        number = self.session_number
        with conn:
            for line, output in self.db_output_cache:
                conn.execute(_REPLACE_OUTPUT, (number, line, output))

    def _finish(self, cells: list[Cell]) -> None:
        """Complete the records of an open block with what their cells left in Out."""
        out = self.out
        for cell in cells:
            if cell.listed and cell.number in out:
                cell.has_out = True
                text = self.output_hist_reprs.get(cell.number)
                cell.out = text if text is not None and len(text) <= OUT_CHARACTERS_MAX else None

    def adopt(self, started: str, kernel_id: str, execution_count: int) -> None:
        """Continue the session that another replica began at `started`, from line `execution_count` on.

        One of another kernel is left alone: the next cell begins a session, with the lines from before.
        """
        if kernel_id not in ("", self.kernel_id):
            started = ""
        self._replace_from = execution_count
        if started != self.started or not self._trait_values.get("session_number"):
            self.started = started
            self._forget_session()


ReplicatedHistory.__name__ = HistoryManager.__name__  # ``%config`` lists and finds it by this name.


def _now() -> str:
    """Return the moment as IPython writes it: local time without an offset."""
    return dt.datetime.now().isoformat(" ")  # noqa: DTZ005
