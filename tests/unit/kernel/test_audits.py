"""What a capture leaves to be checked: when a replica checks it, what it proposes, what its user is told."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from replkernel.kernel import audits, captures, duty, news
from replkernel.kernel.audits import sentences
from replkernel.protocol.agent_to_process import BegunAfresh
from replkernel.protocol.envelope import Afresh, Envelope
from replkernel.protocol.process_to_agent import ClaimExecution
from replkernel.records import Delta, Fence, Mark, Pin, ReplicaId, Seq, Unaudited
from replkernel.state import hints
from replkernel.state.capture.changes import Held, Unstored
from tests.unit.kernel.test_replica import Stage

BIG = Unaudited("big", 3, ReplicaId("r1"))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def deltas(stage: Stage) -> list[Delta]:
    return [sent for sent in stage.link.sent if isinstance(sent, Delta)]


def test_nothing_owed_means_no_audit(stage: Stage) -> None:
    stage.run(1)
    assert stage.replica.audit_delay_s() is None
    stage.replica.audit()
    assert stage.state.calls == ["capture 1"]


def test_an_owed_audit_is_made_and_added_to_the_same_execution(stage: Stage) -> None:
    stage.state.leaves = (BIG,)
    stage.run(1)
    assert stage.replica.audit_delay_s() == 0.0
    stage.state.leaves = ()
    stage.replica.audit()
    assert [sent.mark for sent in deltas(stage)] == [(1, 0), (1, 1)]
    assert [bool(sent.unaudited) for sent in deltas(stage)] == [True, False]
    assert stage.replica.audit_delay_s() is None


def test_an_audit_that_gave_way_without_news_proposes_nothing(stage: Stage) -> None:
    stage.state.leaves = (BIG,)
    stage.run(1)
    stage.replica.audit()
    assert [sent.mark for sent in deltas(stage)] == [(1, 0)]
    stage.state.leaves = ()
    stage.replica.audit()
    assert [sent.mark for sent in deltas(stage)] == [(1, 0), (1, 1)]


def test_the_next_cell_takes_what_was_owed_over(stage: Stage) -> None:
    stage.state.leaves = (BIG,)
    stage.run(1)
    stage.replica.begin(Envelope(Seq(2), Fence(2), Seq(1)))
    assert stage.replica.audit_delay_s() is None


def test_an_execution_is_durable_only_when_nothing_is_owed(stage: Stage) -> None:
    stage.state.leaves = (BIG,)
    execution = stage.run(1)
    stage.replica.delta_committed(Seq(1), owing=True)
    stage.replica.await_commit(execution)
    assert not execution.durable
    stage.state.leaves = ()
    stage.replica.audit()
    stage.replica.delta_committed(Seq(1))
    stage.replica.await_commit(execution)
    assert execution.durable


def test_a_capture_before_the_reply_gives_way_to_interrupts_only(stage: Stage) -> None:
    stage.replica.waits = lambda: True
    execution = stage.replica.begin(Envelope(Seq(1), Fence(1), Seq(0)))
    stage.replica.capture(execution, whole=True)
    (terms,) = stage.state.terms
    assert terms.budget_s is None
    assert terms.stop is not None
    assert not terms.stop()
    stage.replica.interrupts.count += 1
    assert terms.stop()


def test_a_capture_after_the_reply_has_its_budget_and_then_gives_way(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    stage.replica.waits = lambda: True
    stage.run(1)
    (terms,) = stage.state.terms
    assert terms.grace_s == pytest.approx(captures.BUDGET_S)
    assert terms.budget_s == duty.HOLD_SAVED_S
    assert terms.stop is not None
    assert not terms.stop()
    monkeypatch.setattr(time, "monotonic", lambda: began + 1.1 * duty.HOLD_SAVED_S)
    assert terms.stop()


def test_where_cells_move_nothing_is_left_for_later(stage: Stage) -> None:
    execution = stage.replica.begin(Envelope(Seq(1), Fence(1), Seq(0), moves=True))
    stage.replica.capture(execution)
    assert stage.state.terms[0].budget_s is None


def test_a_fault_in_an_audit_is_told_and_it_is_tried_again(stage: Stage) -> None:
    stage.state.leaves = (BIG,)
    stage.run(1)

    def fail() -> None:
        raise OSError("no room")

    stage.state.on_capture = fail
    stage.replica.audit()
    assert "no room" in stage.link.sent[-1]
    delay_s = stage.replica.audit_delay_s()
    assert delay_s is not None
    assert delay_s > 1


def test_an_audit_that_gives_way_is_not_begun_again_at_once(stage: Stage) -> None:
    stage.state.leaves = (BIG,)
    stage.run(1)
    stage.replica.audit()
    delay_s = stage.replica.audit_delay_s()
    assert delay_s is not None
    assert delay_s > 0.01
    stage.link.full = True
    calls = list(stage.state.calls)
    stage.replica.audit()
    assert stage.state.calls == calls
    delay_s = stage.replica.audit_delay_s()
    assert delay_s is not None
    assert delay_s > 1


def test_who_takes_over_says_once_what_is_older(stage: Stage) -> None:
    stage.replica.delta_arrived(
        Delta(Seq(5), Fence(5), ReplicaId("r2"), 7, unaudited=(Unaudited("big", 3, ReplicaId("r2")),))
    )
    stage.replica.begin(Envelope(Seq(6), Fence(6), Seq(5)))
    said = (
        "`big` is as it was after cell 3: "
        "it was too large to be checked after cells 4 to 7 before replica r2 died."
    )
    assert stage.replica.notices == [said]
    stage.replica.begin(Envelope(Seq(7), Fence(7), Seq(6)))
    assert stage.replica.notices == [said]
    stage.shell.user_ns = {}
    assert stage.replica.lost_lately() == [said]
    assert stage.replica.new_and_unchecked() == []
    stage.shell.user_ns["big"] = []
    assert stage.replica.lost_lately() == []


def test_a_cell_waits_for_the_audit_that_it_needs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(news, "NEEDS_TIMEOUT_S", 0.02)
    late: Any = (Unaudited("big", 3, ReplicaId("r2")),)
    stage.replica.delta_arrived(Delta(Seq(5), Fence(5), ReplicaId("r2"), 7, unaudited=late))
    envelope = Envelope(Seq(6), Fence(6), Seq(5), needs_audit=1)
    assert stage.replica.begin(envelope).trouble is not None
    stage.replica.delta_arrived(Delta(Seq(5), Fence(5), ReplicaId("r2"), 7, audit=1))
    assert stage.replica.begin(envelope).trouble is None
    assert stage.state.mark == Mark(Seq(5), 1)
    assert stage.replica.notices == []


def test_the_table_says_of_each_component_whether_it_is_safe(stage: Stage) -> None:
    stage.state.leaves = (BIG, Unaudited("new", 0, ReplicaId("r1")))
    stage.run(1)

    def said(seq: int, *, unaudited: bool = False, held: bool = False) -> str:
        row = SimpleNamespace(seq=Seq(seq), names=("big",), unaudited=unaudited, held=held, cell=3)
        return stage.replica.durability(row)

    assert said(1) == "pending"
    stage.replica.delta_committed(Seq(1), owing=True)
    assert said(1) == "pending", "a crash would take it along with what is not checked"
    stage.replica.delta_committed(Seq(1))
    assert (said(1), said(1, unaudited=True), said(2)) == ("yes", "not checked since cell 3", "pending")
    assert said(1, unaudited=True, held=True) == "no room for it since cell 3"
    stage.replica.begin(Envelope(Seq(2), Fence(2), Seq(1)))
    assert stage.replica.new_and_unchecked() == ["not captured yet: `new`"]
    stage.replica.delta_arrived(Delta(Seq(3), Fence(3), ReplicaId("r2"), 3))
    stage.replica.begin(Envelope(Seq(4), Fence(4), Seq(3)))
    assert stage.replica.new_and_unchecked() == []


# -- what the user wants captured seldom -------------------------------------------------------------

KEPT = frozenset({"big"})


@pytest.fixture
def kept(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stage on which `big` is kept every five minutes and has changed since it was told."""
    monkeypatch.setitem(hints.kept, "big", 300.0)
    stage.state.tells = ("big",)
    stage.run(1)
    stage.state.leaves, stage.state.kept_back = (BIG,), {"big"}
    stage.run(2)
    return stage


