"""What the scheduler tells programs: figures for Prometheus, the accounts.

Law: they change nothing, and show only what is durable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Annotated, ClassVar, Literal, Protocol

import msgspec
from replkernel_scheduler.types import UserName
from tornado.ioloop import IOLoop
from tornado.iostream import StreamClosedError

from replkernel.leasing.wire import GpuUse
from replkernel_server.errors import BadRequest
from replkernel_server.handlers.scheduler_base import Operation, Query, SchedulerHandler, paced
from replkernel_server.scheduling import access
from replkernel_server.scheduling.accounting import (
    SINCE_CHARS_MAX,
    CellRow,
    ClusterRow,
    JobRow,
    SumRow,
    cell_row,
    cluster_rows,
    csv_head,
    csv_lines,
    gpu_s_of_jobs,
    job_rows,
    kernel_rows,
    parse_since,
    user_rows,
)
from replkernel_server.scheduling.metrics import CONTENT_TYPE, Clients, JournalFigures
from replkernel_server.scheduling.past import Past

FORMATS = ("json", "csv")
PIECE_BYTES = 256 * 1024
KINDS = ("cell", "kernel", "user", "job", "cluster")


TABLES: dict[str, tuple[str, type[msgspec.Struct]]] = {
    "cell": ("cells", CellRow),
    "kernel": ("sums", SumRow),
    "user": ("sums", SumRow),
    "job": ("jobs", JobRow),
    "cluster": ("cluster", ClusterRow),
}
"""What each list is called, and what its rows are."""


class Rows(msgspec.Struct, frozen=True):
    """The accounts; which of the lists there is depends on `by`."""

    cells: list[CellRow] = []
    sums: list[SumRow] = []
    cluster: list[ClusterRow] = []
    jobs: list[JobRow] = []


class MetricsHandler(SchedulerHandler):
    """/metrics."""

    operations: ClassVar = {"get": Operation("The figures, in Prometheus' text form.", {200: "text/plain"})}

    async def get(self) -> None:
        """Answer with all figures."""
        view = await self.driver.view("hosts", "leases", "waiting", "kernels")
        desk = self.channel.desk
        uses: dict[str, Mapping[str, GpuUse]] = {}
        async for piece in paced(view.hosts):
            uses.update((host.name, use) for host in piece if (use := desk.hosts.use_of(host.name)))
        clients = Clients(Counter(desk.clients.roles()), uses)
        write = partial(self.metrics.write, view, self._journal(), clients)
        text = await IOLoop.current().run_in_executor(None, write)
        self.set_header("Content-Type", CONTENT_TYPE)
        self.set_header("Cache-Control", "no-store")
        try:
            for begin in range(0, len(text), PIECE_BYTES):
                self.write(text[begin : begin + PIECE_BYTES])
                if begin + PIECE_BYTES < len(text):
                    await self.flush()
            await self.finish()
        except StreamClosedError:
            return  # The reader has gone.

    def _journal(self) -> JournalFigures:
        last, journal = self.driver.number, self.driver.journal
        made = () if journal.snapshot is None else (journal.snapshot.number, journal.snapshot.made)
        return JournalFigures(last - journal.held_from + 1, last, *(made or (0, 0.0)), journal.failures)


class PastHandler(SchedulerHandler):
    """/api/v1/past."""

    operations: ClassVar = {
        "get": Operation("The cluster's last day in counts, for charts; its journal keeps it.", {200: Past})
    }

    async def get(self) -> None:
        """Answer with what was kept."""
        self.answer(200, self.past.tell())


class AccountingHandler(SchedulerHandler):
    """/api/v1/accounting."""

    operations: ClassVar = {
        "get": Operation(
            "One's own accounts (an admin: all): a row for each lease whose use is over, or the sums of "
            "kernels, users or jobs. With format=csv the same as text/csv.",
            {200: (Rows, "text/csv")},
            query=(
                Query("format", Literal["json", "csv"], "json (default) or csv."),
                Query(
                    "by",
                    Literal["cell", "kernel", "user", "job", "cluster"],
                    "What a row is about; cell is the default. The money of the whole cluster is for admins.",
                ),
                Query(
                    "since",
                    Annotated[str, msgspec.Meta(max_length=SINCE_CHARS_MAX)],
                    "With by=cell: only what ended since this date or time (ISO 8601, UTC).",
                ),
            ),
        )
    }

    async def get(self) -> None:
        """Stream the rows."""
        form, by = self._choice("format", FORMATS), self._choice("by", KINDS)
        given = self.get_query_argument("since", "")
        if given and by != "cell":
            raise BadRequest("since= goes with by=cell: sums are of all the time since the journal began.")
        since = parse_since(given)
        if by == "cluster":
            self.for_admins()
        await self.driver.settled()
        self.set_header("Content-Type", "text/csv; charset=utf-8" if form == "csv" else "application/json")
        self.set_header("Cache-Control", "no-store")
        table = _Csv() if form == "csv" else _Json()
        self.write(table.head(*TABLES[by]))
        try:
            if by == "cluster":
                self.write(table.lines(cluster_rows(await self.driver.view("users"))))
            elif by == "cell":
                await self._stream_cells(table, since)
            else:
                await self._stream_sums(table, by)
            self.write(table.foot())
            await self.finish()
        except StreamClosedError:
            return  # The reader has gone: nobody is left to tell.

    async def _stream_cells(self, table: Table, since: float) -> None:
        after = (0, -1)
        while True:
            page = await IOLoop.current().run_in_executor(None, self.driver.journal.usage, since, after)
            if not page:
                return
            mine = (cell_row(entry, usage) for entry, usage in page if self._may_see(usage.user))
            self.write(table.lines(mine))
            await self.flush()
            after = (page[-1][0].number, page[-1][0].part)

    async def _stream_sums(self, table: Table, by: str) -> None:
        beside, now = self.driver.beside.desk, self.driver.clock.now()
        rows: Iterable[SumRow | JobRow]
        if by == "kernel":
            rows = kernel_rows(await self.driver.view("usage"))
        elif by == "job":
            rows = list(job_rows(beside, now))
        else:
            rows = user_rows(await self.driver.view("users"), gpu_s_of_jobs(beside, now))
        async for piece in paced(row for row in rows if self._may_see(row.user)):
            self.write(table.lines(piece))
            await self.flush()

    def _may_see(self, user: str) -> bool:
        return access.may_see(self.identity, UserName(user))

    def _choice(self, name: str, choices: tuple[str, ...]) -> str:
        given = self.get_query_argument(name, choices[0])
        if given not in choices:
            raise BadRequest(f"Write {name}= as one of {', '.join(choices)}.")
        return given


class Table(Protocol):
    """One way to write rows, piece by piece."""

    def head(self, name: str, shape: type[msgspec.Struct]) -> bytes:
        """Return what comes before the rows."""
        ...

    def lines(self, rows: Iterable[msgspec.Struct]) -> bytes:
        """Return some rows."""
        ...

    def foot(self) -> bytes:
        """Return what comes after them."""
        ...


class _Csv:
    def head(self, name: str, shape: type[msgspec.Struct]) -> bytes:
        return csv_head(shape)

    def lines(self, rows: Iterable[msgspec.Struct]) -> bytes:
        return csv_lines(rows)

    def foot(self) -> bytes:
        return b""


class _Json:
    def __init__(self) -> None:
        self._first = True

    def head(self, name: str, shape: type[msgspec.Struct]) -> bytes:
        return b'{"%s":[' % name.encode()

    def lines(self, rows: Iterable[msgspec.Struct]) -> bytes:
        text = b",\n".join(msgspec.json.encode(row) for row in rows)
        before = b"" if self._first or not text else b",\n"
        self._first = self._first and not text
        return before + text

    def foot(self) -> bytes:
        return b"]}"
