"""Idle replicated kernels: where Jupyter Server would cull one, it is hibernated and stays in the list.

When a kernel is idle is for Jupyter Server to say (`cull_idle_timeout`, global or of a kernelspec, and its
companions). Law: a kernel that lives is never ended here; one that cannot hibernate is left running, and the
log says why.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from jupyter_core.utils import ensure_async

from replkernel.launch.kernel_record import read_record
from replkernel_server.sessions import replicated

log = logging.getLogger("replkernel.server")

HIBERNATE = "replkernel_hibernate_request"
ANSWER_LIMIT_S = 60.0
"""How long a kernel may take to put its state away before the log says that it has not answered."""


class Culling:
    """Stands where the kernel manager culls a kernel: everything is the manager's, but for what ends one."""

    def __init__(self, kernels: Any, data_dir: Path) -> None:
        self._manager = kernels
        self._data_dir = data_dir
        self._cull = kernels.cull_kernel_if_idle

    def install(self) -> None:
        """Have the kernel manager's culler ask us."""
        self._manager.cull_kernel_if_idle = self.cull_kernel_if_idle

    def __getattr__(self, name: str) -> object:
        """Be the kernel manager in everything else."""
        return getattr(self._manager, name)

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """Cull a kernel as the manager does, a replicated one in our way."""
        if not replicated(self._manager.get_kernel(kernel_id)):
            await self._cull(kernel_id)
            return
        record = read_record(self._data_dir, kernel_id)
        if record is None or record.state != "hibernated":
            await type(self._manager).cull_kernel_if_idle(self, kernel_id)

    async def shutdown_kernel(self, kernel_id: str) -> None:
        """Hibernate a kernel that the manager holds for idle; end it only if it is dead."""
        manager = self._manager.get_kernel(kernel_id)
        if manager.execution_state == "dead":
            await ensure_async(self._manager.shutdown_kernel(kernel_id))
            return
        why = await hibernate(manager)
        if why:
            log.warning("Kernel %s was not hibernated: %s", kernel_id, why)
        else:
            log.info("Kernel %s is idle and was hibernated; its next cell resumes it.", kernel_id)


async def hibernate(manager: Any) -> str:
    """Ask a kernel to hibernate; return why it has not, or nothing."""
    client = manager.client()
    client.start_channels(shell=False, iopub=False, stdin=False, hb=False, control=True)
    try:
        request = client.session.msg(HIBERNATE, {})
        client.control_channel.send(request)
        while True:
            reply = await ensure_async(client.get_control_msg(timeout=ANSWER_LIMIT_S))
            if reply["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                break
    except Exception as error:
        return f"it has not answered ({type(error).__name__})"
    finally:
        client.stop_channels()
    content = reply["content"]
    return "" if content.get("status") == "ok" else str(content.get("evalue") or json.dumps(content))[:500]
