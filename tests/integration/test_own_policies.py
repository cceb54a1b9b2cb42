"""Policies written where they are tried: what the documentation shows, beside examples worked by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from replkernel_scheduler.policies.installed import OWN
from replkernel_scheduler.policies.protocol import Rank, Turn
from replkernel_scheduler.sim import Costs, SimulationError, Trace, Uniform, policy, simulate, sweep

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "policies.md"


@pytest.fixture(autouse=True)
def only_here() -> Iterator[None]:
    yield
    OWN.clear()


def written(name: str) -> None:
    """Run the page's block that has this class."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if f"class {name}" in block and "@policy" in block]
    assert len(block.splitlines()) <= 60
    exec(block, {})


def started(jobs: list[tuple[str, float, float, int]], way: str, cluster: str, **requested: float) -> object:
    rows = [
        {
            "job": job,
            "arrival_s": at,
            "duration_s": runs,
            "gpus": gpus,
            "requested_s": requested.get(job, runs),
        }
        for job, at, runs, gpus in jobs
    ]
    ran = simulate(Trace.of_rows(rows), way, cluster).jobs
    return dict(zip(ran["name"], ran["started_s"], strict=True))


def test_the_shortest_first_goes_by_what_is_predicted() -> None:
    written("ShortestFirst")
    jobs = [("a", 0.0, 10.0, 1), ("b", 1.0, 8.0, 1), ("c", 2.0, 2.0, 1), ("d", 3.0, 5.0, 1)]
    by_arrival = {"a": 0.0, "b": 10.0, "c": 18.0, "d": 20.0}
    assert started(jobs, "sq,m=1,discipline=fcfs", "1x1") == by_arrival
    assert started(jobs, "sq,m=1,discipline=shortest-first", "1x1") == {
        "a": 0.0,
        "c": 10.0,
        "d": 12.0,
        "b": 17.0,
    }
    wrong = started(jobs, "sq,m=1,discipline=shortest-first", "1x1", c=100.0)
    assert wrong == {"a": 0.0, "d": 10.0, "b": 15.0, "c": 23.0}, "a prediction that is wrong costs c its turn"


def test_a_written_order_has_the_narrowest_job_start_first() -> None:
    written("NarrowFirst")
    jobs = [("a", 0.0, 10.0, 4), ("wide", 1.0, 10.0, 4), ("two", 2.0, 10.0, 2), ("one", 3.0, 5.0, 1)]
    assert started(jobs, "easy-batch,backfill=none", "1x4") == {
        "a": 0.0,
        "wide": 10.0,
        "two": 20.0,
        "one": 20.0,
    }
    assert started(jobs, "easy-batch,backfill=none,order=narrow-first", "1x4") == {
        "a": 0.0, "one": 10.0, "two": 10.0, "wide": 20.0,
    }  # fmt: skip


POOL = Costs(job_load=Uniform(0.0, 0.0), job_pause=Uniform(0.0, 0.0))
"""Nothing is lost by stopping a job, so that times can be worked out by hand."""


def first_and_last(way: str, *jobs: tuple[str, float, float]) -> dict[object, tuple[object, object]]:
    """Return when each job first started and was over, on one GPU."""
    rows = [{"job": job, "arrival_s": at, "duration_s": runs, "gpus": 1} for job, at, runs in jobs]
    ran = simulate(Trace.of_rows(rows), way, "1x1", costs=POOL).jobs
    return {row["name"]: (row["started_s"], row["ended_s"]) for row in ran.rows()}


def test_tiresias_stops_who_has_had_a_gpu_hour_for_who_has_had_less() -> None:
    written("Tiresias")
    jobs = ("long", 0.0, 10_800.0), ("short", 60.0, 590.0)
    # Both begin in the first queue, where the long one came first: passes at 600, 1200, … leave it alone. At
    # 4200 it has had 3600 GPU-seconds, is in the second queue, and stops; the pass after the short one's end,
    # at 4800, has it go on with the 7200 s that are left.
    assert first_and_last("pool,preempt=tiresias,every=600", *jobs) == {
        "long": (600.0, 12_000.0), "short": (4200.0, 4790.0),
    }  # fmt: skip
    by_what_is_left = first_and_last("periodic,every=600", *jobs)
    assert by_what_is_left["short"] == (600.0, 1190.0)


