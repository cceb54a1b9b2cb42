"""The processes of a job: how they are started, found again, signalled.

Law: a process is a job's if its environment says so, if it is in the session of the job's first process, or
if a process of the job's has started it; who was one when all were told to end is one until it ends. So
nothing of an attempt outlives it, also when its supervisor was killed, or a program has put its environment
away. Others' processes are none.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from replkernel.agent.io.death import STARTED, every_process, start_time
from replkernel.agent.io.start import JOB, JOB_ON_CORES, NOT_FOR_PROGRAMS
from replkernel.hosts.places import this_machine
from replkernel.jobs.stepping_aside import step_aside
from replkernel.jobs.words import PLACE, Order, Record, checkpoint_of, make_jobs_dir
from replkernel.launch.module_command import module_command

SUPERVISOR = "replkernel.jobs.supervisor"
GPUS, CPUS = "{gpus}", "{cpus}"
TORCHRUN = "torchrun"
TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
TORCHRUN_WITHIN = 6
"""It is one of so many words, those of `env` aside: in `nice -n 9 python -m` it is the sixth."""
TORCHRUN_MEETS = (
    "--nnodes", "--node-rank", "--master-addr", "--master-port", "--standalone", "--rdzv-backend",
    "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf",
)  # fmt: skip
TORCHRUN_FLAGS = (
    "-m",
    "--module",
    "--no-python",
    "--run-path",
    "--standalone",
    "--use-env",
    "--virtual-local-rank",
)
"""Those of its options that no value follows."""
TORCHRUN_COUNTS = ("--nproc-per-node", "--nproc_per_node")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")


class First(NamedTuple):
    """A job's first process, which leads its session: its pid and when it started (0: there is none)."""

    pid: int = 0
    started: int = 0


NOBODY = First()


class Seat(NamedTuple):
    """A host's place in a job on several: its number, of so many; all meet at the first one's address."""

    node: int
    nodes: int
    address: str
    port: int


class _Seen(NamedTuple):
    """A process that is not over."""

    parent: int
    session: int
    started: int


def command_with(command: tuple[str, ...], gpus: int, cpus: int = 0, seat: Seat | None = None) -> list[str]:
    """Return the command for so many GPUs: `{gpus}` is their number; torchrun starts a process for each.

    On several hosts these are the host's own, and torchrun is told where the others are (`seat`).
    A job without GPUs has `cpus` cores: `{cpus}` is their number, and torchrun is as its user wrote it.
    """
    words = [word.replace(GPUS, str(gpus)) for word in command]
    if cpus:
        return [word.replace(CPUS, str(cpus)) for word in words]
    place = _torchrun(words)
    if place is None:
        return words
    told = [] if seat is None else _meeting_words(seat)
    if GPUS not in " ".join(command) and not _recount(words, gpus):
        told = [f"{TORCHRUN_COUNTS[0]}={gpus}", *told]
    return [*words[: place + 1], *told, *words[place + 1 :]]


def _recount(words: list[str], gpus: int) -> bool:
    """Have torchrun start a process for each GPU where its user has named a number; tell whether he has."""
    for number, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if name in TORCHRUN_COUNTS:
            if equals:
                words[number] = f"{name}={gpus}"
            elif number + 1 < len(words):
                words[number + 1] = str(gpus)
            return True
    return False


def _meeting_words(seat: Seat) -> list[str]:
    """Return what torchrun is told of its job's hosts."""
    return [
        f"--nnodes={seat.nodes}",
        f"--node-rank={seat.node}",
        f"--master-addr={seat.address}",
        f"--master-port={seat.port}",
    ]


def meets_by_itself(command: tuple[str, ...]) -> str:
    """Return the first word that tells torchrun of hosts, which a job on several hosts is told already."""
    place = _torchrun(list(command))
    if place is None:
        return ""
    words = iter(command[place + 1 :])
    for word in words:
        name, equals, _ = word.partition("=")
        if not word.startswith("-"):
            return ""  # The program, and what follows is its own.
        if name.replace("_", "-") in TORCHRUN_MEETS:
            return name
        if not equals and name.replace("_", "-") not in TORCHRUN_FLAGS:
            next(words, None)
    return ""


def _torchrun(words: list[str]) -> int | None:
    """Return where torchrun's own arguments begin, less one; None: it is not torchrun."""
    first = 0
    while first < len(words) and (os.path.basename(words[first]) == "env" or _ASSIGNED.match(words[first])):
        first += 1
    for number, word in enumerate(words[: first + TORCHRUN_WITHIN]):
        if os.path.basename(word) == TORCHRUN:
            return number
        if word in TORCHRUN_MODULES and number and words[number - 1] == "-m":
            return number
    return None


