"""The simulator's Python API: the command's figures, rows that keep what the trace says, plots, progress."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from replkernel_scheduler.sim import Cluster, Costs, Normal, Results, SimulationError, Trace, simulate, sweep
from replkernel_scheduler.sim.__main__ import main
from replkernel_scheduler.sim.progress import NotebookBar, Progress

CELLS = "session,start_s,duration_s,num_gpu,user\na,0,600,4,ann\nb,60,300,8,ben\na,900,120,4,ann\n"
JOBS: list[dict[str, Any]] = [
    {"job": "x", "arrival_s": 0, "duration_s": 60, "gpus": 8, "user": "ann", "queue": "long",
     "nodes": 2, "requested_s": 90},
    {"job": "y", "arrival_s": 5, "duration_s": 30, "gpus": 8},
    {"job": "z", "arrival_s": 6, "duration_s": 30, "gpus": 9},
]  # fmt: skip


@pytest.fixture
def cells(tmp_path: Path) -> Path:
    path = tmp_path / "cells.csv"
    path.write_text(CELLS)
    return path


@pytest.fixture
def figures_stay_here() -> Iterator[None]:
    """Draw on no screen, and leave no figure open."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def documents(results: Results) -> Any:
    return json.loads(msgspec.json.encode(results.document))


def test_python_and_the_command_give_the_same_figures_and_rows(cells: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    policies = ["notebook", "reservation"]
    command = [part for name in policies for part in ("--policy", name)]
    assert main([str(cells), *command, "--hosts", "3x8", "--seed", "5", "--out", str(out), "--quiet"]) == 0
    played = sweep(Trace(cells), policies, "3x8", seed=5, rows=True)
    assert documents(played) == json.loads((out / "summary.json").read_text())
    alone = simulate(Trace(cells), "reservation", Cluster(3, 8), seed=5)
    assert alone.summary == played["reservation"].summary
    assert alone.summary["cells.served"] == 3
    assert alone.summary["cells.delay_s.max"] > 0
    with (out / "reservation.csv").open(newline="") as file:
        written = [row["started_s"] for row in csv.DictReader(file)]
    assert [f"{started:.6f}" for started in alone.cells["started_s"]] == written
    assert sorted(map(str, alone.cells["user"])) == ["ann", "ann", "ben"]


def test_rows_keep_what_the_trace_says_of_a_job() -> None:
    rows = list(simulate(Trace.of_rows(JOBS), "easy-batch", "1x8").jobs.rows())
    by_name = {row["name"]: row for row in rows}
    told = ("user", "queue", "nodes", "requested_s", "outcome", "started_s")
    assert [by_name["x"][name] for name in told] == ["ann", "long", 2, 90.0, "done", 0.0]
    assert [by_name["y"][name] for name in told] == [None, None, None, None, "done", 60.0]
    assert [by_name["z"][name] for name in told] == [None, None, None, None, "refused", None]


def test_a_trace_is_made_of_any_librarys_table() -> None:
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    tables: list[Any] = [
        JOBS, pandas.DataFrame(JOBS), arrow.Table.from_pylist(JOBS), polars.DataFrame(JOBS),
    ]  # fmt: skip
    seen = [simulate(Trace.of_rows(table), "sjf", "1x8") for table in tables]
    assert len({tuple(run.summary.items()) for run in seen}) == 1
    assert seen[0].summary["jobs.served"] == 2


def test_rows_go_to_any_library() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    jobs = simulate(Trace.of_rows(JOBS), "easy-batch", "1x8").jobs
    frame = jobs.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["name"]) == list(jobs["name"])
    assert jobs.to_arrow().to_pylist() == list(jobs.rows())
    assert polars.DataFrame(jobs.to_arrow())["gpus"].to_list() == list(jobs["gpus"])
    assert jobs.where(outcome="done").count == 2 == len(frame) - 1
    assert "<td>ann</td>" in jobs._repr_html_() and "3 rows" in repr(jobs)


def test_sessions_are_made_and_costs_changed() -> None:
    trace = Trace.made(hours=1, sessions=((0, 0), (0.2, 4)), seed=2)
    assert trace.figures()["cells"] > 3
    usual = simulate(trace, "fcfs-batch", "2x8", rows=False)
    quick = simulate(trace, "fcfs-batch", "2x8", costs=Costs(start_cold=Normal(0.0)), rows=False)
    assert quick.summary["cells.delay_s.p50"] < usual.summary["cells.delay_s.p50"] - 10
    assert Trace.made(hours=1, sessions=((0, 0), (0.2, 4)), seed=2).figures() == trace.figures()


