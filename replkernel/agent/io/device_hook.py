"""The administrator's program that opens and closes GPUs: which one, whether it may be run, one run of it.

Laws: it is named by the environment of an agent that a person started, never by a kernel's; nobody but root
and the agent's user can have written it, or led us to it; what was looked at is what is run; a run is bounded
in time, and hears nothing secret.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pwd
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Mapping, Sequence

from replkernel.agent.core.gpu_guard import HookCall
from replkernel.agent.io.death import last_line
from replkernel.errors import SettingError
from replkernel.hosts.own_dir import DirectoryUnsafe, check_way

log = logging.getLogger(__name__)

VARIABLE = "REPLKERNEL_DEVICE_HOOK"
RUN_S = 10.0
"""A run that takes longer is ended, and has failed."""
SAID_BYTES = 64 * 1024
"""So much of what it writes is kept: the last."""
SAID_CHARS = 300
PIDS_MAX = 256
_HANDED_ON = ("PATH", "LANG", "LC_ALL", "TZ")
_PREFIX = "REPLKERNEL_HOOK_"
"""Variables of the agent's environment with this prefix are the hook's own settings."""
_OF_OURS = "name a program that root or the agent's user has written, without links of others on the way"


class _Unfit(Exception):
    """A program must not be run: what is wrong with it, and the fix, in a clause each."""


def read_hook(env: Mapping[str, str]) -> str:
    """Return the hook's path without links, empty where there is none.

    Raises SettingError for a program that must not be run.
    """
    path = env.get(VARIABLE, "").strip()
    if not path:
        return ""
    try:
        return _checked(path)
    except _Unfit as unfit:
        raise SettingError(VARIABLE, path, *unfit.args) from None


def _checked(path: str) -> str:
    """Return the file that a path leads to, all of whose parts were looked at; raises _Unfit."""
    if not os.path.isabs(path):
        raise _Unfit("not an absolute path", "write the program's whole path")
    try:
        real = check_way(path)
        status = os.lstat(real)
    except DirectoryUnsafe as error:
        raise _Unfit(str(error), _OF_OURS if error.foreign else error.fix) from None
    except OSError as error:
        raise _Unfit(f"cannot be read ({error.strerror})", "name a program that is there") from None
    if not stat.S_ISREG(status.st_mode):
        raise _Unfit("not a file", "name a program")
    if status.st_uid not in (0, os.geteuid()):
        raise _Unfit(f"{real} belongs to user {status.st_uid}", _OF_OURS)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _Unfit(
            f"{real} can be written to by others (mode {stat.S_IMODE(status.st_mode):04o})",
            f"run `chmod go-w {real}`",
        )
    if not os.access(real, os.X_OK):
        raise _Unfit("cannot be executed", f"run `chmod u+x {real}`")
    return real


class DeviceHook:
    """The hook of one agent."""

    def __init__(self, path: str, host: str, env: Mapping[str, str], run_s: float = RUN_S) -> None:
        self._path, self._host, self._run_s = path, host, run_s
        own = {name: value for name, value in env.items() if name.startswith(_PREFIX)}
        self._env = {name: env[name] for name in _HANDED_ON if name in env} | own

    def run(self, call: HookCall, kernel_pids: Sequence[int]) -> str:
        """Run it, blocking; return why that failed, in one clause, or nothing.

        `kernel_pids` are the processes of the kernel that this agent keeps itself. Where it keeps none, the
        owner's processes on this host that run replkernel are named.
        """
        try:
            path = _checked(self._path)
        except _Unfit as unfit:
            return f"the device hook {self._path} is not run: {'; '.join(unfit.args)}"
        uid = uid_of(call.owner)
        pids = list(kernel_pids) or processes_of(uid)
        said = json.dumps({"version": 1, "host": self._host, "uid": uid, "pids": pids, **call._asdict()})
        env = {
            **self._env,
            "REPLKERNEL_ACTION": call.action,
            "REPLKERNEL_HOST": self._host,
            "REPLKERNEL_OWNER": call.owner,
            "REPLKERNEL_UID": "" if uid is None else str(uid),
            "REPLKERNEL_PIDS": " ".join(map(str, pids)),
            "REPLKERNEL_GPUS": " ".join(call.gpus),
            "REPLKERNEL_OWNER_GPUS": " ".join(call.owner_gpus),
        }
        return self._run(path, said.encode(), env)

    def _run(self, path: str, said: bytes, env: Mapping[str, str]) -> str:
        try:
            program = subprocess.Popen(
                [path],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=dict(env),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return f"the device hook {self._path} cannot be run: {error.strerror}"
        try:
            wrote = _heard(program, said, self._run_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)
            program.wait()
            return f"the device hook {self._path} has not ended within {self._run_s:g} s"
        last = last_line(wrote, SAID_CHARS)
        if program.returncode == 0:
            if last:
                log.warning("the device hook says: %s", last)
            return ""
        how = (
            f"ended with {program.returncode}"
            if program.returncode > 0
            else f"died of signal {-program.returncode}"
        )
        return f"the device hook {self._path} {how} and said {last or 'nothing'}"


def _heard(program: subprocess.Popen[bytes], said: bytes, run_s: float) -> bytes:
    """Say something to a program; return the end of what it writes. Raises TimeoutExpired after `run_s`."""
    until, wrote, left = time.monotonic() + run_s, b"", memoryview(said)
    assert program.stdin is not None and program.stderr is not None
    with program.stdin as to, program.stderr as of, selectors.DefaultSelector() as ready:
        for pipe, event in ((to, selectors.EVENT_WRITE), (of, selectors.EVENT_READ)):
            os.set_blocking(pipe.fileno(), False)
            ready.register(pipe, event)
        while ready.get_map():
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(program.args, run_s)
            for key, _ in ready.select(left_s):
                if key.fileobj is to:
                    try:
                        left = left[os.write(key.fd, left) :]
                    except BrokenPipeError:
                        left = left[:0]
                    if not left:
                        ready.unregister(to)
                        to.close()
                elif piece := os.read(key.fd, SAID_BYTES):
                    wrote = (wrote + piece)[-SAID_BYTES:]
                else:
                    ready.unregister(of)
    program.wait(max(0.0, until - time.monotonic()))
    return wrote


def uid_of(owner: str) -> int | None:
    """Return the id of the Unix user of an owner's name; None where there is none."""
    try:
        return pwd.getpwnam(owner).pw_uid
    except (KeyError, ValueError):
        return None


def processes_of(uid: int | None) -> list[int]:
    """Return the processes of a Unix user that run replkernel, the newest first; none of root's."""
    if not uid:
        return []
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid != uid:
                continue
            with open(f"/proc/{name}/cmdline", "rb") as command:
                if b"replkernel" in command.read(4096):
                    found.append(int(name))
    return sorted(found, reverse=True)[:PIDS_MAX]
