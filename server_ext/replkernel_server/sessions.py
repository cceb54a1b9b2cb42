"""Kernels that outlive their server: their sessions written down as they change, and restored at the start.

A page that was open meanwhile finds the same session id and the same kernel id, and reconnects by itself.
Law: Jupyter's managers are used through their public methods and never replaced; a kernel that has ended for
good (it has no record) does not come back.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async
from tornado.ioloop import PeriodicCallback

from replkernel.launch.attachment import leave_files, returning_launchers
from replkernel.launch.kernel_record import read_record
from replkernel.provisioner import ReplkernelProvisioner
from replkernel_server.session_file import KeptKernel, KeptSession, NoPlace, SessionFile

log = logging.getLogger("replkernel.server")

LOOK_MS = 500
"""How often the sessions are looked at; a killed server forgets what is younger."""
KERNEL_LIMIT_S = 20.0
"""How long one kernel may take to be found again before the others have their turn."""


def replicated(manager: object) -> bool:
    """Tell whether a kernel manager's kernel is one of ours."""
    return isinstance(getattr(manager, "provisioner", None), ReplkernelProvisioner)


class Sessions:
    """The replicated kernels of one server and their sessions."""

    def __init__(self, serverapp: Any, data_dir: Path) -> None:
        self._app = serverapp
        self._kernels = serverapp.kernel_manager
        self._sessions = serverapp.session_manager
        self._data_dir = data_dir
        self._file = SessionFile(data_dir, os.path.realpath(serverapp.root_dir), serverapp.base_url)
        self._waiting: tuple[KeptKernel, ...] = ()
        """Kernels that could not be started this time; the next server tries again."""
        self._timer: PeriodicCallback | None = None
        self._complained = ""

    async def restore(self) -> None:
        """Bring back what the last server had, then keep watching."""
        try:
            kept = self._file.claim(self._app.port)
        except NoPlace as error:
            log.warning("Sessions of replicated kernels will not be restored: %s.", error)
            return
        returning_launchers.add(self._kernels)
        waiting = []
        for kernel in kept.kernels:
            try:
                async with asyncio.timeout(KERNEL_LIMIT_S):
                    await self._restore(kernel)
            except Exception as error:
                waiting.append(kernel)
                log.warning("Kernel %s could not be restored: %s", kernel.kernel_id, _shown(error))
        self._waiting = tuple(waiting)
        self._timer = PeriodicCallback(self.write_down, LOOK_MS)
        self._timer.start()

    async def _restore(self, kernel: KeptKernel) -> None:
        record = read_record(self._data_dir, kernel.kernel_id)
        if record is None:
            return
        if kernel.kernel_id not in self._kernels:
            await self._start(kernel, record.cwd)
        for session in kernel.sessions:
            await self._make_session(session, kernel)
        log.info("Kernel %s and its sessions (%d) are back.", kernel.kernel_id, len(kernel.sessions))

    async def _start(self, kernel: KeptKernel, cwd: str) -> None:
        """Have the kernel manager start the kernel; the provisioner then finds its record."""
        options: dict[str, Any] = {}
        session = next(iter(kernel.sessions), None)
        if session is not None:
            options["env"] = self._sessions.get_kernel_env(session.path, session.name or None)
        if Path(cwd).is_dir():  # noqa: ASYNC240
            options["cwd"] = cwd
        elif session is not None:
            options["path"] = await ensure_async(
                self._sessions.contents_manager.get_kernel_path(path=session.path)
            )
        await ensure_async(
            self._kernels.start_kernel(
                kernel_id=kernel.kernel_id, kernel_name=kernel.kernel_name or None, **options
            )
        )
        manager = self._kernels.get_kernel(kernel.kernel_id)
        if replicated(manager) and manager.provisioner.attached:
            manager.execution_state = "idle"

    async def _make_session(self, kept: KeptSession, kernel: KeptKernel) -> None:
        """Have the session manager make a session of the id that it had.

        It is made as for a new page, so that whatever another extension hangs on a session is there too.
        """
        self._sessions.new_session_id = lambda: kept.session_id
        try:
            await self._sessions.create_session(
                path=kept.path,
                name=kept.name,
                type=kept.type,
                kernel_name=kernel.kernel_name,
                kernel_id=kernel.kernel_id,
            )
        finally:
            del self._sessions.new_session_id

    async def write_down(self) -> None:
        """Write the sessions into the file if they have changed."""
        try:
            kernels = await self._open_kernels()
            self._file.write(self._app.ip, self._app.port, kernels)
        except Exception as error:
            if self._complained != str(error):
                self._complained = str(error)
                log.warning("The sessions of replicated kernels could not be kept: %s", _shown(error))

    async def _open_kernels(self) -> tuple[KeptKernel, ...]:
        sessions: dict[str, list[KeptSession]] = {}
        for model in await self._sessions.list_sessions():
            kept = KeptSession(
                str(model["id"]), str(model["path"] or ""), str(model["name"] or ""), str(model["type"] or "")
            )
            sessions.setdefault(model["kernel"]["id"], []).append(kept)
        found = []
        for kernel_id in self._kernels.list_kernel_ids():
            manager = self._kernels.get_kernel(kernel_id)
            if replicated(manager):
                of_kernel = tuple(sessions.get(kernel_id, ()))
                found.append(KeptKernel(kernel_id, str(manager.kernel_name), of_kernel))
        open_ids = {kernel.kernel_id for kernel in found}
        return (*found, *(kernel for kernel in self._waiting if kernel.kernel_id not in open_ids))

    async def leave(self) -> int:
        """Take the kernels off the server's list without ending them; return how many live on."""
        if self._timer is None:
            return 0
        self._timer.stop()
        self._timer = None
        await self.write_down()
        left = 0
        for kernel_id in self._kernels.list_kernel_ids():
            manager = self._kernels.get_kernel(kernel_id)
            if replicated(manager):
                self._kernels.stop_watching_activity(kernel_id)
                self._kernels.stop_buffering(kernel_id)
                manager.stop_restarter()
                leave_files(manager)
                self._kernels.remove_kernel(kernel_id)
                left += 1
        self._file.release()
        return left


def _shown(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
