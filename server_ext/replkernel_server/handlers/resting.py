"""/replkernel/api/kernels/KERNEL: a kernel at rest is served here again (POST), or deleted for good (DELETE).

Law: both are for kernels at rest alone, with the rights that Jupyter's own kernels need; a kernel that
another server of the user serves is left to it.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized
from tornado import web

from replkernel.client.by_record import NoReply, forget, resume
from replkernel.errors import ReplkernelError
from replkernel.launch.kernel_record import KernelRecord, router_lives
from replkernel_server.handlers.own_kernel import RECORD_LOOK_S, OwnKernelHandler

ROUTED_LIMIT_S = 60.0


def _is_directory(path: str) -> bool:
    return Path(path).is_dir()


class RestingKernelHandler(OwnKernelHandler):
    """One kernel at rest."""

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        """Serve it, and have its replicas come back."""
        record = self._resting(kernel_id)
        manager: Any = self.kernel_manager
        if kernel_id not in manager:
            where: dict[str, Any] = {"cwd": record.cwd} if _is_directory(record.cwd) else {}
            name = record.kernel_name or None
            await ensure_async(manager.start_kernel(kernel_id=kernel_id, kernel_name=name, **where))
        served = manager.get_kernel(kernel_id)
        try:
            await asyncio.to_thread(resume, await self._routed(kernel_id))
        except NoReply as error:
            raise web.HTTPError(503, f"{error} It is served, and goes on coming back.") from error
        self.set_status(201)
        self.finish({"id": kernel_id, "name": str(served.kernel_name)})

    @web.authenticated
    @authorized
    async def delete(self, kernel_id: str) -> None:
        """Delete its record, its checkpoints and its data."""
        self._resting(kernel_id)
        manager = self.kernel_manager
        if kernel_id in manager:
            await ensure_async(manager.shutdown_kernel(kernel_id))
        else:
            try:
                await asyncio.to_thread(forget, kernel_id, dict(os.environ))
            except ReplkernelError as error:
                raise web.HTTPError(409, str(error)) from error
        self.set_status(204)
        self.finish()

    async def _routed(self, kernel_id: str) -> KernelRecord:
        """Return the record of a kernel that is served here, once its router has written where it listens."""
        deadline = time.monotonic() + ROUTED_LIMIT_S
        while not router_lives(record := self.record_of(kernel_id)):
            if time.monotonic() > deadline:
                raise NoReply(f"Kernel {kernel_id}'s router did not begin within {ROUTED_LIMIT_S:g} s.")
            await asyncio.sleep(RECORD_LOOK_S)
        return record

    def _resting(self, kernel_id: str) -> KernelRecord:
        record = self.record_of(kernel_id)
        if record.state != "hibernated":
            raise web.HTTPError(409, f"Kernel {kernel_id} is not hibernated.")
        if router_lives(record) and kernel_id not in self.kernel_manager:
            raise web.HTTPError(409, f"Kernel {kernel_id} is served by another server of yours.")
        return record
