"""Ends the agents that an environment's kernels have, wherever they run."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Mapping

from replkernel.agent.lookup import find_agent, stop_agent
from replkernel.errors import AgentUnavailable
from replkernel.inquiry import agent_names

STOP_S = 30.0


def end_agents(env: Mapping[str, str]) -> None:
    """End every kernel and every agent; one on another machine by the command that ends it there."""
    commands = []
    for name in agent_names(env):
        with contextlib.suppress(AgentUnavailable):
            address = find_agent(name, env)
            if address is not None and address.far:
                command = [sys.executable, "-m", "replkernel.cli", "agent", "stop", name]
                commands.append(subprocess.Popen(command, env=dict(env), stdout=subprocess.DEVNULL))
            else:
                stop_agent(name, env)
    for command in commands:
        command.wait(STOP_S)
