"""The outbox's laws hold whatever happens in whatever order."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from replkernel.agent.core.effects import (
    ClaimProposal,
    DeltaProposal,
    Effect,
    JoinProposal,
    Propose,
    UploadBlobs,
)
from replkernel.agent.core.outbox import Outbox
from replkernel.records import Fence, Mark, Seq
from tests.unit.agent.transcript import delta

STEPS = st.lists(
    st.sampled_from(["claim", "delta", "blobs", "uploaded", "not uploaded", "unknown", "logged", "time"]),
    max_size=60,
)


class World:
    """An outbox whose uploads and proposals are answered by the steps of a test."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.now = 0.0
        self.seq = 0
        self.uploading: list[Seq] = []
        self.uploaded: set[Seq] = set()
        self.with_blobs: set[Seq] = set()
        self.proposed: list[DeltaProposal] = []
        self.logged: list[Seq] = []
        self.take(self.outbox.group_opened("a:1", 0.0))

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, UploadBlobs):
                self.uploading.append(effect.seq)
            assert isinstance(effect, (UploadBlobs, Propose))
            if isinstance(effect, Propose) and isinstance(effect.proposal, DeltaProposal):
                seq = effect.proposal.delta.seq
                assert seq not in self.with_blobs or seq in self.uploaded, "proposed before it was stored"
                assert seq == len(self.logged) + 1, "a delta overtook another"
                self.proposed.append(effect.proposal)
        self.outbox.check_invariants()

    def step(self, what: str) -> None:
        outbox = self.outbox
        match what:
            case "claim":
                self.take(outbox.add_claim(Seq(self.seq + 1), Fence(self.seq + 1), 1, self.now))
            case "delta" | "blobs":
                self.seq += 1
                if what == "blobs":
                    self.with_blobs.add(Seq(self.seq))
                self.take(outbox.add_delta(delta(self.seq, blobs=int(what == "blobs")), 1, self.now))
            case "uploaded" | "not uploaded" if self.uploading:
                seq = self.uploading.pop()
                if what == "uploaded":
                    self.uploaded.add(seq)
                self.take(outbox.upload_ended(Mark(seq), "" if what == "uploaded" else "no store", self.now))
            case "unknown" if self.proposed:
                self.take(outbox.proposal_failed(self.proposed[-1].key, "no majority", self.now))
            case "logged" if self.proposed and self.proposed[-1].delta.seq == len(self.logged) + 1:
                seq = self.proposed[-1].delta.seq
                self.logged.append(seq)
                self.take(outbox.settled(Mark(seq), self.now)[1])
            case "time":
                due = outbox.deadline()
                if due is not None:
                    self.now = max(self.now, due)
                    self.take(outbox.tick(self.now))


@given(STEPS)
def test_every_delta_is_logged_once_in_order_after_its_upload(steps: list[str]) -> None:
    world = World()
    for step in steps:
        world.step(step)
    for _ in range(8 * (world.seq + 1)):
        for step in ("uploaded", "time", "logged"):
            world.step(step)
    assert world.logged == list(range(1, world.seq + 1))
    assert world.outbox.trouble() is None


@given(STEPS)
def test_whatever_waits_has_a_time_or_somebody_who_answers(steps: list[str]) -> None:
    world = World()
    for step in steps:
        world.step(step)
        heads = [lane[0] for lane in (world.outbox.claims, world.outbox.deltas) if lane]
        for head in heads:
            held = head.held_until > world.now
            idle = not head.proposed and head.upload == "none" and head.retry_at is None and not held
            assert not held or world.outbox.deltas or (world.outbox.deadline() or 0.0) <= head.held_until
            assert not idle or (isinstance(head.proposal, ClaimProposal) and world.outbox.deltas)


def test_joining_is_repeated_until_the_log_shows_it() -> None:
    outbox = Outbox()
    first = outbox.group_opened("a:1", 0.0)
    outbox.proposal_failed("join-a:1", "no majority", 0.0)
    again = outbox.tick(outbox.deadline() or 0.0)
    assert first == again == [Propose(JoinProposal("a:1"))]
    outbox.joined()
    assert outbox.deadline() is None


def test_what_a_last_member_hands_on_ends_before_the_first_delta_that_the_store_lacks() -> None:
    outbox = Outbox()
    for seq, blobs in ((1, 0), (2, 1), (3, 0)):
        outbox.add_delta(delta(seq, blobs=blobs), 1, 0.0)
    assert [each.seq for each in outbox.stored_deltas()] == [1]
    outbox.upload_ended(Mark(Seq(2)), "", 0.0)
    assert [each.seq for each in outbox.stored_deltas()] == [1, 2, 3]
