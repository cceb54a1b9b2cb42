"""One notebook of the test: a session of the server, its kernel, and the page's WebSocket.

Law: its cells run one after the other. Each changes a small variable, sleeps, and tells how many cells came
before it, so that a change that was lost is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from typing import Any

from tornado.websocket import WebSocketClientConnection, WebSocketClosedError

from replkernel_server.loadtest.errors import CellFailed, LoadTestError
from replkernel_server.loadtest.samples import CellSample
from replkernel_server.loadtest.server import LabServer

PREFIX = "replkernel-loadtest"
WHY_MAX = 400
"""Characters of what a kernel says that did not start."""
FIRST = "import os, time\nsteps, payload = [], b''\nprint(0)"
LIGHT = "steps.append({number})\npayload = os.urandom({size})\ntime.sleep({runs_s:.4f})\nprint(len(steps))"


class Heard:
    """What the page has heard of the cell that runs now."""

    def __init__(self, msg_id: str) -> None:
        self.msg_id = msg_id
        self.began_s: float | None = None
        self.replied_s: float | None = None
        self.reply: dict[str, Any] = {}
        self.printed: list[str] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._missing = {"execute_reply", "idle"}

    def take(self, message: dict[str, Any]) -> None:
        """Take note of a message that answers this cell."""
        kind, content = message["msg_type"], message["content"]
        if kind == "execute_input":
            self.began_s = time.monotonic()
        elif kind == "stream" and content["name"] == "stdout":
            self.printed.append(content["text"])
        elif kind == "execute_reply":
            self.replied_s, self.reply = time.monotonic(), content
        self._missing -= {kind, content.get("execution_state", "")}
        if not self._missing and not self.over.done():
            self.over.set_result(None)


class Notebook:
    """One session."""

    def __init__(self, server: LabServer, kernel: str, number: int, run: str) -> None:
        self.number, self.kernel_id = number, ""
        self.name = f"{PREFIX}-{run}-{number:04}.ipynb"
        self._server, self._kernel = server, kernel
        self._session_id, self._page = "", uuid.uuid4().hex
        self._socket: WebSocketClientConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._heard: Heard | None = None
        self._steps: int | None = 0
        self._count = 0

    async def open(self, patience_s: float) -> None:
        """Make the session and run its first cell; raise LoadTestError or CellFailed."""
        body = {"path": self.name, "name": self.name, "type": "notebook", "kernel": {"name": self._kernel}}
        model = await self._server.call("POST", "api/sessions", body)
        self._session_id, self.kernel_id = str(model["id"]), str(model["kernel"]["id"])
        await self._connect()
        reply = (await self._asked(FIRST, 0, uuid.uuid4().hex, patience_s)).reply
        if reply.get("evalue"):
            raise CellFailed(f"{reply.get('ename')}: {reply['evalue']}"[:WHY_MAX].rstrip("."))
        _check(reply)

    async def run(self, sample: CellSample, size: int, zero: float, patience_s: float) -> None:
        """Run a cell and put what was seen, or what went wrong, into its sample."""
        self._count += 1
        code = LIGHT.format(number=self._count, size=size, runs_s=sample.runs_s)
        sample.submitted_s = time.monotonic() - zero
        try:
            if self._reading is None or self._reading.done():
                await self._connect()
            heard = await self._asked(code, sample.gpus, sample.msg_id, sample.runs_s + patience_s)
            sample.began_s = None if heard.began_s is None else heard.began_s - zero
            sample.replied_s = None if heard.replied_s is None else heard.replied_s - zero
            _check(heard.reply)
            sample.trouble = self._counted(heard.printed)
        except CellFailed as failed:
            sample.trouble, self._steps = str(failed), None
        except LoadTestError:
            sample.trouble, self._steps = "server-refused", None

    def _counted(self, printed: list[str]) -> str:
        """Compare what the cell counted with what was run; after a failure whatever it says is believed."""
        text = "".join(printed).strip()
        told = int(text) if text.isdecimal() else -1
        wanted = told if self._steps is None else self._steps + 1
        self._steps = max(told, 0)
        return "" if told == wanted and told > 0 else "wrong-state"

    async def _connect(self) -> None:
        self._socket = await self._server.open(
            f"api/kernels/{self.kernel_id}/channels?session_id={self._page}"
        )
        self._reading = asyncio.create_task(self._read(self._socket))

    async def _read(self, socket: WebSocketClientConnection) -> None:
        while True:
            data = await socket.read_message()
            if data is None:
                heard = self._heard
                if heard is not None and not heard.over.done():
                    heard.over.set_exception(CellFailed("connection-lost"))
                return
            if not isinstance(data, str):
                continue
            message = json.loads(data)
            heard = self._heard
            if heard is not None and message["parent_header"].get("msg_id") == heard.msg_id:
                heard.take(message)

    async def _asked(self, code: str, gpus: int, msg_id: str, within_s: float) -> Heard:
        assert self._socket is not None
        heard = self._heard = Heard(msg_id)
        try:
            await self._socket.write_message(json.dumps(self._request(code, gpus, msg_id)))
            async with asyncio.timeout(within_s):
                await heard.over
        except TimeoutError:
            with contextlib.suppress(LoadTestError):
                await self._server.call("POST", f"api/kernels/{self.kernel_id}/interrupt")
            raise CellFailed("no-answer") from None
        except WebSocketClosedError:
            raise CellFailed("connection-lost") from None
        finally:
            self._heard = None
        return heard

    def _request(self, code: str, gpus: int, msg_id: str) -> dict[str, Any]:
        wish = {"replkernel": {"gpus": gpus}} if gpus else {}
        return {
            "header": {
                "msg_id": msg_id, "session": self._page, "username": "", "msg_type": "execute_request",
                "version": "5.3",
            },
            "parent_header": {},
            "metadata": {"cellId": msg_id} | wish,
            "content": {"code": code, "silent": False, "store_history": True, "allow_stdin": False},
            "channel": "shell",
        }  # fmt: skip

    async def close(self) -> None:
        """End the session with its kernel; raise LoadTestError if the server does not."""
        if self._reading is not None:
            self._reading.cancel()
        if self._socket is not None:
            self._socket.close()
        if self._session_id:
            await self._server.call("DELETE", f"api/sessions/{self._session_id}")
            self._session_id = ""


def _check(reply: dict[str, Any]) -> None:
    if reply.get("status") != "ok":
        raise CellFailed(str(reply.get("ename") or reply.get("status") or "no-reply"))
