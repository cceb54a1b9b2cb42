"""The variables that the debugger shows first in a new kernel, beside a stock kernel's."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

from tests.bench.kernels import Kernel, kernel, place
from tests.bench.report import Result
from tests.support.stock import OURS, STOCK

KERNELS = 3
UP_S = 3.0
ANSWER_S = 30.0
SETTING = "import pandas\nframe = pandas.DataFrame({'alpha': [1.0]})\ntable = {'first': 1}\nlast_name = 1"


def _asked(asked: Kernel, seq: int, command: str, **arguments: object) -> dict[str, object]:
    """Have the debugger do something, as JupyterLab has it, and return its answer."""
    content = {"type": "request", "seq": seq, "command": command, "arguments": arguments}
    message = asked.client.session.msg("debug_request", content)
    asked.client.control_channel.send(message)
    deadline = time.monotonic() + ANSWER_S
    while time.monotonic() < deadline:
        try:
            reply = asked.client.get_control_msg(timeout=1)
        except queue.Empty:
            continue
        if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            answer: dict[str, object] = reply["content"]
            return answer
    raise TimeoutError(f"the debugger does not answer {command}")


def _first_variables(name: str) -> Iterator[tuple[str, float]]:
    """Start a kernel, switch its debugger on and list the variables as JupyterLab does; yield the seconds."""
    with place() as where, kernel(name, where) as asked:
        _asked(asked, 0, "debugInfo")  # Is asked when a notebook is opened.
        asked.run(SETTING)
        time.sleep(UP_S)
        began = time.perf_counter()
        _asked(asked, 1, "initialize", clientID="bench", adapterID="python", linesStartAt1=True, locale="en")
        _asked(asked, 2, "attach")
        _asked(asked, 3, "debugInfo")
        found = str(_asked(asked, 4, "inspectVariables"))
        yield "first", time.perf_counter() - began
        if any(variable not in found for variable in ("frame", "table", "last_name")):
            raise RuntimeError(f"the debugger shows {found}")
        began = time.perf_counter()
        _asked(asked, 5, "inspectVariables")
        yield "again", time.perf_counter() - began
        _asked(asked, 6, "disconnect", restart=False, terminateDebuggee=False)


def measure() -> Result:
    """Alternate between new kernels of both kinds; the first lists of variables are the samples."""
    times: dict[str, dict[str, list[float]]] = {OURS: {}, STOCK: {}}
    for _ in range(KERNELS):
        for name, taken in times.items():
            for what, seconds in _first_variables(name):
                taken.setdefault(what, []).append(round(seconds, 4))
    return Result(
        "debugger", "s", times[OURS]["first"], times[STOCK]["first"], "at most 2 s", {"each": times}
    )
