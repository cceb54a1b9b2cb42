"""`replkernel simulate` as its user sees it: a table, files, the same bytes each time, errors that help."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from replkernel_scheduler.sim import experiment
from replkernel_scheduler.sim.__main__ import main

CELLS = "session,start_s,duration_s,num_gpu\na,0,600,4\nb,60,300,8\na,900,120,4\n"
COSTS = ("--hosts", "2x8", "--quiet")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "cells.csv"
    path.write_text(CELLS)
    return path


@pytest.fixture
def unplotted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have reports be what they would show, without plots: these take seconds, and others have them."""
    monkeypatch.setattr(experiment, "report", lambda *shown: repr(shown))


def test_simulate_writes_a_table_a_document_and_a_row_for_each_cell(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    policies = ("--policy", "notebook", "--policy", "reservation,placement=spread")
    assert main([str(trace), *policies, "--hosts", "2x8", "--out", str(out)]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[0].startswith("2 sessions, 3 cells in 0.3 h, on 2 hosts of 8 GPUs.")
    assert [line.split()[0] for line in lines[2:5]] == ["policy", "notebook", "reservation,placement=spread"]
    assert "events in" in said.err and "notebook" in said.err
    document = json.loads((out / "summary.json").read_text())
    assert [run["policy"] for run in document["runs"]] == ["notebook", "reservation,placement=spread"]
    assert [run["cells"]["served"] for run in document["runs"]] == [3, 3]
    assert document["trace"]["oracle_gpu_hours"] == pytest.approx((600 * 4 + 300 * 8 + 120 * 4) / 3600)
    with (out / "reservation-placement=spread.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["name"] for row in rows) == ["a", "a", "b"]
    assert all(float(row["bound_s"]) <= float(row["started_s"]) < float(row["done_s"]) for row in rows)


def test_the_same_command_in_another_process_writes_the_same_bytes(trace: Path, tmp_path: Path) -> None:
    written = []
    for hash_seed in ("1", "2"):
        out = tmp_path / hash_seed
        command = [
            sys.executable,
            "-m",
            "replkernel.cli",
            "simulate",
            str(trace),
            "--seed",
            "7",
            "--out",
            str(out),
        ]
        faults = ["--host-mtbf-days", "0.02", "--replica-failure", "0.2", *COSTS]
        paths = [part for part in sys.path if part]
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(paths)}
        done = subprocess.run([*command, *faults], env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert done.stderr == b""
        written.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
    assert written[0] == written[1]
    assert {"summary.json", "notebook.csv", "large-pool.csv"} <= set(written[0])


def test_several_traces_are_merged_and_their_sessions_kept_apart(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job,arrival_s,duration_s,gpus\na,5,60,2\n")
    assert main([str(trace), str(trace), str(jobs), "--policy", "notebook", *COSTS]) == 0
    assert capsys.readouterr().out.startswith("4 sessions, 6 cells, 1 job in")


def test_the_help_teaches_and_its_example_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "printf" in said and "adobe-june" in said and "notebook,scaling=buffered" in said
    example = [
        line.strip() for line in said.splitlines() if line.strip().startswith(("printf", "replkernel sim"))
    ]
    made, command, cut, sweep = example
    monkeypatch.chdir(tmp_path)
    subprocess.run(["sh", "-c", made], check=True, timeout=10)
    assert Path("cells.csv").read_text() == CELLS
    assert main(command.split()[2:]) == 0
    assert Path("build/sim/summary.json").is_file() and Path("build/sim/report.html").is_file()
    assert main(cut.split()[2:]) == 0
    assert "2 tasks that came then were played" in capsys.readouterr().out
    assert main([*sweep.split()[2:], "--jobs", "1"]) == 0
    assert capsys.readouterr().out.count("notebook,limit=demand-busy") == 3


def test_a_bad_row_ends_it_with_one_sentence_unless_it_is_left_out(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace.write_text(CELLS + "c,soon,1,1\n")
    assert main([str(trace), *COSTS]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"{trace}, line 5: start_s is 'soon'" in said.err and "--skip-bad" in said.err
    assert main([str(trace), "--skip-bad", "--policy", "notebook", *COSTS]) == 0
    assert "1 row cannot be and is left out: line 5: start_s is 'soon'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--hosts", "30"], "'30' is not NxG, such as 30x8"),
        (["--hosts", "0x8"], "'0x8' is not NxG, such as 30x8: 1 to"),
        (["--hosts", "2x4097"], "'2x4097' is not NxG"),
        (["--seed", "-1"], "'-1' is not a whole number from 0 on"),
        (["--host-mtbf-days", "0"], "'0' is not a number between 0 and a million"),
        (["--replica-failure", "2"], "'2' is not a share from 0 to 1"),
        (["--form", "parquet"], "invalid choice: 'parquet'"),
    ],
)
def test_an_option_that_makes_no_sense_is_told(
    trace: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(trace), *options])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_who_mistypes_a_policy_is_told_all_that_there_are(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(trace), "--policy", "Notebook", *COSTS]) == 1
    said = capsys.readouterr().err
    for name in ("notebook", "reservation", "oracle", "recorded", "sq", "mq", "srtf", "lazer", "sidecar"):
        assert f"{name}," in said or f"{name};" in said or f"{name} and" in said, name


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--policy", "nobody"], "there is no policy 'nobody'. There are easy-batch, "),
        (["--policy", "notebook,colour=red"], "There is no kind of policy 'colour'"),
        (["--hosts-max", "1", "--hosts", "2x8"], "--hosts-max 1 is less than the 2 hosts of --hosts"),
        (["--form", "swf"], "line 1: there are 1 columns, where SWF has 18"),
    ],
)
def test_a_trace_that_cannot_be_played_is_told_in_one_sentence(
    trace: Path, options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(trace), "--quiet", *options]) == 1
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1


