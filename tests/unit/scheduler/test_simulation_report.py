"""The report: what its plots are drawn from, and that it is one file that trusts no text."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.sim import Trace, summary, sweep
from replkernel_scheduler.sim.drawing import (
    COLOURS,
    HEIGHT_IN,
    STYLE,
    WIDTH_IN,
    draw_distribution,
    look_of,
    short_names,
)
from replkernel_scheduler.sim.history import STEPS_MAX, History
from replkernel_scheduler.sim.level import Level
from replkernel_scheduler.sim.picture import QUANTILES, Picture, quantiles
from replkernel_scheduler.sim.plan import Plan, Prices
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.reclamation import saved_gpu_hours
from replkernel_scheduler.sim.records import Cell, Job, Record, Session, order
from replkernel_scheduler.sim.report import DRAWN_MAX, report
from replkernel_scheduler.sim.seeds import against, swept_keys
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.table import unequal
from replkernel_scheduler.sim.trace_picture import trace_picture

from tests.support.examples import examples

RECORDS: list[Record] = [
    Session("a", 0.0, 6000.0, 4),
    Cell("a", 30.0, 600.0, 4),
    Cell("a", 4000.0, 1200.0, 4),
    Session("b", 0.0, 6000.0, 8),
    Cell("b", 100.0, 2000.0, 8),
]
LOOKS = trace_picture(sorted(RECORDS, key=order), 0.0)
SWEPT = ("notebook", "notebook,scaling=buffered", "reservation", "fcfs-batch", "oracle")


def test_swept_runs_that_are_not_of_the_same_work_are_named_with_their_settings() -> None:
    rows = [
        {"job": name, "arrival_s": 0, "duration_s": 3600, "gpus": gpus} for name, gpus in (("a", 6), ("b", 2))
    ]
    over = {"gpus": [4, 8]}
    runs = sweep(Trace.of_rows(rows), "easy-batch", "2x8", over=over, processes=1, progress=False)
    told = (
        "Runs are not of the same work. Of the GPU-hours these are not served: 75.0% under easy-batch gpus=4."
    )
    assert unequal(runs.document) == [told]


def _shown(
    records: list[Record], policies: tuple[str, ...]
) -> tuple[summary.Summary, dict[str, Picture], Picture]:
    plan = Plan(hosts=3, hosts_max=6)
    pictures: list[Picture] = []
    with Spool(records) as spool:
        runs = tuple(
            play(spool, any_way_named(policy), plan, pictured=pictures.append) for policy in policies
        )
        play(spool, any_way_named("oracle"), plan, pictured=pictures.append)
        document = summary.Summary(("made up",), 0, 0, summary.of_trace(spool), plan, runs)
    return document, dict(zip(policies, pictures, strict=False)), pictures[-1]


@settings(max_examples=examples(100), deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(-5, 9), st.floats(0, 5000)), max_size=40),
    rest_s=st.floats(0, 9000),
)
def test_a_course_keeps_the_integral_whatever_the_length_of_the_run(
    changes: list[tuple[int, float]], rest_s: float
) -> None:
    level, now = Level(History()), 0.0
    for delta, after_s in changes:
        now += after_s
        level.add(delta, now)
    now += rest_s
    area = level.until(now)
    course = level.course(now)
    assert level.history is not None
    step_s = level.history.step_s
    assert len(course) <= STEPS_MAX
    lengths = [min(step_s, now - place * step_s) for place in range(len(course))]
    left_out = now - sum(lengths)
    assert 0 <= left_out <= step_s / 1000 + 1e-6, "nearly all of the run is in it"
    drawn = sum(mean * length for mean, length in zip(course, lengths, strict=True))
    assert drawn == pytest.approx(area, abs=left_out * 400 + 1e-3)


def test_an_event_is_counted_once_and_in_its_step() -> None:
    history = History()
    for at in (0.0, 1.5, 600.0, 5000.0):
        history.count(at)
    assert history.step_s == 16.0
    assert {place: count for place, count in enumerate(history.sums) if count} == {0: 2, 37: 1, 312: 1}


def test_quantiles_have_the_least_and_the_most() -> None:
    assert quantiles([]) == []
    made = quantiles([3.0, 1.0, 2.0])
    assert (len(made), made[0], made[QUANTILES // 2], made[-1]) == (QUANTILES + 1, 1.0, 2.0, 3.0)


def test_kept_state_saves_the_cells_before_a_long_enough_rest() -> None:
    # 3,370 s idle before the second cell of a; the state before it took 600 s on 4 GPUs.
    saved = saved_gpu_hours(RECORDS, (3370.0, 3371.0))
    assert saved == {3370.0: pytest.approx(600 * 4 / 3600), 3371.0: 0.0}
    # A third one has both before it; a job has no state.
    more = [*RECORDS, Cell("a", 9000.0, 1.0, 4), Job("j", 99_000.0, 5.0, 1)]
    assert saved_gpu_hours(more, (3370.0,)) == {3370.0: pytest.approx((600 + 600 + 1200) * 4 / 3600)}


def test_the_picture_is_of_the_run() -> None:
    document, pictures, oracle = _shown(RECORDS, SWEPT)
    for run in document.runs:
        picture = pictures[run.policy]
        hours = picture.step_s / 3600
        assert sum(picture.committed) * hours == pytest.approx(run.cluster.committed_gpu_hours, rel=0.01)
        assert sum(picture.provisioned) * hours == pytest.approx(run.cluster.provisioned_gpu_hours, rel=0.01)
        assert sum(picture.added) == run.changes.hosts_added
        assert sum(picture.moves) == run.changes.migrations
        assert len(picture.delay_s) == QUANTILES + 1 and not picture.wait_s
    assert pictures["reservation"].reserved and not pictures["notebook"].reserved
    assert pictures["notebook"].subscription and not pictures["fcfs-batch"].subscription
    assert max(oracle.provisioned) == pytest.approx(12)


class Page(HTMLParser):
    """What a browser would load or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loaded += [
            f"{name}={value}"
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
        ]


