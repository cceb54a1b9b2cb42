"""What the link's thread has heard of executions, and the main thread's waiting for it.

Law: thread-safe; every wait has an end, and is short at a time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from replkernel.errors import QuorumLost, ReplkernelError
from replkernel.kernel.interrupts import WAIT_MAX_S
from replkernel.protocol.agent_to_process import BegunAfresh
from replkernel.protocol.envelope import Envelope
from replkernel.records import Delta, Seq

NEEDS_TIMEOUT_S = 60.0
"""So long a cell waits for the state that it needs before it is answered with an error."""

DURABLE_TIMEOUT_S = 30.0
"""So long a reply waits for its commit with REPLKERNEL_DURABLE=before_reply."""

TROUBLED_TIMEOUT_S = 1.0
"""So long it waits after one that waited in vain, while what keeps commits from happening is known."""

REFUSALS_MAX = 256


class News:
    """Commits and refusals of this process's executions, and how far those of others have come."""

    def __init__(self) -> None:
        self.committed = Seq(0)
        """The last execution of this process that is durable."""
        self._lock = threading.RLock()
        self._bell = threading.Lock()
        """Taken but for the moment after something changed. No condition: SIGINT in its methods, which are
        Python's, would leave it locked for ever."""
        self._bell.acquire()
        self._refused: dict[Seq, str] = {}
        self._logged = Seq(0)
        self._begun: BegunAfresh | None = None
        self._received = Seq(0)

    # -- the link's thread --------------------------------------------------------------------------

    def arrived(self, delta: Delta, take: Callable[[Delta], None]) -> None:
        """Have `take` take in a delta of another replica, and let go on who waits for it."""
        with self._lock:
            take(delta)
            self._received = delta.seq
        self._ring()

    def delta_committed(self, seq: Seq, *, owing: bool) -> None:
        """Note that an execution's delta is durable, or logged while the state is `owing` something older."""
        with self._lock:
            self._logged = Seq(max(self._logged, seq))
            if not owing:
                self.committed = Seq(max(self.committed, seq))
        self._ring()

    def begun_afresh(self, begun: BegunAfresh) -> None:
        """Note from where an execution goes on for a lost process."""
        with self._lock:
            self._begun = begun
        self._ring()

    def execution_refused(self, seq: Seq, why: str) -> None:
        """Note that an execution lost."""
        with self._lock:
            self._refused[seq] = why
            if len(self._refused) > REFUSALS_MAX:
                del self._refused[min(self._refused)]
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # It rings already.
            self._bell.release()

    # -- the main thread ----------------------------------------------------------------------------

    def in_log(self, seq: Seq) -> bool:
        """Tell whether what an execution changed is in the log."""
        return seq <= max(self._logged, self._received)

    def is_durable(self, seq: Seq) -> bool:
        """Tell whether an execution is durable, here or where it was run."""
        return seq <= max(self.committed, self._received)

    def check_refused(self, envelope: Envelope) -> None:
        """Raise ReplkernelError when the execution has been refused."""
        why = self._refused.get(envelope.seq)
        if why is not None:
            raise ReplkernelError(f"The cell was not run: {why.rstrip('.')}; run it again.")

    def await_state(self, envelope: Envelope, here: Callable[[], bool]) -> None:
        """Wait until the state that an execution needs is `here`, or say why the cell cannot be run."""
        deadline = time.monotonic() + NEEDS_TIMEOUT_S
        while not self._is(here):
            self.check_refused(envelope)
            if not self._changes_before(deadline):
                raise QuorumLost(
                    f"The variables of execution {envelope.needs} did not reach this replica within "
                    f"{NEEDS_TIMEOUT_S:g} s, so the cell was not run; "
                    "run it again once `%replkernel status` shows a majority of the replicas alive."
                )

    def await_afresh(self, envelope: Envelope) -> BegunAfresh:
        """Wait until the log says from where an execution goes on for a lost process, or say why not."""

        def begun() -> bool:
            return self._begun is not None and self._begun.seq == envelope.seq

        self.await_state(envelope, begun)
        assert self._begun is not None
        return self._begun

    def await_here(self, here: Callable[[], bool], patience_s: float) -> None:
        """Wait until some state is `here`, or patience ends."""
        deadline = time.monotonic() + patience_s
        while not self._is(here) and self._changes_before(deadline):
            pass

    def await_commit(
        self, seq: Seq, may_commit: Callable[[], bool], stop: Callable[[], bool], patience_s: float
    ) -> None:
        """Wait until an execution is durable, while it may become so and nothing says `stop`."""
        deadline = time.monotonic() + patience_s
        while self._is(lambda: may_commit() and self.committed < seq):
            if seq in self._refused or stop() or not self._changes_before(deadline):
                break

    def _is(self, so: Callable[[], bool]) -> bool:
        """Ask while nothing changes."""
        with self._lock:
            return so()

    def _changes_before(self, deadline: float) -> bool:
        """Wait a moment, or until something has changed; return False when the time was over before."""
        left = deadline - time.monotonic()
        if left > 0:
            self._bell.acquire(timeout=min(left, WAIT_MAX_S))
        return left > 0
