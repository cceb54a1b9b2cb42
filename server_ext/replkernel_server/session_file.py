"""What a Jupyter Server had open: the kernels and sessions that its next start restores, in one file.

Servers are told apart by root directory and base URL; each server of the same two has a place of its own, so
that a second one beside the first takes nothing away from it. Law: a place belongs to one live process at a
time (a file lock says whose it is), and what cannot be read is as good as absent.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import socket
import time
from pathlib import Path

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.hosts.own_file import read_own, replace_own
from replkernel_server.errors import ServerError

log = logging.getLogger("replkernel.server")

PLACES_MAX = 16
"""How many servers of one root directory are told apart at most; further ones restore nothing."""
KERNELS_MAX = 1000
SESSIONS_MAX = 100
"""How many kernels of a server are remembered, and how many sessions of each."""
FILE_BYTES_MAX = 4 * 1024 * 1024
STOPPING_WAIT_S = 5.0
"""How long a server waits for one before it that no longer listens, but has not ended yet."""
LOOK_S = 0.05
PROBE_S = 0.5


class KeptSession(msgspec.Struct, frozen=True):
    """A session as Jupyter knows it."""

    session_id: str
    path: str
    name: str
    type: str


class KeptKernel(msgspec.Struct, frozen=True):
    """A replicated kernel and its sessions."""

    kernel_id: str
    kernel_name: str
    sessions: tuple[KeptSession, ...] = ()


class Kept(msgspec.Struct, frozen=True):
    """Everything that a server's file says. `ip` and `port` are where the server listened."""

    version: int = 1
    root_dir: str = ""
    base_url: str = ""
    ip: str = ""
    port: int = 0
    kernels: tuple[KeptKernel, ...] = ()


class NoPlace(ServerError):
    """There is no place for this server's file."""


class SessionFile:
    """The file of this server, held from `claim` to `release`."""

    def __init__(self, data_dir: Path, root_dir: str, base_url: str) -> None:
        mark = hashlib.sha256(f"{root_dir}\0{base_url}".encode()).hexdigest()[:16]
        self._directory = data_dir / "server" / mark
        self._known = Kept(root_dir=root_dir, base_url=base_url)
        self._written: bytes | None = None
        self._place = -1
        self._lock = -1

    def claim(self, port: int) -> Kept:
        """Take a place, that of the last server on `port` if it is free; return what is in it.

        Raises NoPlace when all are taken or the directory cannot be used.
        """
        try:
            for private in (self._directory.parent, self._directory):
                private.mkdir(mode=0o700, parents=True, exist_ok=True)
            places = sorted(range(PLACES_MAX), key=lambda place: self._read(place).port != port)
            if not any(self._take(place) for place in places):
                raise NoPlace(f"{PLACES_MAX} servers of {self._known.root_dir} run already")
        except OSError as error:
            raise NoPlace(f"{self._directory} cannot be used ({error})") from error
        found = self._read(self._place)
        return msgspec.structs.replace(
            found, kernels=tuple(_bounded(kernel) for kernel in found.kernels[:KERNELS_MAX])
        )

    def write(self, ip: str, port: int, kernels: tuple[KeptKernel, ...]) -> None:
        """Put these kernels into the file if it says anything else; raises OSError."""
        if self._lock < 0:
            return
        kept = msgspec.structs.replace(self._known, ip=ip, port=port, kernels=kernels[:KERNELS_MAX])
        data = msgspec.json.format(msgspec.json.encode(kept))
        if data != self._written:
            replace_own(self._file(self._place), data)
            self._written = data

    def release(self) -> None:
        """Let the next server have the place."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _file(self, place: int) -> Path:
        return self._directory / (f"sessions-{place}.json" if place else "sessions.json")

    def _read(self, place: int) -> Kept:
        path = self._file(place)
        try:
            kept = msgspec.json.decode(read_own(path, FILE_BYTES_MAX), type=Kept)
        except FileNotFoundError:
            return self._known
        except (OSError, *UNREADABLE) as error:
            log.warning("The sessions in %s cannot be restored: %s.", path, error)
            return self._known
        if kept.version != self._known.version:
            log.warning("The sessions in %s are of another version; they are not restored.", path)
            return self._known
        return kept

    def _take(self, place: int) -> bool:
        deadline = time.monotonic() + STOPPING_WAIT_S
        lock = os.open(self._directory / f"{place}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline or _listens(self._read(place)):
                    os.close(lock)
                    return False
                time.sleep(LOOK_S)
                continue
            except OSError as error:
                log.warning("%s knows no file locks (%s); run one server at a time.", self._directory, error)
            self._place, self._lock = place, lock
            return True


def _bounded(kernel: KeptKernel) -> KeptKernel:
    return msgspec.structs.replace(kernel, sessions=kernel.sessions[:SESSIONS_MAX])


def _listens(kept: Kept) -> bool:
    """Tell whether the server that wrote this still takes connections (or cannot be asked)."""
    if not kept.port:
        return True
    ip = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}.get(kept.ip, kept.ip)  # noqa: S104
    with contextlib.suppress(OSError), socket.create_connection((ip, kept.port), PROBE_S):
        return True
    return False
