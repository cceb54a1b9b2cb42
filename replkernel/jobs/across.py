"""The other hosts of a job on several: their launchers come to the supervisor, start a program each, and end.

A supervisor is to them what a cell on several hosts is (`ranks`). Laws: nothing is started before all are
there. The first host or program that fails is named, and ends the others. A host is done with once its
launcher has said that nothing is left there, or UNSURE_S after its connection was lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Mapping

import msgspec

from replkernel.agent.io.peers import PeerSocket
from replkernel.hosts.far_sockets import new_keys
from replkernel.jobs.life import Nowhere
from replkernel.jobs.processes import Seat, command_with, told_everywhere
from replkernel.jobs.words import JOB_AT, Meeting, Order, key_of
from replkernel.ranks.launcher import free_port, interfaces
from replkernel.ranks.words import (
    Begin,
    Emptied,
    Ended,
    FromLauncher,
    Here,
    Leaves,
    Stop,
    Wrote,
    is_proof,
    seal_of,
)
from replkernel.settings import read_settings

COME_S = 60.0
"""Launchers come within this, once the scheduler was told of the meeting."""
UNSURE_S = 12.0
"""A launcher finds that it is alone within 5 s, and its processes have 5 s to end."""
UNTAKEN_MAX = 64
CHANCE_BITS = 48


class Other(msgspec.Struct):
    """Another host: who speaks for it, and how its program has ended."""

    node: int
    host: str
    gpus: tuple[str, ...]
    peer: bytes = b""
    code: int | None = None
    over_at: float | None = None
    """From then on nothing runs there."""


class Across:
    """One start of a job, seen from its first host."""

    def __init__(self, order: Order, env: Mapping[str, str], log: int) -> None:
        """Listen for launchers; what they tell is written to `log`. Raises OSError, ReplkernelError."""
        self._order, self._env, self._log = order, env, log
        self._key, reach = key_of(env), read_settings(env).reach()
        self._others = [Other(node, other.host, other.gpus) for node, other in enumerate(order.others, 1)]
        self.seat = Seat(0, 1 + len(order.others), reach.advertise, 0)
        self.problem = ""
        """What went wrong first, in a clause."""
        self.nowhere: Nowhere | None = None
        """Where it could not begin, if that is what went wrong."""
        self._is_reached = reach.spans
        self.begun = self.is_to_leave = self.is_stopped = False
        self._told_at: float | None = None
        self._line_of = 0
        """Whose line in the log is not over."""
        self._loop = asyncio.new_event_loop()
        self._woken = asyncio.Event()
        self._socket: PeerSocket | None = None
        try:
            number = secrets.randbits(CHANCE_BITS)
            name = f"job.{order.job}.{order.attempt}.{number:x}"
            endpoint = self._loop.run_until_complete(self._listen())
            seal = seal_of(self._key, name, order.directory, endpoint)
            self.meeting = Meeting(number, order.attempt, name, endpoint, seal)
        except BaseException:
            self.close()
            raise

    async def _listen(self) -> str:
        self._socket = PeerSocket(
            None, FromLauncher, self._heard, lambda *_: None, self._dropped, UNTAKEN_MAX
        )
        return self._socket.listen_far(read_settings(self._env).reach(), 0, new_keys())

    def close(self) -> None:
        """Let go of the sockets."""
        if self._socket is not None:
            self._loop.run_until_complete(self._let_go(self._socket))
        self._loop.close()
        os.close(self._log)

    @staticmethod
    async def _let_go(socket: PeerSocket) -> None:
        socket.close()

    def wait(self, fifo: int | None, within_s: float) -> None:
        """See to what launchers say, until somebody has said something, or wakes the supervisor."""
        self._woken.clear()
        if fifo is not None:
            self._loop.add_reader(fifo, self._woken.set)
        self._loop.run_until_complete(self._until_woken(within_s))
        if fifo is not None:
            self._loop.remove_reader(fifo)

    async def _until_woken(self, within_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._woken.wait()

    # -- how it stands --------------------------------------------------------------------------------

    def all_here(self) -> bool:
        """Tell whether a launcher waits on each host."""
        return all(other.peer and other.over_at is None for other in self._others)

    def look(self, was_told: bool, now: float) -> None:
        """Hear what was said, and see to what went wrong; `was_told`: the scheduler knows of the meeting."""
        self._loop.run_until_complete(asyncio.sleep(0))
        if self.problem:
            self.stop()
        if self.begun or self.is_stopped or not was_told:
            return
        self._told_at = now if self._told_at is None else self._told_at
        if now >= self._told_at + COME_S:
            self._nobody_comes([other.host for other in self._others if not other.peer])

    def _nobody_comes(self, missing: list[str]) -> None:
        """Give up: the job goes on without such a host, unless nobody can reach the first one."""
        if not self.problem:
            self.nowhere = Nowhere(missing[0] if self._is_reached else "")
        why = "see the agent's log there"
        if not self._is_reached:
            why = "other machines do not reach its first host: set REPLKERNEL_ADVERTISE for the agent there"
        self.fails(f"no launcher has come from {', '.join(missing)} within {COME_S:g} s: {why}")
        self.stop()

    def have_ended(self) -> bool:
        """Tell whether the programs of all other hosts have come to their ends."""
        return all(other.code is not None or other.over_at is not None for other in self._others)

    def is_over(self, now: float) -> bool:
        """Tell whether nothing of the job is left on any of them."""
        return self.is_stopped and all(
            not other.peer or (other.over_at is not None and other.over_at <= now) for other in self._others
        )

    # -- what is done ---------------------------------------------------------------------------------

    def takes_seat(self) -> None:
        """Find the port at which all meet, late: until the program has it, others may take it."""
        port = free_port(self.seat.address, read_settings(self._env).reach())
        self.seat = self.seat._replace(port=port)

    def begin(self) -> None:
        """Have the program started on each host."""
        self.begun = True
        order, seat = self._order, self.seat
        told = {**told_everywhere(self._env, order), "LOCAL_RANK": "0"}
        for other in self._others:
            command = command_with(order.command, len(other.gpus), seat=seat._replace(node=other.node))
            mark = {JOB_AT: f"{other.host} {order.job}"}
            begin = Begin(
                other.node, 1, seat.nodes, seat.address, seat.port, b"", tuple(command), told | mark
            )
            self._send(other.peer, begin)

    def fails(self, why: str) -> None:
        """Take note of what went wrong, if it is the first; what fails while all end does so for that."""
        if not self.is_stopped and not self.problem:
            self.problem = why

    def stop(self) -> None:
        """Have all ended."""
        if not self.is_stopped:
            self.is_stopped = True
            for other in self._others:
                self._send(other.peer, Stop())

    def variables(self) -> dict[str, str]:
        """Return what has the first host's program use the same network."""
        return interfaces(self.seat.address)

    def _send(self, peer: bytes, message: Begin | Stop) -> None:
        if self._socket is not None and peer:
            self._loop.run_until_complete(self._say(self._socket, peer, message))

    @staticmethod
    async def _say(socket: PeerSocket, peer: bytes, message: Begin | Stop) -> None:
        socket.send(peer, message)

    # -- what is heard --------------------------------------------------------------------------------

    def _of(self, peer: bytes) -> Other | None:
        return next((other for other in self._others if other.peer == peer), None)

    def _heard(self, peer: bytes, message: object) -> None:
        assert self._socket is not None
        self._woken.set()
        other = self._of(peer)
        match message:
            case Here(name, host, proof):
                if name == self.meeting.name and is_proof(self._key, proof, name, host):
                    self._came(peer, host)
            case _ if other is None:
                return
            case Wrote(_, _, text):
                self._write(other, text)
            case Ended(_, code):
                other.code = code
                if code:
                    how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
                    self.fails(f"its program on host {other.host} {how}")
            case Leaves():
                self.is_to_leave = True
            case Emptied():
                other.over_at = time.monotonic()
                if other.code is None:
                    self.fails(f"host {other.host} has ended its program")

    def _came(self, peer: bytes, host: str) -> None:
        assert self._socket is not None
        found = next((other for other in self._others if other.host == host and not other.peer), None)
        if found is None or self.is_stopped:
            self._socket.send(peer, Stop())
            return
        found.peer = peer
        self._socket.watch(peer)

    def _dropped(self, peer: bytes) -> None:
        self._woken.set()
        other = self._of(peer)
        if other is None or other.over_at is not None:
            return
        other.over_at = time.monotonic() + UNSURE_S
        if other.code is None:
            self.fails(f"host {other.host} is gone, or what runs there was killed")

    def _write(self, other: Other, text: str) -> None:
        """Put lines into the log, with the host before each."""
        lines = text.splitlines(keepends=True)
        goes_on = self._line_of == other.node
        marked = "".join(
            [line if goes_on and not at else f"[{other.host}] {line}" for at, line in enumerate(lines)]
        )
        if self._line_of and not goes_on:
            marked = f"\n{marked}"
        self._line_of = 0 if marked.endswith(("\n", "\r")) else other.node
        with contextlib.suppress(OSError):
            os.write(self._log, marked.encode())
