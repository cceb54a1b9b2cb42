"""`python -m tests.soak [--minutes N]`: a day of a notebook in minutes, beside a stock kernel.

Plays mixed cells on both, kills processes, has the kernel rest and begins new ones. Law: every cell shows
what stock's shows, and nothing that processes hold grows past its bound.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import random
import signal
import subprocess
import sys
import time
from typing import Any

from replkernel.client.inquiry import ask_agents
from tests.bench.kernels import Kernel, Place, kernel, place
from tests.soak.cells import DIGEST, SETTING, Cell, cells
from tests.soak.gauge import Reading, beyond, read
from tests.support.stock import OURS, STOCK

ROUND_CELLS = 40
"""A fault, a comparison and a reading follow so many cells."""
KERNEL_ROUNDS = 6
"""A kernel is shut down and another one begun after so many rounds."""
POLICIES = ("sticky", "rotate")
FAULTS = ("executor", "standby", "agent", "rest", "none")
SETTLE_S = 2.0
CELL_S = 60.0


class Differs(AssertionError):
    """Our kernel showed something else than stock's."""


class Day:
    """One soak: two kernels at a time, and what was read of ours."""

    def __init__(self, seed: int, minutes: float, where: Place) -> None:
        self._dice = random.Random(seed)
        self._cells = cells(self._dice)
        self._until = time.monotonic() + minutes * 60
        self._where = where
        self.played = self.kernels = 0
        self._coming: list[str] = []
        self.faults: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self.first: Reading | None = None
        self.last: Reading = {}
        self.most: Reading = {}
        self.trouble: list[str] = []

    @property
    def over(self) -> bool:
        """Tell whether the time is up."""
        return time.monotonic() >= self._until

    def play(self) -> None:
        """Play kernels until the time is up."""
        while not self.over and not self.trouble:
            self._where.env["REPLKERNEL_EXECUTOR"] = POLICIES[self.kernels % len(POLICIES)]
            self.kernels += 1
            with place() as there, kernel(OURS, self._where) as ours, kernel(STOCK, there) as stock:
                self._both(ours, stock, Cell(SETTING))
                for _ in range(KERNEL_ROUNDS):
                    if self.over or self.trouble:
                        break
                    self._round(ours, stock)

    def _round(self, ours: Kernel, stock: Kernel) -> None:
        for _ in range(ROUND_CELLS):
            self._both(ours, stock, next(self._cells))
        self._both(ours, stock, Cell(DIGEST))
        if not self._coming:
            self._coming = self._dice.sample(FAULTS, len(FAULTS))
        fault = self._coming.pop()
        self.faults[fault] += 1
        self._break(ours, fault)
        time.sleep(SETTLE_S)
        self._both(ours, stock, Cell(DIGEST))
        self._read()

    def _both(self, ours: Kernel, stock: Kernel, cell: Cell) -> None:
        shown = [_shown(each, cell) for each in (ours, stock)]
        self.played += 1
        if shown[0] != shown[1]:
            raise Differs(f"cell {self.played}:\n{cell.code}\n--- stock:\n{shown[1]}\n--- ours:\n{shown[0]}")

    def _break(self, ours: Kernel, fault: str) -> None:
        document = ask_agents(self._where.env)
        replicas = [replica for known in document.kernels for replica in known.replicas]
        if fault in ("executor", "standby"):
            ran_last = int(_shown(ours, Cell("print(__import__('os').getpid())")).split("[")[0])
            pids = [each.kernel_pid for each in replicas if each.kernel_pid]
            chosen = [pid for pid in pids if (pid == ran_last) == (fault == "executor")]
            for pid in chosen[:1]:
                os.kill(pid, signal.SIGKILL)
        elif fault == "agent":
            for pid in {each.agent_pid for each in replicas} - {0}:
                os.kill(pid, signal.SIGKILL)
        elif fault == "rest":
            for known in document.kernels:
                command = [sys.executable, "-m", "replkernel.cli", "hibernate", str(known.kernel_id)]
                subprocess.run(
                    command, env=self._where.env, check=True, timeout=60, stdout=subprocess.DEVNULL
                )

    def _read(self) -> None:
        reading = read(self._where.pids(), [self._where.root])
        self.last = reading
        if self.first is None:
            self.first = reading
        for role, holds in reading.items():
            known = self.most.setdefault(role, {})
            for name, value in holds.items():
                known[name] = max(known.get(name, 0), value)
        self.trouble = beyond(self.first, reading)

    def table(self) -> str:
        """Return what was played and read, as a table."""
        faults = ", ".join(f"{count} {name}" for name, count in self.faults.items() if count)
        lines = [f"{self.played} cells on {self.kernels} kernels; faults: {faults or 'none'}"]
        lines.append(f"{'':26}{'':11}{'first':>9}{'most':>9}{'last':>9}")
        for role, holds in sorted(self.most.items()):
            for name, most in holds.items():
                at_first = (self.first or {}).get(role, {}).get(name, 0)
                at_last = self.last.get(role, {}).get(name, 0)
                lines.append(f"{role:26}{name:11}{at_first:9.0f}{most:9.0f}{at_last:9.0f}")
        return "\n".join([*lines, *self.trouble])


def _shown(asked: Kernel, cell: Cell) -> str:
    """Run a cell; return its outputs and its end, as a page would show them."""
    request = asked.client.execute(cell.code)
    pieces: list[str] = []
    deadline = time.monotonic() + CELL_S
    while time.monotonic() < deadline:
        try:
            message = asked.client.get_iopub_msg(timeout=1.0)
        except queue.Empty:
            continue
        if message["parent_header"].get("msg_id") != request:
            continue
        content = message["content"]
        if message["msg_type"] == "status" and content["execution_state"] == "idle":
            break
        pieces.append(_text(message["msg_type"], content))
        if cell.interrupted and pieces[-1] == "runs\n":
            asked.manager.interrupt_kernel()
    else:
        raise TimeoutError(f"no end within {CELL_S:g} s on {asked.manager.kernel_name}:\n{cell.code}")
    answer = asked.answer(request)
    return "".join(pieces) + f"[{answer['status']}]"


def _text(kind: str, content: dict[str, Any]) -> str:
    match kind:
        case "stream" if content["name"] == "stdout":
            return str(content["text"])
        case "error":
            return f"{content['ename']}: {content['evalue']}\n"
        case "display_data" | "execute_result":
            return json.dumps(content["data"], sort_keys=True)
    return ""


def main() -> int:
    """Play; return 1 when something differs, grows or stays."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (1: the short form)")
    parser.add_argument("--seed", type=int, default=1, help="which cells and faults")
    options = parser.parse_args()
    failed = False
    with place(REPLKERNEL_DURABLE="before_reply") as where:
        day = Day(options.seed, options.minutes, where)
        try:
            day.play()
        except (Differs, TimeoutError) as error:
            print(error)
            failed = True
        print(day.table(), flush=True)
        failed = failed or bool(day.trouble)
    left = where.pids()
    if left:
        print(f"processes that stayed: {left}")
    return int(failed or bool(left))


if __name__ == "__main__":
    raise SystemExit(main())
