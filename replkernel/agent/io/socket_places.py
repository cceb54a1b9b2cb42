"""Where an agent's sockets lie: chosen by the agent, kept in its directory, looked at by whoever connects.

What REPLKERNEL_SOCKET_DIR gives comes first; else the place of the agent before, which kernel processes know;
else XDG_RUNTIME_DIR; else a directory with a name of chance. Law: a place that somebody else could have made,
entered or swapped is never used: a given one is refused, another one is given up for a new one. So is a given
one that serves another data directory, whose agent would lose its sockets.
Light imports only: routers look here before they do anything else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from replkernel.errors import AgentUnavailable
from replkernel.hosts.own_dir import DirectoryUnsafe, check_own_dir, check_way, make_own_dir
from replkernel.hosts.own_file import read_own, replace_own
from replkernel.hosts.places import agent_place, data_place

GIVEN = "REPLKERNEL_SOCKET_DIR"
SOCKET_PATH_BYTES_MAX = 107
"""Unix socket paths end there."""

TEMPORARY = "/tmp"  # noqa: S108 - what lies there has a name of chance, and is looked at

PROCESSES = "k"
"""The directory of kernel processes' sockets, beside those of agents."""

_LOCK = "lock"
LOCK_TRIES = 20
LOCK_PAUSE_S = 0.05
"""The agent before, of the same data directory, may not have gone yet."""

NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS})
"""What file systems say that have none: there nothing tells two agents apart."""

_RECORD = "sockets"
_RECORD_BYTES_MAX = 4096
_PEER = struct.Struct("3i")


def check_given(host: str, env: Mapping[str, str]) -> None:
    """Raise AgentUnavailable when the agent of `host` could not listen where the setting says."""
    given = env.get(GIVEN)
    if not given:
        return
    directory = os.path.join(given, host)
    if not _fits(given, host):
        raise AgentUnavailable(
            f"The socket directory {directory} is too long for Unix sockets "
            f"({SOCKET_PATH_BYTES_MAX} bytes with the file name): set {GIVEN} to a shorter one."
        )
    try:
        check_way(os.path.abspath(given))
        check_own_dir(os.path.abspath(directory))
    except FileNotFoundError:
        return
    except (DirectoryUnsafe, OSError) as error:
        raise _refused(given, error) from error


def make_places(host: str, env: Mapping[str, str]) -> Path:
    """Return the directory of the sockets of `host`'s agent, made if need be; the agent holds its lock.

    Raises AgentUnavailable when there is none that is ours alone.
    """
    check_given(host, env)
    given = env.get(GIVEN)
    if given:
        try:
            os.makedirs(given, mode=0o700, exist_ok=True)
            directory = _made(given, host)
            _hold(directory)
            return directory
        except (DirectoryUnsafe, OSError) as error:
            raise _refused(given, error) from error
    problem: Exception = OSError("its path is too long for Unix sockets")
    for root in _candidates(host, env):
        try:
            directory = _made(root or _new(env, host), host)
        except (DirectoryUnsafe, OSError) as error:
            _warn(f"the sockets of host {host} cannot lie in {root or _parent(env)}: {error}")
            problem = error
            continue
        replace_own(Path(agent_place(host, env), _RECORD), f"{directory.parent}\n".encode())
        return directory
    raise _refused(_parent(env), problem)


def _hold(directory: Path) -> None:
    """Let no other agent use the directory as long as this process lives; raise OSError if one does."""
    lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_PAUSE_S)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            return
        else:
            return
    os.close(lock)
    raise OSError(f"an agent of host {directory.name} with another data directory listens there")


def recorded_root(host: str, env: Mapping[str, str]) -> str:
    """Return the directory in which the agent before had its sockets; nothing if that is not known."""
    try:
        kept = read_own(Path(agent_place(host, env), _RECORD), _RECORD_BYTES_MAX)
        return kept.decode().rstrip("\n")
    except (OSError, UnicodeDecodeError):
        return ""


def _candidates(host: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield where the sockets could lie, the best first; nothing stands for a new directory."""
    import hashlib

    mark = hashlib.sha256(os.path.normpath(data_place(env)).encode()).hexdigest()[:8]
    name = f"rk-{os.geteuid()}-{mark}"
    kept = recorded_root(host, env) or os.path.join(_parent(env), name)  # The latter is of earlier releases.
    if os.path.lexists(kept) and _fits(kept, host):
        yield kept
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime and _is_ours(runtime) and _fits(os.path.join(runtime, name), host):
        yield os.path.join(runtime, name)
    yield ""


def _parent(env: Mapping[str, str]) -> str:
    return env.get("TMPDIR") or TEMPORARY


def _new(env: Mapping[str, str], host: str) -> str:
    """Return a new directory whose name nobody could know before."""
    prefix = f"rk-{os.geteuid()}-"
    parent = _parent(env)
    if not _fits(os.path.join(parent, f"{prefix}12345678"), host):
        parent = TEMPORARY
    check_way(os.path.abspath(parent))
    root = os.path.join(parent, prefix + os.urandom(4).hex())
    os.mkdir(root, 0o700)
    return root


def _made(root: str, host: str) -> Path:
    """Make what is missing in `root`, which is there or whose parent is, and look at all of it."""
    root = os.path.abspath(root)
    if not os.path.lexists(root):
        make_own_dir(root)
    check_way(root)
    for name in (host, PROCESSES):
        make_own_dir(os.path.join(root, name))
    return Path(root, host)


def _fits(root: str, host: str) -> bool:
    return len(os.fsencode(os.path.join(root, host, "kernels.sock"))) <= SOCKET_PATH_BYTES_MAX


def _is_ours(directory: str) -> bool:
    try:
        check_own_dir(os.path.abspath(directory))
    except (DirectoryUnsafe, OSError):
        return False
    return True


def _warn(text: str) -> None:
    import logging

    logging.getLogger(__name__).warning("%s", text)


def _refused(directory: str, error: Exception) -> AgentUnavailable:
    fix = f"{error.fix}, or " if isinstance(error, DirectoryUnsafe) else ""
    return AgentUnavailable(
        f"The socket directory {directory} cannot be used because {error}: {fix}"
        f"set {GIVEN} to a directory that is yours alone."
    )


# -- who connects ---------------------------------------------------------------------------------------


def check_near(endpoint: str) -> None:
    """Raise AgentUnavailable if a listener of this machine could be somebody else's."""
    place = endpoint.removeprefix("ipc://")
    try:
        check_own_dir(os.path.dirname(place))
    except DirectoryUnsafe as error:
        raise AgentUnavailable(
            f"Nothing is sent to {place} because {error}: {error.fix}, and end the agent that listened "
            "there; the next kernel starts another one in a directory of its own."
        ) from error
    except OSError:
        return  # Whoever connects finds nobody.


def check_listener(connected: socket.socket, endpoint: str) -> None:
    """Raise AgentUnavailable if the process that listens at the other end is not of our user."""
    said = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(said)
    if uid != os.geteuid():
        raise AgentUnavailable(
            f"Nothing is sent to {endpoint.removeprefix('ipc://')} because a process of user {uid} listens "
            "there: end the agent of this host, and have that socket removed."
        )