def test_the_report_is_one_file_that_loads_nothing_and_trusts_no_text() -> None:
    pytest.importorskip("matplotlib")
    document, pictures, oracle = _shown(RECORDS, SWEPT)
    bad = "<script>alert('$x^2$')</script>&"
    named = msgspec.structs.replace(
        document,
        traces=(bad,),
        runs=(msgspec.structs.replace(document.runs[0], policy=bad), *document.runs[1:]),
    )
    renamed = {bad: pictures.pop("notebook"), **pictures}
    text = report(named, renamed, oracle, saved_gpu_hours(RECORDS), LOOKS)
    page = Page(text)
    assert page.loaded == [] and "script" not in page.tags
    assert page.tags.count("svg") == 9
    assert "alert('$x^2$')" in text.replace("&#x27;", "'"), "shown as it is, not as a formula"
    assert re.search(r"GPU-hours of hosts, less than the [0-9,]+ that sessions hold under reservation", text)
    assert report(named, renamed, oracle, saved_gpu_hours(RECORDS), LOOKS) == text


def test_who_waits_and_what_it_costs_by_then_worked_by_hand() -> None:
    # One host of 2 GPUs at $36 an hour, a cent a second: both jobs want both GPUs, for 100 and for 156 s.
    jobs: list[Record] = [Job("a", 0.0, 100.0, 2), Job("b", 40.0, 156.0, 2)]
    pictures: list[Picture] = []
    plan = Plan(hosts=1, gpus_per_host=2, prices=Prices(36.0))
    with Spool(jobs) as spool:
        run = play(spool, any_way_named("easy-batch"), plan, pictured=pictures.append)
    picture = pictures[0]
    assert picture.step_s == 1.0
    assert [picture.waiting[at] for at in (39, 40, 99, 100)] == [0.0, 1.0, 1.0, 0.0]
    assert (picture.cost[49], picture.cost[-1]) == (pytest.approx(0.50), pytest.approx(2.56))
    assert picture.revenue[49] == pytest.approx(0.50 * 1.15), "all GPUs are in use, at 1.15 of what they cost"
    assert (picture.cost[-1], picture.revenue[-1]) == pytest.approx((run.money.cost, run.money.revenue))


@pytest.mark.parametrize("policy", SWEPT)
def test_the_last_sums_over_time_are_those_of_the_run(policy: str) -> None:
    document, pictures, _ = _shown(RECORDS, (policy,))
    money, picture = document.runs[0].money, pictures[policy]
    assert (picture.cost[-1], picture.revenue[-1]) == pytest.approx((money.cost, money.revenue), rel=1e-3)


def test_a_traces_picture_is_as_worked_by_hand() -> None:
    # a runs from 0 to 100, its second cell came at 60 and runs from 100 to 150, its third comes at 200.
    records: list[Record] = [
        Session("a", 0.0, 210.0, 1), Cell("a", 0.0, 100.0, 1), Session("b", 50.0, 90.0, 1),
        Cell("b", 50.0, 10.0, 1), Cell("a", 60.0, 50.0, 1), Cell("a", 200.0, 10.0, 1),
    ]  # fmt: skip
    looks = trace_picture(records, 0.0)
    assert looks.step_s == 1.0 and len(looks.running) == 200
    assert [looks.open[at] for at in (0, 49, 50, 89, 90)] == [1, 1, 2, 2, 1]
    assert [looks.running[at] for at in (49, 50, 60, 100, 149, 150)] == [1, 2, 1, 1, 1, 0]
    assert (looks.between_s[0], looks.between_s[-1]) == (60.0, 140.0)
    assert (looks.think_s[0], looks.think_s[-1]) == (0.0, 50.0), "who waits for the last cell does not think"
    assert looks.duty[0] == pytest.approx(100 * 10 / 40)
    assert looks.duty[-1] == pytest.approx(100 * 160 / 210)