def test_fewer_hosts_than_replicas_are_told(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(trace), "--policy", "notebook", "--policy", "reservation", *COSTS]) == 0
    told = "notebook: sessions have 3 replicas on different hosts, and 2 hosts hold 2 of them.\n"
    assert capsys.readouterr().out.endswith(told)
    assert main([str(trace), "--policy", "notebook", "--hosts", "3x8", "--quiet"]) == 0
    assert "on different hosts" not in capsys.readouterr().out


@pytest.mark.usefixtures("unplotted")
def test_a_command_that_fails_leaves_what_an_earlier_one_wrote(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = [str(trace), "--policy", "sjf", "--policy", "srtf", "--out", str(out), *COSTS]
    jobs = "job,arrival_s,duration_s,gpus\na,5,60,2\nb,5,60,2\n"
    trace.write_text(jobs)
    assert main(command) == 0
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    trace.write_text(jobs + "b,7,60,2\n")  # Found out while it is played, when rows were written already.
    assert main(command) == 1
    assert "job b is there twice" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.usefixtures("unplotted")
def test_rows_never_take_the_place_of_a_trace_and_those_of_earlier_commands_are_told(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = trace.rename(trace.with_name("notebook.csv"))
    command = [str(own), "--out", str(own.parent), "--rows", "csv", *COSTS]
    assert main([*command, "--policy", "notebook"]) == 1
    assert f"would overwrite {own}: choose another one" in capsys.readouterr().err
    assert own.read_text() == CELLS
    assert main([*command, "--policy", "reservation"]) == 0
    assert main([*command, "--policy", "oracle"]) == 0
    assert "there are rows of an earlier command too: reservation.csv.\n" in capsys.readouterr().err


def _begun_sweep(tmp_path: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Begin a sweep that takes a while, and return it with its processes once they play."""
    trace = tmp_path / "jobs.csv"
    rows = [f"{number},{number},60,{1 + number % 8}\n" for number in range(120_000)]
    trace.write_text("job,arrival_s,duration_s,gpus\n" + "".join(rows))
    command = [sys.executable, "-m", "replkernel_scheduler.sim", str(trace), "--policy", "fcfs-batch"]
    command = ["env", "--default-signal=INT", *command]  # What a script runs behind it (`&`) ignores Ctrl-C.
    (tmp_path / "temporary").mkdir()
    environment = {
        "PYTHONPATH": ":".join(part for part in sys.path if part),
        "TMPDIR": str(tmp_path / "temporary"),
    }
    sweep = subprocess.Popen(
        [*command, "--sweep", "hosts=8,9", "--jobs", "2", "--out", str(tmp_path / "out")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    children = Path(f"/proc/{sweep.pid}/task/{sweep.pid}/children")
    while len(found := children.read_text().split()) < 3:  # Two play, one keeps count of what they share.
        assert sweep.poll() is None
        time.sleep(0.02)
    return sweep, [int(child) for child in found]


def _all_go(processes: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("number", "everybody", "code"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)]
)
def test_who_ends_a_sweep_ends_its_processes_and_sees_no_traceback(
    tmp_path: Path, number: int, everybody: bool, code: int
) -> None:
    sweep, children = _begun_sweep(tmp_path)
    (os.killpg if everybody else os.kill)(sweep.pid, number)
    said = sweep.communicate(timeout=60)
    assert (sweep.returncode, said) == (code, (b"", b""))
    _all_go(children)
    assert not list((tmp_path / "temporary").iterdir())
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_processes_of_a_sweep_go_when_it_is_killed(tmp_path: Path) -> None:
    sweep, children = _begun_sweep(tmp_path)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "out").iterdir()):  # Until they play: before that, nobody watches.
        assert time.monotonic() < deadline
        time.sleep(0.05)
    sweep.kill()
    sweep.communicate(timeout=60)
    _all_go(children)


def test_a_reader_that_goes_is_no_fault(trace: Path) -> None:
    command = [sys.executable, "-m", "replkernel_scheduler.sim", str(trace), *COSTS]
    environment = {"PYTHONPATH": ":".join(part for part in sys.path if part)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as simulator:
        assert simulator.stdout is not None and simulator.stderr is not None
        simulator.stdout.close()
        said = simulator.stderr.read()
    assert (simulator.returncode, said) == (0, b"")


def test_a_trace_without_work_and_a_directory_that_cannot_be_made_are_told(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(trace), "--out", str(trace / "below"), *COSTS]) == 1
    assert f"{trace / 'below'} cannot be written" in capsys.readouterr().err
    trace.write_text(CELLS.splitlines()[0] + "\n")
    assert main([str(trace), *COSTS]) == 1
    assert "nothing in it that has work" in capsys.readouterr().err


def test_jobs_that_share_processors_are_told_by_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, out = tmp_path / "jobs.swf", tmp_path / "out"
    rows = [f"{number} 0 -1 100 1 -1 -1 1 100 -1 1 1 1 1 {number % 2} 1 -1 -1" for number in range(4)]
    trace.write_text("; four jobs, two of them interactive\n" + "\n".join(rows) + "\n")
    policies = ["--policy", "sq,m=1", "--policy", "sq,m=4", "--policy", "mq,r=50,mi=2,mb=1,discipline=fcfs"]
    assert main([str(trace), "--hosts", "2x1", "--out", str(out), "--quiet", *policies]) == 0
    said = capsys.readouterr().out
    assert [line.split()[1:3] for line in said.splitlines()[3:6]] == [
        ["50.0%", "50.0%"], ["0.0%", "0.0%"], ["25.0%", "0.0%"],
    ]  # fmt: skip
    document = json.loads((out / "summary.json").read_text())
    assert [run["kinds"]["interactive"]["served"] for run in document["runs"]] == [2, 2, 2]
    assert document["runs"][1]["jobs"]["slowdown"]["max"] == pytest.approx(2.4)
    assert len((out / "sq-m=4.csv").read_text().splitlines()) == 5


@pytest.mark.usefixtures("unplotted")
def test_jobs_that_are_stopped_for_shorter_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = tmp_path / "jobs.csv", tmp_path / "out"
    trace.write_text("job,arrival_s,duration_s,gpus\nlong,0,5000,4\nshort,1000,60,4\n")
    policies = [part for name in ("sjf", "srtf", "periodic,every=600") for part in ("--policy", name)]
    assert main([str(trace), "--hosts", "1x4", "--out", str(out), "--quiet", *policies]) == 0
    assert "stopped" in capsys.readouterr().out
    waits = {
        run["policy"]: run["jobs"]["wait_s"]["max"]
        for run in json.loads((out / "summary.json").read_text())["runs"]
    }
    assert waits["srtf"] < 200 < waits["periodic,every=600"] < 1200 < 4000 < waits["sjf"]


def test_the_gpus_of_sessions_can_be_drawn(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(trace), "--gpu-mix", "2=1", "--policy", "oracle", *COSTS]) == 0
    held = (600 + 300 + 120) * 2 / 3600
    assert f"takes {held:,.0f} GPU-hours (the oracle)" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([str(trace), "--gpu-mix", "2:1", *COSTS])
    assert "'2:1' is no mix, such as 1=50,4=30,8=20, or template" in capsys.readouterr().err


SWEEP = (
    "--policy",
    "notebook",
    "--sweep",
    "hosts=1,2",
    "--sweep",
    "limit=static,demand-busy",
    "--gpu-mix",
    "1=1,4=1",
)


@pytest.mark.usefixtures("unplotted")
def test_a_sweep_plays_each_value_with_each_and_processes_change_no_byte(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        assert main([str(trace), *SWEEP, "--sweep", "seed=0,1", "--jobs", jobs, "--out", str(out)]) == 0
        said = capsys.readouterr()
        written.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
    assert written[0] == written[1]
    over = [line.split(": ", 2)[:2] for line in said.err.splitlines()]
    assert [number for number, _ in over] == [f"{number} of 8" for number in range(1, 9)]
    assert "notebook,limit=demand-busy hosts=2 seed=1" in [title for _, title in over]
    lines = said.out.splitlines()
    assert " hosts of " not in lines[0], "which hosts stands in the rows"
    assert lines[2].split()[:3] == ["policy", "hosts", "seed"]
    document = json.loads(written[0]["summary.json"])
    assert [(run["policy"].split("=")[1], *run["setting"].values()) for run in document["runs"]] == [
        (limit, hosts, seed) for hosts in "12" for limit in ("static", "demand-busy") for seed in "01"
    ]
    assert [run["cluster"]["hosts_max"] for run in document["runs"]] == [1] * 4 + [2] * 4
    assert "notebook-limit=static-hosts=1-seed=0.csv" in written[0]


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--sweep", "hosts"], 2, "'hosts' is not KEY=A,B,…, such as hosts=10,20,30"),
        (["--sweep", "hosts=1,,2"], 2, "is not KEY=A,B,…"),
        (["--sweep", "hosts=1,0"], 2, "'0' is not a whole number from 1 on"),
        (["--sweep", "gpus=4097"], 2, "'4097' is more than 4,096"),
        (["--sweep", "host-hour=free"], 2, "'free' is not a number"),
        (["--sweep", "colour=red"], 1, "There is no kind of policy 'colour'"),
        (["--sweep", "hosts=1", "--sweep", "hosts=2"], 1, "--sweep hosts is there twice"),
        (["--policy", "notebook,limit=static", "--sweep", "limit=static"], 1, "has limit already"),
        (["--sweep", "hosts-max=1"], 1, "--hosts-max 1 is less than the 2 hosts of --hosts"),
        (
            ["--sweep", f"seed={','.join(map(str, range(99)))}", "--sweep", "hosts=1,2,3"],
            1,
            "These are 1,188 runs",
        ),
    ],
)
def test_a_sweep_that_makes_no_sense_is_told(
    trace: Path, options: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main([str(trace), *COSTS, *options])
    except SystemExit as stopped:
        ended = int(stopped.code or 0)
    assert ended == code
    assert told in capsys.readouterr().err


def test_an_error_in_a_process_of_a_sweep_is_told_as_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job,arrival_s,duration_s,gpus\na,5,60,2\na,5,60,2\n")
    assert main([str(jobs), "--policy", "sq,m=1", "--sweep", "hosts=1,2", "--jobs", "2", *COSTS]) == 1
    assert "job a is there twice: give each job an id of its own." in capsys.readouterr().err


@pytest.mark.usefixtures("unplotted")
def test_parquet_has_the_rows_of_the_csv(trace: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    trace.write_text(CELLS + "c,5,10,9\n")  # No host has nine GPUs.
    out = tmp_path / "out"
    assert main([str(trace), "--policy", "notebook", "--out", str(out), *COSTS]) == 0
    with (out / "notebook.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    typed = parquet.read_table(out / "notebook.parquet").to_pylist()
    assert [row["outcome"] for row in typed] == [row["outcome"] for row in rows]
    assert sorted(row["outcome"] for row in typed) == ["done", "done", "done", "refused"]
    for ours, row in zip(typed, rows, strict=True):
        assert list(ours) == list(row)
        for name, value in ours.items():
            told = "" if value is None else f"{value:.6f}" if name.endswith("_s") else value
            assert row[name] == (f"{told:d}" if isinstance(told, bool) else f"{told}")


@pytest.mark.usefixtures("unplotted")
def test_without_pyarrow_rows_are_csv_and_who_wants_parquet_is_told_what_to_install(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    out = tmp_path / "out"
    command = [str(trace), "--policy", "notebook", "--out", str(out), *COSTS]
    assert main(command) == 0
    assert "CSV only: pip install 'replkernel[sim]' for Parquet" in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == [
        "notebook.csv", "notebook.run.json", "report.html", "summary.json",
    ]  # fmt: skip
    assert main([*command, "--rows", "parquet"]) == 1
    assert "pip install 'replkernel[sim]', or say --rows csv" in capsys.readouterr().err


@pytest.mark.slow
def test_runs_that_are_not_of_the_same_work_say_so_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs, out = tmp_path / "jobs.csv", tmp_path / "out"
    jobs.write_text("job,arrival_s,duration_s,gpus\nwide,0,3600,12\nnarrow,0,3600,4\n")
    asked = [str(jobs), "--hosts", "2x8", "--quiet", "--out", str(out)]
    assert main([*asked, "--policy", "easy-batch", "--policy", "srtf"]) == 0
    told = "Runs are not of the same work. Of the GPU-hours these are not served: 75.0% under easy-batch."
    assert capsys.readouterr().out.splitlines()[1] == told
    assert f'<p class="unequal">{told}</p>' in (out / "report.html").read_text()
    runs = json.loads((out / "summary.json").read_text())["runs"]
    assert [run["unserved_gpu_hours"] for run in runs] == [pytest.approx(12.0), 0.0]
    assert main([*asked, "--policy", "srtf", "--policy", "sjf"]) == 0
    assert "not of the same work" not in capsys.readouterr().out + (out / "report.html").read_text()
