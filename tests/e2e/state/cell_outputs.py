"""Plays one cell on a kernel through its client, and makes what a reader sees of them comparable.

Law: only addresses, the number in a cell file's directory and the working directory are evened out.
"""

from __future__ import annotations

import contextlib
import json
import queue
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from jupyter_client import BlockingKernelClient

START_S = 60.0
CELL_S = 60.0
_ADDRESS = re.compile(r"0x[0-9a-f]{6,16}")
_CELL_DIRECTORY = re.compile(r"ipykernel_\d+")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = re.compile(r"In\[\d+\]|In \[\d+\]")
_SHOWN = {"execute_result", "display_data", "update_display_data", "error", "clear_output"}


class Played(msgspec.Struct):
    """One cell as its reader saw it, and the replica that ran it."""

    shown: list[Any]
    replica: str = ""

    def text(self) -> str:
        """Return what was shown, for a person to read."""
        lines = []
        for part in self.shown:
            kind, content = part
            lines.append(f"[{kind}] {content if isinstance(content, str) else json.dumps(content)}")
        return "\n".join(lines) or "(nothing)"

    def without_counts(self) -> str:
        """Return what was shown without the number of the cell."""
        return _NUMBER.sub("In[]", re.sub(r'"execution_count": \d+', "", json.dumps(self.shown)))


def await_ready(client: BlockingKernelClient, terminal: Path | None = None) -> None:
    """Return once a kernel answers, and what it publishes is heard; else fail by what its terminal shows."""
    deadline = time.monotonic() + START_S
    while True:
        request = client.kernel_info()
        try:
            client.get_shell_msg(timeout=max(deadline - time.monotonic(), 0.01))
        except queue.Empty:
            shown = "" if terminal is None else terminal.read_text()
            raise AssertionError(f"the kernel did not answer within {START_S:g} s: {shown}") from None
        with contextlib.suppress(queue.Empty):
            while True:
                message = client.get_iopub_msg(timeout=0.05)
                idle = message["content"].get("execution_state") == "idle"
                if message["parent_header"].get("msg_id") == request and idle:
                    return


class Playing:
    """One cell that was sent to a kernel."""

    def __init__(self, client: BlockingKernelClient, cwd: Path, code: str, *, counted: bool = True) -> None:
        self._client = client
        self._cwd = str(cwd)
        self._code = code
        self._heard: list[str] = []
        self._request = client.execute(code, store_history=counted, allow_stdin=False, stop_on_error=False)
        self._deadline = time.monotonic() + CELL_S

    def end(self) -> Played:
        """Return what was shown, once the cell has ended."""
        streams: dict[str, str] = {}
        shown: list[Any] = []
        while True:
            message = self._next(self._client.get_iopub_msg, "output")
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "stream":
                streams[content["name"]] = streams.get(content["name"], "") + content["text"]
            elif kind in _SHOWN:
                shown.append([kind, _plain(kind, content)])
        reply = self._next(self._client.get_shell_msg, "reply")
        if reply["content"].get("payload"):
            shown.append(["payload", reply["content"]["payload"]])
        parts = [[name, text] for name, text in sorted(streams.items())] + shown
        said = reply["metadata"].get("replkernel", {})
        return Played(_even(parts, self._cwd), str(said.get("replica", "")))

    def _next(self, get: Callable[..., dict[str, Any]], awaited: str) -> dict[str, Any]:
        """Return the next message that answers the cell; fail by what is missing when none comes in time."""
        while True:
            try:
                message = get(timeout=max(self._deadline - time.monotonic(), 0.01))
            except queue.Empty:
                raise AssertionError(self._missing(awaited)) from None
            if message["parent_header"].get("msg_id") == self._request:
                self._heard.append(message["content"].get("execution_state", message["msg_type"]))
                return message

    def _missing(self, awaited: str) -> str:
        return (
            f"no more {awaited} from the kernel in {self._cwd} within {CELL_S:g} s; "
            f"it had sent {self._heard or 'nothing'} for {self._code!r}"
        )


def _plain(kind: str, content: dict[str, Any]) -> Any:
    if kind == "error":
        return _COLOUR.sub("", "\n".join([*content["traceback"], f"{content['ename']}: {content['evalue']}"]))
    return {name: part for name, part in content.items() if name != "transient"}


def _even(value: Any, cwd: str) -> Any:
    if isinstance(value, str):
        return _CELL_DIRECTORY.sub("ipykernel_PID", _ADDRESS.sub("0xADDRESS", value.replace(cwd, "CWD")))
    if isinstance(value, list):
        return [_even(item, cwd) for item in value]
    if isinstance(value, dict):
        return {key: _even(item, cwd) for key, item in value.items()}
    return value
