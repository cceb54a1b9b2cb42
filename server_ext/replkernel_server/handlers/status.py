"""GET /replkernel/api/status: the status document of every host agent of this user, merged.

The agents answer over their own sockets; none is started by asking.
"""

from __future__ import annotations

import asyncio
import os

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web

from replkernel.client.inquiry import ask_agents
from replkernel.protocol.status import to_json


class StatusHandler(ExtensionHandlerMixin, APIHandler):
    """Answers with `hosts`, `kernels` and `leases`."""

    auth_resource = "kernels"

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Ask all agents at once and answer with what came back in time."""
        timeout_s = self.settings["replkernel_status_timeout_s"]
        document = await asyncio.to_thread(ask_agents, dict(os.environ), timeout_s)
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(to_json(document))
