"""One run: a spool of records in one way, whichever core serves it.

Law: it chooses the driver by the kind of way, and nothing else.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from replkernel_scheduler.policies.installed import names
from replkernel_scheduler.sim import elastic_way, pool_way, summary
from replkernel_scheduler.sim.driver import Watcher
from replkernel_scheduler.sim.elastic_run import ElasticRun
from replkernel_scheduler.sim.elastic_way import ElasticWay, elastic_way_named, is_elastic_way
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.figures import RowSink
from replkernel_scheduler.sim.job_simulation import JobSimulation
from replkernel_scheduler.sim.job_way import JobWay, is_job_way, job_way_named
from replkernel_scheduler.sim.oracle_simulation import OracleSimulation
from replkernel_scheduler.sim.picture import Picture, picture_of
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.pool_simulation import PoolSimulation
from replkernel_scheduler.sim.pool_way import PoolWay, is_pool_way, pool_way_named
from replkernel_scheduler.sim.recorded_simulation import RecordedSimulation
from replkernel_scheduler.sim.simulation import Simulation
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import AnyWay, RunSummary
from replkernel_scheduler.sim.way import ORACLE, RECORDED, FixedWay, fixed_way_named, way_named

EVENT_MAX = 400
COLLECT_EVERY = (50_000, 20, 100)
"""How rarely garbage is looked for during a run: there is next to none, and a look sees all that is kept."""


def any_way_named(text: str) -> AnyWay:
    """Return the way of this name; raise SimulationError if there is none."""
    fixed = fixed_way_named(text)
    if fixed is not None:
        return fixed
    if is_job_way(text):
        return job_way_named(text)
    if is_elastic_way(text):
        return elastic_way_named(text)
    if is_pool_way(text):
        return pool_way_named(text)
    base = text.partition(",")[0]
    if base not in names("set"):
        jobs = (*names("queues"), *pool_way.POLICIES, *elastic_way.POLICIES)
        raise SimulationError(
            f"--policy {text}: there is no policy {base!r}. There are {', '.join(names('set'))}, "
            f"{ORACLE.name} and {RECORDED.name}; for jobs also {', '.join(jobs)}."
        )
    return way_named(text)


def play(
    spool: Spool,
    way: AnyWay,
    plan: Plan,
    *,
    rows: RowSink | None = None,
    watch: Watcher | None = None,
    played: Callable[[str, int], None] | None = None,
    pictured: Callable[[Picture], None] | None = None,
) -> RunSummary:
    """Play all records, and return what that has shown.

    `played` is told the way's name and the events, `pictured` gets what its plots are drawn from.
    """
    simulation: (
        Simulation | JobSimulation | PoolSimulation | ElasticRun | OracleSimulation | RecordedSimulation
    )
    blind = isinstance(way, ElasticWay | PoolWay | FixedWay) or getattr(way, "harvests", False)
    if plan.across_hosts != 1.0 and not isinstance(way, JobWay):
        raise SimulationError(f"--policy {way.name} has each job on one host: leave out --across-hosts.")
    if plan.speeds and blind:
        raise SimulationError(f"--policy {way.name} does not tell models of GPUs apart: leave out --speeds.")
    if isinstance(way, ElasticWay):
        simulation = ElasticRun(spool, spool.first, way, plan, rows=rows, watch=watch)
    elif isinstance(way, PoolWay):
        simulation = PoolSimulation(spool, spool.first, way, plan, rows=rows, watch=watch)
    elif isinstance(way, FixedWay):
        fixed = OracleSimulation if way == ORACLE else RecordedSimulation
        simulation = fixed(spool, spool.first, plan, rows=rows, watch=watch)
    elif isinstance(way, JobWay):
        simulation = JobSimulation(spool, spool.first, way, plan, rows=rows, watch=watch)
    else:
        simulation = Simulation(spool, spool.first, way, plan, sizes=spool.sizes, rows=rows, watch=watch)
    try:
        with _rare_collections():
            figures = simulation.run()
    except SimulationError:
        raise
    except Exception as error:
        raise SimulationError(_fault(way.name, simulation.event, simulation.now, error)) from error
    if played is not None:
        played(way.name, simulation.events)
    if pictured is not None:
        pictured(picture_of(figures, simulation.now, way, plan))
    return summary.of_run(figures, simulation.now, simulation.events, way, plan)


@contextmanager
def _rare_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*COLLECT_EVERY)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _fault(name: str, event: object, now: float, error: Exception) -> str:
    """Say where somebody's policy (or this program) failed, and over which event."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    about = "" if event is None else f", with {event!r}"[:EVENT_MAX]
    return (
        f"{name}: {type(error).__name__}: {error} ({place.filename}, line {place.lineno}), "
        f"at {now:,.3f} s{about}."
    )
