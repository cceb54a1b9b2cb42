"""`python -m tests.e2e.hosts.across [TEST …]`: end-to-end tests with each replica on a machine of its own.

Pytest, and with it clients and routers, runs on one machine; the hosts' agents are started for each test on
three others. Without names: the files of `HOLDING`, which take no process of a host for one of theirs.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.faults.wire import Links, Wire
from tests.e2e.hosts.machine import Machine, why_no_machines

HOSTS = {"gpu1": "10.78.1.1", "gpu2": "10.78.1.2", "gpu3": "10.78.1.3"}
PLACE = "REPLKERNEL_TEST_HOSTS"
"""Names the directory of the pipes, on the machine of pytest."""
AGENT_S = 60.0
SOURCES = [str(Path(__file__).parents[3] / part) for part in (".", "scheduler", "server_ext")]
HOLDING = (
    "tests/e2e/test_notebooks.py",
    "tests/e2e/test_clients.py",
    "tests/e2e/test_jupyter_kernel_test.py",
    "tests/e2e/test_large_state.py",
    "tests/e2e/state",
)


@contextmanager
def agents_across(env: dict[str, str]) -> Iterator[str]:
    """Have an agent on each host for as long as the block lasts; yield their names."""
    pipes = Path(env[PLACE])
    for host in HOSTS:
        _write(pipes / host, json.dumps(env))
    agents = Path(env["JUPYTER_DATA_DIR"], "replkernel", "agents")
    deadline = time.monotonic() + AGENT_S
    while not all((agents / host / "agent.json").exists() for host in HOSTS):
        assert time.monotonic() < deadline, "the agents did not start"
        time.sleep(0.02)
    try:
        yield ",".join(HOSTS)
    finally:
        for host in HOSTS:
            _write(pipes / host, "null")
        while any((agents / host / "agent.json").exists() for host in HOSTS):
            assert time.monotonic() < deadline + AGENT_S, "the agents did not end"
            time.sleep(0.02)


def _write(pipe: Path, line: str) -> None:
    with pipe.open("w") as end:
        end.write(f"{line}\n")


def main(tests: list[str]) -> int:
    """Run the tests; return pytest's exit code."""
    why = why_no_machines()
    if why:
        print(f"Machines cannot be made here: {why}.")
        return 1
    wire = Wire(Links(random.Random(1)))
    machines = {
        name: Machine(name, address, wire, [], {}) for name, address in {**HOSTS, "lab": "10.78.1.9"}.items()
    }
    wire.start()
    delay_ms, loss = (float(os.environ.get(name, "0")) for name in ("DELAY_MS", "LOSS"))
    with wire.lock:
        for source in machines:
            for target in machines:
                wire.links.link(source, target).delay_s = delay_ms / 1000
                wire.links.link(source, target).loss = loss
    sources = os.pathsep.join([*SOURCES, os.environ.get("PYTHONPATH", "")]).strip(os.pathsep)
    env = {**os.environ, "PYTHONPATH": sources}
    try:
        with tempfile.TemporaryDirectory(prefix="rk-across-") as place:
            for host, address in HOSTS.items():
                os.mkfifo(Path(place, host), 0o600)
                standby = [sys.executable, "-m", "tests.e2e.hosts.standby", host, address, f"{place}/{host}"]
                machines[host].run(standby, env, Path(place, f"{host}.log"))
            pytest = machines["lab"].talk(
                [sys.executable, "-m", "pytest", *(tests or HOLDING)], {**env, PLACE: place}
            )
            assert pytest.stdout is not None
            for line in pytest.stdout:
                print(line, end="", flush=True)
            return pytest.wait()
    finally:
        for machine in machines.values():
            machine.close()
        wire.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
