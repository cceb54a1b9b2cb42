"""Starts kernels for measuring: each in an environment of its own, by which its processes are known.

A process belongs to an environment if it was started with that environment's socket directory, so agents,
zygotes and forked kernel processes count, wherever they hang in the process tree.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jupyter_client import BlockingKernelClient, KernelManager

from replkernel.agent.io.lookup import stop_agent
from replkernel.client.inquiry import agent_names
from replkernel.errors import AgentUnavailable
from tests.support.stock import OURS, STOCK, kernelspec_dir

REPLY_S = 120.0
SOURCES = [str(Path(__file__).parents[2] / part) for part in (".", "scheduler", "server_ext")]
OWN = {
    "JUPYTER_DATA_DIR": "data",
    "JUPYTER_RUNTIME_DIR": "run",
    "IPYTHONDIR": "ipython",
    "MPLCONFIGDIR": "mpl",
    "REPLKERNEL_SOCKET_DIR": "s",
}
TICKS = os.sysconf("SC_CLK_TCK")


class Place:
    """Directories of its own, and the environment that points there."""

    def __init__(self, **settings: str) -> None:
        """Make the directories; `settings` go into the environment."""
        self.root = Path(tempfile.mkdtemp(prefix="rkb-", dir="/tmp"))
        own = {variable: str(self.root / name) for variable, name in OWN.items()}
        for directory in own.values():
            Path(directory).mkdir(mode=0o700)
        path = os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
        outside = {name: value for name, value in os.environ.items() if not name.startswith("REPLKERNEL_")}
        outside.pop("PYTHONDONTWRITEBYTECODE", None)  # What is installed is compiled, and so are we to be.
        jupyter = str(kernelspec_dir(self.root / "jupyter"))
        fixed = {"JUPYTER_PATH": jupyter, "PYTHONPATH": path, "REPLKERNEL_LAUNCHER_GRACE_S": "0"}
        # Killed, we leave no router behind, which would keep our terminal open.
        self.env = outside | own | fixed | settings
        os.environ["JUPYTER_PATH"] = jupyter

    def pids(self) -> list[int]:
        """Return the processes that were started with this environment."""
        mark = f"REPLKERNEL_SOCKET_DIR={self.env['REPLKERNEL_SOCKET_DIR']}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End the agents that were started here and remove the directories."""
        for name in agent_names(self.env):
            with contextlib.suppress(AgentUnavailable):
                stop_agent(name, self.env)
        shutil.rmtree(self.root, ignore_errors=True)


@contextlib.contextmanager
def place(**settings: str) -> Iterator[Place]:
    """Make a place for as long as the block lasts."""
    made = Place(**settings)
    try:
        yield made
    finally:
        made.close()


class Kernel:
    """A running kernel and its client. `started_s` maps `info` and `reply` to seconds since the launch."""

    def __init__(self, name: str, where: Place, kernel_id: str = "") -> None:
        """Launch, and wait for the first kernel_info_reply and the first execute_reply.

        With a `kernel_id`, the kernel of that id that is at rest.
        """
        self.where = where
        known = {"kernel_id": kernel_id} if kernel_id else {}
        self.manager = KernelManager(kernel_name=name, connection_file=_connection_file(where), **known)
        began = time.perf_counter()
        self.manager.start_kernel(env=where.env)
        self.client: BlockingKernelClient = self.manager.client()
        self.started_s: dict[str, float] = {}
        try:
            self._await_first_answers(began)
        except BaseException:
            self.close()
            raise

    def _await_first_answers(self, began: float) -> None:
        _await_port(self.manager.shell_port)
        self.client.start_channels(hb=False)
        info = self.client.kernel_info()
        reply = self.client.execute("pass")
        for key, request in (("info", info), ("reply", reply)):
            self.answer(request)
            self.started_s[key] = time.perf_counter() - began
        self._await_output_channel()

    def run(self, code: str) -> float:
        """Execute `code`; return the seconds until its reply. Waits for idle as well."""
        began = time.perf_counter()
        request = self.client.execute(code)
        content = self.answer(request)
        took = time.perf_counter() - began
        self._await_idle(request)
        if content["status"] != "ok":
            raise RuntimeError(f"{code!r} failed: {content}")
        return took

    def stream(self, code: str) -> tuple[float, str]:
        """Execute `code`; return the seconds until all output and the idle status are here, and the text."""
        began = time.perf_counter()
        request = self.client.execute(code)
        text = self._await_idle(request)
        took = time.perf_counter() - began
        self.answer(request)
        return took, text

    def close(self) -> None:
        """Shut the kernel down."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=False)

    def _await_output_channel(self) -> None:
        """Return when iopub delivers: what was published before the subscription arrived is lost for good."""
        for _ in range(60):
            request = self.client.kernel_info()
            with contextlib.suppress(queue.Empty):
                self._await_idle(request, timeout_s=1.0)
                return
        raise TimeoutError("the kernel publishes nothing")

    def answer(self, request: str) -> dict[str, object]:
        """Return the content of a request's reply."""
        deadline = time.perf_counter() + REPLY_S
        while time.perf_counter() < deadline and self.manager.is_alive():
            with contextlib.suppress(queue.Empty):
                message = self.client.get_shell_msg(timeout=5.0)
                if message["parent_header"].get("msg_id") == request:
                    return dict(message["content"])
        raise TimeoutError(f"no reply from {self.manager.kernel_name}, whose process may have ended")

    def _await_idle(self, request: str, timeout_s: float = REPLY_S) -> str:
        pieces: list[str] = []
        while True:
            message = self.client.get_iopub_msg(timeout=timeout_s)
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "stream":
                pieces.append(message["content"]["text"])
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return "".join(pieces)


def _connection_file(where: Place) -> str:
    handle, path = tempfile.mkstemp(".json", "kernel-", where.env["JUPYTER_RUNTIME_DIR"])
    os.close(handle)
    Path(path).unlink()
    return path


def _await_port(port: int) -> None:
    deadline = time.perf_counter() + REPLY_S
    while time.perf_counter() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.002)
    raise TimeoutError(f"nothing listens on port {port}")


@contextlib.contextmanager
def kernel(name: str, where: Place, kernel_id: str = "") -> Iterator[Kernel]:
    """Run a kernel for as long as the block lasts."""
    running = Kernel(name, where, kernel_id)
    try:
        yield running
    finally:
        running.close()


@contextlib.contextmanager
def side_by_side(**settings: str) -> Iterator[tuple[Kernel, Kernel]]:
    """Run one of our kernels and a stock one at the same time."""
    with (
        place(**settings) as here,
        place() as there,
        kernel(OURS, here) as ours,
        kernel(STOCK, there) as stock,
    ):
        yield ours, stock


def cpu_s(pids: list[int]) -> float:
    """Return the CPU seconds that the processes have used, user and system."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def pss_bytes(pids: list[int]) -> int:
    """Return the proportional set size of the processes together."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total
