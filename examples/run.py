"""Opens the tour (demo.ipynb) in JupyterLab with a scheduler and a host agent of its own: `make run`.

The agent offers simulated GPUs, so the tour shows leases on any machine. Laws: your own kernels, agents and
schedulers are left alone, for all data lie in a directory of their own; what was started here ends here;
kernels go to rest first, so that their variables are there when the tour is opened again.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from replkernel.kernel_record import kernels_dir, read_record, router_lives
from replkernel.settings import data_dir

ROOT = Path(__file__).parents[1]
ROUTER_S = 10.0
"""How long a router may take to end."""

TOUR = ("demo.ipynb", "rival.ipynb")
NOT_OURS = ("REPLKERNEL_SCHEDULER_URL", "REPLKERNEL_HOSTS")
"""Settings that lead to a cluster that is there already."""


def environment(data: Path, gpus: int) -> dict[str, str]:
    """Return the environment of everything that is started."""
    env = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    return env | {"JUPYTER_DATA_DIR": str(data), "REPLKERNEL_FAKE_GPUS": str(gpus)}


def trust(env: dict[str, str]) -> None:
    """Sign the tour's notebooks: JupyterLab asks before a button of an unsigned one does anything."""
    command = [sys.executable, "-m", "nbformat.sign"]
    command += [str(ROOT / "examples" / name) for name in TOUR]
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)


def lab(options: list[str], env: dict[str, str]) -> int:
    """Run JupyterLab, which hosts the scheduler, until somebody ends it; return its exit code."""
    process = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options], env=env)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # JupyterLab has it too, and asks whether it is meant.
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    return process.wait()


def end(env: dict[str, str]) -> None:
    """Put the kernels to rest, then end their routers and the agent."""
    place = data_dir(env)
    kernels = [path.parent.name for path in kernels_dir(place).glob("*/kernel.json")]
    command = [sys.executable, "-m", "replkernel.cli"]
    for kernel in kernels:
        subprocess.run([*command, "hibernate", kernel], env=env, check=False, stdout=subprocess.DEVNULL)
    for kernel in kernels:
        end_router(place, kernel)
    subprocess.run([*command, "agent", "stop"], env=env, check=False, stdout=subprocess.DEVNULL)


def end_router(place: Path, kernel: str) -> None:
    """End the process that answers for a kernel, and leave the record with which it is found again."""
    deadline = time.monotonic() + ROUTER_S
    record = read_record(place, kernel)
    while record is not None and router_lives(record) and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.router_pid, signal.SIGTERM)
        time.sleep(0.2)


def main() -> int:
    """Read the command line, run it, and return JupyterLab's exit code."""
    parser = argparse.ArgumentParser(description="Open the tour in JupyterLab, with a cluster of its own.")
    parser.add_argument(
        "--gpus", type=int, default=2, help="how many GPUs are simulated (0: none; default: 2)"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "run", help="where its data lie")
    chosen, options = parser.parse_known_args()
    data = chosen.data.resolve()
    data.mkdir(parents=True, exist_ok=True)
    env = environment(data, chosen.gpus)
    trust(env)
    try:
        return lab(["--LabApp.default_url=/lab/tree/examples/demo.ipynb", *options], env)
    finally:
        end(env)


if __name__ == "__main__":
    raise SystemExit(main())
