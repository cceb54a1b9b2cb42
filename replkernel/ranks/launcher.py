"""On one host of a cell or job on several: starts its processes, tells what they write, ends them with it.

Law: it lives as long as its connection to the cell, and its processes as long as it does. What it writes is
read as fast as the cell takes it. It is told where the cell is on its standard input, for that is a secret.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from replkernel.agent.io.death import start_time
from replkernel.agent.io.start import NOT_FOR_PROGRAMS, RANKS
from replkernel.hosts.far_sockets import connect
from replkernel.hosts.places import FAR
from replkernel.hosts.reach import Reach
from replkernel.jobs import processes
from replkernel.jobs.agent_watch import AgentWatch
from replkernel.jobs.words import JOB_AT, key_of
from replkernel.launch.module_command import module_command
from replkernel.protocol.message import MESSAGE_BYTES_MAX, decoder, encode
from replkernel.ranks.pieces import Pieces
from replkernel.ranks.words import (
    AT_ONCE,
    ERROR_CHARS_MAX,
    LEAVE_S,
    TEXT_CHARS_MAX,
    Begin,
    Emptied,
    Ended,
    FromLauncher,
    Here,
    Leaves,
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
KILLS_MAX = 50
FIRSTS = "firsts"
LOOK_MS = 200
READ_BYTES = 32 * 1024
UNSENT_MAX = 64
"""So many messages are under way; with more, the processes wait."""
LOST = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


class Rank:
    """One process, and what it has written of a line that is not over."""

    def __init__(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        self.rank, self.process = rank, process
        self.first = processes.First(process.pid, start_time(process.pid))
        self.begun: dict[int, tuple[Literal["stdout", "stderr"], Pieces]] = {}
        """By descriptor, while it is open: which stream that is, and what is not told of it."""
        assert process.stdout is not None and process.stderr is not None
        self.begun[process.stdout.fileno()] = ("stdout", Pieces())
        self.begun[process.stderr.fileno()] = ("stderr", Pieces())
        for pipe in self.begun:
            os.set_blocking(pipe, False)

    def close(self) -> None:
        """Read no more of it."""
        self.begun.clear()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class Launcher:
    """Serves one cell."""

    def __init__(self, orders: Orders, env: Mapping[str, str]) -> None:
        self.orders, self.place = orders, Path(orders.place)
        self.env = {
            **env,
            RANKS: orders.place,
            "SPT_NOENV": "1",
        }  # setproctitle leaves that where it can be read.
        self.ranks: list[Rank] = []
        self.address = own_address(orders.endpoint, env)
        context: zmq.Context[Any] = zmq.Context.instance()
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 2_000)
        self._socket.setsockopt(zmq.SNDHWM, UNSENT_MAX)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX)
        self._socket.setsockopt(zmq.RECONNECT_IVL, -1)
        self._monitor = self._socket.get_monitor_socket(LOST)
        self._decoder = decoder(ToLauncher)
        self._unsent: deque[bytes] = deque()
        """What the cell does not take yet; while there is any, nothing is read of processes."""
        self.over = False
        self._is_told_to_end = False
        self._leaves_by = math.inf
        """Until then a job may save."""
        self._job = False
        self._agent = AgentWatch(orders.host, env, time.monotonic())
        self._begins_by = time.monotonic() + FIRST_S

    def serve(self) -> None:
        """Live as long as the cell wants."""
        signal.signal(signal.SIGTERM, self._told_to_end)
        signal.signal(AT_ONCE, self._told_to_end_at_once)
        self.start()
        try:
            while not self.over:
                self.turn()
        finally:
            self.close()

    def start(self) -> None:
        """Come to the cell."""
        orders = self.orders
        connect(self._socket, orders.endpoint, beats=True)
        proof = proof_of(key_of(self.env), orders.gang, orders.host)
        port = free_port(self.address, read_settings(self.env).reach())
        self._send(Here(orders.gang, orders.host, proof, self.address, port))

    def close(self) -> None:
        """End all processes, and leave the cell."""
        self._end()
        with contextlib.suppress(zmq.ZMQError):
            self._socket.send(encode(Emptied()), zmq.DONTWAIT)
        self._monitor.close(linger=0)
        self._socket.close()

    def _told_to_end(self, *_: object) -> None:
        self._is_told_to_end = True

    def _told_to_end_at_once(self, *_: object) -> None:
        self.over = True

    def _leave(self, now: float) -> None:
        """End; a job may save before that."""
        if not self._job or now >= self._leaves_by:
            self.over = True
        elif self._leaves_by == math.inf:
            self._leaves_by = now + LEAVE_S
            self._send(Leaves())

    def turn(self) -> None:
        """Wait for something, and see to it; processes are read only while the cell takes what they write."""
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN | (zmq.POLLOUT if self._unsent else 0))
        poller.register(self._monitor, zmq.POLLIN)
        for rank in () if self._unsent else self.ranks:
            for pipe in rank.begun:
                poller.register(pipe, zmq.POLLIN | zmq.POLLERR)
        ready = dict(poller.poll(LOOK_MS))
        if self._monitor in ready:
            recv_monitor_message(self._monitor)
            if self._begins_by < math.inf:
                self._says_alone("is not reached, or knows us not")
            self.over = True
            return
        self._flush()
        if ready.get(self._socket, 0) & zmq.POLLIN:
            self._take(self._decoder.decode(self._socket.recv()))
        for rank in self.ranks:
            for pipe in [pipe for pipe in rank.begun if pipe in ready and not self._unsent]:
                self._read(rank, pipe)
            for pipe, (stream, pieces) in rank.begun.items():
                if pipe not in ready and not self._unsent:
                    self._tell(rank, stream, pieces.late(time.monotonic()))
        self._look()
        if self._job:
            self._agent.look(time.monotonic())
        if time.monotonic() > self._begins_by:
            self._says_alone("said nothing")
            self.over = True
        if self._is_told_to_end:
            self._leave(time.monotonic())

    def _says_alone(self, why: str) -> None:
        """Write into the agent's log why nothing was started; the end of the address is a secret."""
        where = self.orders.endpoint.removeprefix(FAR).rpartition("/")[0]
        sys.stderr.write(f"{self.orders.gang}: who wants processes at {where} {why}; none is started\n")

    def _take(self, message: object) -> None:
        match message:
            case Begin() if self._begins_by < math.inf:
                self._begins_by = math.inf
                self._begin(message)
            case Stop():
                self.over = True

    def _begin(self, begin: Begin) -> None:
        self._job = bool(begin.command)
        if begin.command:
            if mark := begin.variables.get(JOB_AT):  # What runs of an earlier start is over before this one.
                end_members(mark, variable=JOB_AT)
            command = module_command("replkernel.ranks.held", str(os.getpid()), *begin.command)
        else:
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
            note_first(self.place, self.ranks[-1].first)

    def _read(self, rank: Rank, pipe: int) -> None:
        """Tell what a process has written, as far as it is to be told now."""
        stream, pieces = rank.begun[pipe]
        try:
            data = os.read(pipe, READ_BYTES)
        except BlockingIOError:
            return
        if data:
            self._tell(rank, stream, pieces.take(data, time.monotonic()))
        else:
            del rank.begun[pipe]
            self._tell(rank, stream, pieces.rest())

    def _tell(self, rank: Rank, stream: Literal["stdout", "stderr"], text: str) -> None:
        for place in range(0, len(text), TEXT_CHARS_MAX):
            self._send(Wrote(rank.rank, stream, text[place : place + TEXT_CHARS_MAX]))

    def _look(self) -> None:
        """Tell which processes are over, once all that they wrote is told."""
        for rank in list(self.ranks):
            code = rank.process.poll()
            if code is None or (rank.begun and not self._is_quiet(rank)):
                continue
            self.ranks.remove(rank)
            for stream, pieces in rank.begun.values():
                self._tell(rank, stream, pieces.rest())
            rank.close()
            self._kill(rank)  # What it has started ends with it.
            if rank.rank == 0 and code == 0 and (result := self.place / "result").exists():
                self._send(Result(result.read_bytes()))
            error = ""
            with contextlib.suppress(OSError):
                error = (self.place / f"error-{rank.rank}").read_text()[:ERROR_CHARS_MAX]
            self._send(Ended(rank.rank, code, error))

    def _is_quiet(self, rank: Rank) -> bool:
        """Tell whether nothing more is to be read of a process that is over, whoever has its pipes still."""
        poller = zmq.Poller()
        for pipe in rank.begun:
            poller.register(pipe, zmq.POLLIN)
        return not poller.poll(0)

    def _end(self) -> None:
        """End all processes, whoever has started them: asked first, then killed."""
        firsts = [rank.first for rank in self.ranks]
        told = processes.members(self.place, *firsts, variable=RANKS)
        known = [processes.First(pid, start_time(pid)) for pid in told]
        processes.send(told, signal.SIGTERM)
        until = time.monotonic() + GRACE_S
        while any(rank.process.poll() is None for rank in self.ranks) and time.monotonic() < until:
            self._tell_last_words()
            time.sleep(0.02)
        end_members(self.place, *firsts)
        # What has put its environment away, and lost its parent by now.
        left = [it.pid for it in known if it.started and start_time(it.pid) == it.started]
        processes.send(left, signal.SIGKILL)
        for rank in self.ranks:
            self._kill(rank)
            rank.process.wait()
        self._tell_last_words()
        for rank in self.ranks:
            for stream, pieces in rank.begun.values():
                self._tell(rank, stream, pieces.rest())
            rank.close()

    def _tell_last_words(self) -> None:
        """Tell what processes write while they end, as far as the cell takes it."""
        self._flush()
        for rank in self.ranks:
            for pipe in list(rank.begun):
                if not self._unsent:
                    self._read(rank, pipe)

    def _kill(self, rank: Rank) -> None:
        with contextlib.suppress(OSError):
            os.killpg(rank.process.pid, signal.SIGKILL)

    def _send(self, message: FromLauncher) -> None:
        self._unsent.append(encode(message))
        self._flush()

    def _flush(self) -> None:
        """Send what the cell takes, without waiting: the end of its connection is to be seen meanwhile."""
        with contextlib.suppress(zmq.Again):
            while self._unsent:
                self._socket.send(self._unsent[0], zmq.DONTWAIT)
                self._unsent.popleft()


