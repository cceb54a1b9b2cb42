"""What the handlers of one kernel share: its record, and the body of a request.

Law: with the rights that Jupyter's own kernels need, and for kernels of this server's user alone.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TypeVar

import msgspec
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web

from replkernel.errors import UNREADABLE
from replkernel.launch.kernel_record import KernelRecord, read_record
from replkernel.settings import data_dir
from replkernel_server.sessions import replicated

ID_CHARS_TOLD = 128
RECORD_LIMIT_S, RECORD_LOOK_S = 10.0, 0.05
Shape = TypeVar("Shape")


class OwnKernelHandler(ExtensionHandlerMixin, APIHandler):
    """Answers for one kernel that has a record here."""

    auth_resource = "kernels"

    def record_of(self, kernel_id: str) -> KernelRecord:
        """Return a kernel's record; raises 404."""
        record = read_record(data_dir(os.environ), kernel_id)
        if record is None:
            raise web.HTTPError(404, f"No kernel {kernel_id[:ID_CHARS_TOLD]} is known here.")
        return record

    async def recorded(self, kernel_id: str) -> KernelRecord:
        """Return a kernel's record, once one of ours that has just been started has it; raises 404."""
        manager = self.kernel_manager
        deadline = time.monotonic() + RECORD_LIMIT_S
        while (record := read_record(data_dir(os.environ), kernel_id)) is None:
            ours = kernel_id in manager and replicated(manager.get_kernel(kernel_id))
            if not ours or time.monotonic() > deadline:
                return self.record_of(kernel_id)
            await asyncio.sleep(RECORD_LOOK_S)
        return record

    def body(self, shape: type[Shape]) -> Shape:
        """Return the body; raises 400."""
        try:
            return msgspec.json.decode(self.request.body or b"{}", type=shape)
        except UNREADABLE as error:
            raise web.HTTPError(400, f"The body does not fit: {error}.") from error
