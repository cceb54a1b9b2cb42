"""/replkernel/api/kernels/KERNEL/cells…, …/variables: cells that programs send and leave.

Law: with the rights that Jupyter's own kernels need, and for kernels of this server's user alone; a request
waits for a cell as long as it says, and for the kernel's word beyond that; between looks it holds no thread.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import msgspec
from jupyter_server.auth.decorator import authorized
from tornado import web

from replkernel.client.cells import interrupt, is_over, listed, look, send, variables
from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.protocol.sent_cells import WAIT_S_MAX, Bounds, NewCell, SentCell, SentCells
from replkernel.protocol.variables import VariablesDocument
from replkernel_server.handlers.history import KERNEL, NotDone, PastStateHandler
from replkernel_server.handlers.scheduler_base import Operation, Query

LOOK_S, LOOK_S_MAX = 0.1, 1.0
WAITERS_MAX = 64
"""So many requests wait for cells at once; what comes on top is answered with how its cell stands now."""
WAITING = "replkernel_cells_waited_for"
_lookers = ThreadPoolExecutor(4, "replkernel-cells")
"""Their own threads: a kernel that does not answer holds up nobody but those who wait for cells."""


class CellsHandler(PastStateHandler):
    """All cells."""

    operations: ClassVar = {
        "get": Operation(
            "The last cells that a kernel knows of, whoever sent them.", {200: SentCells, 409: NotDone}
        ),
        "post": Operation(
            "Have a cell run in its turn; what it puts out is kept for whoever asks.",
            {200: SentCell, 409: NotDone},
            takes=NewCell,
        ),
    }

    @web.authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        """Answer with the list."""
        await self.answer(kernel_id, listed)

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        """Send the cell."""
        await self.answer(kernel_id, send, self.body(NewCell))


class CellHandler(PastStateHandler):
    """One cell."""

    operations: ClassVar = {
        "get": Operation(
            "How a cell stands, with its outputs; one that is not known is `lost`.",
            {200: SentCell, 409: NotDone},
            query=(
                Query("wait_s", float, f"Wait so long for its end, {WAIT_S_MAX:g} at most."),
                Query("chars", int, "Characters of text."),
                Query("image_bytes", int, "Bytes of images."),
            ),
        )
    }

    @web.authenticated
    @authorized
    async def get(self, kernel_id: str, cell: str) -> None:
        """Answer with the cell, once it is over or the time is."""
        wait_s, bounds = self._query()
        await self._wait(kernel_id, cell, wait_s)
        await self.answer(kernel_id, look, cell, bounds)

    def _query(self) -> tuple[float, Bounds]:
        asked = {
            name: self.get_argument(name) for name in ("chars", "image_bytes") if self.get_argument(name, "")
        }
        try:
            wait_s = float(self.get_argument("wait_s", "0") or 0)
            if not 0 <= wait_s <= WAIT_S_MAX:
                raise ValueError(f"`wait_s` is a number from 0 to {WAIT_S_MAX:g}")
            return wait_s, msgspec.convert(asked, Bounds, strict=False)
        except UNREADABLE as error:
            raise web.HTTPError(400, f"The query does not fit: {error}.") from error

    async def _wait(self, kernel_id: str, cell: str, wait_s: float) -> None:
        """Wait for the cell's end; whatever goes wrong is left to who asks after."""
        waiting: int = self.settings.get(WAITING, 0)
        if not wait_s or waiting >= WAITERS_MAX:
            return
        self.settings[WAITING] = waiting + 1
        deadline, pause_s = time.monotonic() + wait_s, LOOK_S
        try:
            while (left := deadline - time.monotonic()) > 0:
                asked = partial(is_over, kernel_id, dict(os.environ), cell)
                if await asyncio.get_running_loop().run_in_executor(_lookers, asked):
                    return
                await asyncio.sleep(min(pause_s, left))
                pause_s = min(pause_s * 1.5, LOOK_S_MAX)
        except ReplkernelError:
            return
        finally:
            self.settings[WAITING] -= 1


class InterruptHandler(PastStateHandler):
    """The end of one cell."""

    operations: ClassVar = {
        "post": Operation(
            "Interrupt a cell that runs; one that is over is left alone.", {200: SentCell, 409: NotDone}
        )
    }

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str, cell: str) -> None:
        """Interrupt it."""
        await self.answer(kernel_id, interrupt, cell)


class VariablesHandler(PastStateHandler):
    """The variables."""

    operations: ClassVar = {
        "get": Operation(
            "The variables with their types and shapes, also while a cell runs.",
            {200: VariablesDocument, 409: NotDone},
        )
    }

    @web.authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        """Answer with the list."""
        await self.answer(kernel_id, variables)


ADDRESSES: dict[str, type[Any]] = {
    f"{KERNEL}/cells": CellsHandler,
    f"{KERNEL}/cells/{{cell}}": CellHandler,
    f"{KERNEL}/cells/{{cell}}/interrupt": InterruptHandler,
    f"{KERNEL}/variables": VariablesHandler,
}
"""All addresses of cells and variables; `{…}` is an id."""
