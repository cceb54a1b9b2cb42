"""/replkernel/api/kernels/KERNEL/forks and …/state: kernels that begin with its state, and a file of it.

Law: with the rights that Jupyter's own kernels need, and for kernels of this server's user alone.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web

from replkernel.carrying.exporting import export_kernel
from replkernel.carrying.forking import fork_kernel
from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.kernel_record import read_record
from replkernel.settings import data_dir

PIECE_BYTES = 2**20
W = TypeVar("W", bound=msgspec.Struct)


class WantedForks(msgspec.Struct, frozen=True):
    """How many forks, of which point (none: of now), and whether each has random generators of its own."""

    count: int = 1
    reseed: bool = False
    at: str = ""


class WantedState(msgspec.Struct, frozen=True):
    """The point whose state is wanted: a name, a branch, the number of a cell; that of now without one."""

    at: str = ""


class _OwnKernel(ExtensionHandlerMixin, APIHandler):
    """What is taken of one kernel."""

    auth_resource = "kernels"

    def known(self, kernel_id: str) -> str:
        """Return the id of a kernel that has a record here; raises 404."""
        if read_record(data_dir(os.environ), kernel_id) is None:
            raise web.HTTPError(404, f"No kernel {kernel_id} is known here.")
        return kernel_id

    def wanted(self, shape: type[W]) -> W:
        """Return what the body asks for; raises 400."""
        try:
            return msgspec.json.decode(self.request.body or b"{}", type=shape)
        except UNREADABLE as error:
            fields = ", ".join(shape.__struct_fields__)
            raise web.HTTPError(400, f"The body is not {{{fields}}}: {error}.") from error


class ForksHandler(_OwnKernel):
    """The forks of one kernel."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        """Make kernels at rest of its state; answer with their ids."""
        wanted = self.wanted(WantedForks)
        known, env = self.known(kernel_id), dict(os.environ)
        try:
            made, behind = await asyncio.to_thread(
                fork_kernel, known, env, wanted.count, at=wanted.at, reseed=wanted.reseed
            )
        except ReplkernelError as error:
            raise web.HTTPError(409, str(error)) from error
        self.set_status(201)
        self.finish({"ids": [record.kernel_id for record in made], "behind": behind})


class StateHandler(_OwnKernel):
    """The state of one kernel as a file."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        """Send the file, once it is whole; it has all that the kernel has, so reading rights do not do."""
        wanted = self.wanted(WantedState)
        known, env = self.known(kernel_id), dict(os.environ)
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
