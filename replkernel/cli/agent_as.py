"""`replkernel agent --as USER`: root has the agent of another Unix user started on this host.

What root does here is small, and parses nothing of the user's: a child becomes him, for good, with an
environment from scratch, and only then finds or starts his agent. Law: nothing of the user's is opened or run
before that; nothing secret of root's goes along.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import sys
import time
from collections.abc import Mapping
from typing import NoReturn

from replkernel.errors import AgentUnavailable, ReplkernelError
from replkernel.launch.module_command import module_command

START_S = 60.0
"""So long an agent may take to listen."""
SAID_BYTES_MAX = 4096
IDLE_S = "86400"
"""How long such an agent stays without kernels, unless REPLKERNEL_AGENT_IDLE_S says otherwise."""
HANDED_ON = (
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "SSL_CERT_FILE",
    "REPLKERNEL_BIND",
    "REPLKERNEL_ADVERTISE",
    "REPLKERNEL_PORTS",
    "REPLKERNEL_PRELOAD",
    "REPLKERNEL_PYTHON",
    "REPLKERNEL_CACHE_GIB",
    "REPLKERNEL_DISK_PERCENT",
)
"""All that goes from root's environment to the user's: tokens, the device hook and their like do not."""


def run_agent_as(user: str, host: str, env: Mapping[str, str]) -> int:
    """Start the agent of `host` for a user unless it is there, and say so; raises AgentUnavailable."""
    entry = _entry(user)
    environment = environment_for(entry, host, env)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _become_and_start(entry, host, environment, write_end)
    os.close(write_end)
    said, code = _outcome(pid, read_end)
    text = "".join(
        letter for letter in said.decode(errors="replace") if letter.isprintable() or letter == "\n"
    ).strip()
    if code != 0:
        raise AgentUnavailable(
            f"The agent of host {host} was not started for {user}: {text or 'it said nothing'}"
        )
    print(text)
    return 0


def _entry(user: str) -> pwd.struct_passwd:
    if os.geteuid() != 0:
        raise AgentUnavailable(
            f"Only root starts the agent of another user: run this as root, or as {user} without --as."
        )
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        raise AgentUnavailable(
            f"There is no Unix user {user!r} on this host: add it, or name another one."
        ) from None
    if entry.pw_uid == 0:
        raise AgentUnavailable(f"{user} is root: an agent of root's would run notebooks as root.")
    return entry


def environment_for(entry: pwd.struct_passwd, host: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a user's agent: his own names and places, and what of root's is no secret."""
    path = dict.fromkeys([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"])
    own = {
        "HOME": entry.pw_dir,
        "USER": entry.pw_name,
        "LOGNAME": entry.pw_name,
        "SHELL": entry.pw_shell or "/bin/sh",
        "PATH": os.pathsep.join(path),
        "REPLKERNEL_HOST_NAME": host,
        "REPLKERNEL_AGENT_IDLE_S": env.get("REPLKERNEL_AGENT_IDLE_S") or IDLE_S,
    }
    runtime = f"/run/user/{entry.pw_uid}"
    with contextlib.suppress(OSError):
        if os.lstat(runtime).st_uid == entry.pw_uid:
            own["XDG_RUNTIME_DIR"] = runtime
    return {name: env[name] for name in HANDED_ON if env.get(name)} | own


def _become_and_start(
    entry: pwd.struct_passwd, host: str, env: Mapping[str, str], write_end: int
) -> NoReturn:
    """Be the user for good, then the program that finds or starts his agent; the limits stay root's."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor, source in ((0, null), (1, write_end), (2, write_end)):
            os.dup2(source, descriptor)
        os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") > 0 else 65_536)
        os.setsid()
        os.umask(0o077)
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
        os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
        _check_for_good(entry)
        os.chdir(entry.pw_dir)
        os.execve(sys.executable, module_command("replkernel.cli.agent_as", host), dict(env))
    except BaseException as error:
        os.write(1, _why_not(error, entry).encode())
    os._exit(1)


def _check_for_good(entry: pwd.struct_passwd) -> None:
    """Raise if this process could be root again."""
    with contextlib.suppress(PermissionError):
        os.setuid(0)
    if os.getresuid() != (entry.pw_uid,) * 3 or os.getresgid() != (entry.pw_gid,) * 3:
        raise AgentUnavailable(f"this process could not become {entry.pw_name} for good")


def _why_not(error: BaseException, entry: pwd.struct_passwd) -> str:
    if isinstance(error, OSError) and error.filename == entry.pw_dir:
        return f"the home directory {entry.pw_dir} cannot be entered ({error.strerror}): make it his own."
    if isinstance(error, OSError) and error.filename == sys.executable:
        return (
            f"{sys.executable} cannot be run by {entry.pw_name} ({error.strerror}): install replkernel where "
            "every user may read it."
        )
    return f"{error}."


def _outcome(pid: int, read_end: int) -> tuple[bytes, int]:
    """Return what the child said and its exit code; it is ended where it takes too long."""
    said, deadline = b"", time.monotonic() + START_S
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        while len(said) < SAID_BYTES_MAX:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                os.kill(pid, signal.SIGKILL)
                said += f"it does not listen after {START_S:g} s.".encode()
                break
            data = pipe.read(SAID_BYTES_MAX)
            if not data:
                break
            said += data
    return said, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(arguments: list[str]) -> int:
    """Find or start the agent of a host, as whoever this process is."""
    from replkernel.agent.io.lookup import check_host_name, find_or_start

    try:
        address = find_or_start(check_host_name(arguments[0]), os.environ, START_S - 5)
    except ReplkernelError as error:
        print(error)
        return 1
    print(f"The agent of host {arguments[0]} runs as {os.environ['USER']}, process {address.pid}.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
