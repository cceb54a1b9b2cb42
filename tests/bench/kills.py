"""`python -m tests.bench.kills [-n 50]`: the executor is killed at random moments of training.

Counts how often all of the state (random numbers included) came back as it was after one cell, which is no
older than what was called durable, and whether the cells that were lost with the process were named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import random
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from replkernel.protocol.progress import REQUEST
from tests.bench.kernels import Kernel, kernel, place
from tests.bench.report import Result, quantile, write
from tests.bench.survival_cells import PATIENCE_S, await_true, kill, whole
from tests.support.stock import OURS

KILLS = 50
MEGABYTES = 320
CELLS_MAX = 6
STRIKE_MAX_S = 1.5
SETTLE_S = 0.5
SEED = 7
TRAINING = """
import json, os
import numpy as np

np.random.seed({seed})
model, opt, losses, log, last = np.zeros({numbers}), np.zeros({numbers}), [], {{}}, 0

def train():
    global last
    for part in (model, opt):
        part += 1.0
    losses.append(np.random.rand())
    last = len(losses)
    log[last] = losses[-1]

def seen():
    ends = [int(end) for part in (model, opt) for end in (part.min(), part.max())]
    return {{"steps": [len(losses), last, len(log), *ends], "losses": losses, "next": next_draw()}}

def next_draw():
    other = np.random.RandomState()
    other.set_state(np.random.get_state())
    return other.rand()

print(os.getpid())
"""
SHOWN = "print(json.dumps([seen(), os.getpid()]))"
BACK = re.compile(r"the notebook is back at (?:cell (\d+)|its beginning)(?: \((\d+) (s|min) ago\))?")
AGAIN = re.compile(r"run cells? (\d+)(?: (?:and|to) (\d+))? again")


class Answer(msgspec.Struct):
    """What a cell came to."""

    content: dict[str, Any]
    out: str
    err: str
    seconds: float

    @property
    def count(self) -> int:
        """Return the cell's number."""
        return int(self.content.get("execution_count") or 0)


