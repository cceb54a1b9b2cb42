"""/replkernel/api/kernels/KERNEL/forks and …/state: kernels that begin with its state, and a file of it.

Law: with the rights that Jupyter's own kernels need, and for kernels of this server's user alone.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import msgspec
from jupyter_server.auth.decorator import authorized
from tornado import web

from replkernel.carrying.exporting import export_kernel
from replkernel.carrying.forking import fork_kernel
from replkernel.errors import ReplkernelError
from replkernel_server.handlers.own_kernel import OwnKernelHandler

PIECE_BYTES = 2**20


class WantedForks(msgspec.Struct, frozen=True):
    """How many forks, of which point (none: of now), and whether each has random generators of its own."""

    count: int = 1
    reseed: bool = False
    at: str = ""


class WantedState(msgspec.Struct, frozen=True):
    """The point whose state is wanted: a name, a branch, the number of a cell; that of now without one."""

    at: str = ""


class ForksHandler(OwnKernelHandler):
    """The forks of one kernel."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        """Make kernels at rest of its state; answer with their ids."""
        wanted = self.body(WantedForks)
        known, env = self.record_of(kernel_id).kernel_id, dict(os.environ)
        try:
            made, behind = await asyncio.to_thread(
                fork_kernel, known, env, wanted.count, at=wanted.at, reseed=wanted.reseed
            )
        except ReplkernelError as error:
            raise web.HTTPError(409, str(error)) from error
        self.set_status(201)
        self.finish({"ids": [record.kernel_id for record in made], "behind": behind})


class StateHandler(OwnKernelHandler):
    """The state of one kernel as a file."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        """Send the file, once it is whole; it has all that the kernel has, so reading rights do not do."""
        wanted = self.body(WantedState)
        known, env = self.record_of(kernel_id).kernel_id, dict(os.environ)
        with tempfile.TemporaryDirectory(prefix="replkernel-export-") as directory:
            path = Path(directory) / "state.rkz"
            try:
                await asyncio.to_thread(export_kernel, known, path, env, at=wanted.at)
            except ReplkernelError as error:
                raise web.HTTPError(409, str(error)) from error
            self.set_header("Content-Type", "application/zip")
            self.set_header("Content-Disposition", f'attachment; filename="{known}.rkz"')
            self.set_header("Content-Length", path.stat().st_size)
            with path.open("rb") as file:
                while piece := await asyncio.to_thread(file.read, PIECE_BYTES):
                    self.write(piece)
                    await self.flush()
        self.finish()
