"""Held proposals: claims folded into deltas and deltas in bundles come to the same as each by itself."""

from __future__ import annotations

from collections import deque
from copy import deepcopy

import hypothesis.strategies as st
from hypothesis import example, given

from replkernel.agent.core.effects import (
    ClaimProposal,
    DeltaProposal,
    Effect,
    FailureProposal,
    Propose,
    UploadBlobs,
)
from replkernel.agent.core.outbox import CLAIM_HOLD_S, DELTA_HOLD_S, TOGETHER_MAX, Outbox
from replkernel.records import Fence, Mark, ReplicaId, Seq
from replkernel.replication.entries import (
    Entry,
    ExecutionStarted,
    execution_failed,
    execution_started,
    replica_joined,
    split_delta,
)
from replkernel.replication.machine import KernelMachine
from replkernel.replication.outcomes import DeltaApplied, ExecutionClaimed, ExecutionMarkedFailed, Refused
from tests.unit.agent.transcript import delta

STEPS = st.lists(
    st.sampled_from(
        [
            "claim",
            "delta",
            "blobs",
            "failure",
            "uploaded",
            "not uploaded",
            "unknown",
            "logged",
            "time",
            "soon",
        ]
    ),
    max_size=80,
)
R1 = ReplicaId("r1")
FAR_S = 1e6


def entries_of(proposal: object) -> list[Entry]:
    match proposal:
        case ClaimProposal():
            return [execution_started(proposal.seq, R1, proposal.fence)]
        case DeltaProposal():
            return [*split_delta(proposal.delta)]
        case FailureProposal():
            return [execution_failed(proposal.seq, R1, proposal.why)]
    return [replica_joined(R1, "hosta", "a:1")]  # type: ignore[arg-type]


class World:
    """An outbox that holds, before a real machine: proposals reach it in order, or not at all."""

    def __init__(self) -> None:
        self.outbox = Outbox(holds=True)
        self.machine = KernelMachine()
        self.now = 1.0
        self.index = 0
        self.running = 0
        self.seq = 0
        self.ended: set[int] = set()
        self.uploading: list[Seq] = []
        self.flying: deque[Propose] = deque()
        self.claimed: set[int] = set()
        self.refused: list[str] = []
        self.take(self.outbox.group_opened("a:1", self.now))

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, UploadBlobs):
                self.uploading.append(effect.seq)
            if isinstance(effect, Propose):
                assert len(effect.following) < TOGETHER_MAX
                self.flying.append(effect)
        self.outbox.check_invariants()

    def end(self) -> bool:
        """End the cell that runs, starting one first when there is none."""
        if not self.running:
            self.step("claim")
        self.ended.add(self.running)
        self.running = 0
        return True

    def step(self, what: str) -> None:
        outbox = self.outbox
        match what:
            case "claim" if not self.running:
                self.seq += 1
                self.running = self.seq
                self.take(outbox.add_claim(Seq(self.seq), Fence(self.seq), 1, self.now))
            case "delta" | "blobs" if self.end():
                made = delta(self.seq, blobs=int(what == "blobs"))
                self.take(outbox.add_delta(made, 1, self.now))
            case "failure" if self.end():
                self.take(outbox.add_failure(Seq(self.seq), Fence(self.seq), "killed", self.now))
            case "uploaded" | "not uploaded" if self.uploading:
                why = "" if what == "uploaded" else "no store"
                self.take(outbox.upload_ended(Mark(self.uploading.pop()), why, self.now))
            case "unknown" if self.flying:
                for proposal in self._next():
                    self.take(outbox.proposal_failed(proposal.key, "no majority", self.now))
            case "logged" if self.flying:
                for proposal in self._next():
                    for entry in entries_of(proposal):
                        self.log(entry)
            case "time" if (due := outbox.deadline()) is not None:
                self.now = max(self.now, due)
                self.take(outbox.tick(self.now))
            case "soon":
                self.now += CLAIM_HOLD_S / 3

    def _next(self) -> list[object]:
        first = self.flying.popleft()
        return [first.proposal, *first.following]

    def log(self, entry: Entry) -> None:
        self.index += 1
        for outcome in self.machine.apply(self.index, entry):
            match outcome:
                case ExecutionClaimed():
                    self.claimed.add(outcome.seq)
                    self.take(self.outbox.claim_settled(outcome.seq, self.now))
                case DeltaApplied():
                    self.take(self.outbox.settled(outcome.delta.mark, self.now)[1])
                case ExecutionMarkedFailed():
                    self.take(self.outbox.settled(Mark(outcome.seq), self.now)[1])
                case Refused() if not isinstance(entry, ExecutionStarted):
                    self.refused.append(outcome.why)
        self.outbox.joined()


