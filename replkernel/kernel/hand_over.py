"""GPUs given back while a cell without a lease runs: on the main thread, between two of its bytecodes.

A signal brings the main thread here, out of a sleep or a wait as well; C code that holds it up is waited for.
Law: nothing is moved below a library that may have storages in its hands, below ourselves, or in an import:
then it is tried again in a moment. The handler takes no lock that the cell may hold: a thread tells the rest.
"""

from __future__ import annotations

import contextlib
import logging
import math
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType

from replkernel.gpu.backend import Kept, Moved, Outcome
from replkernel.state.process.own_threads import own_thread

log = logging.getLogger(__name__)

SIGNAL = signal.SIGURG
"""Nobody uses it, and who does not handle it ignores it."""
AGAIN_S, AGAIN_S_MAX = 0.05, 1.0
UNSAFE = frozenset(
    "torch torchvision jax jaxlib tensorflow numba pycuda paddle mxnet cupy cudf importlib".split()
)
"""Packages that are left to finish: below them bytes on a GPU may be in use, or a module half imported."""
OURS = ("replkernel.gpu", "replkernel.state", "replkernel.kernel.lease")
"""Of ours, what looks at storages or has a cell wait for a lease."""


class OnMainThread:
    """Brings the main thread by while `_runs`; what it found there is put into `_outcomes`."""

    def __init__(self) -> None:
        self._runs = False
        self._outcomes: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        """What came of each try; None: not at that moment. It may be filled while it is being read."""

    def _try(self, until: float = math.inf) -> Outcome | None:
        """Have the main thread come by once; C code may hold it up for long.

        It is called again and again: a call that comes just before a sleep begins does not end that.
        """
        while not self._outcomes.empty():
            self._outcomes.get()
        main = threading.main_thread().ident
        assert main is not None
        while self._runs and (left_s := until - time.monotonic()) > 0:
            signal.pthread_kill(main, SIGNAL)
            with contextlib.suppress(queue.Empty):
                return self._outcomes.get(timeout=min(AGAIN_S_MAX, left_s))
        return None


class HandOver(OnMainThread):
    """One kernel process's. `suspend` moves the state, `postponed` puts interrupts off for a block."""

    def __init__(
        self,
        suspend: Callable[[], Outcome],
        told: Callable[[str, Moved], None],
        postponed: Callable[[], AbstractContextManager[None]],
        visit: Callable[[FrameType | None], None] = lambda frame: None,
    ) -> None:
        """`told` hears, on a thread of its own, that a lease's GPUs are free; `visit` shares the signal."""
        super().__init__()
        self._visit = visit
        self._suspend, self._told, self._postponed = suspend, told, postponed
        self._lock = threading.Lock()
        """Of the other threads: the main one never takes it."""
        self._wanted: list[str] = []
        self._done: set[str] = set()

    # -- on the main thread ---------------------------------------------------------------------------

    def begins(self) -> None:
        """Take note that a cell without a lease begins, which reaches nothing on a GPU as far as is known."""
        self._runs = self.listens()

    def listens(self) -> bool:
        """Have the signal bring the main thread here; return whether that is so: the notebook may use it."""
        found = signal.getsignal(SIGNAL)
        if found in (signal.SIG_DFL, signal.SIG_IGN):
            signal.signal(SIGNAL, self._at_signal)
        return found in (signal.SIG_DFL, signal.SIG_IGN, self._at_signal)

    def over(self) -> None:
        """Take note that the cell has ended, or is to have a lease."""
        self._runs = False

    def _at_signal(self, number: int, frame: FrameType | None) -> None:
        self._visit(frame)
        if not self._runs:
            return
        outcome: Outcome | None = None
        with self._postponed():
            if is_safe(frame):
                try:
                    outcome = self._suspend()
                except Exception as error:
                    outcome = Kept(f"it could not be moved while a cell ran: {error!r}")
            self._outcomes.put(outcome)

    # -- on other threads -----------------------------------------------------------------------------

    def ask(self, lease: str) -> None:
        """Give a lease's GPUs back in the cell that runs now, if one does that may."""
        if not self._runs:
            return
        with self._lock:
            self._wanted.append(lease)
            begins = len(self._wanted) == 1
        if begins:
            own_thread(self._carry, "gpu-hand-over").start()

    def was_done(self, lease: str) -> bool:
        """Tell once whether a lease's GPUs were given back in a cell."""
        found = lease in self._done
        self._done.discard(lease)
        return found

    def _carry(self) -> None:
        """Try until it is done, or cannot be, or the cell is over: then the main thread does it by itself."""
        outcome, pause_s = None, AGAIN_S
        while outcome is None and self._runs:
            outcome = self._try()
            if outcome is None:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, AGAIN_S_MAX)
        with self._lock:
            leases, self._wanted = self._wanted, []
        if isinstance(outcome, Moved):
            self._done.update(leases)
            for lease in leases:
                self._told(lease, outcome)
        elif outcome is not None:
            log.info("the state stays on the GPU while this cell runs: %s", outcome.why)


def is_safe(frame: FrameType | None) -> bool:
    """Tell whether state may be moved while the main thread is in this frame."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] in UNSAFE or name.startswith(OURS):
            return False
        frame = frame.f_back
    return True