def test_a_kept_variable_is_left_for_later_and_the_user_is_told_when(kept: Stage) -> None:
    assert [terms.kept for terms in kept.state.terms] == [frozenset(), KEPT]
    assert 290 < (kept.replica.audit_delay_s() or 0.0) <= 300
    assert kept.replica.new_and_unchecked() == [
        "kept for later: `big`, due in 5 min; `%replkernel sync` makes all durable now"
    ]


def test_who_waits_for_all_to_be_durable_has_what_is_kept_captured_at_once(kept: Stage) -> None:
    kept.replica.settle()
    assert kept.replica.audit_delay_s() == 0.0
    kept.state.leaves, kept.state.kept_back = (), set()
    kept.replica.audit()
    assert kept.state.terms[-1].kept == frozenset()
    kept.state.leaves = (BIG,)
    kept.run(3)
    assert kept.state.terms[-1].kept == KEPT, "it was asked for once"


def test_nothing_owed_is_nothing_to_settle(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hints.kept, "big", 300.0)
    stage.state.tells = ("big",)
    stage.run(1)
    stage.replica.settle()
    assert not stage.replica.settle_kept()
    stage.run(2)
    assert stage.state.terms[-1].kept == KEPT


def test_the_capture_before_gpus_are_left_is_whole(kept: Stage) -> None:
    kept.state.leaves, kept.state.kept_back = (), set()
    assert kept.replica.settle_kept()
    assert (kept.state.terms[-1].kept, kept.replica.audit_delay_s()) == (frozenset(), None)