def test_jobs_are_told_by_their_arrivals() -> None:
    looks = trace_picture([Job("a", 5.0, 20.0, 1), Job("b", 10.0, 1.0, 8), Job("c", 40.0, 3.0, 1)], 5.0)
    assert (looks.open, looks.duty, looks.think_s) == ([], [], [])
    assert (looks.between_s[0], looks.between_s[-1]) == (5.0, 30.0)
    assert [looks.running[at] for at in (0, 5, 6, 20)] == [1, 2, 1, 0]


def test_names_have_no_common_parts_and_stay_apart() -> None:
    assert short_names(["notebook,m=1 hosts=4", "notebook,m=2 hosts=4"]) == {
        "notebook,m=1 hosts=4": "m=1", "notebook,m=2 hosts=4": "m=2",
    }  # fmt: skip
    assert short_names(["sq,m=1", "mq,r=2"]) == {"sq,m=1": "sq,m=1", "mq,r=2": "mq,r=2"}
    assert short_names(["notebook", "notebook,m=2"]) == {"notebook": "notebook", "notebook,m=2": "m=2"}
    assert short_names(["notebook"]) == {"notebook": "notebook"}


def test_runs_are_told_apart_without_colours_and_by_all_eyes() -> None:
    looks = [look_of(place) for place in range(DRAWN_MAX)]
    assert len({look["color"] for look in looks}) == len(COLOURS)
    assert len({(look["color"], str(look["linestyle"])) for look in looks}) == DRAWN_MAX
    assert len({str(look["linestyle"]) for look in looks[:6]}) == 6


def test_a_legend_is_inside_the_picture_however_long_the_names_are() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        axes = figure.subplots()
        samples = {f"notebook,placement=bin-pack,limit=demand-busy hosts={n}": [1.0] * 201 for n in range(9)}
        draw_distribution(axes, samples, "wait (s)")
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        inside = axes.get_legend().get_window_extent(canvas.get_renderer())
        assert inside.x0 >= 0 and inside.x1 <= figure.bbox.width and inside.y1 <= figure.bbox.height + 1
        assert axes.get_window_extent().height > 40, "there is room left for the lines"


def test_jobs_have_their_own_distributions() -> None:
    pytest.importorskip("matplotlib")
    document, pictures, oracle = _shown([Job("j", 0.0, 60.0, 2), Job("k", 5.0, 600.0, 2)], ("sjf", "sq,m=1"))
    text = report(document, pictures, oracle, {}, LOOKS)
    assert (
        "Jobs: until they are over" in text and "Cells: until" not in text and "Subscription, m" not in text
    )


def test_a_sweep_is_drawn_against_its_values_with_seeds_as_one_point() -> None:
    pytest.importorskip("matplotlib")
    document, pictures, oracle = _shown(RECORDS, ("notebook", "fcfs-batch,backfill=none"))
    settings = [{"hosts": "2", "seed": "0"}, {"hosts": "2", "seed": "1"}, {"hosts": "4", "seed": "0"}]
    runs = tuple(
        msgspec.structs.replace(run, setting=setting) for run in document.runs for setting in settings
    )
    told = [(run.policy, run.setting, {"x": float(place)}) for place, run in enumerate(runs)]
    lines = against(told, "hosts", "x")
    # Hosts 2 has the means of 0 and 1, and of 3 and 4; hosts 4 has one seed, so no interval.
    assert {name: [(value, found.mean) for value, found in points] for name, points in lines.items()} == {
        "notebook": [("2", 0.5), ("4", 2.0)], "fcfs-batch backfill=none": [("2", 3.5), ("4", 5.0)],
    }  # fmt: skip
    assert lines["notebook"][0][1].seeds == 2 and lines["notebook"][1][1].low is None
    assert swept_keys(runs) == ["hosts"], "seeds are no axis, nor is an option with one value"
    assert against(told, "hosts", "y") == {}
    many = {f"run-{place}": pictures["notebook"] for place in range(len(runs))}
    text = report(msgspec.structs.replace(document, runs=runs), many, oracle, {}, LOOKS)
    assert "<h2>Against hosts</h2>" in text and "Against seed" not in text


def test_more_runs_than_can_be_told_apart_are_in_the_table_only() -> None:
    pytest.importorskip("matplotlib")
    document, pictures, oracle = _shown(RECORDS, ("fcfs-batch",))
    many = {f"run-{number}": pictures["fcfs-batch"] for number in range(DRAWN_MAX + 2)}
    text = report(msgspec.structs.replace(document, runs=document.runs * len(many)), many, oracle, {}, LOOKS)
    assert f"The plots have the first {DRAWN_MAX} of {DRAWN_MAX + 2} runs." in text
    assert f"run-{DRAWN_MAX - 1}<" in text and f"run-{DRAWN_MAX}<" not in text


def test_without_matplotlib_it_has_the_tables_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    document, pictures, oracle = _shown(RECORDS, SWEPT)
    text = report(document, pictures, oracle, {}, LOOKS)
    assert "pip install &#x27;replkernel[sim]&#x27;" in text
    assert "<svg" not in text and "notebook,scaling=buffered" in text and "GPU-hours of hosts, less" in text
