"""Executions that no process has begun, though one was given them: they wait again, in front of the others.

Pure. Law: what clients have seen of such an execution stays seen, and the router after this one knows it.
"""

from __future__ import annotations

from typing import Literal

from replkernel.leasing.request import GpuRequest
from replkernel.records import Pin, ReplicaId
from replkernel.router.core.events import Effect, Log, TakenBack
from replkernel.router.core.parts import Parts
from replkernel.router.core.queue import ShellQueue
from replkernel.router.core.running import Execution


class SentBack:
    """The ways back of the execution under way, which its shell lets go of."""

    def __init__(self, parts: Parts, queue: ShellQueue) -> None:
        self._parts = parts
        self._queue = queue

    def declined(self, running: Execution, pins: tuple[Pin, ...]) -> list[Effect]:
        """Have another replica run an execution: its own found, before it began, that it lacks variables."""
        self._put_back(running, declined=True)
        unlimited = self._parts.leases.begins(running.request.header.msg_id, None)
        self._parts.notices.add(self._parts.placement.doubts.take(running.replica, pins))
        told = Log(f"execution {running.envelope.seq} was declined by {running.replica}")
        return [*unlimited, self.taken_back(running), told]

    def renewed(self, running: Execution, now: float) -> list[Effect]:
        """Have another process on the lease's host run an execution: its own ends, for it has other GPUs.

        The lease stays the cell's. Nothing has been run, and all that was run before is durable.
        """
        replica = running.replica
        self._put_back(running, asks=running.asks, renewed=running.renewed | {replica})
        self._parts.leases.renews(running.request.header.msg_id, now)
        told = Log(f"execution {running.envelope.seq} waits for another process than {replica}'s, which ends")
        return [self.taken_back(running, ends=True), told]

    def needs_gpus(self, running: Execution, gpus: int) -> list[Effect]:
        """Have an execution wait for GPUs: its process found, before it began, that its state is on some."""
        self._put_back(running, asks=self._parts.leases.like_before(gpus))
        told = Log(f"execution {running.envelope.seq} needs {gpus} GPUs, where its state is")
        return [self.taken_back(running), told]

    def not_reached(self, running: Execution) -> list[Effect]:
        """Have another replica run an execution that was sent to a process which was dead by then."""
        self._put_back(running)
        unlimited = self._parts.leases.begins(running.request.header.msg_id, None)
        told = Log(f"execution {running.envelope.seq} did not reach {running.replica}")
        back = [] if running.undelivered else [self.taken_back(running)]
        return [*unlimited, *back, told]

    def taken_back(self, running: Execution, *, ends: bool = False) -> TakenBack:
        """Return what the router after this one is to know of it; `ends`: its process ends for its sake."""
        msg_id = running.request.header.msg_id
        return TakenBack(msg_id, self._parts.traffic.was_begun(msg_id), ends)

    def _put_back(
        self,
        running: Execution,
        *,
        declined: bool = False,
        asks: GpuRequest | Literal[False] | None = None,
        renewed: frozenset[ReplicaId] = frozenset(),
    ) -> None:
        self._parts.succession.pages.not_begun()
        self._parts.traffic.declined(running.request.header.msg_id)
        waits_since = running.started_at - running.envelope.queued_s
        self._queue.put_back(running.request, waits_since, declined=declined, asks=asks, renewed=renewed)
