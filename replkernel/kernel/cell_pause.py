"""A running cell stands still off its GPUs for a shorter one, on the main thread between two bytecodes.

Law: nothing is moved where a hand-over would not, nor while the cell asks somebody. It goes on as soon as it
has a lease again, or an interrupt ends it; who cannot stand still in time says why, and computes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType

from replkernel.gpu.backend import Kept, Moved, Outcome
from replkernel.kernel.cuda_asks import may_ask
from replkernel.kernel.hand_over import AGAIN_S, OnMainThread, is_safe
from replkernel.leasing.notebook import PausedOn
from replkernel.protocol.agent_to_process import StandStill
from replkernel.state.process.own_threads import own_thread

PLACE = "the cell came to no place where it can stand still: a library of GPUs, C code or input() was at work"
OVER = "the cell under this lease is over"
PART = "the cell has a part of a GPU, or the notebook handles SIGURG itself"
MARGIN_S = 1.0
"""So much before its time is over the scheduler is told that nothing came of it."""


class CellPause(OnMainThread):
    """One kernel process's. `suspend` takes the state off, `go_on` gets a lease, `refused` says why not."""

    def __init__(
        self,
        suspend: Callable[[], Outcome],
        go_on: Callable[[PausedOn], None],
        refused: Callable[[str, str], None],
        postponed: Callable[[], AbstractContextManager[None]],
    ) -> None:
        super().__init__()
        self._suspend, self._go_on, self._refused, self._postponed = suspend, go_on, refused, postponed
        self._able = False
        self._order: StandStill | None = None
        self._left = ""
        """The lease that was left last: nobody leaves it twice."""
        self._lock = threading.Lock()
        """Of the other threads: the main one never takes it."""
        self._since = self._ran_s = self._paused_s = 0.0
        self._times = 0

    # -- on the main thread ---------------------------------------------------------------------------

    def begins(self, *, whole: bool) -> None:
        """Take note that a cell with a lease begins; only one of `whole` GPUs can stand still."""
        self._runs, self._able = True, whole
        self._since, self._ran_s, self._paused_s, self._times = time.monotonic(), 0.0, 0.0, 0

    def over(self) -> None:
        """Take note that the cell has ended."""
        self._runs = False

    def visit(self, frame: FrameType | None) -> None:
        """Stand still here, if that is wanted and this is a place for it."""
        order = self._order
        if order is None or not self._runs:
            return
        outcome: Outcome | None = None
        with self._postponed():
            if is_safe(frame) and may_ask(frame):
                try:
                    outcome = self._suspend()
                except Exception as error:
                    outcome = Kept(f"its state could not be moved while it ran: {error!r}")
                self._order = None
            self._outcomes.put(outcome)
        if isinstance(outcome, Moved):
            self._stand_still(order)

    def _stand_still(self, order: StandStill) -> None:
        """Wait for a lease, and go on with it."""
        self._left, stopped = order.lease, time.monotonic()
        self._ran_s += stopped - self._since
        self._times += 1
        left = PausedOn(order.lease, self._times, self._ran_s, self._paused_s, order.gpu_model)
        try:
            self._go_on(left)
        finally:
            self._since = time.monotonic()
            self._paused_s += self._since - stopped

    # -- on other threads -----------------------------------------------------------------------------

    def ask(self, order: StandStill) -> None:
        """Have the cell that runs stand still; the same order again is the same."""
        with self._lock:
            if self._order is not None or order.lease == self._left:
                return
            why = "" if self._runs and self._able else PART if self._runs else OVER
            self._order = None if why else order
        if why:
            self._refused(order.lease, why)
        else:
            own_thread(self._carry, "cell-pause", (order,)).start()

    def _carry(self, order: StandStill) -> None:
        """Try until it stands still, cannot, or its time is over."""
        until = time.monotonic() + max(0.0, order.within_s - MARGIN_S)
        outcome: Outcome | None = None
        while outcome is None and self._runs and time.monotonic() < until:
            outcome = self._try(until)
            if outcome is None:
                time.sleep(AGAIN_S)
        if isinstance(outcome, Moved):
            return
        self._order = None
        why = outcome.why if outcome is not None else PLACE if self._runs else OVER
        self._refused(order.lease, why)
