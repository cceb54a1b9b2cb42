"""Batch jobs in the GPUs that idle notebooks leave: cells come first, and no work is lost or done twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.elastic.types import SIDECAR
from replkernel_scheduler.harvest import leasing
from replkernel_scheduler.sim import Trace, sweep
from replkernel_scheduler.sim.__main__ import main
from replkernel_scheduler.sim.costs import FREE
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.faults import FaultModel, Faults
from replkernel_scheduler.sim.harvest import SAVES_S
from replkernel_scheduler.sim.nodes import Hosts
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.records import Cell, Job, Record, Session
from replkernel_scheduler.sim.table import table
from replkernel_scheduler.sim.task import Task

from tests.support.examples import examples
from tests.unit.scheduler.test_simulation import Run

SPEEDS = ((1, 4000.0), (2, 2000.0), (4, 1000.0))


def session(name: str, cells: list[tuple[float, float]], gpus: int) -> list[Record]:
    last = max(at + lasts for at, lasts in cells)
    made: list[Record] = [Session(name, 0.0, last, gpus)]
    return made + [Cell(name, at, lasts, gpus) for at, lasts in cells]


MODELS = {"slow": ("slow",), "fast": ("fast",), "none": ("other",), "two": ("fast", "slow")}


def done(run: Run) -> dict[str, Task]:
    return {task.name: task for task, outcome in run.tasks if outcome == "done"}


def test_a_job_takes_what_an_idle_notebook_leaves_and_gives_it_back_when_a_cell_comes() -> None:
    records = [*session("note", [(600.0, 300.0)], 4), Job("train", 60.0, 1000.0, 4, seconds_with=SPEEDS)]
    run = Run(records, "harvest", Plan(hosts=3, gpus_per_host=4))
    alone = Run(records[:2], "harvest", Plan(hosts=3, gpus_per_host=4))
    assert done(run)["train"].done < 60 + 1300, "two hosts are nobody's"
    assert run.delays()["note"] <= SAVES_S + 1
    assert alone.delays()["note"] == 0


def test_a_cell_that_wants_a_jobs_gpus_has_them_once_it_is_saved() -> None:
    notes = [record for name in "abc" for record in session(name, [(600.0, 300.0)], 4)]
    run = Run(
        [*notes, Job("train", 60.0, 1000.0, 4, seconds_with=SPEEDS)],
        "harvest",
        Plan(hosts=3, gpus_per_host=4),
    )
    assert run.summary.jobs.served == 1
    assert max(run.delays().values()) >= SAVES_S, "all hosts were wanted, so somebody had to wait for the job"
    assert done(run)["train"].parts.tries > 0  # type: ignore[union-attr]


def test_the_job_is_saved_and_goes_on_where_it_was() -> None:
    records = [*session("note", [(600.0, 300.0)], 2), Job("train", 60.0, 1000.0, 4, seconds_with=SPEEDS)]
    run = Run([*records, *session("other", [(600.0, 300.0)], 2)], "harvest", Plan(hosts=3, gpus_per_host=4))
    parts = done(run)["train"].parts
    assert parts is not None
    assert parts.ran_s >= 1000.0 - 1e-6
    assert run.summary.cells.served == 2


def test_a_job_that_a_cell_stopped_waits_again_and_its_slowdown_says_so() -> None:
    records = [*session("note", [(500.0, 50_000.0)], 1), Job("train", 0.0, 1000.0, 1)]
    run = Run(records, "harvest", Plan(hosts=1, gpus_per_host=1))
    task = done(run)["train"]
    assert task.parts is not None and task.parts.waited_s == pytest.approx(50_000.0, abs=5.0)
    assert run.summary.jobs.slowdown is not None and run.summary.jobs.slowdown.max > 50


def test_a_job_that_is_stopped_while_it_starts_counts_each_second_once() -> None:
    records = [*session("note", [(50.0, 5000.0)], 1), Job("train", 0.0, 1000.0, 1)]
    parts = done(Run(records, "harvest", Plan(hosts=1, gpus_per_host=1)))["train"].parts
    assert parts is not None
    assert parts.waited_s == pytest.approx(5000.0, abs=5.0)
    assert (parts.loaded_s, parts.ran_s) == (174.0, pytest.approx(1000.0))
    assert 0.0 < parts.paused_s < 100.0


def test_growing_and_ending_take_what_sidecars_do() -> None:
    short = Job("short", 0.0, 1000.0, 1, seconds_with=((1, 1000.0),))
    grows = Job("grows", 5.0, 10_000.0, 1, seconds_with=((1, 10_000.0), (2, 5000.0)))
    run = Run([short, grows], "harvest", Plan(hosts=1, gpus_per_host=2))
    ended, grown = done(run)["short"], done(run)["grows"]
    assert ended.parts is not None and ended.parts.paused_s == pytest.approx(SIDECAR.finish_s)
    assert ended.done - ended.ended == pytest.approx(SIDECAR.finish_s)
    assert grown.parts is not None and grown.parts.tries == 2
    assert grown.parts.paused_s == pytest.approx(SIDECAR.up_s + SIDECAR.finish_s)


def test_a_cell_does_not_wait_longer_for_a_job_that_ends() -> None:
    records = [*session("note", [(1180.0, 300.0)], 1), Job("train", 0.0, 1000.0, 1)]
    run = Run(records, "harvest", Plan(hosts=1, gpus_per_host=1, costs=FREE))
    assert done(run)["train"].done == 1180.0 + SAVES_S, "it had trained, and was being saved"
    assert run.delays()["note"] == pytest.approx(SAVES_S)


def test_a_run_that_is_lost_with_its_host_counts_once_and_with_its_gpu_hours() -> None:
    plan = Plan(hosts=1, gpus_per_host=8, faults=FaultModel(host_mtbf_s=1e5))
    run = Run([Job("train", 0.0, 200_000.0, 8, seconds_with=((8, 200_000.0),))], "harvest", plan)
    changes, had = run.summary.changes, run.summary.cluster.committed_gpu_hours
    assert changes.hosts_failed > 1
    assert changes.runs_lost == changes.hosts_failed
    assert had - changes.lost_gpu_hours == pytest.approx(8 * 200_000 / 3600, rel=0.01), "the run that ended"


def test_a_host_that_fails_while_a_job_is_saved_takes_what_was_not_saved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stands = iter((500.0 + SAVES_S / 2, None))
    monkeypatch.setattr(Faults, "host_lasts_s", lambda _self, _host: next(stands))
    monkeypatch.setattr(Faults, "host_away_s", lambda _self, _host: 100.0)
    records = [*session("note", [(500.0, 300.0)], 1), Job("train", 0.0, 1000.0, 1)]
    run = Run(records, "harvest", Plan(hosts=1, gpus_per_host=1))
    parts = done(run)["train"].parts
    assert run.summary.changes.runs_lost == 1
    assert parts is not None and parts.ran_s == pytest.approx((500.0 - 174.0) + 1000.0)


def test_a_job_that_comes_when_all_are_over_is_looked_at_then_and_not_before() -> None:
    records: list[Record] = [Job(f"j{number}", at, 60.0, 1) for number, at in enumerate((0.0, 0.0, 241.0))]
    run = Run(records, "harvest", Plan(hosts=4, gpus_per_host=4))
    assert run.summary.jobs.served == 3


cells = st.lists(st.tuples(st.floats(0, 3000), st.floats(10, 900)), min_size=1, max_size=4)
batch = st.lists(st.tuples(st.floats(0, 2000), st.floats(60, 3000), st.sampled_from([1, 2, 4])), max_size=6)


@settings(max_examples=examples(60), deadline=None)
@given(
    notes=st.lists(st.tuples(cells, st.sampled_from([1, 2, 4])), max_size=4),
    jobs=batch,
    seed=st.integers(0, 3),
)
def test_everybody_is_served_the_parts_add_up_and_the_core_keeps_its_laws(
    notes: list[tuple[list[tuple[float, float]], int]], jobs: list[tuple[float, float, int]], seed: int
) -> None:
    records: list[Record] = []
    for number, (made, gpus) in enumerate(notes):
        records += session(f"n{number}", made, gpus)
    records += [Job(f"j{number}", at, lasts_s, width) for number, (at, lasts_s, width) in enumerate(jobs)]
    run = Run(records, "harvest", Plan(hosts=4, gpus_per_host=4, seed=seed))
    assert run.summary.jobs.served == len(jobs)
    assert run.summary.cells.served == sum(len(made) for made, _ in notes)
    assert run.summary.cluster.committed_gpus_max <= 16
    for task in done(run).values():
        parts = task.parts
        if parts is None:
            continue
        total_s = parts.waited_s + parts.loaded_s + parts.ran_s + parts.paused_s
        assert total_s == pytest.approx(task.done - task.submitted)
        assert min(parts.waited_s, parts.loaded_s, parts.ran_s, parts.paused_s) >= -1e-6
        assert (parts.waited_s + parts.ran_s) / task.duration_s >= 1 - 1e-6


def test_gpu_hours_from_idle_notebooks_are_told_apart_from_nobodys() -> None:
    records: list[Record] = [
        Session("note", 0.0, 3600.0, 2),
        Cell("note", 1800.0, 900.0, 2),
        Job("train", 0.0, 7000.0, 4, seconds_with=((4, 7000.0),)),
        Session("late", 20_000.0, 30_000.0, 1),
    ]
    had = Run(records, "harvest", Plan(hosts=4, gpus_per_host=4)).summary.harvest
    assert had is not None
    assert had.idle_gpu_hours == pytest.approx((2 * 2700 + 10_000) / 3600, abs=0.01)
    assert had.harvested_gpu_hours == pytest.approx(2 * 2700 / 3600, abs=0.01), "it had more than that"
    assert had.job_gpu_hours == pytest.approx(4 * 7174 / 3600, abs=0.05)


def test_a_job_that_names_a_model_has_no_other_gpus() -> None:
    nodes = (Hosts(1, 4, "fast"), Hosts(1, 8, "slow"))
    jobs = [Job(name, 60.0, 100.0, 8, gpu_models=models) for name, models in MODELS.items()]
    run = Run(
        [*session("note", [(600.0, 300.0)], 4), *jobs], "harvest", Plan(hosts=2, gpus_per_host=8, nodes=nodes)
    )
    outcomes = {task.name: outcome for task, outcome in run.tasks}
    assert {name: outcomes[name] for name in MODELS} == {
        "slow": "done", "fast": "done", "none": "refused", "two": "refused",
    }  # fmt: skip


def test_a_job_that_is_not_taken_in_is_refused_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "JOBS_MAX", 1)
    jobs: list[Record] = [Job(name, 10.0, 300.0, 2) for name in ("first", "second")]
    run = Run(jobs, "harvest", Plan(hosts=1, gpus_per_host=4))
    assert {task.name: outcome for task, outcome in run.tasks} == {"first": "done", "second": "refused"}


def test_a_job_that_is_there_twice_is_refused_by_name() -> None:
    jobs: list[Record] = [Job("train", at, 1000.0, 1) for at in (0.0, 10.0)]
    with pytest.raises(SimulationError, match="job train is there twice: give each job an id of its own"):
        Run(jobs, "harvest", Plan(hosts=1, gpus_per_host=4))


def test_jobs_a_day_are_those_after_the_warm_up() -> None:
    rows = [{"job": f"j{at}", "arrival_s": 3600 * at, "duration_s": 600, "gpus": 1} for at in range(48)]
    runs = sweep(Trace.of_rows(rows), "harvest", "2x4", over={}, warmup_s=86_400.0, progress=False)
    assert "  24 jobs done, 24.9 a day." in table(runs.document).splitlines()


def test_one_command_tells_what_jobs_had_of_notebooks_idle_time_and_what_cells_waited_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes, jobs = tmp_path / "notes.csv", tmp_path / "jobs.csv"
    notes.write_text(
        "session,session_start_s,session_end_s,start_s,duration_s,num_gpu\n"
        + "".join(f"{name},0,7200,3600,900,4\n" for name in "abc")
    )
    jobs.write_text("job,arrival_s,duration_s,gpus\ntrain,60,6000,4\nlast,100,300,1\n")
    ways = ["--policy", "harvest,jobs=none", "--policy", "harvest", "--hosts", "3x4", "--quiet"]
    assert main([str(notes), str(jobs), *ways]) == 0
    told = capsys.readouterr().out
    assert re.search(
        r"harvest: jobs had \d+ GPU-hours, \d+ of them in the 21 that open notebooks left idle \(\d.*%\)\.\n"
        r"  2 jobs done, \d+\.\d a day\.\n"
        r"  Delays of cells: p50 .*; without jobs p50 0\.\d+ s, p95 0\.\d+ s, .*\.\n",
        told,
    ), told
    assert "harvest,jobs=none: jobs" not in told
    assert main([str(notes), "--policy", "harvest,jobs=some", "--quiet"]) == 1
