"""A replica's steps around a cell, with a stand-in for state, shell and link."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from replkernel.errors import QuorumLost, ReplkernelError
from replkernel.kernel import captures, departure
from replkernel.kernel import news as subject
from replkernel.kernel.execution import Execution, ProcessState
from replkernel.kernel.replica import Replica
from replkernel.protocol.envelope import Envelope
from replkernel.protocol.process_to_agent import ClaimExecution, ReplicaApplied
from replkernel.records import (
    BlobRef,
    ComponentId,
    ComponentRecord,
    Delta,
    Digest,
    Fence,
    Mark,
    Payload,
    Pin,
    ReplicaId,
    Seq,
    Unaudited,
)
from replkernel.state.capture.budget import EVERYTHING, Terms
from replkernel.state.capture.changes import Unstored
from replkernel.state.component_table import Unfaithful


def delta(seq: int, execution_count: int = 0, replica: str = "r2") -> Delta:
    """Return an empty delta of another replica."""
    return Delta(Seq(seq), Fence(seq), ReplicaId(replica), execution_count or seq)


class StandInState:
    """State that remembers what it was asked."""

    def __init__(self) -> None:
        self.mark = Mark(Seq(0))
        self.inherited: tuple[tuple[Unaudited, ...], int] = ((), 0)
        self.unstored = Unstored(None)
        self.has_heavy = self.has_new = False
        self.kept_back: set[str] = set()
        self.leaves: tuple[Unaudited, ...] = ()
        self.tells: tuple[str, ...] = ()
        self.terms: list[Terms] = []
        self.state_bytes = 7
        self.components = 1
        self.pending_bytes = 0
        self.unproven = 0
        self.unfaithful: tuple[Unfaithful, ...] = ()
        self.left_behind: set[str] = set()
        self.replica = ReplicaId("r1")
        self.calls: list[str] = []
        self.on_rebuild: Callable[[], None] = lambda: None
        self.on_capture: Callable[[], None] = lambda: None

    @property
    def applied(self) -> Seq:
        return self.mark.seq

    def capture(self, seq: Seq, fence: Fence, execution_count: int, terms: Terms = EVERYTHING) -> Delta:
        self.calls.append(f"capture {seq}" + (f" audit {terms.audit}" if terms.audit else ""))
        self.terms.append(terms)
        self.on_capture()
        self.mark = Mark(seq, terms.audit)
        replica = ReplicaId("r1")
        payload = Payload(head=b"")
        told = tuple(
            ComponentRecord(ComponentId(name), (name,), seq, payload, Digest("0"), 0)
            for name in self.tells
            if name not in terms.kept
        )
        return Delta(seq, fence, replica, execution_count, told, audit=terms.audit, unaudited=self.leaves)

    def receive(self, delta: Delta) -> None:
        self.calls.append(f"receive {delta.seq}")
        self.mark = delta.mark
        self.inherited = (delta.unaudited, delta.execution_count)

    def rebuild(self, *, everything: bool, fetch: Callable[[Sequence[BlobRef]], None]) -> Any:
        self.calls.append("rebuild everything" if everything else "rebuild small")
        self.on_rebuild()
        return SimpleNamespace(failed=())

    def table(self) -> list[Any]:
        return []

    def withheld(self) -> list[Any]:
        return []


class StandInLink:
    """A link that keeps what it was given."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.full = False
        self.trouble = ""

    def connected(self) -> bool:
        return True

    def congested(self) -> bool:
        return self.full

    def claim(self, claim: ClaimExecution) -> None:
        self.sent.append(claim)

    def propose(self, delta: Delta, capture_s: float = 0.0) -> None:
        self.sent.append(delta)

    def tell(self, message: Any, *, at_once: bool = False) -> None:
        self.sent.append(message)

    def complain(self, sentence: str) -> None:
        self.sent.append(sentence)


