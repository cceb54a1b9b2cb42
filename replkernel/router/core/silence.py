"""A process that says nothing of the cell that it was given: the cell tells so, once.

Pure. Law: nothing is decided by silence; the cell waits on, for as long as its process lives.
"""

from __future__ import annotations

from replkernel.records import ReplicaId
from replkernel.router.core import answers
from replkernel.router.core.events import Effect, Log
from replkernel.router.core.fleet import Fleet
from replkernel.router.core.running import Execution
from replkernel.router.core.traffic import Traffic

SILENT_S = 10.0
"""A process that has not even said that it is busy with its cell after so long is told of, in the cell."""


class Silence:
    """When a silent process is told of, and in which words."""

    def __init__(self, fleet: Fleet, traffic: Traffic) -> None:
        self._fleet = fleet
        self._traffic = traffic

    def tells_at(self, running: Execution | None) -> float | None:
        """Return when to tell of the execution under way, unless its process says something of it."""
        if running is None or running.replied_at is not None or running.silence_told:
            return None
        said = self._traffic.seen(running.request.header.msg_id) != running.seen_before
        return None if said or running.undelivered else running.started_at + SILENT_S

    def tell(self, running: Execution) -> list[Effect]:
        running.silence_told = True
        text = self._why_silent(running.replica)
        told = Log(f"{running.replica} says nothing of execution {running.envelope.seq}", "warning")
        return [told, answers.stderr(running.request, text)]

    def _why_silent(self, name: ReplicaId) -> str:
        replica = self._fleet.replicas.get(name)
        if replica is None:
            where, away = "", False
        else:
            process = f"process {replica.pid} on " if replica.pid else ""
            where, away = f" ({process}host {replica.host})", not self._fleet.hosts[replica.host].found
        told = f"replkernel: replica {name}{where} has not begun this cell for {SILENT_S:g} s: it"
        if away:
            return (
                f"{told}s host cannot be reached. The cell begins, or its output comes, when the host is "
                "back; it ends when that has been away for REPLKERNEL_HOST_LOST_S."
            )
        return (
            f"{told} still gets the notebook's variables ready (an import may take long), is stopped, or its "
            "last cell left something that lets nothing else run. The cell begins when that is over; to give "
            "it up, restart the kernel, which clears its variables, or end the process, which does not."
        )