def environment(
    base: Mapping[str, str], order: Order, place: Path, seat: Seat | None = None
) -> dict[str, str]:
    """Return the environment of a job's program."""
    plain = {name: value for name, value in base.items() if name not in NOT_FOR_PROGRAMS}
    return {
        **plain,
        **told_everywhere(plain, order),
        PLACE: str(place),
        "CUDA_VISIBLE_DEVICES": ",".join(order.gpus),
        **_for_cores(order.cpus),
        **({} if seat is None else _seated(seat)),
        "SPT_NOENV": "1",  # setproctitle leaves the environment where it can be read.
    }


def told_everywhere(base: Mapping[str, str], order: Order) -> dict[str, str]:
    """Return what a job's program is told on each of its hosts."""
    return {
        JOB: order.job,
        "REPLKERNEL_JOB_GPUS": str(len(order.gpus)),
        "REPLKERNEL_JOB_HOSTS": str(1 + len(order.others)),
        "REPLKERNEL_JOB_CHECKPOINT": str(checkpoint_of(order.directory, order.job)),
        "PYTHONUNBUFFERED": base.get("PYTHONUNBUFFERED", "1"),
    }


def _seated(seat: Seat) -> dict[str, str]:
    """Return what torchrun would tell one process on each host; its own say more."""
    return {
        "MASTER_ADDR": seat.address,
        "MASTER_PORT": str(seat.port),
        "RANK": str(seat.node),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(seat.nodes),
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(seat.node),
    }


def _for_cores(cpus: int) -> dict[str, str]:
    """Return what keeps a program's libraries to so many cores; nothing where it has GPUs."""
    names = (JOB_ON_CORES, "OMP_NUM_THREADS", "PYTHON_CPU_COUNT") if cpus else ()
    return dict.fromkeys(names, str(cpus))


def start(
    order: Order, base: Mapping[str, str], place: Path, log: int, seat: Seat | None = None
) -> subprocess.Popen[bytes]:
    """Start the program in a session of its own; raises OSError, also where its directory is not there."""
    # The directory of the job itself may be a disk that is not mounted.
    (make_jobs_dir(order.directory) / order.job).mkdir(mode=0o700, exist_ok=True)
    return subprocess.Popen(
        command_with(order.command, len(order.gpus), order.cpus, seat),
        cwd=order.directory,
        env=environment(base, order, place, seat),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        preexec_fn=partial(step_aside, order.memory_gb) if order.cpus else None,  # noqa: PLW1509 - no threads
    )


def start_supervisor(place: Path, host: str, env: Mapping[str, str]) -> None:
    """Start what supervises the job that has this directory; raises OSError.

    It steps out of this process at once, so its end is awaited but a moment.
    """
    command = module_command(SUPERVISOR, str(place), host)
    said = os.open(place / "supervisor.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, check=False, env=dict(env)
        )
    finally:
        os.close(said)


def boot() -> str:
    """Return what tells this life of the machine, or of the container, from those before."""
    return f"{this_machine()} {start_time(1)}"


def first_of(record: Record) -> First:
    """Return the first process that a record names, none where its pid may be another's by now."""
    return First(record.pid, record.started) if record.pid and record.boot == boot() else NOBODY


def members(
    place: Path | str, *firsts: First, known: Iterable[First] = (), variable: str = PLACE
) -> list[int]:
    """Return the pids of all processes of the job that has this directory, but for its supervisor.

    `variable` of their environment names the directory; `firsts` lead their sessions, `known` were found
    before.
    """
    seen = _all()
    found = {pid for pid in seen if _is_marked(pid, f"{variable}={place}".encode())}
    found |= {it.pid for it in known if it.pid in seen and seen[it.pid].started == it.started}
    for first in firsts:
        leader = seen.get(first.pid)
        if first.pid and (leader is None or leader.started == first.started):
            it_led = {pid for pid, it in seen.items() if it.session == first.pid}
            found |= {pid for pid in it_led if seen[pid].started >= first.started}
    children: dict[int, list[int]] = {}
    for pid, it in seen.items():
        children.setdefault(it.parent, []).append(pid)
    left = list(found)
    while left:
        fresh = set(children.get(left.pop(), ())) - found
        found |= fresh
        left += fresh
    return sorted(found)


def supervisors(place: Path) -> list[int]:
    """Return the pids of whatever supervises the job that has this directory."""
    words, found = {SUPERVISOR.encode(), str(place).encode()}, []
    for pid in _all():
        with contextlib.suppress(OSError):
            if words <= set(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")):
                found.append(pid)
    return found


def _all() -> dict[int, _Seen]:
    """Return all processes that are not over, but for this one."""
    return {
        pid: _Seen(int(fields[1]), int(fields[3]), int(fields[STARTED]))
        for pid, fields in every_process()
        if pid != os.getpid() and fields[0] not in (b"Z", b"X")
    }


def _is_marked(pid: int, mark: bytes) -> bool:
    with contextlib.suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def catches(pid: int, signum: signal.Signals) -> bool:
    """Tell whether a process has a handler for a signal."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text()
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        return bool(caught >> (signum - 1) & 1)
    return False


def send(pids: list[int], signum: signal.Signals) -> None:
    """Signal processes; those that are over are none."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)