def end_members(place: Path | str, *firsts: processes.First, variable: str = RANKS) -> None:
    """Kill all processes that belong to a launcher's directory, or to what else `variable` names.

    Also those in the sessions of `firsts`, and whoever they have started.
    """
    for _ in range(KILLS_MAX):
        left = processes.members(place, *firsts, variable=variable)
        if not left:
            return
        processes.send(left, signal.SIGKILL)
        time.sleep(0.02)


def note_first(place: Path, first: processes.First) -> None:
    """Keep whom a launcher has started for whoever clears up after it."""
    with contextlib.suppress(OSError), (place / FIRSTS).open("a") as file:
        file.write(f"{first.pid} {first.started} {processes.boot()}\n")


def firsts_in(place: Path) -> list[processes.First]:
    """Return whom a launcher with this directory has started since the machine did."""
    found = []
    with contextlib.suppress(OSError, ValueError):
        for line in (place / FIRSTS).read_text().splitlines():
            pid, started, boot = line.split(" ", 2)
            if boot == processes.boot():
                found.append(processes.First(int(pid), int(started)))
    return found


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


def interfaces(address: str) -> dict[str, str]:
    """Return what has torch use the network interface of an address."""
    interface = interface_of(address)
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"} if interface else {}


def free_port(address: str, reach: Reach) -> int:
    """Return a port that is free at an address of this host: of its range, or else any.

    A program takes seconds until it listens there, and the system gives no port of the range to others.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for port in (*reach.ports(), 0):
        with contextlib.suppress(OSError), socket.socket(family) as looks:
            looks.bind((address, port))
            return int(looks.getsockname()[1])
    raise OSError(f"no port is free at {address}")


def environment(
    base: Mapping[str, str], begin: Begin, local: int, address: str, gpus: tuple[str, ...]
) -> dict[str, str]:
    """Return the environment of a process: what torchrun would set, and the GPUs of this host's lease."""
    plain = {name: value for name, value in base.items() if name not in NOT_FOR_PROGRAMS}
    threads = {"OMP_NUM_THREADS": plain.get("OMP_NUM_THREADS", "1")} if not begin.command else {}
    return {
        **interfaces(address),
        **plain,
        "MASTER_ADDR": begin.address,
        "MASTER_PORT": str(begin.port),
        "RANK": str(begin.rank + local),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(begin.world),
        "LOCAL_WORLD_SIZE": str(begin.count),
        "GROUP_RANK": str(begin.rank // begin.count),
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        **threads,
        **begin.variables,
    }


def main() -> None:
    """Serve the cell of which standard input tells."""
    orders = msgspec.json.decode(sys.stdin.buffer.read(), type=Orders)
    os.set_inheritable(orders.lock, False)
    try:
        Launcher(orders, dict(os.environ)).serve()
    finally:
        shutil.rmtree(orders.place, ignore_errors=True)


if __name__ == "__main__":
    main()
