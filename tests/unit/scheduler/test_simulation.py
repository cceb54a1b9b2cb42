"""The simulator on made-up work: what users of its figures would notice, and the laws of every run."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect
from replkernel_scheduler.events import Event
from replkernel_scheduler.settings import CoreSettings, Policies
from replkernel_scheduler.sim import summary
from replkernel_scheduler.sim.costs import FREE, CostDice, Costs, LogNormal, Normal
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.faults import FaultModel
from replkernel_scheduler.sim.plan import Plan, settings_for
from replkernel_scheduler.sim.records import Cell, Job, Record, Session, order
from replkernel_scheduler.sim.simulation import Simulation, core_for
from replkernel_scheduler.sim.summary import RunSummary
from replkernel_scheduler.sim.task import Outcome, Task
from replkernel_scheduler.sim.way import Way, way_named

from tests.support.examples import examples

Downs = list[tuple[str, float]]
SETS = (
    "notebook",
    "notebook,scaling=buffered",
    "notebook,prewarm=minimum,limit=static",
    "reservation",
    "fcfs-batch",
    "large-pool",
    "easy-batch",
    "notebook,backfill=easy",
)


class Run:
    """One simulation that is over."""

    def __init__(self, records: list[Record], policy: str | Way, plan: Plan) -> None:
        self.way = way_named(policy) if isinstance(policy, str) else policy
        self.tasks: list[tuple[Task, Outcome]] = []
        self.core = Watched(random.Random(plan.seed), self.way.policies, settings_for(plan, self.way))
        self.simulation = Simulation(
            sorted(records, key=order),
            min((record.at for record in records), default=0.0),
            self.way,
            plan,
            core=self.core,
            rows=lambda task, outcome: self.tasks.append((task, outcome)),
        )
        self.figures = self.simulation.run()
        self.summary = summary.of_run(
            self.figures, self.simulation.now, self.simulation.events, self.way, plan
        )

    def delays(self) -> dict[str, float]:
        return {task.name: task.bound - task.submitted for task, outcome in self.tasks if outcome == "done"}


class Watched(SchedulerCore):
    """A core whose laws are checked after every event, and which remembers all that was said."""

    def __init__(self, dice: random.Random, policies: Policies, numbers: CoreSettings) -> None:
        super().__init__(dice, policies, numbers)
        self.journal: list[tuple[Event, float, list[Effect]]] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects = super().handle(event, now)
        self.check_invariants()
        self.journal.append((event, now, effects))
        return effects


def cells(session: str, *starts: float, duration_s: float = 100.0, gpus: int = 4) -> list[Record]:
    """A session that opens 30 s before its first cell."""
    made = [Cell(session, at, duration_s, gpus) for at in starts]
    ends = max(cell.at + cell.duration_s for cell in made)
    return [Session(session, starts[0] - 30.0, ends, gpus), *made]


def one_host(**changes: object) -> Plan:
    return msgspec.structs.replace(Plan(hosts=1, gpus_per_host=4, costs=FREE), **changes)  # type: ignore[arg-type]


# -- what waits, and what does not ---------------------------------------------------------------------


def test_gpus_that_idle_sessions_reserve_are_used_by_others_cell_by_cell() -> None:
    records = [*cells("a", 0, 1000), *cells("b", 300)]
    by_cell, reserved = Run(records, "notebook", one_host()), Run(records, "reservation", one_host())
    assert by_cell.delays()["b"] == 0.0
    assert reserved.delays()["b"] == 800.0
    assert reserved.summary.cells.immediate == pytest.approx(2 / 3)
    assert reserved.summary.cluster.reserved_gpu_hours == pytest.approx(4 * (1130 + 100) / 3600)
    assert by_cell.summary.cluster.committed_gpu_hours == pytest.approx(4 * 300 / 3600)
    assert reserved.summary.cluster.committed_gpu_hours == pytest.approx(4 * 300 / 3600)


def test_an_end_frees_before_an_arrival_at_the_same_time() -> None:
    run = Run([*cells("a", 0), *cells("b", 100)], "notebook", one_host())
    assert run.delays()["b"] == pytest.approx(0.0, abs=1e-6)
    assert run.summary.cells.immediate == 1.0


def test_a_cell_that_comes_while_its_session_computes_is_submitted_when_that_is_over() -> None:
    run = Run(cells("a", 0, 10), "notebook", one_host())
    (_, first), (second, _) = [(task, task) for task, _ in run.tasks]
    assert (second.submitted, second.bound) == (first.done, first.done)


def test_a_cell_moves_to_where_its_gpus_are_and_pays_for_it() -> None:
    costs = msgspec.structs.replace(
        FREE, start_cold=Normal(7.0), state_write=LogNormal(2.0, 2.0), state_read=LogNormal(1.0, 1.0)
    )
    plan = Plan(hosts=4, gpus_per_host=4, costs=costs)
    records = [*cells("a", 0, 2000), *(Job(f"j{n}", 1990.0, 500.0, 4) for n in range(3))]
    run = Run(records, "notebook,placement=bin-pack", plan)
    moved = [task for task, _ in run.tasks if task.moved]
    assert [(task.name, task.immediate, task.reused) for task in moved] == [("a", False, False)]
    assert moved[0].bound - moved[0].submitted == pytest.approx(10.0)
    assert run.summary.changes.migrations == run.summary.cells.moved == 1


def test_a_process_for_each_cell_costs_its_start_and_a_pool_of_warm_ones_saves_it() -> None:
    costs = msgspec.structs.replace(FREE, start_cold=Normal(20.0))
    records = cells("a", 100, 300)
    cold, warm = (Run(records, name, one_host(costs=costs)) for name in ("fcfs-batch", "large-pool"))
    assert cold.summary.cells.delay_s is not None and warm.summary.cells.delay_s is not None
    assert cold.summary.cells.delay_s.p50 == pytest.approx(20.0)
    assert warm.summary.cells.delay_s.max == pytest.approx(0.0, abs=1e-6)


def test_a_job_longer_than_a_lease_keeps_its_gpus() -> None:
    run = Run([Job("long", 0, 10 * 86_400.0, 4), Job("next", 1, 10.0, 4)], "fcfs-batch", one_host())
    assert run.delays() == {"long": 0.0, "next": pytest.approx(10 * 86_400.0 - 1)}


def test_jobs_hold_their_gpus_as_sessions_do_where_gpus_are_reserved() -> None:
    run = Run([Job("a", 0, 50.0, 4), Job("b", 1, 50.0, 4)], "reservation", one_host())
    assert run.delays() == {"a.1": 0.0, "b.2": 49.0}


def test_work_that_no_host_can_serve_is_counted_with_the_reason() -> None:
    run = Run([*cells("wide", 0, 5000, gpus=8), *cells("fits", 0)], "notebook", one_host())
    assert run.summary.not_served["refused"] == 2
    assert run.summary.cells.served == 1
    assert list(run.summary.whys) == ["No host has 8 GPUs; the largest possible request is 4 A100 GPUs."]
    jobs = Run([Job("wide", 0, 5, 8)], "fcfs-batch", one_host())
    assert jobs.summary.not_served["refused"] == 1


def test_a_cluster_that_cannot_be_is_told() -> None:
    with pytest.raises(SimulationError, match=r"--hosts 1x65: .*at most 64"):
        Run(cells("a", 0), "notebook", Plan(hosts=1, gpus_per_host=65))


def test_hosts_come_when_they_are_needed_and_go_when_they_are_not() -> None:
    plan = Plan(hosts=1, gpus_per_host=8, hosts_max=10)
    records = [record for n in range(20) for record in cells(f"s{n}", 600 + n, 9000, gpus=4)]
    run = Run(records, "notebook,scaling=buffered", plan)
    assert run.summary.cells.served == 40
    assert run.summary.cluster.hosts_max == 10
    assert run.summary.changes.hosts_released > 0
    all_along = 10 * 8 * run.simulation.now / 3600
    assert run.summary.cluster.provisioned_gpu_hours < all_along


# -- faults --------------------------------------------------------------------------------------------


def test_a_run_that_its_host_takes_along_begins_anew_and_is_counted() -> None:
    plan = one_host(hosts=2, faults=FaultModel(host_mtbf_s=3000.0, host_repair_s=10.0), seed=3)
    run = Run([Job(f"{n}", n, 1000.0, 4) for n in range(10)], "fcfs-batch", plan)
    assert run.summary.changes.hosts_failed > 0
    assert run.summary.changes.runs_lost > 0
    assert run.summary.jobs.served == 10
    committed = run.summary.cluster.committed_gpu_hours
    assert committed == pytest.approx(10 * 1000 * 4 / 3600 + run.summary.changes.lost_gpu_hours)


def test_a_task_that_always_loses_its_run_is_given_up() -> None:
    plan = one_host(hosts=3, faults=FaultModel(host_mtbf_s=100.0, host_repair_s=1.0))
    run = Run([Job("long", 0, 1e6, 4)], "fcfs-batch", plan)
    assert run.summary.not_served["failed"] == 1
    assert run.summary.changes.runs_lost == 10


def test_hosts_fail_at_the_same_times_under_every_policy() -> None:
    plan = Plan(hosts=3, gpus_per_host=4, faults=FaultModel(host_mtbf_s=500.0, host_repair_s=50.0), seed=5)
    downs = []
    for name in ("notebook", "fcfs-batch"):
        found: Downs = []

        class Heard(SchedulerCore):
            def handle(
                self, event: Event, now: float, found: list[tuple[str, float]] = found
            ) -> list[Effect]:
                if type(event).__name__ == "HostDown":
                    found.append((event.host, now))  # type: ignore[union-attr]
                return super().handle(event, now)

        way = way_named(name)
        core = Heard(random.Random(0), way.policies, settings_for(plan, way))
        Simulation(cells("a", 30, 2000, 4000), 0.0, way, plan, core=core).run()
        downs.append([down for down in found if down[1] < 4000])
    assert downs[0] == downs[1] != []


# -- figures -------------------------------------------------------------------------------------------


def test_the_examples_of_the_specification_come_out() -> None:
    """Four 4-GPU replicas on 8 GPUs: 16/24. On a $10 host a standby is $1.4375/h, a 4-GPU cell $5.75/h."""
    plan = Plan(hosts=3, gpus_per_host=8, costs=FREE)
    sessions: list[Record] = [Session(f"s{n}", 0.0, 3600.0, 4) for n in range(4)]
    run = Run(sessions, "notebook", plan)
    assert run.summary.cluster.subscription == pytest.approx(16 / 24)
    assert run.summary.money.cost == pytest.approx(30.0)
    assert run.summary.money.revenue == pytest.approx(4 * 3 * 1.4375)

    busy = Run([Session("s", 0.0, 3600.0, 4), Cell("s", 0.0, 3600.0, 4)], "notebook", plan)
    assert busy.summary.money.revenue == pytest.approx(5.75 + 2 * 1.4375)
    reserved = Run([Session("s", 0.0, 3600.0, 4)], "reservation", plan)
    assert reserved.summary.money.revenue == pytest.approx(5.75)


def test_percentiles_are_interpolated_and_work_is_timed_by_what_is_done() -> None:
    spread = summary.spread([3.0, 1.0, 2.0, 4.0])
    assert spread is not None
    assert (spread.p50, spread.p75, spread.max, spread.mean) == (2.5, 3.25, 4.0, 2.5)
    assert summary.spread([]) is None
    run = Run([Job("big", 0, 3600.0, 4), Job("small", 3600, 360.0, 1)], "fcfs-batch", one_host())
    done = run.summary.cluster.work_done_at_h
    assert done["90%"] == done["95%"] == pytest.approx(1.0)
    assert run.summary.cluster.makespan_hours == pytest.approx(1.1)


def test_costs_have_the_percentiles_that_they_are_told_by() -> None:
    costs = CostDice(Costs(), seed=1)
    drawn = sorted(costs.write() for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(1.0, rel=0.05)
    assert drawn[19_800] == pytest.approx(7.07, rel=0.15)


# -- the way that is asked for -------------------------------------------------------------------------


def test_a_policy_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(SimulationError, match=r"--policy nobody: .*fcfs-batch.*notebook.*reservation"):
        way_named("nobody")
    with pytest.raises(SimulationError, match=r"--policy notebook,spread: 'spread' is not KIND=NAME"):
        way_named("notebook,spread")
    with pytest.raises(SimulationError, match=r"placement policy 'nowhere'; installed are bin-pack"):
        way_named("notebook,placement=nowhere")


# -- laws of every run ---------------------------------------------------------------------------------

SPANS = st.integers(1, 4000)


@st.composite
def traces(draw: st.DrawFn) -> list[Record]:
    records: list[Record] = []
    for number in range(draw(st.integers(0, 6))):
        start = draw(SPANS)
        made = []
        for _ in range(draw(st.integers(1, 5))):
            made.append(Cell(f"s{number}", float(start), float(draw(SPANS)), draw(st.integers(0, 9))))
            start += draw(SPANS)
        ends = max(cell.at + cell.duration_s for cell in made) + draw(st.integers(0, 500))
        records += [Session(f"s{number}", made[0].at - 30.0, ends, max(cell.gpus for cell in made)), *made]
    for number in range(draw(st.integers(0, 6))):
        records.append(Job(f"j{number}", float(draw(SPANS)), float(draw(SPANS)), draw(st.integers(1, 9))))
    return records


PLANS = st.builds(
    Plan,
    hosts=st.integers(1, 5),
    gpus_per_host=st.integers(4, 8),
    hosts_max=st.sampled_from([5, 8]),
    seed=st.integers(0, 3),
    faults=st.sampled_from(
        [
            FaultModel(),
            FaultModel(host_mtbf_s=3000.0, host_repair_s=300.0, replica_failure=0.3, boot_failure=0.2),
        ]
    ),
)


@settings(max_examples=examples(60), deadline=None)
@given(records=traces(), policy=st.sampled_from(SETS), lingers=st.booleans(), plan=PLANS)
def test_every_run_keeps_the_laws(records: list[Record], policy: str, lingers: bool, plan: Plan) -> None:
    run = Run(records, msgspec.structs.replace(way_named(policy), lingers=lingers), plan)
    wanted = [record for record in records if not isinstance(record, Session)]
    assert len(run.tasks) == len(wanted)
    served = [task for task, outcome in run.tasks if outcome == "done"]
    for task in served:
        waited, loaded = task.bound - task.submitted, task.started - task.bound
        ran, saved = task.ended - task.started, task.done - task.ended
        assert min(waited, loaded, saved) >= 0 and ran == pytest.approx(task.duration_s)
        assert task.done - task.submitted == pytest.approx(waited + loaded + ran + saved)
    assert all(slowdown >= 1 - 1e-9 for slowdown in run.figures.slowdowns)
    oracle = sum(task.gpus * task.duration_s for task in served) / 3600
    assert oracle <= run.summary.cluster.committed_gpu_hours + 1e-6
    if not plan.faults.host_mtbf_s:
        assert run.summary.cluster.committed_gpu_hours <= run.summary.cluster.provisioned_gpu_hours + 1e-6
    _no_gpu_is_used_twice(served)
    _agrees_with_the_core(run)


def _no_gpu_is_used_twice(served: list[Task]) -> None:
    used = defaultdict(list)
    for task in served:
        assert task.lease is not None
        assert len(set(task.lease.gpus)) == task.gpus
        for gpu in task.lease.gpus:
            used[gpu].append((task.bound, task.done))
    for spans in used.values():
        spans.sort()
        for (_, end), (begin, _) in pairwise(spans):
            assert end <= begin


def _agrees_with_the_core(run: Run) -> None:
    view = run.core.view()
    up = run.figures.hosts.value
    assert up == len(view.hosts)
    assert run.figures.subscribed.value == sum(host.subscribed for host in view.hosts)
    assert run.figures.committed.value == sum(
        len(lease.lease.gpus) for lease in view.leases if lease.phase == "active"
    )


@settings(max_examples=examples(25), deadline=None)
@given(records=traces(), policy=st.sampled_from(SETS), plan=PLANS)
def test_the_same_trace_way_and_plan_give_the_same_bytes(
    records: list[Record], policy: str, plan: Plan
) -> None:
    first, second = (_bytes(Run(records, policy, plan)) for _ in range(2))
    assert first == second


def _bytes(run: Run) -> tuple[bytes, bytes, list[tuple[object, ...]]]:
    rows = [
        (task.name, task.number, outcome, task.bound, task.done, task.host) for task, outcome in run.tasks
    ]
    encoded = msgspec.json.encode(run.summary)
    assert msgspec.json.decode(encoded, type=RunSummary) == run.summary
    return encoded, msgspec.json.encode(run.core.view()), rows


def test_another_seed_gives_other_times() -> None:
    runs = [Run(cells("a", 0, 500), "notebook", Plan(seed=seed)) for seed in (1, 2)]
    assert runs[0].summary != runs[1].summary


@pytest.mark.parametrize("policy", SETS)
def test_another_driver_that_hands_in_the_same_events_gets_the_same_effects(policy: str) -> None:
    faults = FaultModel(host_mtbf_s=3000.0, host_repair_s=300.0, replica_failure=0.3)
    plan = Plan(hosts=4, gpus_per_host=4, hosts_max=6, seed=2, faults=faults)
    starts = [(100.0 * n, 900.0 + 50 * n, 3000.0) for n in range(6)]
    records = [one for n, at in enumerate(starts) for one in cells(f"s{n}", *at, gpus=n % 4 + 1)]
    run = Run(records, policy, plan)
    live = SchedulerCore(random.Random(plan.seed), run.way.policies, settings_for(plan, run.way))
    assert len(run.core.journal) > 40
    for event, now, effects in run.core.journal:
        assert live.handle(event, now) == effects


def test_the_core_is_the_one_that_a_live_driver_makes() -> None:
    way = way_named("notebook")
    assert type(core_for(way, Plan())) is SchedulerCore