@given(STEPS)
def test_whatever_is_held_the_log_refuses_nothing_and_ends_every_execution(steps: list[str]) -> None:
    world = World()
    for step in steps:
        world.step(step)
    for _ in range(8 * (world.seq + 2)):
        world.step("uploaded")
        world.step("time")
        while world.flying:
            world.step("logged")
    assert [why for why in world.refused if "already been" not in why] == []
    assert world.outbox.newest()[0] == 0
    ends = {known.seq for known in world.machine._ledger.state.executions.values() if known.state != "open"}
    assert ends == world.ended
    assert not world.running or world.running in world.claimed


TIRED = ["blobs", "not uploaded", "time", "blobs", "blobs", "blobs", "blobs", "time"]
"""An upload that failed is due again while as many others run as may."""


@given(STEPS)
@example(TIRED)
def test_no_deadline_is_one_that_time_does_not_move(steps: list[str]) -> None:
    world = World()
    for step in steps:
        world.step(step)
        for _ in range(4):
            due = world.outbox.deadline()
            if due is None or due > world.now:
                break
            world.step("time")
        else:
            raise AssertionError("the outbox wakes for nothing")


@given(STEPS)
@example(TIRED)
def test_nothing_is_due_before_its_deadline(steps: list[str]) -> None:
    world = World()
    for step in steps:
        world.step(step)
        due = world.outbox.deadline()
        if due is None or due > world.now:
            still = FAR_S if due is None else (world.now + due) / 2
            assert deepcopy(world.outbox).tick(max(world.now, still)) == [], "a deadline is missed"


def test_the_claim_of_a_short_cell_is_its_delta() -> None:
    outbox = Outbox(holds=True)
    outbox.group_opened("a:1", 1.0)
    outbox.joined()
    assert outbox.add_claim(Seq(1), Fence(1), 1, 1.0) == []
    assert outbox.add_delta(delta(1), 1, 1.001) == []
    assert outbox.deadline() == 1.001 + DELTA_HOLD_S
    assert outbox.tick(1.001 + DELTA_HOLD_S) == [Propose(DeltaProposal(delta(1)))]


def test_the_claim_of_a_longer_cell_is_proposed_while_it_runs() -> None:
    outbox = Outbox(holds=True)
    outbox.group_opened("a:1", 1.0)
    outbox.joined()
    outbox.add_claim(Seq(1), Fence(1), 1, 1.0)
    assert outbox.deadline() == 1.0 + CLAIM_HOLD_S
    assert outbox.tick(1.0 + CLAIM_HOLD_S) == [Propose(ClaimProposal(Seq(1), Fence(1)))]


def test_a_held_claim_whose_process_died_is_failed_instead() -> None:
    outbox = Outbox(holds=True)
    outbox.group_opened("a:1", 1.0)
    outbox.joined()
    outbox.add_claim(Seq(1), Fence(1), 1, 1.0)
    failed = outbox.add_failure(Seq(1), Fence(1), "killed", 1.001)
    assert failed == [Propose(FailureProposal(Seq(1), Fence(1), "killed"))]
    assert outbox.tick(2.0) == []


def test_deltas_of_a_busy_moment_are_proposed_together() -> None:
    outbox = Outbox(holds=True)
    outbox.group_opened("a:1", 1.0)
    outbox.joined()
    for seq in (1, 2, 3):
        outbox.add_claim(Seq(seq), Fence(seq), 1, 1.0)
        assert outbox.add_delta(delta(seq), 1, 1.0 + seq / 1000) == []
    first, second, third = (DeltaProposal(delta(seq)) for seq in (1, 2, 3))
    assert outbox.tick(1.001 + DELTA_HOLD_S) == [Propose(first, (second, third))]
    outbox.proposal_failed(first.key, "no majority", 1.1)
    assert outbox.tick(outbox.deadline() or 0.0) == [Propose(first, (second, third))]
