"""Has each process of a test that is run across machines go where it belongs, before it does anything.

Read by every Python process of such a test (`across.py` puts this directory on PYTHONPATH). An agent goes to
the machine of its host, a scheduler to the vault and serves there with TLS; all else stays on the machine of
pytest and Jupyter Server. Law: light, and nothing but the place is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import subprocess
import sys
import time

PLACE = "REPLKERNEL_TEST_HOSTS"
SETTLED = "REPLKERNEL_TEST_MACHINE"
"""Names the machine of a process that has gone to one; its children stay there."""
GPU_HOST = "gpu1"
"""Of the hosts that a test did not name itself this one has the GPUs, as there is one machine elsewhere."""
SPREAD = (GPU_HOST, "gpu2", "gpu3")
SERVE_S = 30.0


def role() -> tuple[str, str]:
    """Return what this process is to be: ``agent`` with its host, ``scheduler``, ``server`` or nothing."""
    words = sys.orig_argv[1:]
    if "-m" in words:
        module, given = words[words.index("-m") + 1], words[words.index("-m") + 2 :]
    else:
        module, given = os.path.basename(words[0]) if words else "", words[1:]
    if module == "jupyter_server":
        return "server", ""
    if module == "replkernel.agent":
        given = ["agent", *given]
    elif module not in ("replkernel.cli", "replkernel"):
        return "", ""
    if given[:1] == ["scheduler"] and not {"--help", "--ip"} & set(given):
        return "scheduler", ""
    if given[:2] == ["agent", "stop"] and len(given) > 2:
        return "agent", given[2]
    if given[:1] == ["agent"] and "--name" in given[:-1]:
        return "agent", given[given.index("--name") + 1]
    return "", ""


def machine_of(place: str, host: str) -> str:
    """Return the machine of a host: whoever comes first is given the next one that is free."""
    hosts, machines = os.path.join(place, "hosts"), _machines(place)
    with open(os.path.join(place, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = os.path.join(hosts, host)
        if not os.path.exists(file):
            free = [name for name in machines if name != "vault"]
            with open(file, "w") as said:
                said.write(free[(len(os.listdir(hosts)) - 1) % len(free)])
        with open(file) as said:
            return said.read()


def _machines(place: str) -> dict[str, tuple[int, str]]:
    with open(os.path.join(place, "machines.json")) as file:
        return {name: (pid, address) for name, (pid, address) in json.load(file).items()}


def enter(pid: int) -> None:
    """Enter the network, the name and the mounts of the machine that this process holds."""
    libc, here = ctypes.CDLL(None, use_errno=True), os.getcwd()
    for kind in ("net", "uts", "mnt"):
        descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
        if libc.setns(descriptor, 0):
            raise OSError(ctypes.get_errno(), f"the machine's {kind} could not be entered")
        os.close(descriptor)
    os.chdir(here)


def begin_scheduler(place: str) -> None:
    """Have a scheduler on the vault before a Jupyter Server could host one in itself."""
    address = os.path.join(os.environ["JUPYTER_DATA_DIR"], "replkernel", "scheduler", "address.json")
    if os.environ.get("REPLKERNEL_SCHEDULER_URL") or os.path.exists(address):
        return
    command = [sys.executable, "-m", "replkernel.cli", "scheduler", "--port", "0"]
    with open(os.path.join(place, "scheduler.log"), "ab") as log:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + SERVE_S
    while not os.path.exists(address) and time.monotonic() < deadline:
        time.sleep(0.02)


def go() -> None:
    """Go to the machine of what this process is to be."""
    place = os.environ.get(PLACE, "")
    if not place or SETTLED in os.environ:
        return
    kind, host = role()
    if kind == "server":
        begin_scheduler(place)
    if kind not in ("agent", "scheduler"):
        return
    name = "vault" if kind == "scheduler" else machine_of(place, host)
    pid, address = _machines(place)[name]
    if "--ready-fd" in sys.orig_argv:
        _keep_environment(place, host)
    if host in SPREAD and host != GPU_HOST:
        os.environ.pop("REPLKERNEL_FAKE_GPUS", None)
    enter(pid)
    os.environ[SETTLED] = name
    if kind == "scheduler":
        sys.argv += [
            "--ip",
            address,
            "--certfile",
            f"{place}/tls/cert.pem",
            "--keyfile",
            f"{place}/tls/key.pem",
        ]
    else:
        os.environ.setdefault("REPLKERNEL_BIND", address)
        with contextlib.suppress(OSError, KeyError):
            os.makedirs(os.environ["REPLKERNEL_SOCKET_DIR"], mode=0o700, exist_ok=True)


def _keep_environment(place: str, host: str) -> None:
    """Leave to the machine's supervisor what it starts the agent with when that has died."""
    path = os.path.join(place, "environments", host)
    with open(f"{path}.new", "w") as file:
        json.dump(dict(os.environ), file)
    os.replace(f"{path}.new", path)


go()
