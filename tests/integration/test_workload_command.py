"""`replkernel workload`: a trace that has the quantiles that were asked for, and says what it has."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from replkernel_scheduler.sim import forms
from replkernel_scheduler.sim.__main__ import main as simulate
from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.quantile import Quantiles
from replkernel_scheduler.sim.records import Cell, Job, Session
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.sim.workload import WorkloadPlan
from replkernel_scheduler.sim.workload_command import main
from replkernel_scheduler.sim.workload_file import achieved_by

KNOTS = ((0.0, 15.0), (0.5, 120.0), (0.75, 300.0), (0.9, 1020.0), (0.95, 2160.0), (0.99, 10_920.0))


def test_the_file_has_what_was_published_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "made.csv"
    assert main([str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{path}: ") and "cells run at a time in the mean" in said
    achieved = json.loads(path.read_text().splitlines()[1].removeprefix("# achieved "))
    assert (achieved["sessions_open_max"], achieved["sessions_open_last"]) == (90, 87)
    assert achieved["active_mean"] == pytest.approx(19.5, rel=0.1)
    for name, published in (("p50", 120), ("p75", 300), ("p90", 1020)):
        assert achieved["duration_s"][name] == pytest.approx(published, rel=0.15)
    assert achieved["between_s"]["p50"] == pytest.approx(300, rel=0.15)
    assert achieved["between_least_s"] >= 239.999


def test_a_workload_reads_back_as_it_says_and_nobodys_cells_overlap(tmp_path: Path) -> None:
    path = tmp_path / "made.csv"
    assert main([str(path), "--seed", "3"]) == 0
    achieved = json.loads(path.read_text().splitlines()[1].removeprefix("# achieved "))
    records = list(forms.read(TraceFile(path)))
    sessions = {record.session: record for record in records if isinstance(record, Session)}
    by_session: dict[str, list[Cell]] = {}
    for record in records:
        if isinstance(record, Cell):
            by_session.setdefault(record.session, []).append(record)
    assert len(sessions) == len(by_session) == achieved["sessions"], "each session is in the file"
    for name, cells in by_session.items():
        assert sessions[name].at <= cells[0].at
        assert len({cell.gpus for cell in cells}) == 1
        assert all(one.at + one.duration_s + 14.9 <= other.at for one, other in pairwise(cells))
        assert cells[-1].at + cells[-1].duration_s <= sessions[name].ends + 0.01
    again = achieved_by(records, WorkloadPlan(), 3, achieved["draws"])
    assert again.cells == achieved["cells"] and again.active_max == achieved["active_max"]
    assert again.gpu_hours == pytest.approx(achieved["gpu_hours"], rel=1e-4)


def test_the_same_seed_gives_the_same_bytes_in_another_process_and_another_seed_does_not(
    tmp_path: Path,
) -> None:
    written = []
    for hash_seed, seed in (("1", "5"), ("2", "5"), ("2", "6")):
        path = tmp_path / f"{hash_seed}-{seed}.csv"
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(part for part in sys.path if part)}
        command = [sys.executable, "-m", "replkernel.cli", "workload", str(path), "--seed", seed]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        written.append(path.read_bytes())
    assert written[0] == written[1] != written[2]


def test_quantiles_are_parameters_and_the_file_is_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "made.csv"
    options = [
        "--hours",
        "2",
        "--sessions",
        "0=4",
        "--duration",
        "0=5,0.5=10,0.9=20",
        "--duration-mean",
        "12",
    ]
    assert main([str(path), *options, "--longest", "60", "--gpu-mix", "2=1", "--duty", "0=1,1=1"]) == 0
    achieved = json.loads(path.read_text().splitlines()[1].removeprefix("# achieved "))
    assert achieved["duration_s"]["max"] <= 60 and achieved["duration_s"]["p50"] == pytest.approx(10, rel=0.3)
    assert achieved["sessions_open_max"] == 4 and achieved["gpus"] == {"2": 1.0}
    capsys.readouterr()
    assert simulate([str(path), "--policy", "oracle", "--hosts", "2x8", "--quiet"]) == 0
    assert f"{achieved['cells']:,} cells" in capsys.readouterr().out


def test_the_tail_meets_the_mean() -> None:
    quantiles = Quantiles(KNOTS, 604_800.0, 984.0)
    steps = 1_000_000
    mean = sum(quantiles.at((step + 0.5) / steps) for step in range(steps)) / steps
    assert mean == pytest.approx(984.0, rel=0.005)
    assert [quantiles.at(share) for share, _ in KNOTS] == pytest.approx([value for _, value in KNOTS])
    with pytest.raises(SimulationError, match=r"A mean of 100 cannot be with these quantiles: it is between"):
        Quantiles(KNOTS, 604_800.0, 100.0)


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--duration", "0=15,0.5"], 2, "is not A=B,C=D"),
        (["--duration", "0.5=15,0=10"], 2, "does not rise from left to right"),
        (["--bout", "0.5"], 2, "'0.5' is less than 1"),
        (["--together", "2"], 2, "'2' is no share from 0 to 1"),
        (["--gpu-mix", "many"], 2, "'many' is no mix"),
        (["--sessions", "0=1,1=20000"], 1, "At most 10,000 sessions can be open at a time"),
        (["--hours", "1e8"], 1, "for 87,840 hours: ask for less"),
        (["--duration", "0.1=15,0.5=20"], 1, "duration: Quantiles 0.1=15,0.5=20 must rise from share 0"),
        (["--between", "0=9,0.5=3"], 1, "between: Quantiles 0=9,0.5=3 must rise from above 0 to less"),
        (["--duration-mean", "90000"], 1, "A mean of 90000 cannot be with these quantiles"),
        (["--active-mean", "80"], 1, "None of 50 draws has 80 cells active in the mean"),
    ],
)
def test_a_workload_that_cannot_be_made_is_told(
    tmp_path: Path, options: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main([str(tmp_path / "made.csv"), *options])
    except SystemExit as stopped:
        ended = int(stopped.code or 0)
    assert ended == code
    assert told in capsys.readouterr().err
    assert not (tmp_path / "made.csv").exists()


SMALL = ("--hours", "1", "--sessions", "0=3", "--quiet")


@pytest.mark.parametrize("ending", ["gz", "xz", "zst"])
def test_a_workload_file_is_packed_as_its_name_says(tmp_path: Path, ending: str) -> None:
    plain, packed = tmp_path / "made.csv", tmp_path / f"made.csv.{ending}"
    for path in (plain, packed, packed):
        assert main([str(path), *SMALL]) == 0
    assert packed.read_bytes() != plain.read_bytes()
    assert list(forms.read(TraceFile(packed))) == list(forms.read(TraceFile(plain)))


def test_somebody_elses_file_is_not_overwritten_and_its_own_is_only_once_all_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cells.csv"
    path.write_text("session,start_s,duration_s,num_gpu\na,0,600,4\n")
    assert main([str(path), *SMALL]) == 1
    assert "is there, and no workload that this command made: choose another" in capsys.readouterr().err
    assert path.read_text().endswith("a,0,600,4\n")
    path.unlink()
    assert main([str(path), *SMALL]) == 0
    before = path.read_bytes()
    assert main([str(path), *SMALL, "--seed", "4"]) == 0
    assert path.read_bytes() != before
    assert [made.name for made in tmp_path.iterdir()] == ["cells.csv"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--widest 8", "--widest is of batch jobs"),
        ("--per-hour 8", "--per-hour is of batch jobs"),
        ("--jobs poisson --swing 0.5", "--swing is of --jobs diurnal"),
        ("--jobs diurnal --widest 8", "--widest is of --jobs lublin"),
        ("--jobs lublin --gpu-mix 1=1", "--gpu-mix is of --jobs poisson and diurnal"),
        ("--jobs poisson --like 92d", "--like is of sessions"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(
    words: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "made.csv"), *words.split()]) != 0
    assert told in capsys.readouterr().err
    assert not (tmp_path / "made.csv").exists()


def _recorded(path: Path) -> Path:
    """A trace of six sessions of four cells, whose owner nobody needs to know."""
    rows = ["session,start_s,duration_s,num_gpu,user"]
    for session in range(6):
        for cell in range(4):
            at = session * 1000 + cell * (300 if session % 2 else 2000)
            rows.append(f"secret{session},{at},{60 + 60 * cell},{8 if session % 2 else 1},ann")
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_workload_is_like_a_trace_without_anybodys_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, path = _recorded(tmp_path / "recorded.csv"), tmp_path / "alike.csv"
    assert main([str(path), "--like", str(trace), "--times", "2", "--seed", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{path}: like {trace}.") and "people think for (s), p50" in said
    text = path.read_text()
    assert "secret" not in text and "ann" not in text
    achieved = json.loads(text.splitlines()[1].removeprefix("# achieved "))
    assert (achieved["trace"]["sessions"], achieved["made"]["sessions"]) == (6, 12)
    assert achieved["made"]["gpu_hours"] == pytest.approx(2 * achieved["trace"]["gpu_hours"], rel=0.1)
    cells = [record for record in forms.read(TraceFile(path)) if isinstance(record, Cell)]
    assert len(cells) == achieved["made"]["cells"]
    assert {cell.gpus for cell in cells} == {1, 8}
    before = path.read_bytes()
    assert main([str(path), "--like", str(trace), "--times", "2", "--seed", "1", "--quiet"]) == 0
    assert path.read_bytes() == before, "the same trace and seed give the same bytes"
    assert simulate([str(path), "--policy", "oracle", "--hosts", "2x8", "--quiet"]) == 0


def test_jobs_are_alike_whatever_their_columns_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, path = tmp_path / "pods.csv", tmp_path / "alike.csv"
    rows = [f"{n},{n * 60},{n * 60 + 100},{1 if n % 4 else 2}" for n in range(40)] + ["x,soon,later,1"]
    trace.write_text("\n".join(["pod,created,deleted,num", *rows]) + "\n")
    columns = "job=pod,arrival_s=created,duration_s=deleted-created,gpus=num"
    words = [str(path), "--like", str(trace), "--columns", columns, "--quiet"]
    assert main(words) == 1 and "line 42: " in capsys.readouterr().err
    assert main([*words, "--skip-bad"]) == 0
    assert "(1 rows that cannot be are left out)" in capsys.readouterr().out
    made = [record for record in forms.read(TraceFile(path)) if isinstance(record, Job)]
    assert sorted(job.width for job in made) == [1] * 30 + [2] * 10
    assert {job.duration_s for job in made} == {100.0}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--like june", "--like june is neither 17.5h nor 92d, nor is there such a file"),
        ("--like recorded.csv --hours 3", "all is as in the trace but --times: leave out --hours"),
        ("--like recorded.csv --jobs lublin", "leave out --jobs"),
        ("--like 92d --times 2", "--times is of --like TRACE"),
        ("--skip-bad", "--skip-bad is of --like TRACE"),
        ("--like one.csv", "one.csv: It has too little to be like"),
    ],
)
def test_a_file_that_is_no_trace_to_be_like_is_refused_with_the_reason(
    words: str,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    _recorded(Path("recorded.csv"))
    Path("one.csv").write_text("job,arrival_s,duration_s,gpus\na,0,60,1\n")
    assert main(["made.csv", *words.split()]) == 1
    assert told in capsys.readouterr().err
    assert not Path("made.csv").exists()
