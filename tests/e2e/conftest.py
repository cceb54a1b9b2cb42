"""End-to-end tests run real kernels: the kernelspec is in reach, and agents end with their test."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.agent.lookup import stop_agent
from replkernel.errors import AgentUnavailable
from replkernel.inquiry import agent_names
from tests.e2e.hosts.across import PLACE, agents_across
from tests.support.stock import kernelspec_dir


@pytest.fixture(autouse=True)
def _kernel_in_reach(
    _own_directories: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    if PLACE in os.environ and request.node.get_closest_marker("one_machine") is not None:
        pytest.skip("the hosts' processes are on other machines")
    monkeypatch.setenv("JUPYTER_PATH", str(kernelspec_dir(tmp_path / "jupyter")))
    with contextlib.ExitStack() as across:
        if PLACE in os.environ:
            monkeypatch.setenv("REPLKERNEL_HOSTS", across.enter_context(agents_across(dict(os.environ))))
        yield
    for name in agent_names(os.environ):
        with contextlib.suppress(AgentUnavailable):
            stop_agent(name, os.environ)
