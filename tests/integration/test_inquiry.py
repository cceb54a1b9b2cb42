"""Asking agents for their status: each answers for itself, whatever the others do."""

from __future__ import annotations

import os
import signal

import pytest

from replkernel.agent.lookup import find_or_start, stop_agent
from replkernel.inquiry import ask_agents

NAMES = ("first", "second")


@pytest.mark.parametrize("frozen", NAMES)
def test_an_agent_that_does_not_answer_hides_no_other(frozen: str) -> None:
    agents = {name: find_or_start(name, os.environ) for name in NAMES}
    os.kill(agents[frozen].pid, signal.SIGSTOP)
    try:
        states = {host.name: host.state for host in ask_agents(os.environ, 0.5).hosts}
    finally:
        os.kill(agents[frozen].pid, signal.SIGCONT)
        for name in NAMES:
            stop_agent(name, os.environ)
    assert states == {name: "not answering" if name == frozen else "up" for name in NAMES}
