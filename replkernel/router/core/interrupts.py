"""Interrupts: the way of one to the cell that runs, and what follows where the cell goes on all the same.

Pure. Laws: an interrupt that is on its way has arrived, or is void, before the next cell is sent; a process
is ended only by an interrupt that comes after its user was told so under the cell.
"""

from __future__ import annotations

import signal

from replkernel.protocol.agent_to_router import InterruptSent
from replkernel.protocol.router_to_agent import InterruptReplica
from replkernel.records import ReplicaId, Seq
from replkernel.router.core import answers
from replkernel.router.core.events import Effect, Log, SignalProcess, ToAgent
from replkernel.router.core.fleet import Fleet
from replkernel.router.core.running import Execution

NOTICE_S = 5.0
"""A cell that still runs so long after its interrupt is told what another interrupt does."""

READING_S = 1.0
"""An interrupt so soon after that is an impatient one of before: it ends nothing."""

DELIVERY_LIMIT_S = 1.0
"""The next cell waits no longer for an agent's word that an interrupt has been delivered."""

TOLD = (
    f"replkernel: this cell has not ended {NOTICE_S:g} s after the interrupt. Interrupt it again to end its "
    "process and what it has started: the notebook goes on with its variables as of the last durable cell."
)
ENDED = "its process was ended, because the cell did not end when it was interrupted"


class Interrupts:
    """What has been asked of the cell that runs; `fleet` tells where its process is."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._seq = Seq(0)
        """The execution that was interrupted last, or 0."""
        self._since = 0.0
        self._told_at: float | None = None
        self._under_way: float | None = None
        """Until when the next cell waits for an agent's word."""
        self._ended: ReplicaId | None = None
        self._sent_before = False
        """Whether one was sent since the last cell began: a process may take it for the next one's."""

    def ask(self, running: Execution | None, replica: ReplicaId | None, now: float) -> list[Effect]:
        """Interrupt the cell that runs, or what `replica` does beside cells; without either, nothing."""
        self._sent_before = True
        if running is None or running.replied_at is not None:
            return [] if replica is None else self._signal(replica, Seq(0), now, ends=False)
        seq = running.envelope.seq
        if self._seq != seq:
            self._seq, self._since, self._told_at = seq, now, None
        ends = self._told_at is not None and now >= self._told_at + READING_S
        if not ends:
            return self._signal(running.replica, seq, now, ends=False)
        self._ended = running.replica
        told = Log(f"execution {seq} is ended with its process: it did not react to interrupts", "warning")
        return [told, *self._signal(running.replica, seq, now, ends=True)]

    def _signal(self, name: ReplicaId, seq: Seq, now: float, *, ends: bool) -> list[Effect]:
        replica = self._fleet.replicas.get(name)
        if replica is None:
            return []
        if replica.pid:
            return [SignalProcess(name, int(signal.SIGKILL if ends else signal.SIGINT))]
        self._under_way = now + DELIVERY_LIMIT_S
        return [ToAgent(replica.host, InterruptReplica(self._fleet.kernel_id, name, seq, ends))]

    def sent(self, message: InterruptSent) -> None:
        """Take note that an agent has delivered an interrupt, or that it is void."""
        self._under_way = None

    def holds(self, now: float) -> bool:
        """Tell whether the next cell must wait for an interrupt that is not meant for it."""
        if self._under_way is not None and now >= self._under_way:
            self._under_way = None
        return self._under_way is not None

    def next_is_free(self) -> bool:
        """Tell once whether no interrupt was sent since the last cell began, for the next one begins now."""
        free, self._sent_before = not self._sent_before, False
        return free

    def why_lost(self, replica: ReplicaId, why: str) -> str:
        """Return why a replica's process ended: `why`, unless that was the user's wish."""
        if replica != self._ended:
            return why
        self._ended = None
        return ENDED

    def tells_at(self, running: Execution | None) -> float | None:
        """Return when the user is to be told that the cell goes on all the same."""
        if running is None or running.replied_at is not None or running.envelope.seq != self._seq:
            return None
        return None if self._told_at is not None else self._since + NOTICE_S

    def tell(self, running: Execution, now: float) -> list[Effect]:
        """Tell the user what another interrupt does."""
        self._told_at = now
        return [answers.stderr(running.request, TOLD)]

    def deadline(self, running: Execution | None, *, waits: bool) -> float | None:
        """Return when something is to be told, or a next cell that `waits` waits no longer."""
        tells_at, under_way = self.tells_at(running), self._under_way if waits else None
        if tells_at is None or under_way is None:
            return under_way if tells_at is None else tells_at
        return min(tells_at, under_way)
