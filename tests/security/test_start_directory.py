"""Somebody lays a module of our name into a directory: whoever starts a program there never runs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpecManager

from replkernel.agent.io.lookup import find_agent
from tests.conftest import ROOT
from tests.support.breadth import first_of
from tests.support.live import kernel
from tests.support.stock import OURS

HOST = "h1"
RAN = "ran"
TRAP = f"open({RAN!r}, 'a').write(__name__ + '\\n'); raise SystemExit(3)\n"
PROGRAM = [sys.executable, "-P", "-m", "replkernel.cli"]
"""As the installed command is: it has its own directory on its path, never the present one."""
ELSEWHERE = ("scheduler", "simulate", "capacity", "workload", "loadtest")


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Return a directory with a module of the name of each of our packages, and of one that ours import."""
    for name in ("replkernel", "replkernel_server", "replkernel_scheduler", "msgspec"):
        (tmp_path / f"{name}.py").write_text(TRAP.replace(RAN, str(tmp_path / RAN)))
    return tmp_path


@pytest.mark.parametrize("verb", first_of(*ELSEWHERE))
def test_a_verb_of_another_package_does_not_run_what_lies_in_the_directory(theirs: Path, verb: str) -> None:
    done = subprocess.run([*PROGRAM, verb, "--help"], cwd=theirs, capture_output=True, text=True, timeout=60)
    assert not (theirs / RAN).exists(), (theirs / RAN).read_text()
    assert done.returncode == 0, done.stderr


def test_an_agent_does_not_run_what_lies_in_the_directory(theirs: Path) -> None:
    with subprocess.Popen([*PROGRAM, "agent", "--name", HOST], cwd=theirs) as agent:
        try:
            until = time.monotonic() + 60
            while agent.poll() is None and find_agent(HOST, os.environ) is None:
                assert time.monotonic() < until
                time.sleep(0.05)
            assert not (theirs / RAN).exists(), (theirs / RAN).read_text()
            assert agent.poll() is None
        finally:
            agent.terminate()


def test_a_kernel_does_not_run_it_but_its_cells_find_the_modules_beside_the_notebook(
    theirs: Path, short_dir: Path
) -> None:
    (theirs / "beside.py").write_text("said = 'found'\n")
    shutil.copytree(ROOT / "replkernel" / "kernelspec", short_dir / OURS)
    specs = KernelSpecManager(kernel_dirs=[str(short_dir)])
    with kernel(theirs, KernelManager(kernel_name=OURS, kernel_spec_manager=specs)) as live:
        assert live.value("import beside; print(beside.said)") == "found"
    assert not (theirs / RAN).exists(), (theirs / RAN).read_text()


def test_no_program_is_started_as_a_module_in_any_other_way() -> None:
    product = [ROOT / "replkernel", ROOT / "scheduler", ROOT / "server_ext"]
    sources = [path for place in product for path in place.rglob("*.py")]
    assert len(sources) > 300
    package = ROOT / "replkernel"
    own_way = package / "launch" / "module_command.py"
    reads_it = package / "jobs" / "processes.py"  # In the command of a user, for torchrun's arguments.
    found = [
        path
        for path in sources
        if path not in (own_way, reads_it) and re.search(r"""["']-m["']""", path.read_text())
    ]
    assert not found
