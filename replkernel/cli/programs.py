"""Verbs that other packages of the wheel serve: the process becomes theirs.

`replkernel` never imports the scheduler or the server's side: they are started by name.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from replkernel.launch.module_command import module_command

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""The matrices of the simulator are small: threads made it 7 times slower on two busy cores."""


class Program(NamedTuple):
    """A module to run, what people call its package, and what its environment has unless it is set."""

    module: str
    called: str
    defaults: Mapping[str, str] = {}


PROGRAMS = {
    "scheduler": Program("replkernel_server.service", "scheduler's service"),
    "simulate": Program("replkernel_scheduler.sim", "scheduler", _ONE_THREAD),
    "capacity": Program("replkernel_scheduler.sim.capacity", "scheduler", _ONE_THREAD),
    "workload": Program("replkernel_scheduler.sim.workload_command", "scheduler", _ONE_THREAD),
    "loadtest": Program("replkernel_server.loadtest", "load test"),
    "mcp": Program("replkernel_server.mcp", "MCP server"),
}
KUBERNETES_DOCTOR = Program("replkernel_server.launchers.kubernetes_doctor", "launcher of Kubernetes")


def become(program: Program, arguments: Sequence[str]) -> int:
    """Replace this process by the program; return only if its package is not installed."""
    package = program.module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        print(
            f"The {program.called} ({package}) is not installed: reinstall with `pip install "
            "--force-reinstall replkernel`.",
            file=sys.stderr,
        )
        return 1
    environment = {**program.defaults, **os.environ}
    os.execve(sys.executable, module_command(program.module, *arguments), environment)
