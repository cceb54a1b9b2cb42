"""The connection file and the five sockets that it names: read, checked, bound, written back.

Law: whatever is wrong with the file or a port is one sentence that names it and the fix; the file is only
ever readable by its owner.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import zmq

from replkernel.errors import UNREADABLE, ConnectionFileError, PortInUseError
from replkernel.hosts.own_file import replace_own
from replkernel.launch.given_ports import close_given, listens_at

LINGER_MS = 1000
OUTPUT_MESSAGES_MAX = 50_000
"""How many published messages wait for one slow client before the newest are dropped for it."""

TAKEN_LIMIT_S = 3.0
TAKEN_RETRY_S = 0.05
"""A port that is taken is tried again so often, and for no longer."""

PORTS = ("shell_port", "stdin_port", "control_port", "iopub_port", "hb_port")
WATCHED = ("shell_port", "control_port")
"""The ports whose connections count as clients."""
_KINDS = {
    "shell_port": zmq.ROUTER,
    "stdin_port": zmq.ROUTER,
    "control_port": zmq.ROUTER,
    "iopub_port": zmq.XPUB,
    "hb_port": zmq.ROUTER,
}


MEBIBYTE = 1024 * 1024
FRAME_BYTES_MAX = {
    "shell_port": 256 * MEBIBYTE,
    "control_port": 256 * MEBIBYTE,
    "stdin_port": 16 * MEBIBYTE,
    "iopub_port": 4096,
    "hb_port": 4096,
}
"""ZMQ takes a frame before anybody can look at its signature: a larger one ends its connection."""
BACKLOG = 128


class ConnectionFile(msgspec.Struct, frozen=True):
    """What a connection file says. A port of 0 asks the router to choose one."""

    path: Path
    transport: str
    ip: str
    key: bytes
    signature_scheme: str
    ports: dict[str, int]
    curve: tuple[bytes, bytes] | None = None


def find_connection_file(name: str, env: Mapping[str, str]) -> Path:
    """Return the path of a connection file given by path, or by name in Jupyter's runtime directory."""
    if not name:
        raise ConnectionFileError("No connection file is given: start the router with -f FILE.")
    path = Path(name).expanduser()
    runtime = env.get("JUPYTER_RUNTIME_DIR")
    if not path.exists() and path.name == name and runtime and (Path(runtime) / name).exists():
        return Path(runtime) / name
    return path


def read_connection_file(path: Path) -> ConnectionFile:
    """Read and check a connection file.

    Raises ConnectionFileError in one sentence when it is missing, unreadable, not JSON, or lacks a field.
    """
    fields = _fields(path)
    missing = [name for name in PORTS if name not in fields]
    if missing:
        raise ConnectionFileError(
            f"The connection file {path} lacks {', '.join(missing)}: have Jupyter write it again."
        )
    ports: dict[str, int] = {}
    for name in PORTS:
        value = fields[name]
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 65_535:
            raise ConnectionFileError(
                f"The connection file {path} has {name}={value!r}: use a port from 0 to 65535."
            )
        ports[name] = value
    transport = str(fields.get("transport") or "tcp")
    if transport not in ("tcp", "ipc"):
        raise ConnectionFileError(f"The connection file {path} has transport={transport!r}: use tcp or ipc.")
    return ConnectionFile(
        path=path,
        transport=transport,
        ip=str(fields.get("ip") or ("127.0.0.1" if transport == "tcp" else f"{path}-ipc")),
        key=str(fields.get("key") or "").encode(),
        signature_scheme=str(fields.get("signature_scheme") or "hmac-sha256"),
        ports=ports,
        curve=_curve(path, fields),
    )


