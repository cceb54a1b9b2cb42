"""The life of one replica's kernel process: born, greeted, lost, born again; or ended step by step. Pure.

Laws: at most one process at a time; a process that keeps dying young is not born again for ever; one that was
dismissed is born again when it is wanted, and not before.
"""

from __future__ import annotations

import signal
from enum import Enum

from replkernel.agent.core.effects import (
    Effect,
    ForgetReplica,
    ForkProcess,
    SaveReplica,
    SignalProcess,
    ToProcess,
)
from replkernel.protocol.agent_to_process import StopProcess
from replkernel.protocol.process_to_agent import KernelHello

YOUNG_S = 3.0
"""A process that dies within this time of its greeting (or before it) died young."""

YOUNG_DEATHS_MAX = 5
FORK_DELAY_MIN_S = 0.25
FORK_DELAY_MAX_S = 15.0
GREETING_TIMEOUT_S = 120.0
STOP_TO_TERM_S = 2.0
YOUNG_STOP_TO_TERM_S = 0.3
"""A process that greeted less than `YOUNG_S` ago is not yet sure to hear that it is to stop."""
TERM_TO_KILL_S = 1.0
KILL_TO_FORGET_S = 1.0
BIRTH_TIMEOUT_S = 5.0
"""While ending: how long a birth under way is awaited, so that it can be ended."""


class Phase(Enum):
    """Where a process is in its life."""

    NONE = "none"
    FORKING = "forking"
    STARTING = "starting"
    LIVE = "live"
    RESTING = "resting"
    """Dead; the next birth waits for its time."""
    GIVEN_UP = "given up"
    DISMISSED = "dismissed"
    """Told to end, because nobody needs it for now."""
    DORMANT = "dormant"
    """Ended, because nobody needs it for now."""
    ENDING = "ending"
    ENDED = "ended"


_WITHOUT_PROCESS = (Phase.NONE, Phase.RESTING, Phase.GIVEN_UP, Phase.DORMANT, Phase.ENDED)
_TERM = (signal.SIGTERM, TERM_TO_KILL_S)
_KILL = (signal.SIGKILL, KILL_TO_FORGET_S)