def test_the_table_says_of_what_is_kept_how_old_it_would_be(kept: Stage) -> None:
    row = SimpleNamespace(seq=Seq(1), names=("big",), unaudited=True, held=False, cell=3)
    assert kept.replica.durability(row) == "as of cell 3, kept every 5 min"


def test_a_process_that_went_on_without_an_audit_that_counts_ends(stage: Stage) -> None:
    stage.replica.delta_arrived(Delta(Seq(5), Fence(5), ReplicaId("r2"), 7))
    assert stage.replica.begin(Envelope(Seq(6), Fence(6), Seq(5))).trouble is None
    stage.replica.delta_arrived(Delta(Seq(5), Fence(5), ReplicaId("r2"), 7))
    assert stage.ended == []
    stage.replica.delta_arrived(Delta(Seq(5), Fence(5), ReplicaId("r2"), 7, audit=1))
    assert "without what execution 5 changed" in stage.ended[0]


def test_a_variable_without_room_is_awaited_by_nobody_and_looked_for_again(stage: Stage) -> None:
    room = Shelf()
    stage.state.unstored = Unstored(room)
    hold(stage)
    stage.state.leaves = (msgspec.structs.replace(BIG, held=True),)
    execution = stage.run(1)
    assert [sent for sent in stage.link.sent if isinstance(sent, str)] == stage.told
    stage.replica.delta_committed(Seq(1))
    stage.replica.await_commit(execution)
    assert not execution.durable
    assert stage.replica.audit_delay_s() == audits.ROOM_LOOK_S
    room.free = True
    assert stage.replica.audit_delay_s() == 0.0
    room.free, stage.state.unstored.news = False, frozenset()
    after = stage.run(2)
    stage.replica.delta_committed(Seq(2))
    stage.replica.await_commit(after)
    assert after.durable
    assert stage.replica.unstored() == ["`big` is not durable: no room"]
    stage.state.leaves = (msgspec.structs.replace(BIG, held=True),)
    stage.run(3)
    stage.replica.delta_committed(Seq(3), owing=True)
    (said,) = stage.replica.new_and_unchecked()
    assert said.startswith("`big` is not durable: no room; last durable: cell ")
    assert said.endswith(" s ago")


