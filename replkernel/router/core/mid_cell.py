"""A lease for a cell that runs already: it reached a GPU, and nobody had seen that it would.

Pure. Law: the same question means the same again, and is answered by what there is now: the lease, that it
waits, or why it never comes; only GPUs of the host where the cell runs are asked for.
"""

from __future__ import annotations

from msgspec.structs import replace

from replkernel.leasing.notebook import GpuAnswer, GpuQuestion, PausedOn
from replkernel.leasing.request import GpuRequest, declines_gpus
from replkernel.leasing.wire import GrantedLease
from replkernel.router.core import waiting_cell
from replkernel.router.core.events import Effect, Given, Log, ReplicaMessage
from replkernel.router.core.held_leases import Held
from replkernel.router.core.leased_cells import LeasedCells
from replkernel.router.core.leases import Leases
from replkernel.router.core.parts import Parts
from replkernel.router.core.running import Execution

OVER = "This cell is over for its router, so nothing is leased for it."
DECLINED = (
    "This cell says that it needs no GPU (`%%gpu 0`, or its metadata); take that away and run it again."
)


class MidCell:
    """The wish of the execution that runs."""

    def __init__(self, parts: Parts, leased: LeasedCells) -> None:
        self._parts = parts
        self._leases: Leases = parts.leases
        self._leased = leased

    def asked(
        self, running: Execution | None, message: ReplicaMessage, question: GpuQuestion, now: float
    ) -> tuple[GpuAnswer, list[Effect]]:
        """Answer a process whose cell wants GPUs, or wants them no more."""
        cell = message.parent_id
        if running is None or running.request.header.msg_id != cell or running.replica != message.replica:
            return GpuAnswer(error=OVER), []
        left = question.paused
        if running.lease is not None and (left is None or running.lease.lease != left.lease):
            return _of(running.lease, left), []
        if left is not None and running.lease is not None:
            before = self._stands_still(running, now)
            answer, effects = self._goes_on(running, question, left)
            return answer, [*before, *effects]
        if question.verb == "waive":
            return GpuAnswer(), self.over(running)
        held = self._leases.held_leases.of_cell(cell)
        if held is not None:
            return _of(held.lease, left), self._begins(running, held, left, now)
        if left is not None:
            return self._goes_on(running, question, left)
        if declines_gpus(running.request.frames[4], running.options.code):
            return GpuAnswer(error=DECLINED), []
        return self._wish(running, question, now)

    def _wish(self, running: Execution, question: GpuQuestion, now: float) -> tuple[GpuAnswer, list[Effect]]:
        cell, known = running.request.header.msg_id, self._parts.fleet.replicas.get(running.replica)
        wanted = GpuRequest(max(1, question.gpus), question.vram_gb, question.model)
        if not question.vram_gb and not question.model:
            wanted = self._parts.leases.like_before(wanted.gpus)
        return self._answered(running, self._leases.ask(cell, wanted, () if known is None else (known.host,)))

    def _answered(self, running: Execution, effects: list[Effect]) -> tuple[GpuAnswer, list[Effect]]:
        """Answer how the cell's wish stands; `effects` come first."""
        fault = self._leases.fault_of(running.request.header.msg_id)
        if fault is None:
            return GpuAnswer(), [*effects, *self.waits(running)]
        return GpuAnswer(error=fault.evalue), [*effects, *self.over(running)]

    def _stands_still(self, running: Execution, now: float) -> list[Effect]:
        """Have the lease go back that the cell has left, which the router after this one must know first."""
        assert running.lease is not None
        busy_s, gpus = now - max(running.started_at, running.leased_at), running.lease.gpus
        cell, envelope = running.request.header.msg_id, running.envelope
        held = self._leases.held_leases.of_cell(cell)
        running.lease, running.had = None, None if held is None else held.asked
        place = (cell, running.replica, running.process, envelope.seq, envelope.fence)
        given = Given(*place, had=running.had)
        told = Log(f"execution {envelope.seq} stands still for a shorter one: it has left {', '.join(gpus)}")
        return [given, told, *self._leases.stands_still(cell, busy_s)]

    def _goes_on(
        self, running: Execution, question: GpuQuestion, left: PausedOn
    ) -> tuple[GpuAnswer, list[Effect]]:
        """Wish for what the cell has left, on its host: what the notebook asks for may have changed since."""
        known = self._parts.fleet.replicas.get(running.replica)
        asked = running.had or self._leased.asked_by(running.request)
        asked = asked or self._leases.like_before(question.gpus)
        gpus = max(1, question.gpus)
        wanted = replace(asked, gpus=gpus, model=left.gpu_model or asked.model)
        cell, hosts = running.request.header.msg_id, () if known is None else (known.host,)
        return self._answered(running, self._leases.goes_on(cell, wanted, hosts, left))

    def waits(self, running: Execution | None) -> list[Effect]:
        """Keep the line true under the cell that runs, while it waits."""
        wish = self._leases.wish
        if wish is None or running is None or wish.cell != running.request.header.msg_id:
            return []
        return [] if running.options.silent else self._leased.show(running.request, wish, begun=True)

    def _begins(self, running: Execution, held: Held, left: PausedOn | None, now: float) -> list[Effect]:
        """Have the cell compute under its lease, also for the router after this one."""
        running.lease, running.leased_at = held.lease, now
        cell, envelope = running.request.header.msg_id, running.envelope
        limited = self._leases.begins(cell, running.replica)
        running.had = None
        given = Given(cell, running.replica, running.process, envelope.seq, envelope.fence, held.lease)
        told = Log(f"execution {envelope.seq} has got {', '.join(held.lease.gpus)} while it runs")
        gone = f"This cell has got {', '.join(held.lease.gpus)}, at its first use of a GPU."
        if left is not None:
            gone = f"{waiting_cell.PAUSED}, it has gone on with {', '.join(held.lease.gpus)}."
        return [*limited, given, told, *self._leased.settle(running.request, gone)]

    def over(self, running: Execution) -> list[Effect]:
        """Take note that the cell does not wait any more: it has ended, or was interrupted."""
        left = self._leases.leave(running.request.header.msg_id)
        return [*self._leased.settle(running.request, "This cell does not wait for a GPU any more."), *left]


def _of(lease: GrantedLease, left: PausedOn | None) -> GpuAnswer:
    answer = GpuAnswer(gpus=lease.gpus, lease="" if left is None else lease.lease)
    if lease.price_hour:
        answer = replace(answer, price_hour=lease.price_hour, currency=lease.currency)
    return replace(answer, part=lease.part, vram_gb=lease.vram_gb) if lease.part else answer
