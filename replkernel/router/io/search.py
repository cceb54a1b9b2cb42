"""The router's search for the agents of its hosts: there already, on their way, or to be started.

Law: `at_once` never waits; `wait` may take seconds and is for a thread of its own; an agent on another
machine is not tried again at once, however often its link breaks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from replkernel.agent.io.lookup import AgentAddress, find_agent, find_or_start, reaches
from replkernel.agent.io.start import Start
from replkernel.errors import AgentUnavailable, ReplkernelError
from replkernel.records import HostName

FAR_PAUSE_S = 1.0
"""So long lies between two looks for an agent on another machine."""


class Search:
    """Finds agents. `begun` is one that is starting already; it is let go of when nobody asks for it."""

    def __init__(self, env: Mapping[str, str], begun: Start | None = None) -> None:
        self._env = dict(env)
        self._begun = begun
        self._far_seen: dict[HostName, float] = {}

    def at_once(self, host: HostName) -> AgentAddress | None:
        """Return the address of an agent that is here, or None when that takes a search."""
        if self._begun is not None and self._begun.host == host:
            return None
        try:
            address = find_agent(host, self._env)
        except ReplkernelError:
            return None
        return None if address is None or address.far else address

    def wait(self, host: HostName, *, starts: bool = True) -> AgentAddress:
        """Return the address of the agent of `host`, started if need be and allowed; or AgentUnavailable."""
        time.sleep(max(0.0, self._far_seen.get(host, 0.0) + FAR_PAUSE_S - time.monotonic()))
        if starts:
            begun = None
            if self._begun is not None and self._begun.host == host:
                begun, self._begun = self._begun, None
            address = find_or_start(host, self._env, begun=begun)
        else:
            address = self._there(host)
        if address.far:
            self._far_seen[host] = time.monotonic()
        return address

    def _there(self, host: HostName) -> AgentAddress:
        address = find_agent(host, self._env)
        trouble = "" if address is None else reaches(address)
        if address is None or trouble:
            why = f": {trouble}" if trouble else ""
            raise AgentUnavailable(f"host {host} has no agent that can be reached from here{why}")
        return address

    def close(self) -> None:
        """Let go of a start that nobody has asked for."""
        if self._begun is not None:
            self._begun.close()
            self._begun = None
