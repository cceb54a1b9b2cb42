"""GET /replkernel/api/past: the cluster's last day, as the scheduler tells it, wherever that is.

Law: whoever may look at kernels may look here; the scheduler's token stays in the server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web

from replkernel.errors import UNREADABLE, SettingError
from replkernel.leasing.asking import NoAnswer, ask
from replkernel.leasing.finding import find_scheduler
from replkernel.leasing.standing import BOUNDS
from replkernel_server.scheduling.past import Past


class PastHandler(ExtensionHandlerMixin, APIHandler):
    """Answers with points, happenings and delays."""

    auth_resource = "kernels"
    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Ask the scheduler; 404 where there is none, 502 where it does not tell."""
        past = await asyncio.to_thread(ask_past, dict(os.environ))
        if past is None:
            raise web.HTTPError(404, "No scheduler runs; one is started when a cell asks for GPUs.")
        if isinstance(past, str):
            raise web.HTTPError(502, f"The scheduler is out of reach: {past}.")
        self.set_header("Cache-Control", "no-store")
        self.finish(msgspec.json.encode(past))


def ask_past(env: Mapping[str, str]) -> Past | str | None:
    """Return what the scheduler tells, or why it does not; None where there is none."""
    url, token = find_scheduler(env)
    if not url:
        return None
    try:
        return msgspec.json.decode(ask(url, token, "/api/v1/past", BOUNDS), type=Past)
    except SettingError as error:
        return str(error).rstrip(".")
    except NoAnswer as error:
        return error.why
    except UNREADABLE:
        return "its answer is not understood; is it of this version?"