class ProcessLife:
    """The phases of one replica's processes, and the time of the next step."""

    def __init__(self) -> None:
        self.phase = Phase.NONE
        self.birth = 0
        self.pid = 0
        self.hello: KernelHello | None = None
        self.young_deaths = 0
        self._greeted_at = 0.0
        self._due: float | None = None
        self._steps: list[tuple[int, float]] = []
        self._recalled = False
        """Whether a process that was dismissed, and has not ended yet, is wanted again."""

    @property
    def is_live(self) -> bool:
        """Tell whether the process can be spoken to."""
        return self.phase is Phase.LIVE

    @property
    def is_dormant(self) -> bool:
        """Tell whether there is no process, or soon none, because nobody needs one for now."""
        return self.phase is Phase.DORMANT or (self.phase is Phase.DISMISSED and not self._recalled)

    def begin(self, now: float) -> list[Effect]:
        """Have a process forked, unless there is one or one is under way."""
        if self.phase is Phase.GIVEN_UP:
            self.young_deaths = 0
        elif self.phase not in (Phase.NONE, Phase.DORMANT):
            return []
        return self._fork(now)

    def _fork(self, now: float) -> list[Effect]:
        self.birth += 1
        self.phase, self.pid, self.hello = Phase.FORKING, 0, None
        self._due = now + GREETING_TIMEOUT_S
        return [ForkProcess(self.birth), SaveReplica()]

    def adopt(self, alive: bool, now: float) -> list[Effect]:
        """Go on with the process of an earlier agent; in the place of a dead one fork another if needed."""
        if not alive:
            return [] if self.phase is Phase.DORMANT else self._fork(now)
        if self.phase is Phase.DORMANT:
            self.phase, self._steps, self._due = Phase.DISMISSED, [_TERM, _KILL], now + STOP_TO_TERM_S
            return []
        self.phase, self._due = Phase.STARTING, None
        return []

    def forked(self, birth: int, pid: int, now: float) -> list[Effect]:
        """Note that the process exists."""
        if birth != self.birth:
            return []
        self.pid = pid
        if self.phase is Phase.ENDING:
            return [SaveReplica(), *self._next_step(now)]
        if self.phase is Phase.FORKING:
            self.phase = Phase.STARTING
        return [SaveReplica()]

    def greeted(self, birth: int, hello: KernelHello, now: float) -> bool:
        """Note a greeting; return whether the process may be used."""
        if birth != self.birth or self.phase not in (Phase.FORKING, Phase.STARTING, Phase.LIVE):
            return False
        if self.phase is not Phase.LIVE:
            self._greeted_at = now
        self.phase, self.hello, self.pid, self._due = Phase.LIVE, hello, hello.pid, None
        return True

    def lost(self, birth: int, now: float) -> list[Effect] | None:
        """Note a death and have another process born when it is time; None when it is none of ours."""
        if birth != self.birth or self.phase in _WITHOUT_PROCESS:
            return None
        if self.phase is Phase.ENDING:
            return self._forget()
        if self.phase is Phase.DISMISSED:
            return self._left(now)
        young = self.phase is not Phase.LIVE or now - self._greeted_at < YOUNG_S
        self.young_deaths = self.young_deaths + 1 if young else 0
        self.pid, self.hello = 0, None
        if self.young_deaths >= YOUNG_DEATHS_MAX:
            self.phase, self._due = Phase.GIVEN_UP, None
            return [SaveReplica()]
        if self.young_deaths <= 1:
            return self._fork(now)
        self.phase = Phase.RESTING
        self._due = now + min(FORK_DELAY_MAX_S, FORK_DELAY_MIN_S * 2.0 ** (self.young_deaths - 2))
        return [SaveReplica()]

    def dismiss(self, reason: str, now: float) -> list[Effect]:
        """End a process that nobody needs for now; one that is not live stays as it is."""
        if self.phase is not Phase.LIVE:
            return []
        self.phase, self._recalled = Phase.DISMISSED, False
        return [*self._stop(reason, now), SaveReplica()]

    def recall(self, now: float) -> list[Effect]:
        """Have a process forked in the place of one that was dismissed, as soon as that has ended."""
        if self.phase is Phase.DORMANT:
            return self._fork(now)
        self._recalled = self.phase is Phase.DISMISSED
        return []

    def _left(self, now: float) -> list[Effect]:
        """Note the end of a process that was dismissed."""
        self.pid, self.hello, self.young_deaths = 0, None, 0
        if self._recalled:
            self._recalled = False
            return self._fork(now)
        self.phase, self._due = Phase.DORMANT, None
        return [SaveReplica()]

    def end(self, reason: str, now: float) -> list[Effect]:
        """End the process politely, then less so; the replica is forgotten when it is gone."""
        if self.phase in (Phase.ENDING, Phase.ENDED):
            return []
        was, self.phase, self._recalled = self.phase, Phase.ENDING, False
        if was is Phase.LIVE:
            return self._stop(reason, now)
        if was in (Phase.STARTING, Phase.DISMISSED):
            # It has run nothing yet, is leaving, or its agent is gone: there is nobody to say goodbye to.
            self._steps = [_KILL]
            return self._next_step(now)
        if was is Phase.FORKING:
            self._steps, self._due = [_KILL], now + BIRTH_TIMEOUT_S
            return []
        return self._forget()

    def _stop(self, reason: str, now: float) -> list[Effect]:
        """Ask a live process to end; signals follow when it does not."""
        young = now - self._greeted_at < YOUNG_S
        self._steps, self._due = [_TERM, _KILL], now + (YOUNG_STOP_TO_TERM_S if young else STOP_TO_TERM_S)
        return [ToProcess(StopProcess(reason))]

    def _next_step(self, now: float) -> list[Effect]:
        if self.phase is Phase.DISMISSED and not self._steps:
            return []
        if not self._steps or self.pid == 0:
            return self._forget()
        signum, patience_s = self._steps.pop(0)
        self._due = now + patience_s
        return [SignalProcess(signum)]

    def _forget(self) -> list[Effect]:
        self.phase, self._due, self.pid, self.hello = Phase.ENDED, None, 0, None
        return [ForgetReplica()]

    def tick(self, now: float) -> list[Effect]:
        """Take the step that is due."""
        if self._due is None or now < self._due:
            return []
        self._due = None
        if self.phase is Phase.RESTING:
            return self._fork(now)
        if self.phase in (Phase.ENDING, Phase.DISMISSED):
            return self._next_step(now)
        if self.phase in (Phase.FORKING, Phase.STARTING) and self.pid:
            return [SignalProcess(signal.SIGKILL)]
        return []

    def deadline(self) -> float | None:
        """Return when `tick` has something to do, or None."""
        return self._due

    def check_invariants(self) -> None:
        """Raise AssertionError when the laws of this file are broken."""
        assert (self.hello is not None) <= (self.phase in (Phase.LIVE, Phase.ENDING, Phase.DISMISSED))
        assert self.phase is not Phase.LIVE or self.pid > 0
        assert self.phase is not Phase.RESTING or self._due is not None
        assert self.phase is not Phase.DORMANT or (self._due is None and not self.pid)
        assert not self._recalled or self.phase is Phase.DISMISSED
        assert self.young_deaths <= YOUNG_DEATHS_MAX
