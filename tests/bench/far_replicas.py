"""How long cells take while the other replicas' machines are near, and while they are behind a slow link.

The router, the client and the executor are on one machine, the other two replicas on machines of their own
(namespaces). Near and far take turns on the same kernels, with a stock kernel beside them. Needs root.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.kernels import Place, place
from tests.bench.report import Result
from tests.e2e.faults.wire import Links, Wire
from tests.e2e.hosts.machine import Machine, wait_until, why_no_machines

ROUNDS = 6
FAR_S = 0.05
"""One way; what comes back takes as long again. The wire varies it from half to one and a half."""
BEHIND_S = 0.3
"""The others are so far away at the start: the replica here is ready first, and runs the cells."""
HERE, AWAY = "here", ("away1", "away2")
GOAL = "beside stock, far cells take no longer than near ones; only before_reply waits"


def measure() -> Result:
    """Take turns: near, far, near, …"""
    why = why_no_machines()
    if why:
        return Result("far_replicas", "ms", [], [], GOAL, {"skipped": why})
    samples: dict[str, dict[str, list[float]]] = {"near": defaultdict(list), "far": defaultdict(list)}
    with place(REPLKERNEL_HOSTS=",".join((HERE, *AWAY))) as made, _machines(made) as (wire, ask):
        for turn in range(2 * ROUNDS):
            distance = ("near", "far")[turn % 2]
            _set_delay(wire, FAR_S if distance == "far" else 0.0)
            answer = ask(distance)
            assert answer["where"] == HERE, f"the cells ran on {answer['where']}"
            for name, taken in answer["taken"].items():
                samples[distance][name] += taken
    p50 = {
        distance: {name: round(statistics.median(taken), 2) for name, taken in by_name.items()}
        for distance, by_name in samples.items()
    }
    times_stock = {
        name: {at: round(of[name] / of[f"stock/{name.partition('/')[2]}"], 2) for at, of in p50.items()}
        for name in p50["far"]
        if not name.startswith("stock")
    }
    details = {"p50_ms": p50, "times_stock": times_stock}
    far, near = samples["far"]["async/pass"], samples["near"]["async/pass"]
    return Result("far_replicas", "ms", far, near, GOAL, details)


def _set_delay(wire: Wire, delay_s: float) -> None:
    with wire.lock:
        for source in wire.hosts():
            for target in wire.hosts():
                wire.links.link(source, target).delay_s = delay_s


@contextmanager
def _machines(made: Place) -> Iterator[tuple[Wire, Any]]:
    wire = Wire(Links(random.Random(7)))
    own = [Path(made.env["REPLKERNEL_SOCKET_DIR"]), Path(made.env["JUPYTER_RUNTIME_DIR"])]
    machines = [
        Machine(name, f"10.79.0.{number}", wire, own, {})
        for number, name in enumerate((HERE, *AWAY), start=1)
    ]
    wire.start()
    try:
        agents = Path(made.env["JUPYTER_DATA_DIR"], "replkernel", "agents")
        for machine in machines:
            command = ["-m", "replkernel.cli", "agent", "--name", machine.name, "--bind", machine.address]
            machine.run([sys.executable, *command], made.env)
            file = agents / machine.name / "agent.json"
            wait_until(file.exists, 60, f"the agent of {machine.name} listens")
        _set_delay(wire, BEHIND_S)
        cells = machines[0].talk([sys.executable, "-m", "tests.bench.far_cells"], made.env)
        yield wire, _asker(cells)
        assert cells.stdin is not None
        cells.stdin.close()
        cells.wait(60)
    finally:
        for machine in machines:
            machine.close()
        wire.close()


def _asker(cells: subprocess.Popen[str]) -> Any:
    assert cells.stdin is not None
    assert cells.stdout is not None
    stdin, stdout = cells.stdin, cells.stdout
    assert stdout.readline() == "ready\n", f"the cells cannot be run (load {os.getloadavg()[0]:.1f})"

    def ask(word: str) -> dict[str, Any]:
        stdin.write(f"{word}\n")
        stdin.flush()
        return dict(json.loads(stdout.readline()))

    return ask
