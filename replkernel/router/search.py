"""The router's search for the agents of its hosts: there already, on their way, or to be started.

Law: `at_once` never waits; `wait` may take seconds and is for a thread of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from replkernel.agent.lookup import AgentAddress, find_agent, find_or_start
from replkernel.agent.start import Start
from replkernel.errors import AgentUnavailable
from replkernel.records import HostName


class Search:
    """Finds agents. `begun` is one that is starting already; it is let go of when nobody asks for it."""

    def __init__(self, env: Mapping[str, str], begun: Start | None = None) -> None:
        self._env = dict(env)
        self._begun = begun

    def at_once(self, host: HostName) -> AgentAddress | None:
        """Return the address of an agent that is there, or None when that takes a search."""
        if self._begun is not None and self._begun.host == host:
            return None
        try:
            return find_agent(host, self._env)
        except AgentUnavailable:
            return None

    def wait(self, host: HostName) -> AgentAddress:
        """Return the address of the agent of `host`, started if need be; raises AgentUnavailable."""
        begun = None
        if self._begun is not None and self._begun.host == host:
            begun, self._begun = self._begun, None
        return find_or_start(host, self._env, begun=begun)

    def close(self) -> None:
        """Let go of a start that nobody has asked for."""
        if self._begun is not None:
            self._begun.close()
            self._begun = None
