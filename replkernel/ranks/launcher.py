"""On one host of a cell on several: starts its processes, tells what they write, and ends them with the cell.

Law: it lives as long as its connection to the cell, and its processes as long as it does. What it writes is
read as fast as the cell takes it. It is told where the cell is on its standard input, for that is a secret.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from replkernel.hosts.far_sockets import connect
from replkernel.hosts.places import FAR
from replkernel.jobs.words import key_of
from replkernel.launch.module_command import module_command
from replkernel.protocol.message import MESSAGE_BYTES_MAX, decoder, encode
from replkernel.ranks.words import (
    ERROR_CHARS_MAX,
    TEXT_CHARS_MAX,
    Begin,
    Emptied,
    Ended,
    FromLauncher,
    Here,
    Orders,
    Result,
    Stop,
    ToLauncher,
    Wrote,
    proof_of,
)
from replkernel.settings import read_settings

FIRST_S = 60.0
"""A cell that says nothing within this is gone."""
GRACE_S = 5.0
"""Processes that are told to end have so long, before they are killed."""
LOOK_MS = 200
SEND_MS_MAX = 60_000
"""A cell that takes nothing for so long is gone."""
READ_BYTES = 32 * 1024
LOST = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
NOT_FOR_RANKS = ("JPY_PARENT_PID", "KERNEL_ID", "REPLKERNEL_LAUNCHER_PID", "REPLKERNEL_LAUNCHER_RETURNS")


class Rank:
    """One process, and what it has written of a line that is not over."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        self.rank, self.process = rank, process
        self.begun: dict[int, tuple[str, bytes]] = {}
        """By descriptor: which stream that is, and the beginning of a line."""
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self.begun[pipe.fileno()] = (name, b"")