def test_a_trace_makes_others_like_it() -> None:
    jobs = [
        {"job": f"{n}", "arrival_s": 60 * n, "duration_s": 90, "gpus": 2, "user": "ann"} for n in range(9)
    ]
    made = Trace.of_rows(jobs).alike(seed=2, times=2)
    figures = made.figures()
    assert (figures["jobs"], figures["oracle_gpu_hours"]) == (18, pytest.approx(18 * 2 * 90 / 3600))
    assert set(simulate(made, "easy-batch", "1x8", progress=False).jobs["user"]) == {"user0"}
    with pytest.raises(SimulationError, match="times a number from"):
        made.alike(times=0)


def test_a_sweep_is_played_side_by_side_as_one_after_the_other(cells: Path) -> None:
    over = {"hosts": [2, 3], "limit": ["static", "demand-busy"]}
    one, two = (sweep(Trace(cells), "notebook", over=over, processes=count) for count in (1, 2))
    assert documents(one) == documents(two)
    assert [run.setting["hosts"] for run in two] == ["2", "2", "3", "3"]
    assert "limit=static" in two[0].policy and len(two[1:]) == 3
    kept = sweep(Trace(cells), "notebook", over={"hosts": [2, 3]}, processes=2, rows=True)
    assert [run.cells.count for run in kept] == [3, 3]
    html = two._repr_html_()
    assert html.count("<tr>") == 5 and "<th>hosts</th>" in html and "TCT p50" in html


@pytest.mark.parametrize(
    ("play", "told"),
    [
        (lambda trace: simulate(trace, "nobody"), "there is no policy 'nobody'"),
        (lambda trace: simulate(trace, cluster="30"), "'30' is not NxG, such as 30x8"),
        (lambda trace: simulate(trace, cluster=Cluster(0, 8)), "'0x8' is not NxG"),
        (lambda trace: simulate(trace, cluster=Cluster(2, 8, hosts_max=1)), "hosts-max 1 is less than the 2"),
        (lambda trace: simulate(trace, seed=-1), "seed=-1 is not a whole number"),
        (lambda trace: simulate(trace, "sjf"), "This policy serves jobs"),
        (lambda trace: sweep(trace, over={"hosts": [0]}), "'0' is not a whole number from 1 on"),
        (lambda trace: sweep(trace, over={"hosts": []}), "'hosts' is not KEY=A,B,…"),
        (lambda trace: sweep(trace, "sjf", rows=False), "This policy serves jobs"),
        (lambda trace: simulate(trace, rows=False).cells, "rows were not kept. Play it with rows=True."),
        (lambda trace: simulate(trace).plot.cdf("colour"), "There is no 'colour' to draw: there are wait,"),
        (lambda trace: simulate(trace).plot.cdf("slowdown"), "No run has figures of slowdown"),
        (lambda trace: Trace(), "A trace is of one file or more"),
        (lambda trace: Trace("a.csv", form="tape"), "There is no form 'tape': there are swf"),
        (lambda trace: Trace("a.csv", gpu_mix="2:1"), "'2:1' is no mix"),
        (lambda trace: simulate(Trace("not/there.csv")), "not/there.csv is not there"),
        (lambda trace: Trace.of_rows([]), "There are no rows"),
        (lambda trace: Trace.of_rows("cells.csv"), "A trace is made of a table's rows"),
        (lambda trace: Trace.made("1 year"), "There is no '1 year' to be like: there are 17.5h"),
        (lambda trace: Trace.made(years=1), "A workload has hours, sessions,"),
        (
            lambda trace: simulate(Trace.of_rows([{"job": "a", "gpus": 2, "arrival_s": 0}])),
            "its header lacks duration_s",
        ),
    ],
)
def test_an_impossible_simulation_is_refused_in_a_sentence(
    play: Callable[[Trace], object], told: str, cells: Path
) -> None:
    with pytest.raises(SimulationError) as refused:
        play(Trace(cells))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("library", "use"),
    [
        ("matplotlib", lambda run: run.plot.cdf()),
        ("pyarrow", lambda run: run.cells.to_arrow()),
        ("pandas", lambda run: run.cells.to_pandas()),
    ],
)
def test_a_library_that_is_missing_is_named(
    library: str, use: Callable[[Any], object], cells: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = simulate(Trace(cells), cluster="3x8")
    assert "<caption>notebook</caption>" in played._repr_html_()
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SimulationError, match=f"{library}: pip install"):
        use(played)


