"""Jupyter Server as its clients see it: REST with a token, and its WebSockets.

Law: nothing else of the server is used; whatever it refuses becomes one sentence that names the address.
"""

from __future__ import annotations

import json
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.simple_httpclient import HTTPTimeoutError
from tornado.websocket import WebSocketClientConnection, websocket_connect

from replkernel_server.loadtest.errors import LoadTestError

CONNECT_S, ANSWER_S = 10.0, 120.0
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
CLIENTS_MAX = 256


class LabServer:
    """A server at `url` (which ends with a slash)."""

    def __init__(self, url: str, token: str) -> None:
        """Talk to nobody yet."""
        self.url = url if url.endswith("/") else f"{url}/"
        self._headers = {"Authorization": f"token {token}"} if token else {}
        self._http: AsyncHTTPClient = AsyncHTTPClient(force_instance=True, max_clients=CLIENTS_MAX)

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """Return the JSON that a request is answered with; raise LoadTestError."""
        request = HTTPRequest(
            self.url + path,
            method,
            headers=self._headers | {"Content-Type": "application/json"},
            body=None if body is None else json.dumps(body),
            connect_timeout=CONNECT_S,
            request_timeout=ANSWER_S,
            allow_nonstandard_methods=True,
        )
        try:
            answer = await self._http.fetch(request)
        except HTTPTimeoutError:
            raise LoadTestError(
                f"{self.url} has not answered {method} {path} for {ANSWER_S:g} s: it may have more to do "
                "than it can; ask for fewer --sessions, or start fewer at a time (--starting)."
            ) from None
        except HTTPClientError as error:
            raise LoadTestError(self._refused(method, path, error)) from None
        except (OSError, ValueError) as error:
            raise LoadTestError(
                f"{self.url} cannot be reached ({error}): check the address, or have a server started with "
                "--start."
            ) from None
        return json.loads(answer.body) if answer.body else None

    def _refused(self, method: str, path: str, error: HTTPClientError) -> str:
        if error.code in (401, 403):
            return (
                f"{self.url} refuses {method} {path} (HTTP {error.code}): give its token in JUPYTER_TOKEN, "
                "or as `?token=…` of its URL (`jupyter server list` shows it)."
            )
        told = "" if error.response is None or not error.response.body else error.response.body.decode()[:300]
        return f"{self.url} answers {method} {path} with HTTP {error.code}: {told or error.message}."

    async def open(self, path: str) -> WebSocketClientConnection:
        """Open a WebSocket; raise LoadTestError."""
        url = self.url.replace("http", "ws", 1) + path
        request = HTTPRequest(url, headers=self._headers, connect_timeout=CONNECT_S, request_timeout=ANSWER_S)
        try:
            return await websocket_connect(request, max_message_size=MESSAGE_BYTES_MAX)
        except (HTTPClientError, OSError) as error:
            raise LoadTestError(f"{url.partition('?')[0]} cannot be opened: {error}.") from None

    def close(self) -> None:
        """Use it no more."""
        self._http.close()