class Shelf:
    """A store that takes nothing until it is `free`."""

    free = False

    def refuses(self, size: int) -> str:
        return "" if self.free else "no room"

    def promise(self, size: int) -> None:
        """Take note of nothing."""


def hold(stage: Stage) -> None:
    """Have `big` held back by the capture."""
    unstored = stage.state.unstored
    unstored.begin()
    unstored.hold(["big"], Held(b"1", 9, "no room"))
    unstored.settle({"big"}, {"big": 1}, {})
    stage.told = list(unstored.told)


def test_who_goes_on_for_a_lost_process_waits_for_what_the_log_makes_of_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news, "NEEDS_TIMEOUT_S", 0.02)
    stage.replica.delta_arrived(Delta(Seq(5), Fence(5), ReplicaId("r2"), 5))
    envelope = Envelope(Seq(8), Fence(8), needs=Seq(7), afresh=Afresh(7))
    assert stage.replica.begin(envelope).trouble is not None, "no majority, no execution"
    assert stage.link.sent[-1] == ClaimExecution(Seq(8), Fence(8), afresh=True)
    stage.replica.begun_afresh(BegunAfresh(Seq(8), 5, ReplicaId("r2"), 7, 1.0))
    execution = stage.replica.begin(envelope)
    assert (execution.trouble, execution.counted) == (None, 7)
    claims = [sent for sent in stage.link.sent if isinstance(sent, ClaimExecution)]
    assert all(claim.afresh for claim in claims), "it is claimed once"
    assert "back at cell 5 (1 s ago); run cells 6 and 7 again" in stage.replica.notices[0]
    stage.shell.user_ns = {}
    assert stage.replica.lost_lately() == [
        "Cells 6 and 7 were lost 0 s ago, when replica r2 died: run them again."
    ]
    assert stage.replica.new_and_unchecked() == [], "what is said of now has nothing of it"


def test_the_process_that_ran_the_cells_goes_on_with_them_whoever_thinks_it_lost(stage: Stage) -> None:
    stage.run(1)
    again = Envelope(Seq(2), Fence(2), needs=Seq(1), afresh=Afresh(1))
    assert stage.replica.begin(again).trouble is None
    assert stage.link.sent[-1] == ClaimExecution(Seq(2), Fence(2))


def test_who_goes_on_after_cells_of_its_own_says_which_a_lost_process_takes_along(stage: Stage) -> None:
    stage.run(3)
    again = Envelope(
        Seq(5), Fence(5), needs=Seq(3), afresh=Afresh(stage.shell.execution_count, unlogged=True)
    )
    assert stage.replica.begin(again).trouble is None
    (told,) = stage.replica.notices
    last = stage.shell.execution_count
    assert (
        f"before cell {last} was durable: the notebook is back at cell {last - 1}; run cell {last} again"
        in told
    )


def test_the_state_says_how_far_back_a_crash_would_take_the_notebook(stage: Stage) -> None:
    stage.run(1)
    assert stage.replica.new_and_unchecked() == []
    stage.replica.delta_committed(Seq(1))
    assert stage.replica.new_and_unchecked() == []
    stage.state.leaves = (BIG,)
    stage.run(2)
    stage.replica.delta_committed(Seq(2), owing=True)
    assert stage.replica.new_and_unchecked() == ["last durable: cell 5, 0 s ago"]


def test_sentences_name_what_is_missing_and_group_what_is_alike() -> None:
    left = [
        Unaudited("a", 3, ReplicaId("r1")),
        Unaudited("b", 3, ReplicaId("r1")),
        Unaudited("class:Net@r1.2.1", 3, ReplicaId("r1")),
        Unaudited("new", 0, ReplicaId("r1")),
    ]
    full = [Unaudited(name, cell, ReplicaId("r1"), True) for name, cell in (("c", 3), ("d", 0))]
    assert sentences(full, 4) == [
        (
            "`c` is as it was after cell 3: the object store had no room for what changed since then "
            "before replica r1 died."
        ),
        "`d` is missing: the object store had no room for it before replica r1 died.",
    ]
    old, new = sentences(left, 4)
    assert old.startswith(
        "`a`, `b`, class `Net` are as they were after cell 3: they were too large to be checked"
    )
    assert old.endswith("after cell 4 before replica r1 died.")
    assert new == "`new` is missing: it was too large to be captured before replica r1 died."


