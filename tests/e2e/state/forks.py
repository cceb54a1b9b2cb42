"""Stock kernels and routers of ours, forked from processes that have imported them: real, without the start.

`Forks` is the test's side. Run as a script it is a process that forks: a line of JSON in, a pid out.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STOCK, LADEN, ROUTER = "stock", "laden", "router"
EARLY_IN_STOCK = (
    "faulthandler",
    "ipykernel.debugger",
    "ipykernel.kernelapp",
    "ipykernel_launcher",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.logger",
    "IPython.core.magics",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "debugpy.server.api",
    "pdb",
    "stack_data",
    "pygments.formatters.terminal256",
    "pygments.styles",
    "sqlite3",
    "tornado.platform.asyncio",
)
EARLY = {STOCK: EARLY_IN_STOCK, LADEN: EARLY_IN_STOCK, ROUTER: ("replkernel.router.io.serve",)}


class Forks:
    """The processes that fork, each begun when it is first asked; stock kernels have `stock` added to `env`.

    One has imported no package ever, for some change what others show (torch, what `inspect` does).
    """

    def __init__(self, env: Mapping[str, str], stock: Mapping[str, str]) -> None:
        self._env = {STOCK: {**env, **stock}, LADEN: {**env, **stock}, ROUTER: dict(env)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def stock(self, file: Path, cwd: Path, packages: Sequence[str]) -> int:
        """Fork a stock kernel for a connection file; return its pid."""
        order = {"file": str(file), "cwd": str(cwd), "packages": list(packages)}
        return self._fork(LADEN if packages else STOCK, order)

    def router(self, file: Path, cwd: Path, terminal: Path, settings: Mapping[str, str]) -> int:
        """Fork a router for a connection file, its stderr in `terminal`; return its pid."""
        order = {"file": str(file), "cwd": str(cwd), "terminal": str(terminal), "settings": dict(settings)}
        return self._fork(ROUTER, order)

    def close(self) -> None:
        """End the processes, and with them the routers that are still there."""
        for process in self._running.values():
            process.__exit__(None, None, None)

    def _fork(self, kind: str, order: dict[str, Any]) -> int:
        process = self._running.get(kind)
        if process is None:
            process = self._running[kind] = subprocess.Popen(
                [sys.executable, __file__, kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=self._env[kind],
            )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        return int(process.stdout.readline())


def _serve(kind: str) -> None:
    for name in EARLY[kind]:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.freeze()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    orders = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(null, 0)
    for line in orders:
        order = json.loads(line)
        for name in order.get("packages", ()):
            importlib.import_module(name)
        pid = os.fork()
        if not pid:
            orders.close()
            answers.close()
            _become(kind, order)
        answers.write(f"{pid}\n".encode())


def _become(kind: str, order: dict[str, Any]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(order["cwd"])
    try:
        if kind == ROUTER:
            _become_router(order)
        else:
            _become_kernel(order)
    finally:
        os._exit(0)


def _become_kernel(order: dict[str, Any]) -> None:
    import ipykernel.kernelapp

    sys.argv = ["ipykernel_launcher", "-f", order["file"]]
    sys.path[0] = ""
    ipykernel.kernelapp.launch_new_instance()


def _become_router(order: dict[str, Any]) -> None:
    """Be what a plain launcher starts: it ends when the process that forked it does."""
    from replkernel.router.__main__ import main

    os.dup2(os.open(order["terminal"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    os.environ.update(order["settings"], JPY_PARENT_PID=str(os.getppid()))
    main(["-f", order["file"]])


if __name__ == "__main__":
    _serve(sys.argv[1])