class Stage:
    """One replica with its stand-ins."""

    def __init__(self) -> None:
        self.state = StandInState()
        self.link = StandInLink()
        self.shell = SimpleNamespace(execution_count=5)
        self.settled: list[int] = []
        self.ended: list[str] = []
        self.patient = False
        self.woken = 0
        self.pins: tuple[Pin, ...] = ()
        self.absent: tuple[str, ...] = ()
        self.told: list[str] = []
        prompts = SimpleNamespace(
            exposed=lambda **_: nullcontext(), settle=self.settled.append, admit=lambda: None
        )
        process = ProcessState(lambda seq: self.pins, lambda seq: self.pins, lambda: self.absent, lambda: ())
        self.replica = Replica(
            self.state,
            self.shell,
            prompts,
            process,
            self._wake,
            self._end,
        )
        self.replica.link = self.link  # type: ignore[assignment]

    def _wake(self) -> None:
        self.woken += 1

    def _end(self, reason: str, *, patient: bool = False) -> None:
        self.ended.append(reason)
        self.patient = patient

    def run(self, seq: int, needs: int = 0, text: str = "") -> Execution:
        texts = (text,) if text else None
        execution = self.replica.begin(Envelope(Seq(seq), Fence(seq), Seq(needs)), texts=texts)
        if execution.trouble is None:
            self.shell.execution_count += 1
            self.replica.capture(execution)
        return execution


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_cell_is_claimed_then_captured_and_proposed(stage: Stage) -> None:
    assert stage.run(1).trouble is None
    claim, proposed = stage.link.sent
    assert claim == ClaimExecution(Seq(1), Fence(1))
    assert (proposed.seq, proposed.execution_count) == (1, 5)


def test_a_cell_waits_for_what_it_needs(stage: Stage) -> None:
    timer = threading.Timer(0.05, stage.replica.delta_arrived, [delta(3, execution_count=8)])
    timer.start()
    execution = stage.replica.begin(Envelope(Seq(4), Fence(4), Seq(3)))
    timer.join()
    assert execution.trouble is None
    assert stage.state.calls == ["receive 3", "rebuild everything"]
    assert stage.shell.execution_count == 9
    assert stage.settled == [9]


def test_a_delta_that_does_not_come_is_an_error_and_nothing_is_claimed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "NEEDS_TIMEOUT_S", 0.02)
    execution = stage.run(4, needs=3)
    assert isinstance(execution.trouble, QuorumLost)
    assert stage.link.sent == []


def test_own_executions_are_not_waited_for(stage: Stage) -> None:
    stage.link.full = True
    stage.run(1)
    assert stage.run(2, needs=1).trouble is None


def test_a_refused_execution_does_not_run(stage: Stage) -> None:
    stage.replica.execution_refused(Seq(2), "r2 was faster.")
    execution = stage.run(2)
    assert isinstance(execution.trouble, ReplkernelError)
    assert "r2 was faster; run it again" in str(execution.trouble)
    assert stage.link.sent == [] and stage.ended == []


def test_a_process_whose_execution_lost_afterwards_ends(stage: Stage) -> None:
    stage.run(2)
    stage.replica.execution_refused(Seq(2), "r2 was faster")
    assert len(stage.ended) == 1


@pytest.mark.parametrize("interrupted", [True, False])
def test_an_end_waits_for_the_last_words_of_a_cell_only_where_that_was_interrupted(
    stage: Stage, interrupted: bool
) -> None:
    stage.replica.stop("why", patient=interrupted)
    assert (stage.ended, stage.patient) == (["why"], interrupted)


def test_a_late_refusal_of_a_committed_execution_changes_nothing(stage: Stage) -> None:
    stage.run(2)
    stage.replica.delta_committed(Seq(2))
    stage.replica.execution_refused(Seq(2), "the claim came late")
    assert stage.ended == []


def test_an_interrupt_while_state_is_rebuilt_is_the_cells_trouble(stage: Stage) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    stage.replica.delta_arrived(delta(1))
    stage.state.on_rebuild = interrupted
    assert isinstance(stage.run(2, needs=1).trouble, KeyboardInterrupt)
    stage.state.on_rebuild = lambda: None
    assert stage.run(3, needs=1).trouble is None
    assert stage.state.calls[-2:] == ["rebuild everything", "capture 3"]


def test_a_capture_that_fails_is_told_once_and_proposes_nothing(stage: Stage) -> None:
    def broken() -> None:
        raise RuntimeError("no idea")

    stage.state.on_capture = broken
    stage.run(1)
    stage.run(2)
    assert [message for message in stage.link.sent if isinstance(message, Delta)] == []
    (told,) = [message for message in stage.link.sent if isinstance(message, str)]
    assert "on this replica alone for now (RuntimeError: no idea)" in told


def test_changes_held_back_by_congestion_are_captured_when_it_is_over(stage: Stage) -> None:
    stage.link.full = True
    stage.run(1)
    stage.run(2)
    (told,) = stage.replica.notices
    assert "on this replica alone" in told
    stage.link.full = False
    stage.replica.delta_committed(Seq(0))
    assert stage.woken == 1 and stage.replica.stale
    stage.replica.refresh()
    assert [message.seq for message in stage.link.sent if isinstance(message, Delta)] == [2]
    assert not stage.replica.stale


