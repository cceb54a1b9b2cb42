"""A kernel found again by its record: its connection put into Jupyter's kernel manager, its router held.

Law: a process is named by pid and start time, never by pid alone; the manager of a kernel that is found again
signs with the recorded key and uses the recorded ports, unless somebody took one meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import time
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_client.connect import LocalPortCache

from replkernel.agent.io.death import start_time
from replkernel.launch.kernel_record import KernelRecord, router_lives

if TYPE_CHECKING:
    from jupyter_client.manager import KernelManager


PORTS = ("shell_port", "iopub_port", "stdin_port", "hb_port", "control_port")
POLL_S = 0.02
EXIT_UNKNOWN = 1
"""What `poll` says of a router that is gone: how it ended is known to its parent alone."""

returning_launchers: weakref.WeakSet[Any] = weakref.WeakSet()
"""The multi-kernel managers of this process whose kernels are found again when it is started again."""
client_classes: weakref.WeakKeyDictionary[Any, type[Any]] = weakref.WeakKeyDictionary()
"""By which client these multi-kernel managers' other extensions run cells on replicated kernels."""


class ConnectedManager(Protocol):
    """What is needed of `jupyter_client.KernelManager`."""

    transport: str
    ip: str

    def load_connection_info(self, info: object) -> None:
        """Take address, ports and keys; ports only where there are none yet."""

    def cleanup_random_ports(self) -> None:
        """Forget the ports that Jupyter chose, to have new ones chosen."""

    def cleanup_connection_file(self) -> None:
        """Forget the connection file, to have it written again."""


class AttachedRouter:
    """A router that another process started, shown as `subprocess.Popen` shows a child."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int, started: int) -> None:
        """Take hold of process `pid` that started at clock tick `started`; raises ProcessLookupError."""
        self.pid = pid
        self._started = started
        self.returncode: int | None = None
        self._descriptor = -1
        self._descriptor = _open(pid)
        if start_time(pid) != started:
            self._let_go()
            raise ProcessLookupError(errno.ESRCH, f"process {pid} is another one by now")

    def poll(self) -> int | None:
        """Return None while it lives."""
        if self.returncode is None and not self._alive():
            self.returncode = EXIT_UNKNOWN
            self._let_go()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises TimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"router {self.pid} did not end within {timeout} s")
            time.sleep(POLL_S)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, signum: int) -> None:
        """Send it a signal; nothing happens when it is gone."""
        if self.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if self._descriptor >= 0:
                signal.pidfd_send_signal(self._descriptor, signum)
            else:
                os.kill(self.pid, signum)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _alive(self) -> bool:
        if self._descriptor < 0:
            return start_time(self.pid) == self._started
        ended = select.poll()
        ended.register(self._descriptor, select.POLLIN)
        return not ended.poll(0)

    def _let_go(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self._let_go()


def _open(pid: int) -> int:
    """Return a descriptor of the process, -1 where the system gives none; raises ProcessLookupError."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (OSError, AttributeError):
        return -1


def attach(record: KernelRecord) -> AttachedRouter | None:
    """Return the record's router if it lives."""
    if not router_lives(record):
        return None
    try:
        return AttachedRouter(record.router_pid, record.router_started)
    except ProcessLookupError:
        return None


def load_connection(manager: ConnectedManager, record: KernelRecord, *, same_ports: bool) -> None:
    """Put the recorded connection into `manager`, its ports only on request."""
    info = dict(record.connection)
    known = {name: info.pop(name, 0) for name in PORTS}
    manager.load_connection_info(info)
    if same_ports and all(getattr(manager, name) == port for name, port in known.items()):
        return
    manager.cleanup_random_ports()
    manager.cleanup_connection_file()
    for name in PORTS:
        setattr(manager, name, 0)
    if same_ports:
        manager.load_connection_info(info | known)
        LocalPortCache.instance().currently_used_ports.update(getattr(manager, name) for name in PORTS)


def taken_port(record: KernelRecord) -> str:
    """Return a recorded port that cannot be bound again, or nothing when all can."""
    if record.connection.get("transport", "tcp") != "tcp":
        return ""
    ip = str(record.connection.get("ip") or "127.0.0.1")
    ports = [record.connection.get(name) for name in PORTS]
    return next((f"{ip}:{port}" for port in ports if not _is_free(ip, port)), "")


def _is_free(ip: str, port: object) -> bool:
    if not isinstance(port, int) or not 0 < port < 65_536:
        return False
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def leave_files(manager: KernelManager) -> None:
    """Keep a kernel manager that is thrown away from removing the connection file: its kernel lives on."""
    manager._connection_file_written = False
