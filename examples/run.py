"""Opens the tour (demo.ipynb) in JupyterLab with a scheduler and a host agent of its own: `make run`.

The agent offers simulated GPUs, so the tour shows leases on any machine. Laws: your own kernels, agents and
schedulers, and this checkout's files, are left alone, for all data lie in a directory of their own, with a
copy of the notebooks; what was started here ends here; kernels go to rest first, so that their variables
are there when the tour is opened again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from replkernel.launch.kernel_record import kernels_dir, read_record, router_lives
from replkernel.settings import data_dir

ROOT = Path(__file__).parents[1]
ROUTER_S = 10.0
"""How long a router may take to end."""

TOUR = ("demo.ipynb", "rival.ipynb")
NOTEBOOKS = (*TOUR, "plain_python.ipynb")
"""What runs with the packages that the tour installs."""
ASKS_NOTHING = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}
"""What JupyterLab is set to: nobody is asked at the first start whether to fetch news of Jupyter."""
OWN_PLACES = {
    "JUPYTERLAB_SETTINGS_DIR": "user-settings",
    "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    "IPYTHONDIR": "ipython",
}
"""Where JupyterLab and IPython keep what a user chooses: your own are left alone."""
NOT_OURS = ("REPLKERNEL_SCHEDULER_URL", "REPLKERNEL_HOSTS")
"""Settings that lead to a cluster that is there already."""


def environment(data: Path, gpus: int) -> dict[str, str]:
    """Return the environment of everything that is started."""
    env = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
    own = {name: str(data / place) for name, place in OWN_PLACES.items()}
    return env | own | {"JUPYTER_DATA_DIR": str(data), "REPLKERNEL_FAKE_GPUS": str(gpus)}


def lay_out(home: Path) -> None:
    """Copy the notebooks, unless there are newer ones, and the pages that they link to.

    Nothing is linked: who packs this checkout would follow a link, and take the pages for packed already.
    """
    copies = home / "examples"
    copies.mkdir(parents=True, exist_ok=True)
    for name in NOTEBOOKS:
        source, copy = ROOT / "examples" / name, copies / name
        if not copy.exists() or copy.stat().st_mtime < source.stat().st_mtime:
            shutil.copyfile(source, copy)
    pages = home / "docs"
    if pages.is_symlink():
        pages.unlink()
    shutil.copytree(ROOT / "docs", pages, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def trust(home: Path, env: dict[str, str]) -> None:
    """Sign the tour's notebooks: JupyterLab asks before a button of an unsigned one does anything."""
    command = [sys.executable, "-m", "nbformat.sign"]
    command += [str(home / "examples" / name) for name in TOUR]
    done = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"The tour's notebooks could not be signed:\n{done.stderr}")


def options_of_lab(data: Path) -> list[str]:
    """Return JupyterLab's options: the tour opens, no dialog before it, and only what matters is logged."""
    settings = data / "lab-settings"
    settings.mkdir(exist_ok=True)
    (settings / "overrides.json").write_text(json.dumps(ASKS_NOTHING))
    options = ["--LabApp.default_url=/lab/tree/examples/demo.ipynb", "--Application.log_level=ERROR"]
    return [*options, f"--LabApp.app_settings_dir={settings}"]


def lab(options: list[str], env: dict[str, str], home: Path) -> int:
    """Run JupyterLab in `home`, which hosts the scheduler, until somebody ends it; return its exit code.

    It is in a process group of its own: at Ctrl-C it would ask whether that was meant, and wait.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", *options], env=env, cwd=home, process_group=0
    )

    def leave(number: int, _: object) -> None:
        if number == signal.SIGINT:
            print("\nThe tour ends. Its notebooks hibernate, and go on at the next run …", flush=True)
        process.terminate()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    return process.wait()


def end(env: dict[str, str]) -> None:
    """Put the kernels to rest, then end their routers and the agent."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    place = data_dir(env)
    kept = [path.parent.name for path in kernels_dir(place).glob("*/kernel.json")]
    kernels = [name for name in kept if (known := read_record(place, name)) and router_lives(known)]
    command = [sys.executable, "-m", "replkernel.cli"]
    quiet: dict[str, Any] = {"env": env, "stdout": subprocess.DEVNULL, "process_group": 0}
    for process in [subprocess.Popen([*command, "hibernate", kernel], **quiet) for kernel in kernels]:
        process.wait()
    for kernel in kernels:
        end_router(place, kernel)
    subprocess.run([*command, "agent", "stop"], check=False, **quiet)


def end_router(place: Path, kernel: str) -> None:
    """End the process that answers for a kernel, and leave the record with which it is found again."""
    deadline = time.monotonic() + ROUTER_S
    record = read_record(place, kernel)
    while record is not None and router_lives(record) and time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.router_pid, signal.SIGTERM)
        time.sleep(0.05)


def main() -> int:
    """Read the command line, run it, and return JupyterLab's exit code."""
    parser = argparse.ArgumentParser(description="Open the tour in JupyterLab, with a cluster of its own.")
    parser.add_argument(
        "--gpus", type=int, default=2, help="how many GPUs are simulated (0: none; default: 2)"
    )
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "run", help="where its data lie")
    chosen, options = parser.parse_known_args()
    data = chosen.data.resolve()
    home = data / "home"
    lay_out(home)
    env = environment(data, chosen.gpus)
    trust(home, env)
    print("JupyterLab starts and opens the tour. Ctrl-C ends it.", flush=True)
    try:
        return lab([*options_of_lab(data), *options], env, home)
    finally:
        end(env)


if __name__ == "__main__":
    raise SystemExit(main())