def test_without_an_envelope_a_cell_runs_and_proposes_nothing(stage: Stage) -> None:
    execution = stage.replica.begin(None)
    stage.replica.capture(execution)
    assert execution.trouble is None
    assert stage.link.sent == [] and stage.state.calls == []


def test_an_execution_is_captured_once(stage: Stage) -> None:
    execution = stage.run(1)
    stage.replica.capture(execution)
    assert stage.state.calls == ["capture 1"]


def test_process_pins_travel_with_the_delta(stage: Stage) -> None:
    stage.pins = (Pin("thread t", "Thread", ReplicaId("r1"), Seq(1), "", "It runs."),)
    stage.run(1)
    (told,) = stage.link.sent[-1].pins
    assert told == msgspec.structs.replace(stage.pins[0], cell=stage.link.sent[-1].execution_count)
    assert told.cell
    assert stage.replica.held_pins() == [told]


def test_idle_standby_rebuilds_what_is_small(stage: Stage) -> None:
    stage.replica.delta_arrived(delta(1, execution_count=4))
    assert stage.woken == 0 and stage.replica.stale
    stage.replica.quiet()
    assert stage.woken == 1
    stage.replica.refresh()
    assert stage.state.calls == ["receive 1", "rebuild small"]
    assert stage.shell.execution_count == 5
    assert not stage.replica.stale


def test_a_standby_that_was_asked_meanwhile_is_not_woken_again(stage: Stage) -> None:
    stage.replica.delta_arrived(delta(1))
    stage.replica.refresh()
    stage.replica.quiet()
    assert stage.woken == 0


def test_modules_that_this_host_lacks_are_told_once(stage: Stage) -> None:
    stage.absent = ("polars",)
    stage.replica.delta_arrived(delta(1))
    stage.run(2, needs=1)
    stage.replica.delta_arrived(delta(3))
    stage.run(4, needs=3)
    assert stage.replica.notices == ["The module polars cannot be imported on this host."]


def test_deltas_that_are_known_are_not_received_again(stage: Stage) -> None:
    stage.replica.delta_arrived(delta(1))
    stage.replica.delta_arrived(delta(1))
    stage.run(2, needs=1)
    stage.replica.delta_arrived(delta(2))
    assert [call for call in stage.state.calls if call.startswith("receive")] == ["receive 1"]


def test_idle_trouble_is_not_raised(stage: Stage) -> None:
    def broken() -> None:
        raise RuntimeError("broken module")

    stage.replica.delta_arrived(delta(1))
    stage.state.on_rebuild = broken
    stage.replica.refresh()
    assert stage.shell.execution_count == 5


def test_before_reply_waits_for_the_commit(stage: Stage) -> None:
    execution = stage.run(1)
    timer = threading.Timer(0.05, stage.replica.delta_committed, [Seq(1)])
    timer.start()
    stage.replica.await_commit(execution)
    timer.join()
    assert execution.durable