def test_variables_that_a_cell_mentions_are_audited_before_the_rest(stage: Stage) -> None:
    stage.state.has_heavy = True
    stage.state.leaves = (BIG, Unaudited("other", 3, ReplicaId("r1")))
    stage.shell.user_ns = {"big": [], "other": []}
    execution = stage.replica.begin(Envelope(Seq(1), Fence(1), Seq(0)))
    execution.texts = ("big[5] = 1",)
    stage.replica.capture(execution)
    stage.state.leaves = stage.state.leaves[1:]
    stage.replica.audit()
    first = stage.state.terms[-1]
    assert (first.first, first.budget_s) == ({"big"}, 0.0)
    stage.state.leaves = ()
    stage.replica.audit()
    assert (stage.state.terms[-1].first, stage.state.terms[-1].budget_s) == (frozenset(), None)
    assert [sent.mark for sent in deltas(stage)] == [(1, 0), (1, 1), (1, 2)]


def test_while_somebody_waits_what_takes_long_is_left(stage: Stage) -> None:
    stage.run(1)
    assert stage.state.terms[-1].costly_s is None
    stage.replica.waits = lambda: True
    stage.run(2)
    terms = stage.state.terms[-1]
    assert terms.costly_s is not None
    assert captures.QUICK_S <= terms.costly_s <= duty.HOLD_SAVED_S


def test_a_long_audit_waits_for_a_cell_that_is_known_to_be_quick(stage: Stage) -> None:
    stage.run(1, text="sum(rows)")
    stage.replica.waits, stage.replica.next_cell = (lambda: True), (lambda: "sum(rows)")
    stage.run(2, text="rows[0] = 1")
    terms = stage.state.terms[-1]
    assert (terms.costly_s, terms.budget_s) == (captures.QUICK_S, captures.BUDGET_S)
    assert terms.stop is not None
    assert terms.stop()


def test_a_check_that_gave_way_is_not_tried_right_after_the_next_cell(stage: Stage) -> None:
    stage.state.leaves = (BIG,)
    stage.run(1)
    stage.replica.waits = lambda: True
    stage.replica.audit()
    stage.replica.waits = lambda: False
    stage.run(2)
    assert stage.state.terms[-1].costly_s == captures.QUICK_S
    delay_s = stage.replica.audit_delay_s()
    assert delay_s is not None
    assert delay_s > duty.PATIENCE_MIN_S / 2
    stage.state.leaves = ()
    stage.replica.audit()
    stage.run(3)
    assert stage.state.terms[-1].costly_s is None


