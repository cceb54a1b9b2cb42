"""Runs that last: what is over stays, whatever becomes of the runs after it; seeds together."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from replkernel_scheduler.policies.placement_least_loaded import LeastLoaded
from replkernel_scheduler.sim import SimulationError, Trace, experiment, simulate, sweep
from replkernel_scheduler.sim.__main__ import main

from tests.support.breadth import first_of

JOBS = "job,arrival_s,duration_s,gpus\na,5,60,2\nb,5,60,2\nc,7,90,4\n"
TWICE = JOBS + "b,9,60,2\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return path


def command(trace: Path, out: Path, *policies: str) -> list[str]:
    return [str(trace), "--hosts", "1x4", "--out", str(out), *(f"--policy={name}" for name in policies)]


@pytest.fixture
def unplotted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have reports be what they would show, without plots: these take seconds."""
    monkeypatch.setattr(experiment, "report", lambda *shown: repr(shown))


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_run_that_is_over_stays_where_the_next_one_fails(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace.write_text(TWICE)
    assert main(command(trace, tmp_path / "out", "oracle", "sjf", "srtf")) == 1
    said = capsys.readouterr().err
    assert f"1 run is over, of 3, and kept in {tmp_path / 'out'}: --resume plays the others.\n" in said
    assert said.endswith("job b is there twice: give each job an id of its own.\n")
    left = files(tmp_path / "out")
    assert set(left) == {"oracle.csv", "oracle.parquet", "oracle.run.json", "summary.json"}
    assert [run["policy"] for run in json.loads(left["summary.json"])["runs"]] == ["oracle"]


@pytest.mark.usefixtures("unplotted")
def test_resuming_plays_what_is_left_and_gives_the_same_bytes(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(command(trace, whole, "oracle", "sjf", "srtf")) == 0
    assert main(command(trace, parts, "oracle", "srtf")) == 0
    capsys.readouterr()
    resumed = [*command(trace, parts, "oracle", "sjf", "srtf"), "--resume"]
    assert main(resumed) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().err.splitlines()] == ["sjf"]
    assert files(parts) == files(whole)
    assert main(resumed) == 0
    assert capsys.readouterr().err == "", "nothing was left"
    assert files(parts) == files(whole)


@pytest.mark.usefixtures("unplotted")
@pytest.mark.parametrize("what", ["trace", "plan", "rows", "mark"])
def test_an_earlier_commands_rows_are_not_taken_for_those_of_another_plan(
    what: str, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(command(trace, out, "oracle", "sjf")) == 0
    capsys.readouterr()
    again = [*command(trace, out, "oracle", "sjf"), "--resume"]
    if what == "trace":
        trace.write_text(JOBS + "d,8,1,1\n")
    elif what == "plan":
        again += ["--seed", "1"]
    elif what == "rows":
        (out / "sjf.csv").unlink()
    else:
        (out / "sjf.run.json").write_bytes((out / "sjf.run.json").read_bytes()[:-9])
    assert main(again) == 0
    played = [line.split(":")[0] for line in capsys.readouterr().err.splitlines()]
    assert played == (["oracle", "sjf"] if what in ("trace", "plan") else ["sjf"])


def test_resuming_without_a_directory_is_told(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(trace), "--resume"]) == 1
    assert capsys.readouterr().err == "--resume goes on with what is in a directory: name it with --out.\n"


@pytest.mark.parametrize("processes", first_of("2", "1"))
def test_who_ends_a_command_keeps_what_is_over(processes: str, tmp_path: Path) -> None:
    trace, out = tmp_path / "jobs.csv", tmp_path / "out"
    rows = [f"{number},{number},60,{1 + number % 8}\n" for number in range(60_000)]
    trace.write_text("job,arrival_s,duration_s,gpus\n" + "".join(rows))
    options = ["--policy=oracle", "--policy=fcfs-batch", "--hosts=8x8", "--rows=csv", f"--jobs={processes}"]
    environment = {"PYTHONPATH": ":".join(part for part in sys.path if part), "TMPDIR": str(tmp_path)}
    playing = subprocess.Popen(
        [sys.executable, "-m", "replkernel_scheduler.sim", str(trace), *options, "--out", str(out)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # Else a background job's are deaf.
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (out / "summary.json").exists():
        assert playing.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    playing.send_signal(signal.SIGINT)
    said, told = playing.communicate(timeout=60)
    assert (playing.returncode, said) == (130, "")
    assert f"1 run is over, of 2, and kept in {out}: --resume plays the others.\n" in told
    assert "Traceback" not in told
    assert set(files(out)) == {"oracle.csv", "oracle.run.json", "summary.json"}
    assert (out / "oracle.csv").read_text().count("\n") == 60_001


@pytest.mark.usefixtures("unplotted")
def test_seeds_come_together_with_an_interval(trace: Path, tmp_path: Path) -> None:
    over = {"seed": range(3), "hosts": [1, 2]}
    runs = sweep(Trace(trace), ["sjf", "oracle"], "1x4", over=over, out=tmp_path, processes=1)
    name = "jobs.load_s.mean"
    rows = [row for row in runs.over_seeds().rows() if row["figure"] == name]
    assert [(row["policy"], row["hosts"], row["seeds"]) for row in rows] == [
        (policy, hosts, 3) for policy in ("sjf", "oracle") for hosts in "12"
    ]
    loads = [run.summary[name] for run in runs if run.policy == "sjf" and run.setting["hosts"] == "1"]
    mean = sum(loads) / 3
    half = 4.303 * (sum((load - mean) ** 2 for load in loads) / 2 / 3) ** 0.5
    assert [rows[0][key] for key in ("mean", "low95", "high95")] == pytest.approx(
        [mean, mean - half, mean + half]
    )
    assert rows[2]["low95"] == rows[2]["high95"] == rows[2]["mean"] == 0, "the oracle loads nothing"
    with (tmp_path / "seeds.csv").open(newline="") as file:
        written = [row for row in csv.DictReader(file) if row["figure"] == name]
    assert [float(row["mean"]) for row in written] == pytest.approx([row["mean"] for row in rows], abs=1e-6)
    table = runs.table()
    assert list(table) == ["policy", "seed", "hosts", "figure", "value"]
    assert table.where(figure=name, policy="sjf", hosts="1")["value"] == loads
    assert (tmp_path / "figures.csv").read_text().count("\n") == table.count + 1


def test_a_figure_is_drawn_against_what_was_swept(trace: Path) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    over = {"hosts": [2, 10, 1], "seed": range(3)}
    axes = sweep(Trace(trace), ["sjf", "srtf"], "1x4", over=over, processes=1).plot.against(
        "hosts", "jobs.wait_s.mean"
    )
    assert [line.get_label() for line in axes.get_lines()] == ["sjf", "srtf"]
    assert list(axes.get_lines()[0].get_xdata()) == [1.0, 2.0, 10.0]
    named = sweep(Trace(trace), "easy-batch", "1x4", over={"placement": ["spread", "bin-pack"]}, processes=1)
    axes = named.plot.against("placement", "jobs.wait_s.max")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["spread", "bin-pack"]
    with pytest.raises(SimulationError, match="No run has both a swept 'colour' and the figure 'jobs"):
        named.plot.against("colour", "jobs.wait_s.max")
    pyplot.close("all")


def test_a_fault_in_a_policy_is_one_sentence_with_the_event(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rank(self: LeastLoaded, load: object) -> object:
        return load.colour  # type: ignore[attr-defined]

    monkeypatch.setattr(LeastLoaded, "rank", rank)
    with pytest.raises(SimulationError) as failed:
        simulate(Trace(trace), "fcfs-batch", "1x4")
    told = str(failed.value)
    assert told.startswith("fcfs-batch: AttributeError: ") and "'colour'" in told
    assert f"({__file__}, line " in told and ", with HostUp(" in told
    assert main([str(trace), "--policy", "fcfs-batch", "--hosts", "1x4", "--quiet"]) == 1
    assert capsys.readouterr().err == f"{told}\n"
