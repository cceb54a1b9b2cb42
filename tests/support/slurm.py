"""A real Slurm for tests: slurmctld, one slurmd for each node with GPUs of its own, and their munged.

All nodes are this machine, told apart by name and port. The daemons stay our children and end with the test,
and so does what their jobs have started. Law: nothing of the system's own Slurm is read, written or ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.ending import lives
from tests.support.ports import free_ports
from tests.support.s3_server import die_with_parent

NODES = ("n1", "n2", "n3")
GPUS = 4
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")
STARTS_S_MAX = 30.0
GONE_S_MAX = 10.0
TRIES = 3
PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
UP = {"idle", "mixed", "allocated"}

_CONF = """\
ClusterName=trial
SlurmctldHost={machine}(127.0.0.1)
SlurmctldPort={ctld}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.sock
CredType=cred/munge
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool/%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
SlurmdTimeout=300
KillWait=5
MinJobAge=300
GresTypes=gpu
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL MaxTime=30 State=UP
"""
_NODE = (
    "NodeName={name} NodeHostname={machine} NodeAddr=127.0.0.1 Port={port} "
    "CPUs=8 RealMemory=4000 Gres=gpu:{gpus} Feature={name}-feature State=UNKNOWN"
)


def why_not() -> str:
    """Say why no Slurm can be had here; an empty text if one can."""
    absent = [name for name in NEEDED if _program(name) is None]
    if absent:
        return (
            f"{', '.join(absent)} not found: apt-get install slurmctld slurmd slurm-client munge (their "
            "services need not run)"
        )
    if os.geteuid() != 0:
        return "Slurm's daemons and the devices of its GPUs need root"
    with tempfile.TemporaryDirectory() as directory:
        try:
            os.mknod(f"{directory}/null", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except OSError as error:
            return f"no device can be made here, which Slurm wants of a GPU ({error})"
    return ""


def _program(name: str) -> str | None:
    return shutil.which(name, path=PLACES)


class SlurmCluster:
    """A cluster that runs; `env` is what Slurm's commands need to find it."""

    def __init__(self, place: Path) -> None:
        """Start it, and wait until its nodes take jobs; raises RuntimeError with the daemons' words."""
        self.place = place
        self.env = {"SLURM_CONF": str(place / "slurm.conf"), "PATH": PLACES}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", "spool", "log"):
            (place / name).mkdir(exist_ok=True)
        for node in NODES:
            for number in range(GPUS):
                os.mknod(place / f"{node}-gpu{number}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        key = place / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        try:
            self._munge()
            self._start_all()
        except BaseException:
            self.stop()
            raise

    def run(self, *command: str) -> str:
        """Run one of Slurm's commands (or any other, with its environment); return what it printed."""
        done = subprocess.run(command, env=os.environ | self.env, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise AssertionError(f"{' '.join(command)}: {done.stderr or done.stdout}")
        return done.stdout.strip()

    def states(self) -> dict[str, str]:
        """Return what Slurm says of each node."""
        lines = self.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T").splitlines()
        return {name: state for name, _, state in (line.partition(" ") for line in lines)}

    def empty(self) -> None:
        """End all jobs, and wait until the nodes are free."""
        self.run("scancel", "--user=root")
        self._await(lambda: set(self.states().values()) == {"idle"}, "slurmctld")

    def kill_node(self, node: str) -> None:
        """Lose a node: its slurmd and all that runs in its jobs are gone from one moment to the next."""
        slurmd = self._daemons.pop(node)
        _kill([psutil.Process(slurmd.pid), *self._of_jobs(node)])
        slurmd.wait()

    def start_node(self, node: str) -> None:
        """Have a node again."""
        self._start(node, "slurmd", "-D", "-N", node, "-f", self.env["SLURM_CONF"])

    def stop(self) -> None:
        """End what the jobs have started, then the daemons; wait until nothing of them is left."""
        daemons = [psutil.Process(daemon.pid) for daemon in self._daemons.values() if daemon.poll() is None]
        ended = [child for one in daemons for child in one.children(recursive=True)]
        _kill([*daemons, *ended])
        _kill(self._of_jobs())
        for daemon in self._daemons.values():
            daemon.wait()
        self._daemons.clear()

    # -- its parts ----------------------------------------------------------------------------------

    def _munge(self) -> None:
        place = self.place
        files = ("key-file", "socket", "pid-file", "log-file", "seed-file")
        names = ("munge.key", "munge.sock", "munged.pid", "log/munged-own.log", "munged.seed")
        options = [f"--{file}={place / name}" for file, name in zip(files, names, strict=True)]
        self._start("munged", "munged", "--foreground", "--force", *options)
        self._await((place / "munge.sock").exists, "munged")

    def _start_all(self) -> None:
        """Start the daemons at free ports, at others if somebody was faster."""
        for left in reversed(range(TRIES)):
            self._configure(free_ports(1 + len(NODES)))
            try:
                self._start("slurmctld", "slurmctld", "-D", "-f", self.env["SLURM_CONF"])
                for node in NODES:
                    self.start_node(node)
                self._await(self._all_up, "slurmctld", *NODES)
            except RuntimeError as error:
                if not left or "use" not in str(error):
                    raise
                for name in ("slurmctld", *NODES):
                    if (daemon := self._daemons.pop(name, None)) is not None:
                        daemon.kill()
                        daemon.wait()
            else:
                return

    def _configure(self, ports: list[int]) -> None:
        machine = socket.gethostname()
        nodes = [
            _NODE.format(name=name, machine=machine, port=port, gpus=GPUS)
            for name, port in zip(NODES, ports[1:], strict=True)
        ]
        text = _CONF.format(machine=machine, ctld=ports[0], place=self.place, nodes="\n".join(nodes))
        (self.place / "slurm.conf").write_text(text)
        gres = [f"NodeName={node} Name=gpu File={self.place}/{node}-gpu[0-{GPUS - 1}]\n" for node in NODES]
        (self.place / "gres.conf").write_text("".join(gres))

    def _start(self, name: str, program: str, *options: str) -> None:
        found = _program(program)
        assert found is not None
        with (self.place / "log" / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                [found, *options],
                env={
                    "PATH": PLACES,
                    "SLURM_CONF": self.env["SLURM_CONF"],
                    "HOME": os.environ.get("HOME", "/root"),
                },
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,
            )

    def _all_up(self) -> bool:
        try:
            states = self.states()
        except AssertionError:
            return False
        return set(states) == set(NODES) and set(states.values()) <= UP

    def _await(self, look: object, *names: str) -> None:
        assert callable(look)
        deadline = time.monotonic() + STARTS_S_MAX
        while not look():
            ended = [name for name in names if self._daemons[name].poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = [(self.place / "log" / f"{name}.log") for name in ended or names]
                words = "\n".join(log.read_text(errors="replace")[-1500:] for log in logs)
                raise RuntimeError(f"{', '.join(ended or names)} did not start:\n{words}")
            time.sleep(0.05)

    def _of_jobs(self, node: str = "") -> list[psutil.Process]:
        """Return the processes of our jobs, and the slurmstepd that watch them; of one node, or of all."""
        found: dict[int, psutil.Process] = {}
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, psutil.NoSuchProcess):
                words = (place / "environ").read_bytes().split(b"\0")
                if f"SLURM_CONF={self.env['SLURM_CONF']}".encode() not in words:
                    continue
                process = psutil.Process(int(place.name))
                in_job = any(word.startswith(b"SLURM_JOB_ID=") for word in words)
                if node and not (in_job and f"SLURMD_NODENAME={node}".encode() in words):
                    continue
                if not in_job and process.name() != "slurmstepd":
                    continue
                parent = process.parent()
                watcher = [parent] if parent is not None and parent.name() == "slurmstepd" else []
                for one in [process, *watcher, *process.children(recursive=True)]:
                    found[one.pid] = one
        return list(found.values())


def _kill(processes: list[psutil.Process]) -> None:
    """End processes outright, and wait until each is gone (or is left to whom it belongs)."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + GONE_S_MAX
    while any(map(lives, processes)):
        assert time.monotonic() < deadline, f"these do not end: {processes}"
        time.sleep(0.01)


@contextlib.contextmanager
def slurm() -> Iterator[SlurmCluster]:
    """Have a cluster; its directory has a short name, for sockets are in it."""
    place = Path(tempfile.mkdtemp(prefix="rkslurm"))
    cluster = None
    try:
        cluster = SlurmCluster(place)
        yield cluster
    finally:
        if cluster is not None:
            cluster.stop()
        shutil.rmtree(place, ignore_errors=True)
