"""What a lease adds to a cell: `pass` with a GPU that is free, in turns with `pass` that asks for none.

Both run in the same kernel; the scheduler is a process of its own that grants at once, so what is measured is
the way from the router to it and back, and what the router and the kernel process do with a lease.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.bench.kernels import Kernel, kernel, place
from tests.bench.report import Result
from tests.support.fake_scheduler import TOKEN
from tests.support.stock import OURS

ROUNDS = 30
EACH = 10
WARM_UP = 20
HOST = "here"


@contextlib.contextmanager
def scheduler() -> Iterator[str]:
    """Run a scheduler with GPUs on one host; yield its address."""
    command = [sys.executable, "-m", "tests.support.fake_scheduler", f"{HOST}=8"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def run(ours: Kernel, gpus: int) -> tuple[float, dict[str, Any]]:
    """Run `pass`; return the seconds until its reply, and what the reply says of the lease."""
    client = ours.client
    content = {"code": "pass", "silent": False, "store_history": True, "stop_on_error": True}
    message = client.session.msg("execute_request", content, metadata={"replkernel": {"gpus": gpus}})
    began = time.perf_counter()
    client.shell_channel.send(message)
    while True:
        reply = client.get_shell_msg(timeout=60)
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            break
    took = time.perf_counter() - began
    ours._await_idle(message["header"]["msg_id"])
    said = dict(reply["metadata"]["replkernel"])
    if reply["content"]["status"] != "ok" or len(said["gpus"]) != gpus:
        raise RuntimeError(f"a cell with {gpus} GPUs failed: {reply['content']}")
    return took, said


def measure() -> Result:
    """Alternate between cells with a lease and cells without one."""
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(scheduler())
        settings = {"REPLKERNEL_SCHEDULER_URL": url, "REPLKERNEL_SCHEDULER_TOKEN": TOKEN}
        here = stack.enter_context(place(REPLKERNEL_HOST_NAME=HOST, **settings))
        ours = stack.enter_context(kernel(OURS, here))
        began = time.perf_counter()
        run(ours, 1)
        first_ms = (time.perf_counter() - began) * 1000
        for _ in range(WARM_UP):
            run(ours, 0)
            run(ours, 1)
        samples: dict[int, list[float]] = {0: [], 1: []}
        queued: list[float] = []
        for _ in range(ROUNDS):
            for gpus, taken in samples.items():
                for _ in range(EACH):
                    took, said = run(ours, gpus)
                    taken.append(took * 1000)
                    queued += [said["queued_s"] * 1000] if gpus else []
    details = {
        "first_ms": first_ms,
        "queued_ms_mean": sum(queued) / len(queued),
        "compared": "the same kernel, without",
    }
    goal = "with a lease at most 5 ms more than without, p50"
    return Result("lease", "ms", samples[1], samples[0], goal, details)
