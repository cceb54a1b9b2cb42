"""NotebookOS's rows of the paper suite: what baselines are counted by, sessions that a window cuts off."""

from __future__ import annotations

from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named, play
from replkernel_scheduler.sim.records import Cell, Record, Session
from replkernel_scheduler.sim.spool import Spool

from tests.paper.notebookos import POLICIES, gpu_hours, staying

RECORDS: list[Record] = [
    Session("a", 0.0, 3600.0, 4),
    Cell("a", 30.0, 1800.0, 4),
    Session("b", 0.0, 9000.0, 8),
    Cell("b", 60.0, 1800.0, 8),
]


def test_sessions_of_a_window_stay_open_until_its_end() -> None:
    kept = [record for record in staying(RECORDS, 7200.0) if isinstance(record, Session)]
    assert [(session.session, session.ends) for session in kept] == [("a", 7200.0), ("b", 9000.0)]
    assert list(staying(RECORDS, 0.0)) == RECORDS


def test_each_baseline_provisions_what_the_paper_counts() -> None:
    hours = {}
    with Spool(RECORDS) as spool:
        for name, policy in POLICIES.items():
            hours[name] = gpu_hours(name, play(spool, any_way_named(policy), Plan(hosts=12)))
    least = (4 + 8) * 0.5
    assert hours["oracle"] == least
    assert least < hours["LCP"] < hours["Batch"] < 1.1 * least, (
        "GPUs that cells hold, reading and starting included"
    )
    assert 4 * 1.0 + 8 * 2.5 - 0.2 < hours["Reservation"] <= 4 * 1.0 + 8 * 2.5, "whole sessions"
    assert hours["NotebookOS"] % 8 != 0 and hours["NotebookOS"] > 7 * 8 * 2, "hosts, of which seven stay"
