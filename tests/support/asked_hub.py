"""A Hub that a scheduler's service asks whom a token stands for: its addresses answer as a test has it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

ACCESS = "access:services!service=replkernel"

Answer = Callable[[RequestHandler, str], Awaitable[None] | None]
"""Answers a request for what follows `/hub/api/`."""


@contextlib.asynccontextmanager
async def asked_hub(answer: Answer) -> AsyncIterator[Callable[..., Any]]:
    """Serve the Hub's addresses; give what makes a HubIdentify that asks there, with its cache time."""
    from jupyterhub.services.auth import HubAuth
    from replkernel_server.scheduling.hub_identity import HubIdentify

    class Handler(RequestHandler):
        async def get(self, path: str) -> None:
            answered = answer(self, path)
            if answered is not None:
                await answered

    server = HTTPServer(Application([(r"/hub/api/(.*)", Handler)]))
    socket, port = bind_unused_port()
    server.add_socket(socket)
    url = f"http://127.0.0.1:{port}/hub/api"
    auth = HubAuth(api_url=url, api_token="service", access_scopes={ACCESS})
    try:
        yield lambda cache_s=60.0: HubIdentify(auth, cache_s)
    finally:
        with contextlib.suppress(ImportError):  # Before 6.0 JupyterHub keeps no connections.
            client = importlib.import_module("jupyterhub.httpclient").JupyterHubHTTPClient
            await client.loop_instance().close()
        server.stop()
        await server.close_all_connections()
