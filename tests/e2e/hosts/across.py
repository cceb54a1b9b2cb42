"""`python -m tests.e2e.hosts.across [TEST …]`: end-to-end tests with agents, scheduler and server apart.

Pytest, and with it clients, Jupyter Server and routers, runs on one machine; each agent goes to a machine of
its host's (`placement`), schedulers to another one. What crosses is delayed and lost as DELAY_MS, JITTER_MS
and LOSS say. Networks, names and Unix sockets are apart, process numbers not: tests can kill what they name.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.faults.wire import Links, Wire
from tests.e2e.hosts.certificate import make_certificate
from tests.e2e.hosts.machine import Machine, why_no_machines
from tests.e2e.hosts.supervisor import PLACE
from tests.support.s3_server import ADDRESS

ADDRESSES = {f"machine{number}": f"10.78.1.{number}" for number in range(1, 7)} | {"vault": "10.78.1.8"}
LAB = "10.78.1.9"
SOURCES = [str(Path(__file__).parents[3] / part) for part in (".", "scheduler", "server_ext")]
PLACEMENT = str(Path(__file__).parent / "placement")
ACROSS = (
    "tests/e2e/test_jupyter_kernel_test.py",
    "tests/e2e/test_unfaithful_state.py",
    "tests/e2e/test_survival_basics.py",
    "tests/e2e/test_moves.py",
    "tests/e2e/test_lost_hosts.py",
    "tests/e2e/test_hibernation.py",
    "tests/e2e/test_lost_disks.py",
    "tests/e2e/test_repeated_rest.py",
    "tests/e2e/test_restore_order.py",
    "tests/e2e/test_router_behaviour.py",
    "tests/e2e/test_large_state.py",
    "tests/e2e/test_notebooks.py",
    "tests/e2e/test_clients.py",
    "tests/e2e/test_gpu_in_cell.py",
    "tests/e2e/test_gpu_other.py",
    "tests/e2e/test_gpu_state.py",
    "tests/e2e/test_culling.py",
    "tests/e2e/test_live.py",
    "tests/e2e/test_reattach.py",
    "tests/e2e/test_resting.py",
    "tests/e2e/test_status.py",
    "tests/e2e/test_server_configuration.py",
    "tests/e2e/test_configuration.py",
    "tests/e2e/test_host_environments.py",
    "tests/e2e/test_several_hosts.py",
    "tests/e2e/test_loadtest.py",
    "tests/e2e/test_bad_input.py",
    "tests/e2e/state",
)
"""What is run without names; README.md says why the others are not."""
INSIDE = "REPLKERNEL_TEST_SITE"
BOOT = Path("/proc/sys/kernel/random/boot_id")


def main(tests: list[str]) -> int:
    """Run the tests in namespaces that end with them; return pytest's exit code."""
    why = why_no_machines()
    if why:
        print(f"Machines cannot be made here: {why}.")
        return 1
    if INSIDE in os.environ:
        return run(tests)
    apart = "unshare --pid --fork --kill-child --mount --mount-proc --propagation shared".split()
    again = [sys.executable, "-m", "tests.e2e.hosts.across", *tests]
    return subprocess.run([*apart, *again], env={**os.environ, INSIDE: "1"}, check=False).returncode


def run(tests: list[str]) -> int:
    """Make the machines, run the tests among them, end all."""
    wire = Wire(Links(random.Random(int(os.environ.get("SEED", "1")))))
    with tempfile.TemporaryDirectory(prefix="rk-", dir="/tmp") as made:
        place = Path(made)
        for directory in ("hosts", "environments", "s"):
            (place / directory).mkdir(mode=0o700)
        certificate, _ = make_certificate(place / "tls", ADDRESSES["vault"])
        machines = {name: _machine(name, address, wire, place) for name, address in ADDRESSES.items()}
        lab = Machine("lab", LAB, wire, [], {}, shares_processes=True)
        wire.start()
        _slow_down(wire, [*machines, "lab"])
        told = {name: (machine.first, machine.address) for name, machine in machines.items()}
        (place / "machines.json").write_text(json.dumps(told))
        paths = [PLACEMENT, *SOURCES, os.environ.get("PYTHONPATH", "")]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "SSL_CERT_FILE": str(certificate),
            PLACE: made,
            ADDRESS: LAB,
        }
        try:
            pytest = lab.talk([sys.executable, "-m", "pytest", *(tests or ACROSS)], env)
            assert pytest.stdout is not None
            for line in pytest.stdout:
                print(line, end="", flush=True)
            return pytest.wait()
        finally:
            for machine in [*machines.values(), lab]:
                machine.close()
            wire.close()


def _machine(name: str, address: str, wire: Wire, place: Path) -> Machine:
    """Make a machine with Unix sockets of its own, which was booted at another time than this one."""
    boot = place / f"boot-{name}"
    boot.write_text(f"{name}-{random.randrange(16**12):012x}\n")
    return Machine(name, address, wire, [place / "s"], {BOOT: boot}, shares_processes=True)


def _slow_down(wire: Wire, names: list[str]) -> None:
    delay_ms, loss = (float(os.environ.get(name, "0")) for name in ("DELAY_MS", "LOSS"))
    jitter_ms = float(os.environ.get("JITTER_MS", delay_ms / 2))
    with wire.lock:
        for source in names:
            for target in names:
                link = wire.links.link(source, target)
                link.delay_s, link.jitter_s, link.loss = delay_ms / 1000, jitter_ms / 1000, loss


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
