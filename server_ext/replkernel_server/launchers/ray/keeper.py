"""What runs on a Ray node: one actor without resources, which keeps the host's agent.

Law: it imports no ray (Ray makes an actor of the class); it uses no GPU; the host ends with it.
"""

from __future__ import annotations

import os
import subprocess
import time

import psutil

from replkernel.agent.io.lookup import find_agent
from replkernel.launch.module_command import module_command
from replkernel_server.launchers.protocol import kernels_kept

RAYLET = "raylet"
STOP_S = 30.0
LOOK_S = 0.05


class HostKeeper:
    """The agent of one host; `orders` is a supervisor's, as JSON, without what only the node knows."""

    def __init__(self, host: str, machine: str, settings: dict[str, str], pretended: int) -> None:
        """Start the agent."""
        import msgspec

        from replkernel_server.launchers.supervisor import Orders

        self._host = host
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self._process = subprocess.Popen(
            module_command("replkernel_server.launchers.supervisor"),
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        owner, seen = _raylet()
        orders = Orders(host, machine, settings, pretended, owner, seen)
        self._process.stdin.write(msgspec.json.encode(orders) + b"\n")
        self._process.stdin.flush()
        self._process.wait()  # The supervisor is no child of ours: it has left a process that ends at once.

    def listens(self) -> bool:
        """Say whether the agent is there."""
        return find_agent(self._host, {**os.environ}) is not None

    def kept(self) -> int:
        """Return how many kernels the agent keeps."""
        return kernels_kept(self._host, os.environ)

    def stop(self) -> None:
        """End the agent with its kernels, in order; return once it is gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"stop\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return
        until = time.monotonic() + STOP_S
        while self.listens() and time.monotonic() < until:
            time.sleep(LOOK_S)


def _raylet() -> tuple[int, str | None]:
    """Return Ray's process on this node, and what it sees of the GPUs: an actor without any is shown none."""
    for parent in psutil.Process().parents():
        if parent.name() == RAYLET:
            seen: str | None = parent.environ().get("CUDA_VISIBLE_DEVICES")
            return parent.pid, seen
    return 0, None


def which_gpu() -> str:
    """Return the GPU that Ray gave to this task: its UUID where the driver tells, else its number."""
    import ray

    given = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
    if not given:
        return ""
    number = str(given[0])
    if not number.isdecimal():
        return number
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(int(number)))
    except Exception:  # No library, no driver, pretended GPUs: the number says it.
        return number
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)
