"""Directories, and with them agents, that the tests of one module share: import all of its fixtures into it,
but for `_no_kernel_left` where they share kernels too.

Law: a test leaves the kernels that it shares as it found them, and kills none of their processes: one that
dies young again and again is born later each time. Across machines each test has its own site.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.client.inquiry import ask_agents
from tests.conftest import KEPT, NO_MORE_IMPORTS, OWN, SHORT
from tests.e2e.hosts.supervisor import PLACE, site_of_a_test
from tests.support import left_open
from tests.support.ending import end_agents
from tests.support.live import AGENT_S, Live, eventually
from tests.support.stock import kernelspec_dir

__all__ = ["_kernel_in_reach", "_no_kernel_left", "_own_directories", "place", "shared_scope", "tidy"]


def shared_scope(fixture_name: str, config: pytest.Config) -> str:
    """Return the scope of what a module's tests share: across machines a site is one test's."""
    return "function" if PLACE in os.environ else "module"


@pytest.fixture(scope=shared_scope)
def place(
    _children_find_the_sources: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """Return a directory for kernels, to whose places the environment points."""
    if PLACE in os.environ and request.node.get_closest_marker("one_machine") is not None:
        pytest.skip("makes its own hosts, or has a machine for itself (tests/e2e/hosts/README.md)")
    base = tmp_path_factory.mktemp("shared")
    sockets = tempfile.mkdtemp(prefix="rk-", dir=SHORT)
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as across:
        for name in [name for name in os.environ if name.startswith("REPLKERNEL_") and name not in KEPT]:
            patch.delenv(name)
        for name in OWN:
            (base / name.lower()).mkdir()
            patch.setenv(name, str(base / name.lower()))
        patch.setenv("REPLKERNEL_SOCKET_DIR", sockets)
        patch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
        patch.setenv(*NO_MORE_IMPORTS)
        patch.setenv("JUPYTER_PATH", str(kernelspec_dir(base / "jupyter")))
        if PLACE in os.environ:
            spread = request.node.get_closest_marker("one_host") is None
            for name, value in across.enter_context(site_of_a_test(spread=spread)).items():
                patch.setenv(name, value)
        yield base
        end_agents(os.environ)
    shutil.rmtree(sockets, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_directories(place: Path) -> None:
    """Take the module's directories instead of a test's own."""
    left_open.test_has(place)


@pytest.fixture(autouse=True)
def _kernel_in_reach(place: Path) -> None:
    """Leave the agents to the next test."""


@pytest.fixture(autouse=True)
def _no_kernel_left(place: Path) -> Iterator[None]:
    """Have agents that know of no kernel when a test begins, where each has kernels of its own."""
    yield
    eventually(lambda: not ask_agents(os.environ, AGENT_S).kernels, "the end of the test's kernels")


def tidy(live: Live) -> None:
    """Have a shared kernel do nothing, without variables, and its client know of no message."""
    eventually(lambda: live.run("%reset -sf").status == "ok", "a cell that no late interrupt meets")
    client = live.client
    for channel in (client.shell_channel, client.control_channel, client.iopub_channel, client.stdin_channel):
        while channel.msg_ready():
            channel.get_msg(timeout=0)
