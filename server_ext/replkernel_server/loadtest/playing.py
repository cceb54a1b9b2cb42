"""The test itself: notebooks are opened, their cells submitted when they are due, and all of it ended again.

Law: no more than `starting` kernels start at a time; whatever happens, each kernel that was started is ended,
and what could not be ended is told by name.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable

import msgspec

from replkernel_server.loadtest.errors import CellFailed, LoadTestError
from replkernel_server.loadtest.listening import Listening
from replkernel_server.loadtest.notebook import PREFIX, Notebook
from replkernel_server.loadtest.plan import LoadPlan, PlannedCell, PlannedSession
from replkernel_server.loadtest.processes import Processes
from replkernel_server.loadtest.samples import CellSample, StartSample
from replkernel_server.loadtest.server import LabServer

PROGRESS_EVERY_S = 2.0
SETTLE_S = 30.0
CLOSING_MAX = 8


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How it is played: which kernel, how many start at a time, bytes that each cell changes, patience."""

    kernel: str = "replkernel"
    starting: int = 4
    state_bytes: int = 1024
    patience_s: float = 60.0


class Playing:
    """One run of a plan against a server."""

    def __init__(
        self, server: LabServer, plan: LoadPlan, manner: Manner, seen: Processes, tell: Callable[[str], None]
    ) -> None:
        self.cells: list[CellSample] = []
        self.starts: list[StartSample] = []
        self.not_ended: list[str] = []
        self.played_s = 0.0
        self.open_max = 0
        self.listening = Listening(server)
        self.seen = seen
        self._server, self._plan, self._manner, self._tell = server, plan, manner, tell
        self._run = uuid.uuid4().hex[:6]
        self._open: dict[str, Notebook] = {}
        self._kernels: set[str] = set()
        self._opening: set[asyncio.Task[Notebook | None]] = set()
        self._starting = asyncio.Semaphore(manner.starting)
        self._running = 0
        self._zero = 0.0
        self.stop = asyncio.Event()

    async def play(self) -> None:
        """Play to the end, or until `stop` is set."""
        await self.listening.begin()
        begun = time.monotonic()
        progress = asyncio.create_task(self._progress())
        try:
            await self._open_first()
            await self.seen.begin(self._kernels)
            self._zero = time.monotonic()
            if not self.stop.is_set():
                await self._until_stopped(self._play_all())
            self.played_s = time.monotonic() - self._zero
            await self.seen.end(self._kernels)
            if not self.stop.is_set():
                await self._until_stopped(self.listening.settle(SETTLE_S))
        finally:
            progress.cancel()
            await self._close_all()
            self.listening.close()
            self._tell(f"All of it took {time.monotonic() - begun:.0f} s.")

    async def _until_stopped(self, work: object) -> None:
        """Do some work; leave it when the test is to stop, or at its first fault."""
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        stopping = asyncio.create_task(self.stop.wait())
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return
        task.result()

    # -- opening and playing ----------------------------------------------------------------------------

    async def _open_first(self) -> None:
        """Open what is open from the beginning; raise LoadTestError if none of it can be."""
        first = [(number, session) for number, session in self._numbered() if session.opens_s <= 0]
        opened = await asyncio.gather(*[self._opened(number) for number, _ in first])
        if first and not any(opened) and not self.stop.is_set():
            raise LoadTestError(
                f"None of {len(first)} kernels started: {self.starts[0].trouble or 'no reason was told'}."
            )

    def _numbered(self) -> list[tuple[int, PlannedSession]]:
        return list(enumerate(self._plan.sessions))

    async def _opened(self, number: int) -> Notebook | None:
        """Open a notebook; one whose kernel is being made is waited for in the end, to be ended."""
        opening = asyncio.create_task(self._open_one(number))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        return await asyncio.shield(opening)

    async def _open_one(self, number: int) -> Notebook | None:
        notebook = Notebook(self._server, self._manner.kernel, number, self._run)
        async with self._starting:
            if self.stop.is_set():
                return None
            self._open[notebook.name] = notebook
            began = time.monotonic()
            trouble = ""
            try:
                await notebook.open(self._manner.patience_s)
            except (CellFailed, LoadTestError) as error:
                trouble = str(error)
        self.starts.append(
            StartSample(session=notebook.name, took_s=time.monotonic() - began, trouble=trouble)
        )
        if trouble:
            return None
        self._kernels.add(notebook.kernel_id)
        self.open_max = max(self.open_max, len(self._open))
        return notebook

    async def _play_all(self) -> None:
        ready = {notebook.number: notebook for notebook in self._open.values() if notebook.kernel_id}
        failed = {sample.session for sample in self.starts if sample.trouble}
        playing = [
            self._play(number, session, ready.get(number))
            for number, session in self._numbered()
            if number not in ready or ready[number].name not in failed
        ]
        await asyncio.gather(*playing, self._sleep_until(self._plan.lasts_s))

    async def _play(self, number: int, session: PlannedSession, notebook: Notebook | None) -> None:
        if notebook is None:
            await self._sleep_until(session.opens_s)
            notebook = await self._opened(number)
            if notebook is None:
                return
        for cell in session.cells:
            await self._sleep_until(cell.at_s)
            if time.monotonic() - self._zero > self._plan.lasts_s:
                break
            await self._run_cell(notebook, cell)
        if session.closes_s < self._plan.lasts_s:
            await self._sleep_until(session.closes_s)
            await self.listening.settle(SETTLE_S, notebook.name)
            await self._closed(notebook)

    async def _sleep_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, self._zero + at_s - time.monotonic()))

    async def _run_cell(self, notebook: Notebook, cell: PlannedCell) -> None:
        sample = CellSample(
            session=notebook.name,
            msg_id=uuid.uuid4().hex,
            due_s=cell.at_s,
            runs_s=cell.runs_s,
            gpus=cell.gpus,
        )
        self.listening.expect(sample)
        self._running += 1
        try:
            await notebook.run(sample, self._manner.state_bytes, self._zero, self._manner.patience_s)
            self.cells.append(sample)
        finally:
            self._running -= 1

    # -- ending -----------------------------------------------------------------------------------------

    async def _closed(self, notebook: Notebook) -> None:
        try:
            await notebook.close()
        except LoadTestError as error:
            self.not_ended.append(f"{notebook.name} ({error})")
        self._open.pop(notebook.name, None)

    async def _close_all(self) -> None:
        """End every kernel, a few at a time; being stopped again does not stop this."""
        await asyncio.shield(asyncio.gather(*self._opening, return_exceptions=True))
        gate = asyncio.Semaphore(CLOSING_MAX)

        async def close(notebook: Notebook) -> None:
            async with gate:
                await self._closed(notebook)

        left = list(self._open.values())
        if left:
            self._tell(f"Ending {len(left)} kernels …")
        await asyncio.shield(asyncio.gather(*[close(notebook) for notebook in left]))
        try:
            await asyncio.shield(self._close_unknown())
        except LoadTestError as error:
            self.not_ended.append(f"sessions of this test that nobody heard of, if any ({error})")

    async def _close_unknown(self) -> None:
        """End sessions of this test that the server has all the same: it made them after we had given up."""
        for model in await self._server.call("GET", "api/sessions"):
            if str(model["path"]).startswith(f"{PREFIX}-{self._run}-"):
                await self._server.call("DELETE", f"api/sessions/{model['id']}")

    # -- progress ---------------------------------------------------------------------------------------

    async def _progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            if not self._zero:
                wanted = sum(session.opens_s <= 0 for session in self._plan.sessions)
                self._tell(f"starting: {len(self.starts)} of {wanted} kernels are there")
                continue
            at = time.monotonic() - self._zero
            wrong = sum(bool(cell.trouble) for cell in self.cells)
            self._tell(
                f"{min(at, self._plan.lasts_s):.0f} of {self._plan.lasts_s:.0f} s: {len(self.cells):,} of "
                f"{self._plan.cells:,} cells done, {self._running} running, {wrong} went wrong, "
                f"{self.listening.unsettled()} not durable yet"
            )
