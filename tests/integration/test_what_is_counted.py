"""What a run is measured by, worked out by hand: warm-up, use, energy, useless GPUs, users and sizes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from replkernel_scheduler.sim import Cluster, SimulationError, Trace, simulate
from replkernel_scheduler.sim.__main__ import main

JOBS: list[dict[str, Any]] = [
    {"job": "1", "arrival_s": 0, "duration_s": 100, "gpus": 2, "user": "ann"},
    {"job": "2", "arrival_s": 50, "duration_s": 100, "gpus": 2, "user": "ben"},
    {"job": "3", "arrival_s": 150, "duration_s": 100, "gpus": 2, "user": "ben"},
    {"job": "4", "arrival_s": 160, "duration_s": 50, "gpus": 1, "user": "ann"},
]
"""On two GPUs in turn: they run from 0, 100, 200 and 300 s on, to 350 s."""
IN_TURN = "easy-batch,backfill=none"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    names = list(JOBS[0])
    lines = [",".join(names), *(",".join(str(job[name]) for name in names) for job in JOBS)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_jobs_of_the_warm_up_are_played_and_not_counted() -> None:
    trace = Trace.of_rows(JOBS)
    whole = simulate(trace, IN_TURN, "1x2", progress=False)
    assert whole.run.warmup is None
    assert whole.summary["jobs.wait_s.mean"] == (0 + 50 + 50 + 140) / 4
    cut = simulate(trace, IN_TURN, "1x2", warmup_s=120, progress=False)
    figures = cut.summary
    assert figures["jobs.served"] == 2
    assert figures["jobs.wait_s.mean"] == (50 + 140) / 2, "the jobs before them are played"
    assert figures["warmup.tasks"] == 2 and figures["warmup.gpu_hours"] == pytest.approx(400 / 3600)
    assert figures["cluster.provisioned_gpu_hours"] == pytest.approx(2 * (350 - 120) / 3600)
    held = 2 * (300 - 120) + 50
    assert figures["cluster.committed_gpu_hours"] == pytest.approx(held / 3600)
    assert figures["cluster.utilisation"] == pytest.approx(held / (2 * 230))
    assert figures["money.cost"] == pytest.approx(10 * 230 / 3600)
    assert cut.picture.cost[-1] == pytest.approx(10 * 230 / 3600)
    # Fairness: of the jobs that came early the first two shared the cluster with the others all the same.
    assert figures["jobs.finish_time_fairness.max"] == whole.summary["jobs.finish_time_fairness.max"]
    assert list(cut.jobs["warmup"]) == [True, True, False, False], "rows have all, and say which"
    assert [row["count"] for row in cut.by("user").rows()] == [1, 1]
    assert max(there for there in cut.waiting()["waiting"] if isinstance(there, int)) == 2


@pytest.mark.parametrize("policy", ["srtf", "sq,m=1", "sidecar", "reservation", "fcfs-batch", "oracle"])
def test_every_core_leaves_out_the_warm_up(policy: str) -> None:
    ran = simulate(Trace.of_rows(JOBS), policy, "1x2", warmup_s=120, progress=False)
    assert ran.summary["jobs.served"] == 2
    assert ran.summary["warmup.tasks"] == 2
    assert ran.summary["cluster.makespan_hours"] > 160 / 3600


def test_the_command_says_what_the_warm_up_leaves_out(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    asked = [str(trace), "--policy", IN_TURN, "--hosts", "1x2", "--quiet"]
    assert main([*asked, "--warmup", "2m", "--out", str(out), "--rows", "csv"]) == 0
    told = "The first 2 min warm up: 2 tasks that came then were played, and are not counted."
    assert capsys.readouterr().out.splitlines()[1] == told
    assert told in (out / "report.html").read_text()
    document = json.loads((out / "summary.json").read_text())
    assert document["plan"]["warmup_s"] == 120
    with next(out.glob("*.csv")).open(newline="") as file:
        assert [row["warmup"] for row in csv.DictReader(file)] == ["1", "1", "0", "0"]
    assert main([*asked, "--warmup", "5m"]) == 1
    assert "leaves nothing to count: what is played comes in" in capsys.readouterr().err
    with pytest.raises(SimulationError, match="warmup_s=-1 is not a time from 0 s on"):
        simulate(Trace(trace), IN_TURN, "1x2", warmup_s=-1)


def test_the_command_tells_runs_apart_by_user_and_by_size(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    asked = [str(trace), "--policy", IN_TURN, "--hosts", "1x2", "--quiet", "--rows", "csv", "--out", str(out)]
    assert main([*asked, "--by", "user", "--by", "gpus", "--sweep", "seed=0,1", "--jobs", "2"]) == 0
    said = capsys.readouterr().out
    lines = said[said.index("By user:") :].splitlines()
    assert lines[2].split()[:4] == ["policy", "seed", "user", "tasks"]
    assert lines[3].split()[:5] == [IN_TURN, "0", "ann", "2", "70.00"]
    assert lines[4].split()[:5] == [IN_TURN, "0", "ben", "2", "50.00"]
    with (out / "by-gpus.csv").open(newline="") as file:
        rows = [(row["seed"], row["gpus"], row["count"], row["wait_mean_s"]) for row in csv.DictReader(file)]
    assert rows[:2] == [("0", "1", "1", "140.000000"), ("0", "2", "3", "33.333333")]
    assert "By user:" in (out / "report.html").read_text()
    again = (out / "by-gpus.csv").read_bytes()
    assert main([*asked, "--by", "gpus", "--sweep", "seed=0,1", "--resume"]) == 0
    assert (out / "by-gpus.csv").read_bytes() == again, "what is resumed has them too"
    assert main([*asked, "--by", "colour"]) == 1
    assert "Rows have no column 'colour'" in capsys.readouterr().err


def test_energy_is_told_where_the_watts_of_all_hosts_are_known(tmp_path: Path) -> None:
    trace = Trace.of_rows([{"job": "a", "arrival_s": 0, "duration_s": 3600, "gpus": 2, "gpu_model": "V100"}])

    def drawn(text: str, policy: str = "easy-batch") -> float | None:
        path = tmp_path / "nodes.csv"
        path.write_text(text)
        return simulate(trace, policy, Cluster.of_file(path), progress=False).run.cluster.energy_kwh

    busy, idle = 2 * 300.0, 2 * 30.0
    assert drawn("gpus,gpu_model\n4,V100\n") == pytest.approx((busy + idle) / 1000)
    assert drawn("gpus,gpu_model\n4,V100\n4,T4\n") == pytest.approx((busy + idle + 4 * 10) / 1000)
    own = "gpus,gpu_model,gpu_busy_w,gpu_idle_w\n4,V100,250,20\n"
    assert drawn(own) == pytest.approx((2 * 250 + 2 * 20) / 1000)
    assert drawn("gpus,gpu_model\n4,V100\n4,Mystery\n") is None, "of one model it is not known"
    assert drawn("gpus\n4\n4\n") is None, "nobody says which model"
    assert drawn("gpus,gpu_model\n4,V100\n", "sjf") == pytest.approx((busy + idle) / 1000, rel=0.1)
    assert drawn("gpus,gpu_model\n4,V100\n4,T4\n", "sjf") is None, "a pool does not tell models apart"
    assert simulate(trace, "easy-batch", "1x4", progress=False).run.cluster.energy_kwh is None
    for text, why in (("4,V100,250,\n", "are given together"), ("4,V100,20,30\n", "busy is more")):
        with pytest.raises(SimulationError, match=why):
            drawn("gpus,gpu_model,gpu_busy_w,gpu_idle_w\n" + text)


def test_idle_gpus_are_useless_to_whom_they_are_too_few() -> None:
    """One host of 4: 3 in use for 100 s, then none for 100 s, then 1 in use for 100 s.

    Idle are 1, 4 and 3 GPUs. Of the three tasks those of 3 cannot use the one.
    """
    rows = [
        {"job": "a", "arrival_s": 0, "duration_s": 100, "gpus": 3},
        {"job": "b", "arrival_s": 200, "duration_s": 100, "gpus": 1},
        {"job": "over", "arrival_s": 200, "duration_s": 100, "gpus": 5},
    ]
    ran = simulate(Trace.of_rows(rows), "easy-batch", "1x4", progress=False)
    assert ran.run.cluster.fragmentation == pytest.approx(0.5 * 100 / (100 + 400 + 300))
    for policy in ("reservation", "sq,m=1", "srtf"):
        assert simulate(Trace.of_rows(rows), policy, "1x4", progress=False).run.cluster.fragmentation is None


def test_parts_of_cards_are_useless_to_whom_no_card_has_as_much() -> None:
    """A card with 0.4 left beside a whole one for 100 s: no use for 0.6 nor for 1, of 0.4 each half."""
    rows = [
        {"job": "part", "arrival_s": 0, "duration_s": 100, "gpus": 1, "gpu_milli": 600},
        {"job": "whole", "arrival_s": 100, "duration_s": 100, "gpus": 2, "gpu_milli": 1000},
    ]
    ran = simulate(Trace.of_rows(rows), "easy-batch", "1x2", progress=False)
    useless = 0.5 * 0.4 + 0.5 * (0.4 + 1.0)
    assert ran.run.cluster.fragmentation == pytest.approx(useless / 1.4)
    whole = simulate(Trace.of_rows(rows), "easy-batch,parts=none", "1x2", progress=False)
    assert whole.run.cluster.fragmentation == pytest.approx(0.5)


def test_who_shares_cores_has_no_use_of_them() -> None:
    one = simulate(Trace.of_rows(JOBS), "sq,m=1", "1x2", progress=False)
    assert one.run.cluster.utilisation == pytest.approx(650 / (2 * 350))
    assert simulate(Trace.of_rows(JOBS), "sq,m=2", "1x2", progress=False).run.cluster.utilisation is None
