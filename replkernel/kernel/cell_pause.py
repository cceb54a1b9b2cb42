"""A running cell stands still off its GPUs for a shorter one, on the main thread between two bytecodes.

Law: nothing is moved where a hand-over would not, nor while the cell asks somebody. It goes on as soon as it
has a lease again, or an interrupt ends it; who cannot stand still in time says why, and computes on. An order
is taken by the main thread or refused by another one, never both: whoever takes it out of its place decides.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType

from msgspec.structs import replace

from replkernel.gpu.backend import Kept, Moved, Outcome
from replkernel.kernel.cuda_asks import may_ask
from replkernel.kernel.hand_over import AGAIN_S, OnMainThread, is_safe
from replkernel.leasing.notebook import SECONDS_MAX, PausedOn
from replkernel.protocol.agent_to_process import StandStill
from replkernel.state.process.own_threads import own_thread

PLACE = "the cell came to no place where it can stand still: a library of GPUs, C code or input() was at work"
OVER = "the cell under this lease is over"
PART = "the cell has a part of a GPU"
HANDLED = "the notebook handles the signal SIGURG itself"
MARGIN_S = 1.0
"""So much before its time is over the scheduler is told that nothing came of it."""


class _Told:
    """One order, and what came of it once the main thread has taken it."""

    def __init__(self, order: StandStill) -> None:
        self.order = order
        self.came: queue.SimpleQueue[Outcome] = queue.SimpleQueue()


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
        self._unable = ""
        """Why the cell that runs is never paused."""
        self._pending: deque[_Told] = deque()
        """The order that nobody has taken yet, if there is one."""
        self._left = ""
        """The lease that was left last, or is being left: nobody leaves it twice."""
        self._lock = threading.Lock()
        """Of the other threads: the main one never takes it."""
        self._since = self._stopped = self._ran_s = self._paused_s = 0.0
        self._times = 0

    # -- on the main thread ---------------------------------------------------------------------------

    def begins(self, unable: str = "") -> None:
        """Take note that a cell has a lease, first or again; `unable` says why it never stands still."""
        if not self._runs:
            self.over()
            self._since, self._ran_s, self._paused_s, self._times = time.monotonic(), 0.0, 0.0, 0
        self._runs, self._unable = True, unable

    def over(self) -> None:
        """Take note that the cell has ended, and with it what it was told."""
        self._runs = False
        told = self._take()
        if told is not None:
            told.came.put(Kept(OVER))

    def visit(self, frame: FrameType | None) -> None:
        """Stand still here, if that is wanted and this is a place for it."""
        if not self._pending or not self._runs:
            return
        outcome: Outcome | None = None
        told: _Told | None = None
        with self._postponed():
            if is_safe(frame) and may_ask(frame):
                told = self._take()
            self._outcomes.put(None)
            if told is not None:
                before, self._left = self._left, told.order.lease
                try:
                    outcome = self._suspend()
                except Exception as error:
                    outcome = Kept(f"its state could not be moved while it ran: {error!r}")
                if isinstance(outcome, Kept):
                    self._left = before
                told.came.put(outcome)
        if told is not None and isinstance(outcome, Moved):
            self._stand_still(told.order)

    def _take(self) -> _Told | None:
        with contextlib.suppress(IndexError):
            return self._pending.pop()
        return None

    def _stand_still(self, order: StandStill) -> None:
        """Wait for a lease, and go on with it."""
        self._stopped = time.monotonic()
        self._ran_s += self._stopped - self._since
        self._times += 1
        ran_s, paused_s = min(self._ran_s, SECONDS_MAX), min(self._paused_s, SECONDS_MAX)
        left = PausedOn(order.lease, self._times, ran_s, paused_s, order.gpu_model)
        try:
            self._go_on(left)
        finally:
            self._since = time.monotonic()
            self._paused_s += self._since - self._stopped

    def again(self, left: PausedOn, lease: str) -> PausedOn:
        """Return that the cell leaves this lease as well, for it cannot go on with it."""
        self._times, self._left = left.times + 1, lease
        paused_s = self._paused_s + time.monotonic() - self._stopped
        return replace(left, lease=lease, times=self._times, paused_s=min(paused_s, SECONDS_MAX))

    # -- on other threads -----------------------------------------------------------------------------

    def ask(self, order: StandStill) -> None:
        """Have the cell that runs stand still; the same order again is the same."""
        told = _Told(order)
        with self._lock:
            if self._pending or order.lease == self._left:
                return
            why = self._unable if self._runs else OVER
            if not why:
                self._pending.append(told)
        if why:
            self._refused(order.lease, why)
        else:
            own_thread(self._carry, "cell-pause", (told,)).start()

    def _carry(self, told: _Told) -> None:
        """Try until the main thread has taken it, or its time is over; what is taken ends as it ends."""
        until = time.monotonic() + max(0.0, told.order.within_s - MARGIN_S)
        while self._waits(told) and self._runs and time.monotonic() < until:
            self._try(until)
            if self._waits(told):
                time.sleep(AGAIN_S)
        try:
            self._pending.remove(told)
        except ValueError:
            outcome = told.came.get()
        else:
            outcome = Kept(PLACE if self._runs else OVER)
        if isinstance(outcome, Kept):
            self._refused(told.order.lease, outcome.why)

    def _waits(self, told: _Told) -> bool:
        with contextlib.suppress(IndexError):
            return self._pending[0] is told
        return False
