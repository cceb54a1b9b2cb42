"""Stock kernels, forked from one process that has imported ipykernel: a real kernel each, without its start.

`StockKernels` is the test's side. Run as a script it is the process that forks: a line of JSON in, a pid out.
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

EARLY = (
    "ipykernel.kernelapp",
    "ipykernel_launcher",
    "IPython.core.completerlib",
    "IPython.core.magics",
    "IPython.extensions.storemagic",
    "debugpy.server.api",
    "stack_data",
    "pygments.formatters.terminal256",
    "pygments.styles",
    "sqlite3",
    "tornado.platform.asyncio",
)


class StockKernels:
    """The processes that fork stock kernels with `env` as their environment.

    One has imported no package ever: some change what others show (torch, what `inspect` does).
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._bare, self._laden = (
            subprocess.Popen(
                [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(env)
            )
            for _ in range(2)
        )

    def start(self, connection_file: Path, cwd: Path, packages: Sequence[str]) -> int:
        """Fork a kernel for a connection file; return its pid."""
        process = self._laden if packages else self._bare
        assert process.stdin is not None and process.stdout is not None
        order = {"file": str(connection_file), "cwd": str(cwd), "packages": list(packages)}
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def close(self) -> None:
        """End the processes."""
        for process in (self._bare, self._laden):
            process.__exit__(None, None, None)


def _serve() -> None:
    for name in EARLY:
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
        for name in order["packages"]:
            importlib.import_module(name)
        pid = os.fork()
        if not pid:
            orders.close()
            answers.close()
            _become_kernel(order)
        answers.write(f"{pid}\n".encode())


def _become_kernel(order: dict[str, Any]) -> None:
    import ipykernel.kernelapp

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    os.chdir(order["cwd"])
    sys.argv = ["ipykernel_launcher", "-f", order["file"]]
    sys.path[0] = ""
    try:
        ipykernel.kernelapp.launch_new_instance()
    finally:
        os._exit(0)


if __name__ == "__main__":
    _serve()
