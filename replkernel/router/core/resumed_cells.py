"""Executions of the router before this one: one that was under way goes on, one that was answered is known.

Pure. Law: what clients have seen of them is not shown again, and no number of theirs is given to another.
"""

from __future__ import annotations

from replkernel.protocol.envelope import Envelope
from replkernel.records import Seq
from replkernel.router.core.cell_end import CellEnds
from replkernel.router.core.contents import ExecuteOptions, ReplyMetadata, read
from replkernel.router.core.events import Answered, Effect, Resumed
from replkernel.router.core.leased_cells import LeasedCells
from replkernel.router.core.parts import Parts
from replkernel.router.core.running import Execution
from replkernel.router.core.traffic import BUSY, IDLE, INPUT

RESUMED_LIMIT_S = 60.0
"""How long the process of an execution that the router before this one had begun may take to be found."""


class ResumedCells:
    """What a new router makes of its journal's executions."""

    def __init__(self, parts: Parts, leased: LeasedCells, ends: CellEnds) -> None:
        self._parts = parts
        self._leased = leased
        self._ends = ends

    def under_way(self, told: Resumed, now: float) -> tuple[Execution | None, list[Effect]]:
        """Return an execution whose reply is still to come, unless it runs in no main shell."""
        seen = BUSY | (INPUT if told.shown else 0) | (IDLE if told.idle else 0)
        self._go_on_from(told.count)
        self._parts.traffic.resume(told.request, told.replica, seen)
        if not told.seq:
            return None, []
        self._parts.succession.numbered(told.seq, told.fence)
        self._parts.succession.pages.begins_in(told.replica, told.process)
        execution = Execution(
            told.request,
            read(ExecuteOptions, told.request.content),
            told.replica,
            Envelope(seq=told.seq, fence=told.fence, needs=Seq(0)),
            now,
            process=told.process,
            lease=told.lease,
            lost_at=now + RESUMED_LIMIT_S,
            had=told.had,
        )
        if told.lease is None:
            return execution, []
        cell, asked = told.request.header.msg_id, self._leased.asked_by(told.request)
        return execution, self._parts.leases.resumed(told.lease, cell, told.replica, now, asked)

    def answered(self, told: Answered, now: float) -> list[Effect]:
        """Know an execution that was answered, and what it may have changed."""
        self._parts.record.add(told.header, told.content, told.metadata)
        self._go_on_from(told.count)
        if told.seq and told.replica is not None:
            self._parts.succession.numbered(told.seq, told.fence)
            said = read(ReplyMetadata, told.metadata).replkernel
            if said.replica and said.ran:
                self._parts.succession.ran_before(told.replica, told.process, told.seq, now)
                self._parts.succession.pages.begins_in(told.replica, told.process)
                self._ends.counts.answered_before(told.count)
        seen = BUSY | INPUT | IDLE if told.idle else BUSY | INPUT
        self._parts.traffic.resume_answered(told.header.msg_id, told.replica, seen)
        if told.lease is None or told.replica is None:
            return []
        return self._parts.leases.resumed(told.lease, "", told.replica, now)

    def _go_on_from(self, count: int) -> None:
        self._ends.counted(count)
        self._ends.counts.resumed(count)
