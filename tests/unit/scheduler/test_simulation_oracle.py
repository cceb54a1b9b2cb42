"""The oracle and the mix of GPUs: no way needs less than it; a mix hangs on names and seed only."""

from __future__ import annotations

import gc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.sim import Trace, simulate, sweep
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.mix import TEMPLATE, mix_named, remixed
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.records import Cell, Job, Record, Session
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.summary import RunSummary, Summary, TraceFigures
from replkernel_scheduler.sim.table import table

from tests.support.examples import examples

WAYS = (
    "notebook", "notebook,scaling=buffered", "reservation", "reservation,placement=bin-pack", "fcfs-batch",
    "fcfs-batch,scaling=buffered", "large-pool", "large-pool,scaling=buffered",
)  # fmt: skip
JOB_WAYS = (
    "sjf", "srtf", "srtf,patience=0.01", "periodic,every=60", "lazer,by=random", "lazer,by=grid", "sq,m=1",
    "sq,m=3", "sq,m=2,discipline=fcfs", "mq,r=30,mb=2", "fcfs-batch", "reservation", "large-pool",
)  # fmt: skip
PLAN = Plan(hosts=4, gpus_per_host=8)
MIXED = Trace.of_rows(
    [{"session": f"s{at}", "start_s": at, "duration_s": 400, "num_gpu": 1} for at in range(0, 2000, 50)],
    gpu_mix="1=1,2=1,4=1,8=1",
)


def _play(records: list[Record], policy: str, plan: Plan = PLAN) -> RunSummary:
    with Spool(records) as spool:
        return play(spool, any_way_named(policy), plan)


def _session(name: str, *cells: tuple[float, float, int]) -> list[Record]:
    ends = max(at + lasts for at, lasts, _ in cells)
    begins = Session(name, cells[0][0] - 30.0, ends, max(gpus for *_, gpus in cells))
    return [begins, *(Cell(name, at, lasts, gpus) for at, lasts, gpus in cells)]


def test_the_oracle_has_the_gpus_in_use_and_the_fewest_hosts_that_have_them() -> None:
    records = [*_session("a", (30.0, 3600.0, 4), (60.0, 1800.0, 8)), *_session("b", (30.0, 3600.0, 6))]
    run = _play(records, "oracle")
    assert run.cluster.provisioned_gpu_hours == pytest.approx(4 + 6 + 4)
    assert run.cluster.committed_gpus_max == 10 and run.cluster.hosts_max == 2
    assert run.money.cost == pytest.approx(10.0 * (2 * 1.0 + 1 * 0.5))
    assert run.cells.delay_s is not None and run.cells.delay_s.max == 0
    assert (run.cells.served, run.cells.immediate, run.cells.reused) == (3, 1.0, 1.0)
    assert run.cluster.makespan_hours == pytest.approx((30 + 3600 + 1800) / 3600)


def test_a_run_leaves_the_garbage_collector_as_it_was() -> None:
    before = gc.get_threshold()
    with pytest.raises(SimulationError):
        _play([Session("a", 0.0, 10.0, 1), Cell("a", 0.0, 10.0, 1)], "srtf")
    assert gc.get_threshold() == before


def test_the_oracle_has_no_options() -> None:
    with pytest.raises(SimulationError, match="the oracle has no options"):
        any_way_named("oracle,placement=spread")


@st.composite
def sessions(draw: st.DrawFn) -> list[Record]:
    records: list[Record] = []
    for number in range(draw(st.integers(1, 5))):
        start, cells = float(draw(st.integers(30, 3000))), []
        for _ in range(draw(st.integers(1, 4))):
            cells.append((start, float(draw(st.integers(1, 3000))), draw(st.integers(0, 8))))
            start += draw(st.integers(1, 3000))
        records += _session(f"s{number}", *cells)
    return records


@settings(max_examples=examples(60), deadline=None)
@given(records=sessions(), policy=st.sampled_from(WAYS), seed=st.integers(0, 3))
def test_no_way_needs_less_than_the_oracle(records: list[Record], policy: str, seed: int) -> None:
    plan = Plan(hosts=4, gpus_per_host=8, hosts_max=8, seed=seed)
    _needs_no_less(_play(records, policy, plan), _play(records, "oracle", plan))


@settings(max_examples=examples(40), deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 900), st.integers(1, 8)), min_size=1),
    policy=st.sampled_from(JOB_WAYS),
)
def test_nor_does_one_of_jobs(sizes: list[tuple[int, int, int]], policy: str) -> None:
    records: list[Record] = [
        Job(f"{number}", float(at), float(lasts), width) for number, (at, lasts, width) in enumerate(sizes)
    ]
    _needs_no_less(_play(records, policy), _play(records, "oracle"))