def test_themis_serves_who_is_furthest_behind_its_fair_finish() -> None:
    written("FinishTimeFairness")
    # At 600 the long one would end 600 s late, 1.1 times what it takes alone; the short one 540 s late, 1.9
    # times.
    jobs = ("long", 0.0, 6000.0), ("short", 60.0, 590.0)
    assert first_and_last("pool,preempt=finish-time-fairness,every=600", *jobs) == {
        "short": (600.0, 1190.0), "long": (1200.0, 7200.0),
    }  # fmt: skip
    # Two that take the same: who came first is further behind, until the other has waited for as long.
    even = first_and_last(
        "pool,preempt=finish-time-fairness,every=600", ("a", 0.0, 590.0), ("b", 60.0, 590.0)
    )
    assert even == {"a": (600.0, 1190.0), "b": (1200.0, 1790.0)}


def where(
    way: str, cluster: str, *jobs: tuple[str, float, float, float]
) -> dict[object, tuple[object, object]]:
    """Return the host of each job and when it started; less than one GPU is a part of one."""
    rows = [
        {"job": job, "arrival_s": at, "duration_s": runs, "gpus": max(1, int(gpus)), "gpu_milli": milli}
        for job, at, runs, gpus in jobs
        for milli in [1000 if gpus >= 1 else round(gpus * 1000)]
    ]
    ran = simulate(Trace.of_rows(rows), way, cluster).jobs
    return {row["name"]: (str(row["host"])[-1], row["started_s"]) for row in ran.rows()}


def test_fgd_leaves_gpus_where_the_usual_tasks_can_use_them() -> None:
    written("Fgd")
    # Host 0 has 2 GPUs left and host 1 has 3 when the job for one comes: on host 0 it would leave one that
    # no task for two can use.
    jobs = [("six", 0.0, 100.0, 6), ("five", 1.0, 100.0, 5), ("one", 2.0, 100.0, 1)]
    jobs += [("two", 3.0, 100.0, 2), ("too", 4.0, 100.0, 2)]
    assert where("easy-batch,placement=fgd", "2x8", *jobs) == {
        "six": ("0", 0.0), "five": ("1", 1.0), "one": ("1", 2.0), "two": ("0", 3.0), "too": ("1", 4.0),
    }  # fmt: skip
    fullest = where("easy-batch,placement=bin-pack", "2x8", *jobs)
    assert fullest["one"] == ("0", 2.0)
    assert fullest["too"] == ("0", 100.0), "it waits for the six GPUs"


def test_fgd_leaves_parts_of_gpus_that_others_can_use() -> None:
    written("Fgd")
    # At 6 the card of host 0 has 0.6 left, that of host 1 has 0.9: 0.3 there leave 0.6, in which a half fits.
    jobs = [("a", 0.0, 99.0, 0.4), ("b", 0.0, 5.0, 0.6), ("c", 1.0, 99.0, 0.1), ("d", 6.0, 99.0, 0.3)]
    jobs += [("e", 7.0, 50.0, 0.5), ("f", 8.0, 50.0, 0.5)]
    ran = where("easy-batch,placement=fgd", "2x1", *jobs)
    assert ran["b"] == ("0", 0.0) and ran["c"] == ("1", 1.0)
    assert ran["d"] == ("1", 6.0)
    assert (ran["e"][1], ran["f"][1]) == (7.0, 8.0)
    best_fit = where("easy-batch", "2x1", *jobs)
    assert best_fit["d"] == ("0", 6.0)
    assert best_fit["f"][1] == 57.0, "it waits for the other half"


