"""End-to-end tests run real kernels: the kernelspec is in reach, and agents end with their test."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.hosts.supervisor import PLACE, site_of_a_test
from tests.support.ending import end_agents
from tests.support.stock import kernelspec_dir
from tests.support.stub_drivers import stubs

__all__ = ["stubs"]


@pytest.fixture(autouse=True)
def _kernel_in_reach(
    _own_directories: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    if PLACE in os.environ and request.node.get_closest_marker("one_machine") is not None:
        pytest.skip("makes its own hosts, or has a machine for itself (tests/e2e/hosts/README.md)")
    monkeypatch.setenv("JUPYTER_PATH", str(kernelspec_dir(tmp_path / "jupyter")))
    with contextlib.ExitStack() as across:
        if PLACE in os.environ:
            spread = request.node.get_closest_marker("one_host") is None
            for name, value in across.enter_context(site_of_a_test(spread=spread)).items():
                monkeypatch.setenv(name, value)
        yield
    end_agents(os.environ)