def _needs_no_less(run: RunSummary, oracle: RunSummary) -> None:
    assert not any(run.not_served.values()) and not any(oracle.not_served.values())
    assert run.cluster.provisioned_gpu_hours >= oracle.cluster.provisioned_gpu_hours - 1e-6
    assert run.cluster.committed_gpu_hours >= oracle.cluster.committed_gpu_hours - 1e-6
    assert run.cluster.makespan_hours >= oracle.cluster.makespan_hours - 1e-9
    for ours, least in (
        (run.cells.completion_s, oracle.cells.completion_s),
        (run.cells.delay_s, oracle.cells.delay_s),
        (run.jobs.completion_s, oracle.jobs.completion_s),
    ):
        assert (ours is None) == (least is None)
        if ours is not None and least is not None:
            assert ours.mean >= least.mean - 1e-6 and ours.p95 >= least.p95 - 1e-6


def test_a_mix_is_drawn_by_session_and_hangs_on_its_name_and_the_seed() -> None:
    records = [record for number in range(3000) for record in _session(f"s{number}", (30.0, 60.0, 2))]
    mixed = list(remixed(records, TEMPLATE, seed=0))
    assert list(remixed(reversed(records), TEMPLATE, seed=0)) == list(reversed(mixed))
    assert list(remixed(records, TEMPLATE, seed=1)) != mixed
    assert list(remixed(records, None, seed=0)) == records
    found = Counter(record.gpus for record in mixed if isinstance(record, Session))
    assert {count: round(100 * seen / 3000) for count, seen in found.items()} == pytest.approx(
        {0: 13.6, 1: 47.5, 4: 18.6, 8: 20.3}, abs=2.5
    )
    by_name: dict[str, set[int]] = {}
    for record in mixed:
        assert not isinstance(record, Job)
        by_name.setdefault(record.session, set()).add(record.gpus)
    assert all(len(counts) == 1 for counts in by_name.values())
    job = Job("j", 0.0, 1.0, 3)
    assert list(remixed([job], TEMPLATE, seed=0)) == [job]


@pytest.mark.parametrize("mix", ["8=1", "0=1"])
def test_what_a_session_draws_takes_the_place_of_parts_too(mix: str) -> None:
    row = {"session": "s", "start_s": 0, "duration_s": 400, "num_gpu": 1, "gpu_milli": 500}
    trace = Trace.of_rows([row], gpu_mix=mix)
    run = simulate(trace, "notebook", "3x8", progress=False).run
    assert run.cells.served == 1
    assert trace.figures()["oracle_gpu_hours"] == pytest.approx(int(mix[0]) * 400 / 3600)


@pytest.mark.parametrize("over", [{"seed": [5]}, {"seed": [5, 6]}, {"seed": [5], "hosts": [4, 3]}])
def test_a_swept_seed_draws_the_gpus_of_sessions_too(over: dict[str, list[int]]) -> None:
    alone = simulate(MIXED, "notebook", "4x8", seed=5, progress=False)
    swept = sweep(MIXED, "notebook", "4x8", over=over, processes=1, progress=False)
    assert swept[0].summary == alone.summary


def test_the_work_of_a_trace_is_that_of_the_seed_that_all_runs_have() -> None:
    alone = simulate(MIXED, "oracle", seed=5, progress=False)
    swept = sweep(MIXED, "notebook", over={"seed": [5]}, progress=False)
    assert swept.document.trace.oracle_gpu_hours == pytest.approx(alone.run.cluster.committed_gpu_hours)


@pytest.mark.parametrize("text", ["", "1", "1=x", "1=-1", "x=1", "1=0", "65=1", "1=1,1=2", "1=nan", "1=inf"])
def test_a_text_that_is_no_mix_is_refused(text: str) -> None:
    assert mix_named(text) is None


def test_that_sessions_waited_for_a_place_is_told() -> None:
    """A session that waits has few cells, so no percentile of cells shows it."""
    first = _session("first", *[(30.0 + 60 * number, 5.0, 8) for number in range(100)])
    second = _session("second", (40.0, 5.0, 8))
    run = _play([*first, *second], "reservation", Plan(hosts=1, gpus_per_host=8))
    assert run.cells.delay_s is not None and run.cells.delay_s.p95 < 1
    assert run.place_wait_s is not None and 5900 < run.place_wait_s.max < 6100
    told = table(Summary(("made up",), 0, 0, TraceFigures(2, 101, 0, 1.7, 1.0), PLAN, (run,)))
    header, row = told.splitlines()[2:4]
    assert "place max" in header and f"{run.place_wait_s.max:,.0f}" in row
    roomy = _play([*first, *second], "reservation", Plan(hosts=2, gpus_per_host=8))
    assert roomy.place_wait_s is not None and roomy.place_wait_s.max == 0
    assert _play([*first, *second], "fcfs-batch").place_wait_s is None
