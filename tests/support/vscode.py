"""Plays VS Code's Jupyter extension (microsoft/vscode-jupyter, `src/kernels/raw`); it is not VS Code.

As the extension does: it writes `kernel-v3….json` with ports of its own choice and a new key, starts
the kernelspec's `argv` itself in the notebook's directory, waits until the ports are in use, asks for
kernel_info, runs code of its own (which Python, which ipywidgets, the notebook's path), not silently but
without history. It closes a notebook, and restarts a kernel, by SIGTERM to all descendants of that
process, then to the process, without a `shutdown_request`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from jupyter_client import BlockingKernelClient

from tests.support.live import eventually
from tests.support.ports import free_port

START_S = 60.0
CELL_S = 60.0
PROBES = (
    "import sys as _VSCODE_sys\nprint(_VSCODE_sys.executable); del _VSCODE_sys",
    (
        "try:\n    import ipywidgets as _VSCODE_ipywidgets\n"
        '    print("e976ee50-99ed-4aba-9b6b-9dcd5634d07d:IPyWidgets:" + _VSCODE_ipywidgets.__version__)\n'
        "    del _VSCODE_ipywidgets\nexcept:\n    pass"
    ),
)
_WINDOW = (
    "import subprocess, sys; one = subprocess.Popen(sys.argv[1:]); print(one.pid, flush=True); one.wait()"
)


def _is_used(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class VsCode:
    """One start of one notebook's kernel. `window`: by a process of its own, as another window's would be."""

    def __init__(self, notebook: Path, argv: Sequence[str], *, window: bool = True) -> None:
        self.file = Path(os.environ["JUPYTER_RUNTIME_DIR"]) / f"kernel-v3{secrets.token_hex(20)}.json"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        ports = {f"{name}_port": free_port() for name in ("hb", "control", "shell", "stdin", "iopub")}
        fields = {"key": str(uuid.uuid4()), "signature_scheme": "hmac-sha256", "transport": "tcp"}
        self.file.write_text(json.dumps({**fields, "ip": "127.0.0.1", **ports, "kernel_name": "replkernel"}))
        command = [part.replace("{connection_file}", str(self.file)) for part in argv]
        window_command = [sys.executable, "-c", _WINDOW] if window else []
        self._started = subprocess.Popen(
            [*window_command, *command], cwd=notebook.parent, stdout=subprocess.PIPE, text=True
        )
        assert self._started.stdout is not None
        self.pid = int(self._started.stdout.readline()) if window else self._started.pid
        self.client: Any = BlockingKernelClient(connection_file=str(self.file))
        self.client.load_connection_file()
        try:
            for name in ("shell_port", "iopub_port"):
                eventually(partial(_is_used, ports[name]), "a port in use")
            self.client.start_channels()
            self._begin(notebook)
        except BaseException:
            self.close()
            raise

    def _begin(self, notebook: Path) -> None:
        self.client.wait_for_ready(timeout=START_S)
        for code in PROBES:
            self.run(code)
        self.run(f'__vsc_ipynb_file__ = "{notebook}"\n%config Completer.use_jedi = False')

    def run(self, code: str) -> str:
        """Run code as the extension runs its own; return what it printed, or its error."""
        told: list[str] = []

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                told.append(content["text"])
            elif message["msg_type"] == "error":
                told.append(f"{content['ename']}: {content['evalue']}")

        self.client.execute_interactive(code, store_history=False, output_hook=hear, timeout=CELL_S)
        return "".join(told).strip()

    def cell(self, code: str, metadata: dict[str, Any]) -> None:
        """Run a cell: the extension sends its metadata, and the cell's address as `cellId`."""
        content = {"code": code, "silent": False, "store_history": True, "stop_on_error": False}
        request = self.client.session.msg("execute_request", content, metadata=metadata)
        self.client.shell_channel.send(request)
        while True:
            reply = self.client.get_shell_msg(timeout=CELL_S)
            if reply["parent_header"]["msg_id"] == request["header"]["msg_id"]:
                return

    def interrupted(self, code: str) -> str:
        """Run code that prints, and interrupt it then; return the name of its error.

        The extension interrupts by the shell channel where the kernelspec says `message`, and waits for the
        answer.
        """
        cell = self.client.execute(code, store_history=False)
        while self.client.get_iopub_msg(timeout=CELL_S)["msg_type"] != "stream":
            pass
        interrupt = self.client.session.msg("interrupt_request", {})
        self.client.shell_channel.send(interrupt)
        replies: dict[str, Any] = {}
        while not replies.keys() >= {cell, interrupt["header"]["msg_id"]}:
            reply = self.client.get_shell_msg(timeout=CELL_S)
            replies[reply["parent_header"]["msg_id"]] = reply["content"]
        assert replies[interrupt["header"]["msg_id"]]["status"] == "ok"
        return str(replies[cell]["ename"])

    def close(self) -> None:
        """Close the notebook."""
        self.client.stop_channels()
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                child.terminate()
            os.kill(self.pid, signal.SIGTERM)
        self._started.wait(20)
        assert self._started.stdout is not None
        self._started.stdout.close()
        self.file.unlink()
