"""Parts of GPUs in the simulator: who is served beside whom, how many GPUs that takes, what a trace says."""

from __future__ import annotations

from pathlib import Path

import pytest
from replkernel_scheduler.sim import Trace, forms, simulate
from replkernel_scheduler.sim.costs import FREE
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.oracle_simulation import OracleSimulation
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.pool_simulation import PoolSimulation
from replkernel_scheduler.sim.pool_way import pool_way_named
from replkernel_scheduler.sim.reclamation import saved_gpu_hours
from replkernel_scheduler.sim.records import Cell, Job, Record, Session
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.sim.way import way_named

from tests.unit.scheduler.test_simulation import Run

ONE_GPU = Plan(hosts=1, gpus_per_host=1, costs=FREE)
THREE_HALVES = [Job(name, 0.0, 100.0, 1, milli=500) for name in "abc"]


def test_two_halves_run_at_once_and_a_third_waits_for_them() -> None:
    run = Run(list[Record](THREE_HALVES), "easy-batch", ONE_GPU)
    assert sorted(run.delays().values()) == [0.0, 0.0, 100.0]
    assert run.summary.cluster.committed_gpus_max == 1.0
    assert run.summary.cluster.committed_gpu_hours == pytest.approx(150 / 3600)


def test_with_whole_gpus_they_run_one_after_the_other() -> None:
    run = Run(list[Record](THREE_HALVES), "easy-batch,parts=none", ONE_GPU)
    assert sorted(run.delays().values()) == [0.0, 100.0, 200.0]
    assert run.summary.cluster.committed_gpu_hours == pytest.approx(300 / 3600)


def test_cells_of_notebooks_have_parts_as_well() -> None:
    records: list[Record] = [Session(name, 0.0, 500.0, 1) for name in "ab"]
    records += [Cell(name, 10.0, 100.0, 1, milli=500) for name in "ab"]
    plan = Plan(hosts=3, gpus_per_host=1, costs=FREE)
    both = Run(records, "notebook", plan)
    assert {task.host for task, _ in both.tasks} == {both.tasks[0][0].host}, "an open card comes first"
    assert len({task.host for task, _ in Run(records, "notebook,parts=none", plan).tasks}) == 2


def test_sets_that_reserve_lease_whole_gpus() -> None:
    run = Run(list[Record](THREE_HALVES), "reservation", ONE_GPU)
    assert [outcome for _, outcome in run.tasks] == ["done"] * 3
    assert run.summary.cluster.committed_gpus_max == 1


def test_the_oracle_counts_parts() -> None:
    figures = OracleSimulation(list[Record](THREE_HALVES), 0.0, Plan(gpus_per_host=1)).run()
    assert (figures.committed.peak, figures.committed.value, figures.hosts.value) == (1.5, 0, 0)


@pytest.mark.parametrize("policy", ["sjf", "srtf"])
def test_a_pool_gives_whole_gpus_and_counts_them_in_and_out(policy: str) -> None:
    figures = PoolSimulation(list[Record](THREE_HALVES), 0.0, pool_way_named(policy), ONE_GPU).run()
    assert (figures.committed.peak, figures.committed.value) == (1, 0)


def test_jobs_beside_notebooks_have_whole_gpus_and_leave_none_counted() -> None:
    run = Run(list[Record](THREE_HALVES), "harvest", ONE_GPU)
    assert (run.figures.committed.peak, run.figures.committed.value) == (1, 0)
    assert run.summary.harvest is not None
    assert run.summary.harvest.job_gpu_hours == pytest.approx(run.summary.cluster.committed_gpu_hours)


def test_who_wants_a_part_of_a_processor_has_all_of_it() -> None:
    rows = [{"job": name, "arrival_s": 0, "duration_s": 3600, "gpus": 1, "gpu_milli": 250} for name in "ab"]
    ran = simulate(Trace.of_rows(rows), "sq,m=1", "1x1", progress=False)
    assert ran.run.cluster.committed_gpu_hours == pytest.approx(2.0)


def test_parts_are_no_more_than_that_in_rows_by_user_and_in_what_kept_state_saves() -> None:
    rows = [
        {"job": name, "arrival_s": 0, "duration_s": 3600, "gpus": 1, "gpu_milli": milli, "user": name}
        for name, milli in (("part", 250), ("whole", 1000))
    ]
    ran = simulate(Trace.of_rows(rows), "easy-batch", "1x2", progress=False)
    assert list(ran.by("user")["gpu_hours"]) == [0.25, 1.0]
    assert (list(ran.jobs["gpus"]), list(ran.jobs["gpu_milli"])) == ([1, 1], [250, None])
    cells = [Cell("s", 0.0, 3600.0, 1, milli=250), Cell("s", 36_000.0, 10.0, 1, milli=250)]
    assert saved_gpu_hours(cells, [3600.0]) == {3600.0: 0.25}


def test_thousandths_are_read_of_who_wants_one_gpu(tmp_path: Path) -> None:
    file = tmp_path / "pods.csv"
    rows = "job,arrival_s,duration_s,gpus,gpu_milli\na,0,5,1,460\nb,0,5,1,1000\nc,0,5,2,1000\nd,0,5,1,\n"
    file.write_text(rows)
    found = list(forms.read(TraceFile(file)))
    assert [record.milli for record in found if isinstance(record, Job)] == [460, 0, 0, 0]


def test_another_word_for_parts_is_refused() -> None:
    with pytest.raises(SimulationError, match="parts=half is neither parts=as-asked nor parts=none"):
        way_named("notebook,parts=half")