def _fields(path: Path) -> dict[str, Any]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConnectionFileError(
            f"The connection file {path} does not exist: start the kernel through Jupyter, which writes it."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise ConnectionFileError(
            f"The connection file {path} cannot be read ({reason}): make it readable for this user."
        ) from None
    except UNREADABLE:
        raise ConnectionFileError(
            f"The connection file {path} is not JSON: have Jupyter write it again."
        ) from None
    if not isinstance(fields, dict):
        raise ConnectionFileError(
            f"The connection file {path} is not a JSON object: have Jupyter write it again."
        )
    return fields


def _curve(path: Path, fields: dict[str, Any]) -> tuple[bytes, bytes] | None:
    public, secret = fields.get("curve_publickey"), fields.get("curve_secretkey")
    if public is None or secret is None:
        return None
    if len(str(public)) != 40 or len(str(secret)) != 40:
        raise ConnectionFileError(
            f"The connection file {path} has CURVE keys that are not 40 characters long: replace them."
        )
    if not zmq.has("curve"):
        raise ConnectionFileError(
            f"The connection file {path} asks for CURVE encryption, which this pyzmq lacks: "
            "install a pyzmq with CURVE, or set KernelManager.transport_encryption='disabled'."
        )
    return str(public).encode(), str(secret).encode()


class Ports:
    """The five bound sockets of a kernel; heartbeat has a context of its own, so that it never waits."""

    def __init__(self, file: ConnectionFile, given: Mapping[str, int] | None = None) -> None:
        """Bind what the file names; `given` are descriptors of ports that the launcher has bound already."""
        self._file = file
        self._given = dict(given or {})
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.heartbeat_context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.numbers: dict[str, int] = {}
        self.sockets: dict[str, zmq.Socket[bytes]] = {}
        self.comings: list[zmq.Socket[bytes]] = []
        """Tell of clients' connections to the shell port, and of those that only control (a server's own)."""
        try:
            for name in PORTS:
                self._open(name)
            self._write_back()
        except BaseException:
            self.close(linger_ms=0)
            raise
        finally:
            close_given(self._given.values())

    def _open(self, name: str) -> None:
        context = self.heartbeat_context if name == "hb_port" else self.context
        socket = context.socket(_KINDS[name])
        self.sockets[name] = socket
        socket.linger = LINGER_MS
        socket.maxmsgsize = FRAME_BYTES_MAX[name]
        socket.backlog = BACKLOG
        if name in WATCHED:
            self.comings.append(socket.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED))
        if _KINDS[name] == zmq.ROUTER:
            socket.router_handover = 1
            socket.router_mandatory = name != "hb_port"
        else:
            socket.sndhwm = OUTPUT_MESSAGES_MAX
            socket.xpub_manual = 1
        if self._file.curve is not None:
            socket.curve_publickey, socket.curve_secretkey = self._file.curve
            socket.curve_server = True
        if self._use_given(name, socket):
            return
        try:
            self.numbers[name] = self._bind(socket, self._file.ports[name])
        except zmq.ZMQError as error:
            raise self._explain(name, error) from None

    def _use_given(self, name: str, socket: zmq.Socket[bytes]) -> bool:
        """Take the launcher's socket of a port, if there is one; nobody else can have had it since."""
        number = self._file.ports[name]
        descriptor = self._given.get(name)
        if descriptor is None or self._file.transport != "tcp" or not listens_at(descriptor, number):
            return False
        socket.setsockopt(zmq.USE_FD, self._given.pop(name))
        socket.bind(f"tcp://{self._file.ip}:{number}")
        self.numbers[name] = number
        return True

    def _bind(self, socket: zmq.Socket[bytes], port: int) -> int:
        ip = self._file.ip
        if self._file.transport == "tcp":
            if port == 0:
                return socket.bind_to_random_port(f"tcp://{ip}")
            _bind_patiently(socket, f"tcp://{ip}:{port}")
            return port
        if port == 0:
            port = 1
            while port in self.numbers.values() or Path(f"{ip}-{port}").exists():
                port += 1
        socket.bind(f"ipc://{ip}-{port}")
        return port

    def _explain(self, name: str, error: zmq.ZMQError) -> ConnectionFileError | PortInUseError:
        place = f"{self._file.ip}:{self._file.ports[name]}"
        if error.errno == errno.EADDRINUSE:
            return PortInUseError(
                f"Port {place} ({name} of {self._file.path}) is taken by another process: "
                "stop that process, or have Jupyter write a new connection file."
            )
        return ConnectionFileError(
            f"The address {place} ({name} of {self._file.path}) cannot be bound ({error.strerror}): "
            "use an address of this machine."
        )

    def _write_back(self) -> None:
        """Write the chosen ports into the connection file, for the clients that wait for them."""
        if self.numbers == self._file.ports:
            return
        path = self._file.path
        text = json.dumps({**_fields(path), **self.numbers}, indent=2)
        try:
            replace_own(path, text.encode())
        except OSError as error:
            raise ConnectionFileError(
                f"The connection file {path} cannot be written ({error.strerror}): "
                "make its directory writable, or give it ports other than 0."
            ) from None

    def give_heartbeat(self) -> zmq.Socket[bytes]:
        """Hand the heartbeat's socket over to the thread that serves it from now on."""
        return self.sockets.pop("hb_port")

    def close(self, linger_ms: int = LINGER_MS) -> None:
        """Close the sockets and end both contexts, which also ends a heartbeat thread."""
        for name, comings in zip(WATCHED, self.comings, strict=False):
            self.sockets[name].disable_monitor()
            comings.close(linger=0)
        for socket in self.sockets.values():
            socket.close(linger=linger_ms)
        self.context.term()
        self.heartbeat_context.term()


def _bind_patiently(socket: zmq.Socket[bytes], address: str) -> None:
    """Bind to a port that Jupyter chose a moment ago.

    Somebody's passing connection may have been given it since, or a killed router may still hold it.
    """
    deadline = time.monotonic() + TAKEN_LIMIT_S
    while True:
        try:
            socket.bind(address)
            return
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise
        time.sleep(TAKEN_RETRY_S)