def test_a_cell_that_asks_for_it_is_checked_whole_and_awaited(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.replica.waits = lambda: True
    execution = stage.replica.begin(Envelope(Seq(1), Fence(1), Seq(0)))
    stage.replica.delta_committed(Seq(1))
    stage.replica.sync(execution)
    assert stage.state.terms[-1].budget_s is None
    assert execution.durable
    assert capsys.readouterr().out.startswith("Durable up to this cell: ")
    stage.replica.capture(execution)
    assert stage.state.calls == ["capture 1"]


# -- what pages have the notebook do ---------------------------------------------------------------


def moved(stage: Stage) -> None:
    """Have a page move a widget."""
    stage.replica.before_page(None)
    stage.replica.after_page()


def test_a_pages_change_after_a_cell_is_captured_with_that_cell(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "AFTER_PAGE_S", 0.0)
    stage.run(1)
    moved(stage)
    assert stage.replica.audit_delay_s() == 0.0
    stage.state.tells = ("slider",)
    stage.replica.audit()
    assert [(sent.mark, sent.owing) for sent in deltas(stage)] == [((1, 0), False), ((1, 1), False)]
    assert stage.replica.audit_delay_s() is None
    moved(stage)
    stage.replica.audit()
    assert [sent.mark for sent in deltas(stage)] == [(1, 0), (1, 1), (1, 2)]


def test_a_page_that_has_changed_nothing_costs_no_entry_of_the_log(stage: Stage) -> None:
    stage.run(1)
    moved(stage)
    stage.replica.audit()
    assert [sent.mark for sent in deltas(stage)] == [(1, 0)]
    assert stage.replica.audit_delay_s() is None


def test_a_page_that_goes_on_moving_is_looked_at_when_it_rests(stage: Stage) -> None:
    stage.run(1)
    moved(stage)
    delay_s = stage.replica.audit_delay_s()
    assert delay_s is not None
    assert 0.0 < delay_s <= audits.AFTER_PAGE_S


def test_a_pages_change_during_a_cell_is_captured_with_that_cell(stage: Stage) -> None:
    stage.run(1)
    execution = stage.replica.begin(Envelope(Seq(2), Fence(2), Seq(1)))
    moved(stage)
    assert stage.replica.audit_delay_s() is None
    stage.replica.capture(execution)
    assert [sent.mark for sent in deltas(stage)] == [(1, 0), (2, 0)]


def test_a_pages_change_in_the_next_process_is_left_to_the_next_cell(stage: Stage) -> None:
    stage.run(1)
    stage.replica.delta_arrived(Delta(Seq(2), Fence(2), ReplicaId("r2"), 2))
    stage.state.calls.clear()
    moved(stage)
    assert stage.state.calls == ["rebuild everything"]
    assert stage.replica.audit_delay_s() is None


def test_an_audit_for_a_page_is_numbered_after_a_step_in_the_history(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "AFTER_PAGE_S", 0.0)
    stage.run(1)
    stage.state.mark = Mark(Seq(1), 4)
    moved(stage)
    stage.state.tells = ("slider",)
    stage.replica.audit()
    assert deltas(stage)[-1].mark == (1, 5)


THREAD = Pin("thread fill", "Thread", ReplicaId("r1"), Seq(1))


def pins(stage: Stage) -> list[list[str]]:
    return [[pin.name for pin in sent.pins] for sent in deltas(stage)]


def test_a_thread_that_ends_during_a_capture_is_told_and_an_audit_follows(stage: Stage) -> None:
    stage.pins = (THREAD,)

    def ends() -> None:
        stage.pins = ()

    stage.state.on_capture = ends
    stage.run(1)
    assert pins(stage) == [["thread fill"]], "its last changes may not be in what was captured"
    stage.state.tells = ("rows",)
    assert stage.replica.audit_delay_s() is not None
    stage.replica.audit()
    assert pins(stage) == [["thread fill"], []]
    assert [record.names for record in deltas(stage)[-1].components] == [("rows",)]
    assert stage.replica.audit_delay_s() is None


def test_threads_that_end_in_each_capture_have_no_audit_follow_for_ever(stage: Stage) -> None:
    for number in range(20):
        name = f"thread {number}"
        stage.pins = (msgspec.structs.replace(THREAD, name=name),)
        stage.state.on_capture = lambda: setattr(stage, "pins", ())
        if number == 0:
            stage.run(1)
        elif stage.replica.audit_delay_s() is None:
            break
        else:
            stage.replica.audit()
    assert number == 1 + captures.LOOKS_AGAIN_MAX


def test_what_an_audit_finds_running_is_told_although_no_variable_has_changed(stage: Stage) -> None:
    stage.run(1)
    stage.replica.after_page()
    stage.pins = (THREAD,)
    stage.replica.audit()
    stage.replica.after_page()
    stage.replica.audit()
    assert pins(stage) == [[], ["thread fill"]], "once"


def test_a_notebook_is_free_once_what_tied_it_has_ended_by_itself(stage: Stage) -> None:
    stage.pins = (THREAD,)
    stage.run(1)
    assert stage.replica.is_bound()
    stage.replica.look_at_pins()
    assert stage.replica.audit_delay_s() is None, "it runs still"
    stage.pins = ()
    stage.replica.look_at_pins()
    assert stage.replica.audit_delay_s() is not None
    stage.replica.audit()
    assert pins(stage) == [["thread fill"], []]
    assert not stage.replica.is_bound()
