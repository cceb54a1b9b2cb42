"""Which address below /replkernel/api/kernels of a Jupyter Server has which handler; their description."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from jupyter_server.auth.decorator import authorized
from tornado import web

from replkernel_server.handlers.cells import ADDRESSES as CELLS
from replkernel_server.handlers.history import ADDRESSES as HISTORY
from replkernel_server.handlers.history import Fault, PastStateHandler
from replkernel_server.handlers.scheduler_base import Operation
from replkernel_server.scheduling.openapi import openapi

TITLE = "replkernel in a Jupyter Server"
EVERYWHERE = {400: Fault, 403: Fault, 404: Fault}
"""What each of them may answer: it does not fit, no token or no right, no such kernel."""


class OpenApiHandler(PastStateHandler):
    """The description of these addresses."""

    operations: ClassVar = {"get": Operation("This document.", {200: dict[str, Any]})}

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with the document."""
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(openapi(ADDRESSES, TITLE, EVERYWHERE)))


ADDRESSES: dict[str, type[PastStateHandler]] = {
    **HISTORY,
    **CELLS,
    "/replkernel/api/openapi.json": OpenApiHandler,
}
"""All addresses of a kernel's history, cells and variables; `{…}` is an id or a name."""
