"""The simulator: recorded work, played on the scheduler's core by a driver whose clock is a heap of events.

Law: it is a driver like the live one. The core and its policies do not know of it, and nothing here
decides. What is named here is its Python API.
"""

from __future__ import annotations

from replkernel_scheduler.sim.cluster import Cluster
from replkernel_scheduler.sim.cost_files import costs_from, costs_of
from replkernel_scheduler.sim.costs import Costs, LogNormal, Measured, Normal, Uniform
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.faults import FaultModel
from replkernel_scheduler.sim.laboratory import policy, simulate, sweep
from replkernel_scheduler.sim.plan import Prices
from replkernel_scheduler.sim.results import Result, Results
from replkernel_scheduler.sim.row_table import RowTable
from replkernel_scheduler.sim.trace import Trace

__all__ = [
    "Cluster",
    "Costs",
    "FaultModel",
    "LogNormal",
    "Measured",
    "Normal",
    "Prices",
    "Result",
    "Results",
    "RowTable",
    "SimulationError",
    "Trace",
    "Uniform",
    "costs_from",
    "costs_of",
    "policy",
    "simulate",
    "sweep",
]