class Launcher:
    """Serves one cell."""

    def __init__(self, orders: Orders, env: Mapping[str, str], place: Path) -> None:
        self.orders, self.env, self.place = orders, env, place
        self.ranks: list[Rank] = []
        self.address = own_address(orders.endpoint, env)
        context: zmq.Context[Any] = zmq.Context.instance()
        self._socket: Any = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 2_000)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self._socket.setsockopt(zmq.SNDTIMEO, SEND_MS_MAX)
        self._monitor: Any = self._socket.get_monitor_socket(LOST)
        self._decoder = decoder(ToLauncher)
        self._over = False
        self._last_s = time.monotonic() + FIRST_S

    def serve(self) -> None:
        """Live as long as the cell wants."""
        orders = self.orders
        signal.signal(signal.SIGTERM, self._told_to_end)
        connect(self._socket, orders.endpoint, beats=True)
        proof = proof_of(key_of(self.env), orders.gang, orders.host)
        self._send(Here(orders.gang, orders.host, proof, self.address, free_port(self.address)))
        try:
            while not self._over:
                self._turn()
        except zmq.Again:
            pass  # The cell takes nothing any more.
        finally:
            self._end()
            with contextlib.suppress(zmq.ZMQError):
                self._socket.send(encode(Emptied()), zmq.DONTWAIT)
            self._monitor.close(linger=0)
            self._socket.close()

    def _told_to_end(self, *_: object) -> None:
        self._over = True

    def _turn(self) -> None:
        """Wait for something, and see to it; processes are read only while the cell takes what they write."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        takes = bool(self._socket.poll(0, zmq.POLLOUT))
        for rank in self.ranks if takes else ():
            for pipe in rank.begun:
                poller.register(pipe, zmq.POLLIN | zmq.POLLERR)
        ready = dict(poller.poll(LOOK_MS))
        if self._monitor in ready:
            recv_monitor_message(self._monitor)
            self._over = True
            return
        if self._socket in ready:
            self._take(self._decoder.decode(self._socket.recv()))
        for rank in self.ranks:
            for pipe in [pipe for pipe in rank.begun if pipe in ready]:
                self._read(rank, pipe)
        self._look()
        if not self.ranks and time.monotonic() > self._last_s:
            self._over = True

    def _take(self, message: object) -> None:
        match message:
            case Begin() if not self.ranks:
                self._begin(message)
            case Stop():
                self._over = True

    def _begin(self, begin: Begin) -> None:
        program = self.place / "program"
        program.touch(0o600)
        program.write_bytes(begin.data)
        command = module_command("replkernel.ranks.rank", str(self.place), str(os.getpid()))
        for local in range(begin.count):
            process = subprocess.Popen(
                command,
                cwd=self.orders.directory,
                env=environment(self.env, begin, local, self.address, self.orders.gpus),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            self.ranks.append(Rank(begin.rank + local, process))

    def _read(self, rank: Rank, pipe: int) -> None:
        """Tell the whole lines of what a process has written; of one that is long, what there is."""
        stream, before = rank.begun[pipe]
        try:
            data = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return
        text, rest = before + data, b""
        whole = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1  # A progress bar has the latter.
        if data and (whole or len(text) < READ_BYTES):
            text, rest = text[:whole], text[whole:]
        if text:
            said = text.decode("utf-8", "replace")[:TEXT_CHARS_MAX]
            self._send(Wrote(rank.rank, "stdout" if stream == "stdout" else "stderr", said))
        if data:
            rank.begun[pipe] = (stream, rest)
        else:
            del rank.begun[pipe]

    def _look(self) -> None:
        """Tell which processes are over, once all that they wrote is told."""
        for rank in list(self.ranks):
            code = rank.process.poll()
            if code is None or (rank.begun and not self._is_quiet(rank)):
                continue
            self.ranks.remove(rank)
            self._kill(rank)  # What it has started ends with it.
            if rank.rank == 0 and code == 0 and (result := self.place / "result").exists():
                self._send(Result(result.read_bytes()))
            error = ""
            with contextlib.suppress(OSError):
                error = (self.place / f"error-{rank.rank}").read_text()[:ERROR_CHARS_MAX]
            self._send(Ended(rank.rank, code, error))
            self._last_s = time.monotonic() + 10 * FIRST_S

    def _is_quiet(self, rank: Rank) -> bool:
        """Tell whether nothing more is to be read of a process that is over, whoever has its pipes still."""
        poller = zmq.Poller()
        for pipe in rank.begun:
            poller.register(pipe, zmq.POLLIN)
        return not poller.poll(0)

    def _end(self) -> None:
        """End all processes: asked first, then killed."""
        for rank in self.ranks:
            with contextlib.suppress(OSError):
                os.killpg(rank.process.pid, signal.SIGTERM)
        until = time.monotonic() + GRACE_S
        while any(rank.process.poll() is None for rank in self.ranks) and time.monotonic() < until:
            time.sleep(0.02)
        for rank in self.ranks:
            self._kill(rank)
            rank.process.wait()

    def _kill(self, rank: Rank) -> None:
        with contextlib.suppress(OSError):
            os.killpg(rank.process.pid, signal.SIGKILL)

    def _send(self, message: FromLauncher) -> None:
        self._socket.send(encode(message))


def own_address(endpoint: str, env: Mapping[str, str]) -> str:
    """Return the address at which the cell's other hosts reach this one.

    That is what the host's settings say, or else by which it reaches the cell.
    """
    reach = read_settings(env).reach()
    if reach.spans:
        return reach.advertise
    place = endpoint.removeprefix(FAR).rpartition("/")[0]
    host, _, port = place.rpartition(":")
    family, kind, proto, _, target = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[
        0
    ]
    with socket.socket(family, kind, proto) as looks:  # Nothing is sent.
        looks.connect(target)
        return str(looks.getsockname()[0])


def interface_of(address: str) -> str:
    """Return the name of the network interface that has an address; nothing if none has."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address.partition("%")[0] == address for each in addresses):
            return str(name)
    return ""


def free_port(address: str) -> int:
    """Return a port that is free at an address of this host."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as looks:
        looks.bind((address, 0))
        return int(looks.getsockname()[1])


def environment(
    base: Mapping[str, str], begin: Begin, local: int, address: str, gpus: tuple[str, ...]
) -> dict[str, str]:
    """Return the environment of a process: what torchrun would set, and the GPUs of this host's lease."""
    plain = {name: value for name, value in base.items() if name not in NOT_FOR_RANKS}
    interface = interface_of(address)
    if interface:
        plain.setdefault("GLOO_SOCKET_IFNAME", interface)
        plain.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")
    return {
        **plain,
        "MASTER_ADDR": begin.address,
        "MASTER_PORT": str(begin.port),
        "RANK": str(begin.rank + local),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(begin.world),
        "LOCAL_WORLD_SIZE": str(begin.count),
        "GROUP_RANK": str(begin.rank // begin.count),
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "OMP_NUM_THREADS": plain.get("OMP_NUM_THREADS", "1"),
    }


def main() -> None:
    """Serve the cell of which standard input tells."""
    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    with tempfile.TemporaryDirectory(prefix="replkernel-ranks-", ignore_cleanup_errors=True) as place:
        Launcher(orders, dict(os.environ), Path(place)).serve()


if __name__ == "__main__":
    main()
