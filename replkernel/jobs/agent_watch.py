"""The agent of a host where a job runs, started again when it is gone: jobs outlive it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from replkernel.agent.io.start import Start, agent_holds_lock, begin, is_stopped, lives_elsewhere

LOOK_S = 5.0


class AgentWatch:
    """Looks for it now and then; a start that is under way is let go of at the next look."""

    def __init__(self, host: str, env: Mapping[str, str], now: float) -> None:
        self._host, self._env, self._at = host, dict(env), now + LOOK_S
        self._start: Start | None = None

    def look(self, now: float) -> None:
        """Start the agent if there is none: nobody else may need it, and cells want our GPUs through it."""
        if now < self._at:
            return
        self._at = now + LOOK_S
        if self._start is not None:
            self._start.close()
            self._start = None
        with contextlib.suppress(OSError):
            if agent_holds_lock(self._host, self._env) or lives_elsewhere(self._host, self._env):
                return
            if not is_stopped(self._host, self._env):
                self._start = begin(self._host, self._env)