class Training:
    """A kernel that trains, what its cells have made, and what kills have made of that."""

    def __init__(self, ours: Kernel) -> None:
        self.wrong: list[str] = []
        self.lost_cells: list[int] = []
        self.told_s: list[float] = []
        self.recovery_s: list[float] = []
        self._ours = ours
        numbers = MEGABYTES * 1_000_000 // 8 // 2
        first = self._run(TRAINING.format(seed=SEED, numbers=numbers))
        self._pid = int(first.out)
        self._steps = {first.count: 0}
        """After how many steps the state is, by cell."""
        self._draws = np.random.RandomState(SEED).rand(100_000).tolist()

    # -- cells ------------------------------------------------------------------------------------------

    def send(self, code: str) -> str:
        """Send a cell as a page does, so that it is told how safe each is."""
        content = {"code": code, "silent": False, "store_history": True, "stop_on_error": True}
        session = self._ours.client.session
        message = session.msg("execute_request", content, metadata={"cellId": str(time.monotonic_ns())})
        self._ours.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def _run(self, code: str) -> Answer:
        return self._finish(self.send(code))

    def _finish(self, request: str) -> Answer:
        began, content = time.perf_counter(), None
        while content is None:
            with contextlib.suppress(queue.Empty):
                reply = self._ours.client.get_shell_msg(timeout=1.0)
                if reply["parent_header"].get("msg_id") == request:
                    content, took = reply["content"], time.perf_counter() - began
            if time.perf_counter() > began + PATIENCE_S:
                raise TimeoutError(f"a cell was not answered within {PATIENCE_S:g} s")
        texts = {"stdout": "", "stderr": ""}
        for message in self._published(request):
            if message["msg_type"] == "stream":
                texts[message["content"]["name"]] += message["content"]["text"]
        return Answer(content, texts["stdout"], texts["stderr"], took)

    def _published(self, request: str) -> Iterator[Any]:
        with contextlib.suppress(queue.Empty):
            while True:
                message = self._ours.client.get_iopub_msg(timeout=5.0)
                if message["parent_header"].get("msg_id") == request:
                    yield message
                    if message["content"].get("execution_state") == "idle":
                        return

    def _durable(self) -> int:
        """Return the newest cell that is called durable."""
        client = self._ours.client
        message = client.session.msg(REQUEST, {"since": 0})
        client.control_channel.send(message)
        while True:
            reply = client.get_control_msg(timeout=10.0)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                known = reply["content"]["executions"]
                return max((one["count"] or 0 for one in known if one["safety"] == "durable"), default=0)

    # -- one kill ---------------------------------------------------------------------------------------

    def strike(self, rolls: random.Random) -> None:
        """Train for some cells, kill the process at some moment, and look at what came back."""
        for _ in range(rolls.randint(0, CELLS_MAX)):
            self._train()
            time.sleep(rolls.choice([0.0, 0.0, rolls.random()]))
        durable, delay_s = self._durable(), rolls.random() * STRIKE_MAX_S
        timer = threading.Timer(delay_s, kill, [self._pid])
        timer.start()
        cell = self._train()
        while cell is None and timer.is_alive():
            cell = self._train()
        timer.join()
        after = self._run(SHOWN)
        if after.content["status"] != "ok":
            self.wrong.append(f"no state came back: {after.content}")
            raise RuntimeError(self.wrong[-1])
        state, self._pid = json.loads(after.out)
        # The kill may have come between two cells: then the one after it ran where the state came back.
        first = cell if cell is not None and cell.content["status"] == "ok" else after
        self.recovery_s.append(first.seconds)
        self._judge(state, durable, first, made=int(first is not after), doubtful=int(cell is not None))
        self._steps |= {first.count: state["steps"][0], after.count: state["steps"][0]}

    def _train(self) -> Answer | None:
        """Run one training cell; return it when it met the end of its process, or began the next one."""
        answer = self._run("train()")
        if answer.content["status"] != "ok" or BACK.search(answer.err):
            return answer
        self._steps[answer.count] = max(self._steps.values()) + 1
        return None

    def _judge(self, state: dict[str, Any], durable: int, after: Answer, *, made: int, doubtful: int) -> None:
        """Judge what came back, to which `made` steps were added since; `doubtful` may have been."""
        steps, done = state["steps"][0] - made, max(self._steps.values())
        if len(set(state["steps"])) != 1:
            self.wrong.append(f"a mixture of cells: {state['steps']}")
        elif [*state["losses"], state["next"]] != self._draws[: steps + made + 1]:
            self.wrong.append(f"random numbers that no cell drew, after {steps} steps")
        elif steps < self._steps.get(durable, 0):
            self.wrong.append(f"back at step {steps}, but cell {durable} was called durable")
        elif steps > done + doubtful:
            self.wrong.append(f"step {steps} was never made")
        self._judge_telling(steps, done, after)
        self.lost_cells.append(max(0, done - steps))
        self._steps = {cell: step for cell, step in self._steps.items() if step <= steps}

    def _judge_telling(self, steps: int, done: int, after: Answer) -> None:
        back, again = BACK.search(after.err), AGAIN.search(after.err)
        if steps >= done:
            return
        if back is None or again is None:
            self.wrong.append(f"{done - steps} lost cells were not told: {after.err!r}")
            return
        lost = [cell for cell, step in self._steps.items() if step > steps]
        named = range(int(again[1]), int(again[2] or again[1]) + 1)
        if not set(lost) <= set(named) or self._steps.get(int(back[1] or 0), 0) != steps:
            self.wrong.append(f"cells {lost} were lost, step {steps} is back, and it said: {after.err!r}")
        if back[2]:
            self.told_s.append(int(back[2]) * (60 if back[3] == "min" else 1))


def measure(kills: int = KILLS, seed: int = SEED) -> Result:
    """Train, kill and look, so many times."""
    rolls = random.Random(seed)
    with place() as here, kernel(OURS, here) as ours:
        training = Training(ours)
        for number in range(kills):
            await_true(lambda: whole(here), "three whole replicas")
            time.sleep(SETTLE_S)
            before = len(training.wrong)
            training.strike(rolls)
            for sentence in training.wrong[before:]:
                print(f"kill {number + 1}: {sentence}", flush=True)
    lost = [cells for cells in training.lost_cells if cells]
    details = {
        "kills": kills,
        "a_state_that_existed": kills - len(training.wrong),
        "wrong": training.wrong,
        "kills_that_lost_cells": len(lost),
        "cells_lost": {"p50": quantile(lost, 50), "max": max(lost, default=0)},
        "seconds_told": {"p50": quantile(training.told_s, 50), "max": max(training.told_s, default=0)},
        "first_cell_after_s": {
            "p50": quantile(training.recovery_s, 50),
            "max": max(training.recovery_s, default=0.0),
        },
    }
    return Result(
        "kills", "s", training.recovery_s, [], "every kill gives a state that existed, and tells", details
    )


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.kills", description=__doc__)
    parser.add_argument("-n", "--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    result = measure(given.kills, given.seed)
    print(json.dumps(result.details, indent=2))
    print(write(result))
    return int(bool(result.details["wrong"]))


if __name__ == "__main__":
    raise SystemExit(main())