def test_before_reply_tells_what_is_not_durable(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(captures, "DURABLE_TIMEOUT_S", 0.02)
    stage.link.trouble = "The object store is full."
    execution = stage.run(1)
    stage.replica.await_commit(execution)
    assert not execution.durable
    assert "The object store is full" in capsys.readouterr().err


def test_before_reply_waits_long_once_only_while_what_is_wrong_is_known(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    patiences: list[float] = []
    monkeypatch.setattr(
        stage.replica._captures._news,
        "await_commit",
        lambda seq, may_commit, stop, patience_s: patiences.append(patience_s),
    )
    stage.link.trouble = "The object store is full."
    for seq in (1, 2):
        stage.replica.await_commit(stage.run(seq))
    stage.link.trouble = ""
    stage.replica.await_commit(stage.run(3))
    assert patiences == [
        captures.DURABLE_TIMEOUT_S,
        captures.TROUBLED_TIMEOUT_S,
        captures.DURABLE_TIMEOUT_S,
    ]


# -- what was rebuilt otherwise than captured ---------------------------------------------------------


def unfaithful(holder: str) -> tuple[Unfaithful, ...]:
    pin = Pin("x", "Drops", ReplicaId(holder), Seq(1), "", "x.b differs.")
    return (Unfaithful(ComponentId("x"), (pin,)),)


def test_a_cell_is_declined_for_whoever_has_what_is_not_true_here(stage: Stage) -> None:
    stage.state.unfaithful = unfaithful("r2")
    execution = stage.run(2)
    assert [pin.name for pin in execution.declined] == ["x"]
    assert execution.trouble is not None
    assert not any(isinstance(message, ClaimExecution | Delta) for message in stage.link.sent)


def test_a_cell_that_nobody_else_can_run_is_run_and_so_are_those_after_it(stage: Stage) -> None:
    stage.state.unfaithful = unfaithful("r2")
    execution = stage.replica.begin(Envelope(Seq(2), Fence(2), Seq(0), anyway=True))
    assert execution.trouble is None and execution.declined == ()
    assert stage.run(3).trouble is None


def test_a_loss_that_this_replica_made_itself_is_declined_for_nobody(stage: Stage) -> None:
    stage.state.unfaithful = unfaithful("r1")
    assert stage.run(2).trouble is None


def test_an_unfaithful_component_is_told_with_the_rebuilt_ones_and_again_when_it_ends(stage: Stage) -> None:
    stage.state.unfaithful, stage.state.unproven = unfaithful("r1"), 3
    stage.replica.delta_arrived(delta(1))
    stage.replica.refresh()
    told = [message for message in stage.link.sent if isinstance(message, ReplicaApplied)]
    assert [(pin.name, told[-1].unproven) for pin in told[-1].unfaithful] == [("x", 3)]
    stage.state.on_capture = lambda: setattr(stage.state, "unfaithful", ())
    stage.run(2)
    told = [message for message in stage.link.sent if isinstance(message, ReplicaApplied)]
    assert told[-1].unfaithful == ()


# -- whether the process may go --------------------------------------------------------------------------


def test_a_process_may_go_once_what_it_ran_is_durable(stage: Stage) -> None:
    stage.run(1)
    timer = threading.Timer(0.05, stage.replica.delta_committed, [Seq(1)])
    timer.start()
    assert stage.replica.what_keeps() == ""
    timer.join()


def test_an_owed_audit_is_made_whole_before_the_process_goes(stage: Stage) -> None:
    stage.state.leaves = (Unaudited("big", 0, ReplicaId("r1")),)
    stage.run(1)
    stage.state.leaves = ()
    stage.replica.waits = lambda: True
    stage.replica.delta_committed(Seq(1))
    assert stage.replica.what_keeps() == ""
    assert stage.state.calls == ["capture 1", "capture 1 audit 1"]
    stop = stage.state.terms[-1].stop
    assert stop is None or not stop()


def test_a_variable_that_cannot_be_checked_keeps_the_process_by_name(stage: Stage) -> None:
    stage.state.leaves = (Unaudited("big", 0, ReplicaId("r1")),)
    stage.run(1)
    assert "`big` could not be checked" in stage.replica.what_keeps()


def test_a_pin_of_the_process_keeps_it_and_is_not_waited_for(stage: Stage) -> None:
    stage.pins = (Pin("thread t", "Thread", ReplicaId("r1"), Seq(1), "", "It runs."),)
    stage.run(1)
    assert stage.replica.what_keeps() == "thread t (Thread) lives in this process alone: It runs"


def test_a_pin_of_another_process_does_not_keep_it(stage: Stage) -> None:
    stage.pins = (Pin("t", "Thread", ReplicaId("r2"), Seq(1), "", "It runs."),)
    stage.run(1)
    stage.replica.delta_committed(Seq(1))
    assert stage.replica.what_keeps() == ""


def test_no_commit_keeps_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departure, "DURABLE_TIMEOUT_S", 0.02)
    stage.run(1)
    assert "not durable yet (no commit within 0.02 s)" in stage.replica.what_keeps()
    stage.link.trouble = "no majority."
    assert "not durable yet (no majority)" in stage.replica.what_keeps()


def test_a_variable_that_could_not_be_captured_keeps_the_process(stage: Stage) -> None:
    def broken() -> None:
        raise RuntimeError("no idea")

    stage.state.on_capture = broken
    stage.run(1)
    assert "is here alone: RuntimeError: no idea" in stage.replica.what_keeps()


def test_a_change_held_back_by_congestion_is_captured_before_the_process_goes(stage: Stage) -> None:
    stage.link.full = True
    stage.run(1)
    stage.link.full = False
    stage.replica.delta_committed(Seq(1))
    assert stage.replica.what_keeps() == ""
    assert [message.seq for message in stage.link.sent if isinstance(message, Delta)] == [1]


def test_an_interrupt_ends_the_waiting_and_nothing_goes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.state.leaves = (Unaudited("big", 0, ReplicaId("r1")),)
    stage.run(1)
    stage.state.on_capture = lambda: signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        stage.replica.what_keeps()


def test_a_standby_has_nothing_to_wait_for(stage: Stage) -> None:
    stage.run(1)
    stage.replica.delta_arrived(delta(2))
    assert stage.replica.what_keeps() == ""