@pytest.mark.usefixtures("figures_stay_here")
def test_plots_have_a_line_for_each_run_and_go_on_given_axes(cells: Path) -> None:
    played = sweep(Trace(cells), ["notebook", "reservation"], "3x8")
    axes = played.plot.cdf("wait")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["notebook", "reservation"]
    assert played[0].plot.cdf("completion", axes) is axes
    gpus = played[1].plot.gpus()
    assert [text.get_text() for text in gpus.get_legend().get_texts()] == [
        "reservation: reserved", "reservation: in use",
    ]  # fmt: skip
    assert played.plot.waiting().get_ylabel() == "waiting"
    assert played.plot.cost().get_lines()[0].get_ydata()[-1] > 0
    load = Trace(cells).plot.load()
    assert [text.get_text() for text in load.get_legend().get_texts()] == ["sessions open", "running"]
    assert len(Trace(cells).plot.times().get_lines()) == 3 and Trace(cells).plot.duty().get_lines()
    with pytest.raises(SimulationError, match="has no sessions: jobs compute all their lives"):
        Trace.of_rows(JOBS).plot.duty()
    together = simulate(Trace.of_rows(JOBS), "easy-batch", "1x8").plot.cdf("slowdown")
    assert together.get_xlabel() == "(waiting + run) / run alone"


def test_a_function_is_told_how_far_it_is(cells: Path) -> None:
    told: list[tuple[float | None, str]] = []
    simulate(Trace(cells), progress=lambda share, text: told.append((share, text)))
    assert told[-1][0] == 1.0 and told[-1][1].startswith("notebook: ")


def test_a_notebook_has_a_bar_that_goes() -> None:
    shown: list[dict[str, str]] = []

    class Handle:
        def update(self, data: dict[str, str], *, raw: bool) -> None:
            shown.append(data)

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        shown.append(data)
        return Handle()

    now = [0.0]
    progress = Progress(NotebookBar(display), lambda: now[0])
    progress.clear()
    watch = progress.playing("<mine>", 100)
    for now[0], played in ((1.0, 25), (2.0, 50)):
        watch(played, played)
    progress.played("<mine>", 100)
    assert '<progress value="0.250"></progress> <code>&lt;mine&gt;: ' in shown[0]["text/html"]
    assert [one["text/html"][:23] for one in shown[1:]] == ['<progress value="0.500"', ""]


def test_a_quiet_one_shows_nothing(cells: Path, capsys: pytest.CaptureFixture[str]) -> None:
    simulate(Trace(cells), progress=False)
    sweep(Trace(cells), "notebook", over={"hosts": [2, 3]}, processes=2, progress=False)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


def test_rows_are_counted_by_user_and_by_size() -> None:
    """One GPU, in turn: a waits 0 and 95 s, b 190 s; slowdowns are 1, 1.95 and 19.1 (10 s at least)."""
    rows = [
        {"job": "1", "arrival_s": 0, "duration_s": 100, "gpus": 1, "user": "a"},
        {"job": "2", "arrival_s": 5, "duration_s": 100, "gpus": 1, "user": "a"},
        {"job": "3", "arrival_s": 10, "duration_s": 1, "gpus": 1, "user": "b"},
        {"job": "4", "arrival_s": 11, "duration_s": 1, "gpus": 2, "user": "b"},
    ]
    ran = simulate(Trace.of_rows(rows), "easy-batch,backfill=none", "1x1", progress=False)
    by_user = {row.pop("user"): row for row in ran.by("user").rows()}
    assert by_user["a"] == {
        "count": 2, "wait_mean_s": 47.5, "wait_p95_s": pytest.approx(90.25), "completion_mean_s": 147.5,
        "slowdown_mean": pytest.approx(1.475), "gpu_hours": pytest.approx(200 / 3600),
        # Alone for 5 s, with one other for 95 s and with two for 90 s of the first 190, and so on; by hand:
        # job 1: 100 s, of which 5 with 1, 5 with 2 and 90 with 3 jobs: 2.85 times alone is its share.
        # job 2: 195 s: 5 with 2, 90 with 3, 100 with 2: 480 job-seconds / 195.
        "fairness_mean": pytest.approx((100 / 285 + 195 / (100 * 480 / 195)) / 2), "unfair": 0.0,
    }  # fmt: skip
    assert by_user["b"]["count"] == 1, "the job that is wider than the host was not served"
    assert by_user["b"]["slowdown_mean"] == pytest.approx(19.1)
    assert list(ran.by("gpus")["gpus"]) == [1]
    assert ran.jain() == pytest.approx((1.475 + 19.1) ** 2 / (2 * (1.475**2 + 19.1**2)))
    assert list(ran.waiting().rows()) == [
        {"at_s": 5.0, "waiting": 1}, {"at_s": 10.0, "waiting": 2},
        {"at_s": 100.0, "waiting": 1}, {"at_s": 200.0, "waiting": 0},
    ]  # fmt: skip
    with pytest.raises(SimulationError, match="Rows have no column 'colour': there are kind"):
        ran.by("colour")