def test_gandiva_packs_a_job_beside_one_that_is_as_wide() -> None:
    written("Gandiva")
    jobs = [("a", 0.0, 100.0, 2), ("b", 10.0, 100.0, 2), ("c", 20.0, 10.0, 1)]
    # From 10 on both take 2.4 times as long: a ends at 10 + 90 x 2.4 = 226, and b has 10 s left then.
    # Nobody is as narrow as c, so it waits.
    assert started(jobs, "sq,m=2,discipline=gandiva", "1x2") == {"a": 0.0, "b": 10.0, "c": 236.0}
    assert started(jobs, "sq,m=1,discipline=fcfs", "1x2") == {"a": 0.0, "b": 100.0, "c": 200.0}
    on_free_ones = started(jobs, "sq,m=2,discipline=gandiva", "2x2")
    assert on_free_ones == {"a": 0.0, "b": 10.0, "c": 100.0}, "nobody shares where GPUs are free"


def test_pollux_gives_a_newcomer_half_and_what_comes_free_to_who_gains() -> None:
    written("Pollux")
    rows = [
        {"job": job, "arrival_s": at, "duration_s": 130, "gpus": 4, "seconds_with": "1=400 2=220 4=130"}
        for job, at in (("a", 0.0), ("b", 200.0))
    ]
    ran = simulate(Trace.of_rows(rows), "elastic,reshape=pollux", "1x4").jobs
    found = {row["name"]: (row["bound_s"], row["started_s"], row["ended_s"]) for row in ran.rows()}
    # a starts on 4 after 174 s. b takes two: it is ready 110 s after it came, and a stops 27 s before that,
    # with 21 of 130 s left, which take 35.6 with two. Once a is saved (30 s), b has had 65.6 of 220 s; it
    # grows, which takes 37 s, and does the rest of 130 s.
    assert found["a"] == pytest.approx((0.0, 174.0, 345.6), abs=0.1)
    saved = 345.64 + 30
    assert found["b"] == pytest.approx((200.0, 310.0, saved + 37 + 130 * (1 - (saved - 310) / 220)), abs=0.2)
    with pytest.raises(
        SimulationError, match="elastic,reshape=NAME takes one of grow, never, pollux, sidecar"
    ):
        simulate(Trace.of_rows(rows), "elastic", "1x4")


def test_an_order_of_the_live_core_sees_user_and_estimate() -> None:
    @policy("order.shortest")
    class Shortest:
        def key(self, turn: Turn) -> Rank:
            return (turn.user != "boss", turn.expected_s, turn.number)

    jobs = [("a", 0.0, 10.0, 1), ("b", 1.0, 8.0, 1), ("c", 2.0, 2.0, 1), ("d", 3.0, 5.0, 1)]
    rows = [
        {"job": job, "arrival_s": at, "duration_s": runs, "gpus": gpus, "user": "boss" if job == "b" else "x"}
        for job, at, runs, gpus in jobs
    ]
    ran = simulate(Trace.of_rows(rows), "easy-batch,backfill=none,order=shortest", "1x1").jobs
    found = dict(zip(ran["name"], ran["started_s"], strict=True))
    assert found == {"a": 0.0, "b": 10.0, "c": 18.0, "d": 20.0}


def test_a_pools_policy_that_is_not_there_is_told() -> None:
    trace = Trace.of_rows([{"job": "a", "arrival_s": 0, "duration_s": 5, "gpus": 1}])
    for way in ("pool", "pool,preempt=mine"):
        with pytest.raises(SimulationError, match="pool,preempt=NAME takes one of deferred, never, periodic"):
            simulate(trace, way)


def test_a_policy_of_this_process_is_swept_in_it_and_one_of_no_kind_is_told() -> None:
    written("NarrowFirst")
    trace = Trace.of_rows([{"job": "a", "arrival_s": 0, "duration_s": 5, "gpus": 1}])
    runs = sweep(trace, "easy-batch", "1x4", over={"order": ["fifo", "narrow-first"]}, processes=2)
    assert [run.summary["jobs.served"] for run in runs] == [1, 1]
    for name in ("colour.red", "placement", "placement.", "placement.a,b"):
        with pytest.raises(
            SimulationError, match=r"is not KIND\.NAME, as in placement\.mine; there are placement"
        ):
            policy(name)(dict)
