"""How long asking the scheduler for a free GPU takes over REST, with its journal on the disk and without.

30 hosts with 8 GPUs each, 100 leases in force, one client on a connection that is kept. The two services take
turns in blocks; the one beside ours is the same program whose journal goes nowhere.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.report import Result

HOSTS, GPUS, LEASES = 30, 8, 100
BLOCKS, BLOCK = 10, 50
ROOT = Path(__file__).parents[2]
START = "import sys; from replkernel_server import service; sys.exit(service.main(['--port', '0']))"
NOWHERE = (
    "from replkernel_server.scheduling.journal import Journal; Journal.append = lambda self, *rows: None; "
)


class Client:
    """One connection to one service."""

    def __init__(self, address: str, token: str) -> None:
        """Connect and fill the cluster."""
        self.connection = http.client.HTTPConnection(address.removeprefix("http://"))
        self.headers = {"Authorization": f"token {token}"}
        self.asked = 0
        for host in range(HOSTS):
            gpus = [f"GPU-{host}-{gpu}" for gpu in range(GPUS)]
            self.call("POST", "hosts", {"name": f"host-{host}", "gpus": gpus})
        for _ in range(LEASES):
            self.ask()

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return the document that is answered."""
        data = None if body is None else json.dumps(body)
        self.connection.request(method, f"/api/v1/{path}", data, self.headers)
        answer = self.connection.getresponse()
        said = json.loads(answer.read())
        if answer.status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {answer.status} {said}")
        return said

    def ask(self) -> Any:
        """Return a lease on one GPU."""
        self.asked += 1
        wish = {"request": f"cell-{self.asked}", "kernel_id": f"kernel-{self.asked % 50}", "gpus": 1}
        return self.call("POST", "leases", wish | {"ttl_s": 3600.0})["lease"]

    def block(self) -> list[float]:
        """Ask and give back; return the milliseconds of asking."""
        samples = []
        for _ in range(BLOCK):
            began = time.perf_counter()
            lease = self.ask()
            samples.append((time.perf_counter() - began) * 1e3)
            self.call("DELETE", f"leases/{lease['lease']}?fence={lease['fence']}")
        return samples


@contextlib.contextmanager
def client(code: str) -> Iterator[Client]:
    """Start a service with directories of its own."""
    with tempfile.TemporaryDirectory() as directory:
        paths = os.pathsep.join(str(path) for path in (ROOT, ROOT / "scheduler", ROOT / "server_ext"))
        environment = {**os.environ, "JUPYTER_DATA_DIR": directory, "PYTHONPATH": paths}
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            try:
                assert process.stdout is not None
                address = process.stdout.readline().strip().partition("=")[2]
                token = Path(directory) / "replkernel" / "scheduler" / "token"
                yield Client(address, token.read_text())
            finally:
                process.terminate()


def measure() -> Result:
    """Take turns."""
    ours: list[float] = []
    without: list[float] = []
    with client(START) as journalled, client(NOWHERE + START) as forgetful:
        for _ in range(BLOCKS):
            ours += journalled.block()
            without += forgetful.block()
    goal = "p50 at most 5 ms with the journal (the one beside is the same service without)"
    return Result("scheduler_rest", "ms", ours, without, goal, {"hosts": HOSTS, "leases": LEASES})
