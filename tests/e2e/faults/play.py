"""`python -m tests.e2e.faults.play SEED --root DIR`: one run, in namespaces where root allows; prints JSON.

Without that right, hosts are processes on loopback, and there are neither network nor disk faults. Law: in a
process namespace nothing outlives the run, however it ends.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import msgspec

from tests.e2e.faults.checker import judge
from tests.e2e.faults.history import History
from tests.e2e.faults.hosts import may_have_networks
from tests.e2e.faults.rig import Rig
from tests.e2e.faults.schedule import ALWAYS, DISK, NETWORK, Kind, Plan, make_plan

ROOT = Path(__file__).parents[3]
INSIDE = "REPLKERNEL_TEST_INSIDE"
SEPARATE = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
RUN_LIMIT_S = 420.0


class Played(msgspec.Struct, frozen=True):
    """One run and its judgement."""

    plan: Plan
    history: History
    broken: tuple[str, ...]
    notes: tuple[str, ...] = ()


def may_separate() -> bool:
    """Tell whether a run may have namespaces of its own."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return False
    tried = subprocess.run([*SEPARATE, "true"], capture_output=True, check=False)
    return tried.returncode == 0


def possible_faults(*, networks: bool, mounts: bool) -> tuple[Kind, ...]:
    """Return the kinds of faults that can be had here."""
    return ALWAYS + (NETWORK if networks else ()) + (DISK if mounts else ())


def play(seed: int, cells: int, keep: str = "") -> Played:
    """Play one seed in a process of its own; with `keep`, the logs of one that went wrong go there."""
    command = [sys.executable, "-m", "tests.e2e.faults.play", str(seed), "--cells", str(cells)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if may_separate():
        command, env = SEPARATE + command, env | {INSIDE: "1"}
    root = tempfile.mkdtemp(prefix="rkf-", dir="/tmp")
    try:
        return _played(seed, [*command, "--root", root, "--keep", keep], env)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _played(seed: int, command: list[str], env: dict[str, str]) -> Played:
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, timeout=RUN_LIMIT_S, check=False)
    try:
        return msgspec.json.decode(done.stdout, type=Played)
    except msgspec.MsgspecError:
        said = done.stderr.decode()[-3000:]
        raise RuntimeError(f"seed {seed} broke (exit code {done.returncode}): {said}") from None


def _play_here(seed: int, cells: int, root: Path, keep: str) -> Played:
    inside = bool(os.environ.pop(INSIDE, ""))
    networks = inside and may_have_networks()
    plan = make_plan(seed, cells, possible_faults(networks=networks, mounts=inside))
    rig = Rig(plan, root, networks=networks, mounts=inside)
    try:
        history = rig.play()
        broken = tuple(judge(history))
        if keep and broken:
            _keep(root, Path(keep) / str(seed))
        return Played(plan, history, broken, tuple(rig.notes))
    finally:
        rig.close()


def _keep(root: Path, target: Path) -> None:
    """Copy the logs of a run."""
    for log in root.glob("data/**/*.log*"):
        if log.is_file():
            copy = target / log.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, copy)


def _be_init(child: int) -> NoReturn:
    """Reap whatever has lost its parent until the run is over: nobody else does in its process namespace."""
    while True:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def main() -> int:
    """Play the seed and print how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--cells", type=int, default=30)
    parser.add_argument("--root", type=Path, required=True, help="an empty directory with a short path")
    parser.add_argument("--keep", default="")
    given = parser.parse_args()
    if os.getpid() == 1:
        child = os.fork()
        if child:
            _be_init(child)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    stdout = os.dup(1)
    os.dup2(2, 1)
    played = _play_here(given.seed, given.cells, given.root, given.keep)
    with os.fdopen(stdout, "wb") as out:
        out.write(msgspec.json.encode(played))
    return 0


if __name__ == "__main__":
    sys.stdout.flush()
    code = main()
    sys.stderr.flush()
    os._exit(code)
