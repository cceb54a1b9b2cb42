"""Cells that the router answers itself: refused, failed, interrupted, aborted, or left by a dead process.

Pure. Law: the client sees of each such cell what a kernel would have shown, and nothing twice.
"""

from __future__ import annotations

from replkernel.router.core import answers
from replkernel.router.core.answers import Fault
from replkernel.router.core.contents import ExecuteOptions, read
from replkernel.router.core.counts import Counts
from replkernel.router.core.events import ClientRequest, Effect
from replkernel.router.core.leased_cells import LeasedCells
from replkernel.router.core.parts import Parts
from replkernel.router.core.queue import EXECUTE, ShellQueue, Waiting
from replkernel.router.core.traffic import BUSY, INPUT


class CellEnds:
    """The router's own endings of cells, and the execution counts that they are given."""

    def __init__(self, parts: Parts, leased: LeasedCells, queue: ShellQueue) -> None:
        self._parts = parts
        self._leased = leased
        self._queue = queue
        self.counts = Counts()
        self.execution_count = 0

    def counted(self, execution_count: int | None) -> None:
        """Take note of a count that a kernel has shown, or goes on from."""
        self.execution_count = max(self.execution_count, execution_count or 0)

    def end(self, request: ClientRequest, options: ExecuteOptions, fault: Fault, seen: int) -> list[Effect]:
        """Answer an execution by a fault, adding only what the client has not seen of it yet."""
        count = self.execution_count if seen & INPUT else self.execution_count + 1
        effects: list[Effect] = [] if seen & BUSY else [answers.busy(request)]
        effects += self._leased.leaves(request)
        if not options.silent:
            if not seen & INPUT:
                effects.append(answers.execute_input(request, options.code, count))
            effects.append(answers.failed_error(request, fault))
        self.counts.ended(options, count)
        self.execution_count = max(self.execution_count, self.counts.at_least)
        reply = answers.failed_reply(request, fault, count)
        self._parts.record.add(request.header, reply.content, reply.metadata)
        return [*effects, reply, answers.idle(request)]

    def abort_queue(self, options: ExecuteOptions) -> list[Effect]:
        """Abort the executions that wait now, as a stock kernel does after a cell's error."""
        if options.silent or not options.stop_on_error:
            return []
        return [effect for request in self._queue.take_executions() for effect in answers.abort(request)]

    def refuse(self, head: Waiting, fault: Fault) -> list[Effect]:
        """End an execution that will never have the GPUs that it asks for."""
        self._queue.drop(head)
        options = read(ExecuteOptions, head.request.content)
        seen = self._parts.traffic.seen(head.request.header.msg_id)
        return self.end(head.request, options, fault, seen) + self.abort_queue(options)

    def fail_queue(self, fault: Fault) -> list[Effect]:
        """Answer all that waits by a fault."""
        effects: list[Effect] = []
        while (head := self._queue.head) is not None:
            self._queue.drop(head)
            seen = self._parts.traffic.seen(head.request.header.msg_id)
            if head.kind == EXECUTE:
                effects += self.end(head.request, read(ExecuteOptions, head.request.content), fault, seen)
            else:
                refusal = answers.refusal(head.request, fault)
                effects += refusal[1:] if seen & BUSY else refusal
        return effects
