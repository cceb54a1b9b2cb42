"""Begin to start a host's agent: the lock of starters, the log, the process. The first thing a router does.

Law: imports nothing but the standard library's lightest modules, waits for nothing, and never starts an
agent while another process holds the lock of starters or the agent's own.
"""

from __future__ import annotations

import fcntl
import os
import sys

from replkernel.hosts.places import agent_place, given_address, named_hosts, own_host
from replkernel.launch.module_command import module_command

TYPE_CHECKING = False  # As typing's own, whose import takes as long as all that is done here.
if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_BYTES_MAX = 1024 * 1024
"""An agent's log is put aside (as ``agent.log.1``) when it has grown beyond this."""

JOB = "REPLKERNEL_JOB"
"""What the environment of a job's processes has, alone and as the beginning of names."""

JOB_ON_CORES = f"{JOB}_CPUS"
"""What it has of a job on cores alone, whose low priority all that it starts would have."""

RANKS = "REPLKERNEL_RANKS_DIR"
"""A process with this in its environment belongs to the launcher that has this directory."""

NOT_FOR_PROGRAMS = ("JPY_PARENT_PID", "KERNEL_ID", "REPLKERNEL_LAUNCHER_PID", "REPLKERNEL_LAUNCHER_RETURNS")
"""What tells a kernel who started it: no program that it starts is told so."""

LOCK_HELD = 75
"""The exit code of an agent that finds another one's lock."""

SETTLED = "machine"
"""A file that names the machine on which an agent listens for others: it is started there alone."""

ENGINE = "engine"
"""A file that names the engine (a cluster's) that starts and ends an agent: nobody else starts it."""

STOPPED = "stopped"
"""A file that says that somebody has stopped the agent: jobs do not start it again."""

READY = b"ready\n"
TAKEN = b"taken\n"
READY_FD = 3
"""The descriptor on which an agent says that it listens, or that another one holds its lock."""

_NAME_CHARACTERS_MAX = 64


def is_host_name(host: str) -> bool:
    """Tell whether `host` can name an agent: it becomes part of paths."""
    plain = host.replace(".", "").replace("-", "").replace("_", "")
    fits = host.isascii() and len(host) <= _NAME_CHARACTERS_MAX and (plain.isalnum() or not plain)
    return fits and host[:1].isalnum()


def outside_jobs(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what makes a process a job's or a launcher's, and has it end with it."""
    own = (JOB, RANKS)
    return {name: value for name, value in env.items() if name not in own and not name.startswith(f"{JOB}_")}


class Start:
    """An agent on its way: the process that it steps out of, the pipe on which it says that it listens."""

    def __init__(self, host: str, env: Mapping[str, str], lock: int) -> None:
        """Spawn the agent of `host`; `lock` is the held lock of starters. Raises OSError when that fails."""
        self.host = host
        self._lock = lock
        directory = agent_place(host, env)
        self.log = os.path.join(directory, "agent.log")
        log_fd = _open_log(self.log)
        self.log_start = os.fstat(log_fd).st_size
        self.said, write_end = os.pipe()
        command = module_command("replkernel.agent", "--name", host, "--ready-fd", str(READY_FD))
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                command,
                {name: value for name, value in outside_jobs(env).items() if name != "JPY_PARENT_PID"},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, log_fd, 1),
                    (os.POSIX_SPAWN_DUP2, log_fd, 2),
                    (os.POSIX_SPAWN_DUP2, write_end, READY_FD),
                ],
                setsid=True,
            )
        except BaseException:
            os.close(self.said)
            raise
        finally:
            os.close(log_fd)
            os.close(write_end)

    def close(self) -> None:
        """Let go of it: others may start one, and find this one if it comes up."""
        os.close(self.said)
        os.close(self._lock)
        try:  # noqa: SIM105 - contextlib is not among the lightest modules
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            pass


def begin(host: str, env: Mapping[str, str]) -> Start | None:
    """Spawn the agent of `host` unless one is there or on its way; raises OSError when that fails."""
    directory = agent_place(host, env)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(directory, "start.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not agent_holds_lock(host, env):
            return Start(host, env, lock)
    except BlockingIOError:
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def begin_early(host: str, env: Mapping[str, str]) -> Start | None:
    """Do as `begin` does if there is no sign of an agent; what is wrong is left to be told by the search."""
    if not is_host_name(host) or os.path.exists(os.path.join(agent_place(host, env), "agent.json")):
        return None
    if lives_elsewhere(host, env) or env.get(JOB_ON_CORES):
        return None
    try:
        return begin(host, env)
    except OSError:
        return None


def lives_elsewhere(host: str, env: Mapping[str, str]) -> str:
    """Return in a clause why the agent of `host` is not to be started on this machine, or an empty string."""
    if given_address(host, env):
        return f"REPLKERNEL_HOSTS says that it listens at {given_address(host, env)}"
    if engine := engine_of(host, env):
        return f"it is started by {engine}"
    if host == own_host(env):
        return ""
    machine = _said(host, SETTLED, env)
    if machine and machine != os.uname().nodename:
        return f"it is an agent of the machine {machine}"
    if not machine and _spans(env) and host in named_hosts(env):
        return "only a machine's own agent is started on it where REPLKERNEL_BIND names an address for others"
    return ""


def engine_of(host: str, env: Mapping[str, str]) -> str:
    """Return what starts and ends the agent of `host`; nothing if that is anybody's business."""
    return _said(host, ENGINE, env)


def is_stopped(host: str, env: Mapping[str, str]) -> bool:
    """Tell whether somebody has stopped the agent of `host`, and nobody has started it since."""
    return os.path.exists(os.path.join(agent_place(host, env), STOPPED))


def _said(host: str, file: str, env: Mapping[str, str]) -> str:
    """Return the first words of a file of the agent of `host`; nothing where there is none."""
    try:
        with open(os.path.join(agent_place(host, env), file), encoding="utf-8") as words:
            return words.read(256).strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _spans(env: Mapping[str, str]) -> bool:
    address = env.get("REPLKERNEL_ADVERTISE", "").strip() or env.get("REPLKERNEL_BIND", "").strip()
    return bool(address) and not address.startswith("127.") and address != "::1"


def agent_holds_lock(host: str, env: Mapping[str, str]) -> bool:
    """Tell whether an agent of `host` lives, be it one that does not listen yet or any more."""
    return is_locked(os.path.join(agent_place(host, env), "agent.lock"))


def is_locked(path: str) -> bool:
    """Tell whether a living process holds the lock on a file (no link); nobody holds an absent one."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _open_log(log: str) -> int:
    try:
        if os.stat(log).st_size > LOG_BYTES_MAX:
            os.replace(log, f"{log}.1")
    except FileNotFoundError:
        pass
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
