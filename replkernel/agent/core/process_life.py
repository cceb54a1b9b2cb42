"""The life of one replica's kernel process: born, greeted, lost, born again; or ended step by step. Pure.

Law: at most one process at a time; a process that keeps dying young is not born again for ever.
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
    ENDING = "ending"
    ENDED = "ended"


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

    @property
    def is_live(self) -> bool:
        """Tell whether the process can be spoken to."""
        return self.phase is Phase.LIVE

    def begin(self, now: float) -> list[Effect]:
        """Have a process forked, unless there is one or one is under way."""
        if self.phase is Phase.GIVEN_UP:
            self.young_deaths = 0
        elif self.phase is not Phase.NONE:
            return []
        return self._fork(now)

    def _fork(self, now: float) -> list[Effect]:
        self.birth += 1
        self.phase, self.pid, self.hello = Phase.FORKING, 0, None
        self._due = now + GREETING_TIMEOUT_S
        return [ForkProcess(self.birth), SaveReplica()]

    def adopt(self, alive: bool, now: float) -> list[Effect]:
        """Go on with the process of an earlier agent; if it is dead, have another one forked."""
        if not alive:
            return self._fork(now)
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
        if birth != self.birth or self.phase in (Phase.NONE, Phase.RESTING, Phase.GIVEN_UP, Phase.ENDED):
            return None
        if self.phase is Phase.ENDING:
            return self._forget()
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

    def end(self, reason: str, now: float) -> list[Effect]:
        """End the process politely, then less so; the replica is forgotten when it is gone."""
        if self.phase in (Phase.ENDING, Phase.ENDED):
            return []
        was, self.phase = self.phase, Phase.ENDING
        term, kill = (signal.SIGTERM, TERM_TO_KILL_S), (signal.SIGKILL, KILL_TO_FORGET_S)
        if was is Phase.LIVE:
            young = now - self._greeted_at < YOUNG_S
            self._steps, self._due = [term, kill], now + (YOUNG_STOP_TO_TERM_S if young else STOP_TO_TERM_S)
            return [ToProcess(StopProcess(reason))]
        if was is Phase.STARTING:
            # It has run nothing yet, or belonged to an agent that is gone: there is nobody to say goodbye to.
            self._steps = [kill]
            return self._next_step(now)
        if was is Phase.FORKING:
            self._steps, self._due = [kill], now + BIRTH_TIMEOUT_S
            return []
        return self._forget()

    def _next_step(self, now: float) -> list[Effect]:
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
        if self.phase is Phase.ENDING:
            return self._next_step(now)
        if self.phase in (Phase.FORKING, Phase.STARTING) and self.pid:
            return [SignalProcess(signal.SIGKILL)]
        return []

    def deadline(self) -> float | None:
        """Return when `tick` has something to do, or None."""
        return self._due

    def check_invariants(self) -> None:
        """Raise AssertionError when the laws of this file are broken."""
        assert (self.hello is not None) <= (self.phase in (Phase.LIVE, Phase.ENDING))
        assert self.phase is not Phase.LIVE or self.pid > 0
        assert self.phase is not Phase.RESTING or self._due is not None
        assert self.young_deaths <= YOUNG_DEATHS_MAX
