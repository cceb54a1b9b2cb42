"""A Jupyter Server's REST, asked with one token.

Law: no redirect is followed, so the token goes nowhere else; what a server answers is data, whatever its
status.
"""

from __future__ import annotations

import json

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

from replkernel_server.errors import ServerError
from replkernel_server.mcp.access import Access
from replkernel_server.mcp.words import Answer

CONNECT_S, ANSWER_S = 10.0, 120.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
CLIENTS_MAX = 32


class Unreachable(ServerError):
    """The server did not answer: it may be down, or be started again just now."""


class Jupyter:
    """The server of an access."""

    def __init__(self, access: Access) -> None:
        """Talk to nobody yet."""
        self._url = access.url
        self._headers = {"Authorization": f"token {access.token}", "Content-Type": "application/json"}
        self._http: AsyncHTTPClient = AsyncHTTPClient(
            force_instance=True, max_clients=CLIENTS_MAX, max_body_size=ANSWER_BYTES_MAX
        )

    async def call(self, method: str, path: str, body: object = None) -> Answer:
        """Return the answer to one request; raises Unreachable."""
        request = HTTPRequest(
            self._url + path,
            method,
            headers=self._headers,
            body=None if body is None else json.dumps(body),
            connect_timeout=CONNECT_S,
            request_timeout=ANSWER_S,
            allow_nonstandard_methods=True,
            follow_redirects=False,
        )
        try:
            answer = await self._http.fetch(request, raise_error=False)
        except (HTTPClientError, OSError) as error:
            raise Unreachable(f"{type(error).__name__}: {error}"[:300]) from error
        if answer.code >= 599:
            raise Unreachable(str(answer.error or answer.reason)[:300])
        try:
            return Answer(answer.code, json.loads(answer.body) if answer.body else None)
        except ValueError:
            return Answer(answer.code)
