"""The simulator from Python: `simulate` plays one policy on a trace, `sweep` many with many values.

Law: it names and checks what is wanted, and `experiment.py` plays it, as it does for the command: the same
trace, policies, cluster and seed give the same figures from both.
"""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import cpu_count
from pathlib import Path
from typing import Any, TypeVar

from replkernel_scheduler.errors import PolicyUnknown
from replkernel_scheduler.policies.installed import OWN, register
from replkernel_scheduler.sim.cases import Case, Sweep, cases
from replkernel_scheduler.sim.cluster import Cluster
from replkernel_scheduler.sim.costs import Costs
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.experiment import play_all
from replkernel_scheduler.sim.faults import FaultModel
from replkernel_scheduler.sim.options import DEFAULT_POLICIES, read_sweep, row_forms
from replkernel_scheduler.sim.output import Output
from replkernel_scheduler.sim.plan import Plan, Prices
from replkernel_scheduler.sim.progress import Progress, Told, screen_for
from replkernel_scheduler.sim.results import Result, Results
from replkernel_scheduler.sim.trace import Trace

Made = TypeVar("Made", bound=Callable[..., Any])


def simulate(
    trace: Trace,
    policy: str = "notebook",
    cluster: Cluster | str = "30x8",
    *,
    seed: int = 0,
    warmup_s: float = 0.0,
    costs: Costs | None = None,
    faults: FaultModel | None = None,
    prices: Prices | None = None,
    rows: bool = True,
    progress: bool | Told | None = None,
) -> Result:
    """Play a trace with one policy, and return what that has shown.

    `policy` is as the command's `--policy`: `"notebook,placement=spread"`. `cluster` may be written as text.
    What comes in the first `warmup_s` of the run is played and not counted. Without `rows` only figures are
    kept, which saves memory. `progress` is shown in notebooks and on
    terminals; `False` shows none, and a function is told the share that is done and a line of text.
    Raise SimulationError, with what to do, for a trace, a policy or a cluster that cannot be.
    """
    plan = _plan(trace, cluster, seed, warmup_s, costs, faults, prices)
    made = cases([policy], plan, [])
    return _results(trace, made, plan, Output(None, (), kept=rows), 1, progress)[0]


def sweep(
    trace: Trace,
    policies: str | Iterable[str] = DEFAULT_POLICIES,
    cluster: Cluster | str = "30x8",
    *,
    over: Mapping[str, Iterable[object]] | None = None,
    seed: int = 0,
    warmup_s: float = 0.0,
    costs: Costs | None = None,
    faults: FaultModel | None = None,
    prices: Prices | None = None,
    rows: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    processes: int | None = None,
    progress: bool | Told | None = None,
) -> Results:
    """Play each policy with each combination of values, side by side, and return all runs.

    `over` has the values by key, as `--sweep` does: `{"hosts": [10, 20], "seed": range(5), "limit":
    ["static", "demand-busy"]}`. With `out` the files of the command are written there too, each run's as
    soon as it is over; with `resume`, runs that an earlier call has left there are not played again.
    `processes`: as many as there are cores, unless said otherwise; one where nothing is swept.
    The rest is as with `simulate`; raise SimulationError.
    """
    plan = _plan(trace, cluster, seed, warmup_s, costs, faults, prices)
    made = cases([policies] if isinstance(policies, str) else list(policies), plan, _sweeps(over or {}))
    directory = None if out is None else Path(out)
    output = Output(directory, row_forms(None) if directory else (), kept=rows, resume=resume)
    beside = processes or (cpu_count() if over else 1)
    return _results(trace, made, plan, output, 1 if OWN else beside, progress)


def policy(name: str) -> Callable[[Made], Made]:
    """Have a class be a policy of this process: `@policy("placement.fullest")`.

    `simulate(trace, "notebook,placement=fullest")` then plays it. Other processes do not know it, so a sweep
    with it is played in this one. Raise SimulationError if there is no such kind.
    """

    def given(made: Made) -> Made:
        try:
            register(name, made)
        except PolicyUnknown as error:
            raise SimulationError(str(error)) from error
        return made

    return given


def _plan(
    trace: Trace,
    cluster: Cluster | str,
    seed: int,
    warmup_s: float,
    costs: Costs | None,
    faults: FaultModel | None,
    prices: Prices | None,
) -> Plan:
    shape = Cluster.named(cluster) if isinstance(cluster, str) else cluster
    if seed < 0:
        raise SimulationError(f"seed={seed} is not a whole number from 0 on.")
    if not warmup_s >= 0:
        raise SimulationError(f"warmup_s={warmup_s} is not a time from 0 s on.")
    return Plan(
        warmup_s=warmup_s,
        hosts=shape.hosts,
        gpus_per_host=shape.gpus_per_host,
        memory_gb=shape.memory_gb,
        hosts_max=shape.hosts_max,
        nodes=shape.nodes,
        speeds=shape.speeds,
        across_hosts=shape.across_hosts,
        seed=seed,
        mix=trace.source.mix,
        costs=costs or Costs(),
        faults=faults or FaultModel(),
        prices=prices or Prices(),
    )


def _sweeps(over: Mapping[str, Iterable[object]]) -> list[Sweep]:
    try:
        return [read_sweep(key, [str(value) for value in values]) for key, values in over.items()]
    except ArgumentTypeError as error:
        raise SimulationError(f"{error}.") from error


def _results(
    trace: Trace, made: list[Case], plan: Plan, output: Output, processes: int, progress: bool | Told | None
) -> Results:
    told = Progress(screen_for(progress), time.monotonic)
    played = play_all(trace.source, made, plan, output, told, processes)
    runs = []
    for case, run in zip(made, played.shown, strict=True):
        assert run.picture is not None, "Python's runs have pictures."
        runs.append(Result(case.title, run.summary, run.picture, run.rows))
    return Results(played.document, runs)
