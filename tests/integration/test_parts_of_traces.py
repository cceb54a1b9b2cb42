"""Parts of traces, closer together or not, and CSV files whose columns have names of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from replkernel_scheduler.sim import SimulationError, Trace, simulate
from replkernel_scheduler.sim.__main__ import main
from replkernel_scheduler.sim.records import Cell, Record, Session
from replkernel_scheduler.sim.window import Window

JOBS = [{"job": f"j{at}", "arrival_s": at, "duration_s": 50, "gpus": 1} for at in (100, 130, 160, 200, 260)]
PODS = """\
name,cpu_milli,num_gpu,gpus,creation_time,deletion_time
a,12000,1,x,1000,1060
b,4000,2,x,1030,1040
c,4000,0,x,1031,1040
d,4000,1,x,1035,unknown
"""
POD_COLUMNS = {
    "job": "name", "arrival_s": "creation_time", "gpus": "num_gpu",
    "duration_s": "deletion_time-creation_time",
}  # fmt: skip


def started(trace: Trace) -> dict[object, object]:
    jobs = simulate(trace, "easy-batch", "1x8").jobs
    return dict(zip(jobs["name"], jobs["started_s"], strict=True))


def test_a_window_is_counted_from_the_first_record_and_its_end_is_left_out() -> None:
    trace = Trace.of_rows(JOBS)
    assert started(trace.window(30.0, 160.0)) == {"j130": 0.0, "j160": 30.0, "j200": 70.0}
    assert started(trace.window(load=2.0)) == {
        "j100": 0.0, "j130": 15.0, "j160": 30.0, "j200": 50.0, "j260": 80.0,
    }  # fmt: skip
    assert started(trace.window(30.0, load=0.5)) == {"j130": 0.0, "j160": 60.0, "j200": 140.0, "j260": 260.0}
    assert len(started(trace)) == 5, "the trace itself is as it was"
    with pytest.raises(SimulationError, match="a part of a trace already"):
        trace.window(until_s=100.0).window(load=2.0)


def test_a_window_keeps_rows_in_memory_alive() -> None:
    assert started(Trace.of_rows(JOBS).window(until_s=50.0)) == {"j100": 0.0, "j130": 30.0}


def test_sessions_reach_into_a_window_with_the_cells_that_are_submitted_in_it() -> None:
    records: list[Record] = [
        Session("before", 0.0, 90.0, 1),
        Session("into", 10.0, 500.0, 2, "ann"),
        Cell("into", 20.0, 30.0, 2),
        Session("within", 120.0, 160.0, 1),
        Cell("within", 130.0, 5.0, 1),
        Cell("into", 150.0, 400.0, 2),
        Cell("into", 200.0, 1.0, 2),
        Session("after", 200.0, 300.0, 1),
    ]
    assert list(Window(100.0, 200.0, load=2.0).of(records, 0.0)) == [
        Session("into", 100.0, 150.0, 2, "ann"),
        Session("within", 110.0, 130.0, 1),
        Cell("within", 115.0, 5.0, 1),
        Cell("into", 125.0, 400.0, 2),
    ]


def test_columns_of_a_csv_file_are_named_by_the_user(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(PODS)
    trace = Trace(path, columns=POD_COLUMNS, skip_bad=True)
    assert started(trace) == {"a": 0.0, "b": 30.0}
    numbered = Trace(path, columns=POD_COLUMNS | {"job": "#", "user": "name"}, skip_bad=True)
    jobs = simulate(numbered, "easy-batch", "1x8").jobs
    assert dict(zip(jobs["name"], jobs["user"], strict=True)) == {"2": "a", "3": "b"}
    with pytest.raises(SimulationError, match="line 5: duration_s is '', which is no number"):
        started(Trace(path, columns=POD_COLUMNS))
    with pytest.raises(
        SimulationError, match="has no column 'gpu_num' to be gpus: there are name, cpu_milli"
    ):
        started(Trace(path, columns=POD_COLUMNS | {"gpus": "gpu_num"}))


def test_cells_have_columns_too(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text("notebook,begin,took,cards\na,100,60,1\na,200,60,1\n")
    columns = {"session": "notebook", "start_s": "begin", "duration_s": "took", "num_gpu": "cards"}
    assert simulate(Trace(path, columns=columns)).summary["cells.served"] == 2


def test_the_command_has_parts_and_columns_as_python_has(tmp_path: Path) -> None:
    path, out = tmp_path / "pods.csv", tmp_path / "out"
    path.write_text(PODS)
    columns = ",".join(f"{ours}={theirs}" for ours, theirs in POD_COLUMNS.items())
    command = [str(path), "--policy", "sjf", "--hosts", "1x8", "--quiet", "--skip-bad", "--columns", columns]
    assert main([*command, "--from", "10s", "--until", "2m", "--load", "1.5", "--out", str(out)]) == 0
    (run,) = json.loads((out / "summary.json").read_text())["runs"]
    trace = Trace(path, columns=POD_COLUMNS, skip_bad=True).window(10.0, 120.0, 1.5)
    assert run["jobs"]["wait_s"]["p50"] == simulate(trace, "sjf", "1x8").summary["jobs.wait_s.p50"]
    assert run["jobs"]["served"] == 1


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--from", "soon"], 2, "'soon' is no time from the trace's beginning: 90m, 12h or 7d"),
        (["--from", "2h", "--until", "90m"], 1, "--until is not after --from: nothing would be left."),
        (["--from", "9d"], 1, "nothing in the part that --from and --until name that has work."),
        (["--load", "0"], 2, "'0' is not a number between 0 and a million"),
        (
            ["--columns", "colour=red"],
            2,
            "colour=red names no column of ours: there are arrival_s, cpus, duration_s,",
        ),
        (["--columns", "gpus"], 2, "gpus= names no column of ours"),
    ],
)
def test_a_part_that_cannot_be_is_told(
    options: list[str], code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job,arrival_s,duration_s,gpus\na,5,60,2\n")
    try:
        ended = main([str(path), "--quiet", *options])
    except SystemExit as stopped:
        ended = int(stopped.code or 0)
    assert ended == code
    assert told in capsys.readouterr().err
    with pytest.raises(SimulationError, match="A window begins at 0 or later"):
        Trace(path).window(5.0, 5.0)


def test_a_column_that_is_there_twice_is_told(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job,arrival_s,duration_s,gpus,gpus\na,0,10,1,2\n")
    with pytest.raises(SimulationError, match=r"has two columns 'gpus': rename one of them\."):
        Trace(path).figures()
