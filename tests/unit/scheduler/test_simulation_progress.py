"""The line that says how far a simulation is, and the table at its end."""

from __future__ import annotations

import io

from replkernel_scheduler.sim import summary
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.progress import Progress, Terminal
from replkernel_scheduler.sim.records import Cell, Job, Record, Session
from replkernel_scheduler.sim.simulation import Simulation
from replkernel_scheduler.sim.spool import Spool
from replkernel_scheduler.sim.table import table
from replkernel_scheduler.sim.way import way_named


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_terminal_is_shown_events_a_second_and_the_time_that_is_left() -> None:
    terminal, clock = Tty(), Clock()
    watch = Progress(Terminal(terminal), clock).playing("notebook", 1000)
    clock.now = 10.0
    watch(50_000, 250)
    assert terminal.getvalue() == "\r\x1b[Knotebook: [#####...............]  25%  5,000 events/s  0:30 left"
    clock.now += 0.1
    watch(50_500, 251)
    assert terminal.getvalue().count("notebook") == 1, "not more often than eyes can follow"


def test_runs_side_by_side_are_shown_all_together() -> None:
    terminal, clock = Tty(), Clock()
    watch = Progress(Terminal(terminal), clock).playing_all(4)
    clock.now = 10.0
    watch(0, 0.0)  # They are still reading.
    watch(80_000, 1.0)
    assert terminal.getvalue() == "\r\x1b[K4 runs: [#####...............]  25%  8,000 events/s  0:30 left"


def test_a_file_gets_one_line_a_run_and_who_wants_quiet_none() -> None:
    for quiet, lines in ((False, ["notebook: 100 events in 2.0 s, 50/s"]), (True, [])):
        stream, clock = io.StringIO(), Clock()
        progress = Progress(Terminal(stream, quiet=quiet), clock)
        watch = progress.playing("notebook", 10)
        clock.now = 2.0
        watch(100, 5)
        progress.played("notebook", 100)
        assert stream.getvalue().splitlines() == lines


def shown(records: list[Record]) -> str:
    plan, way = Plan(hosts=3), way_named("notebook")
    with Spool(records) as spool:
        simulation = Simulation(spool, spool.first, way, plan)
        figures = simulation.run()
        run = summary.of_run(figures, simulation.now, simulation.events, way, plan)
        return table(summary.Summary(("made up",), 0, 0, summary.of_trace(spool), plan, (run,)))


def test_the_table_has_the_columns_that_the_trace_has_figures_for() -> None:
    of_cells = shown([Session("a", 0.0, 90.0, 1), Cell("a", 30.0, 60.0, 1)])
    of_jobs = shown([Job("a", 0.0, 60.0, 1), *(Job(f"wide {n}", 1.0, 60.0, 9 + n) for n in range(5))])
    assert "delay p50" in of_cells and "JCT p50" not in of_cells
    assert "JCT p50" in of_jobs and "delay p50" not in of_jobs
    assert of_jobs.count("not served: No host has") == 3
    assert "notebook: and for 2 more reasons, see summary.json" in of_jobs
