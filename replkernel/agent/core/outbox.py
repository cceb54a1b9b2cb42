"""What a replica's process wants committed, in order: claims, deltas with their uploads, failures. Pure.

Law: blobs are stored before the delta that names them is proposed; deltas are proposed in the order of their
executions, and none while an earlier proposal of deltas is on its way; nothing is given up, everything is
retried with the same key.
"""

from __future__ import annotations

from collections import deque
from itertools import islice

import msgspec

from replkernel.agent.core.effects import (
    ClaimProposal,
    DeltaProposal,
    Effect,
    FailureProposal,
    JoinProposal,
    Propose,
    UploadBlobs,
)
from replkernel.records import Delta, Digest, Fence, Mark, Seq

DELTAS_MAX = 1024
"""No more deltas wait than this: the process itself stops capturing long before."""

CLAIMS_AHEAD_MAX = 32
"""No claim is proposed while so many deltas wait: the log remembers only its latest executions."""

UPLOADS_MAX = 4
"""So many deltas have their blobs uploaded at the same time."""

PROPOSAL_TIMEOUT_S = 10.0
"""Consensus answers sooner; this is for the case that it does not."""

CLAIM_HOLD_S = 0.015
"""A cell that ends so soon after its claim came is claimed by its delta: one entry less to wait for."""

DELTA_HOLD_S = 0.03
"""Where proposals may be held: the deltas of so long a time are proposed together."""

TOGETHER_MAX = 64
"""No more deltas than this are proposed together."""

RETRY_MIN_S = 0.25
RETRY_MAX_S = 15.0
NO_MAJORITY = (
    "The majority of this kernel's replicas does not answer, so its state cannot be committed for now: "
    "cells go on, but see `replkernel status`, bring missing hosts back (setting REPLKERNEL_HOSTS), and make "
    "room on a full disk (setting JUPYTER_DATA_DIR); when hosts are gone for good, use `replkernel recover`."
)


def _due(waiting: Waiting, now: float) -> bool:
    return waiting.retry_at is None or waiting.retry_at <= now


class Waiting(msgspec.Struct):
    """A proposal on its way, and the birth of the process that it is for."""

    proposal: ClaimProposal | DeltaProposal | FailureProposal | JoinProposal
    birth: int
    upload: str
    """``none`` needed or done, ``waiting``, ``running``."""
    held_until: float = 0.0
    """Before then it is not proposed."""
    proposed: bool = False
    retry_at: float | None = None
    tries: int = 0
    why: str = ""
    unclaimed: bool = False
    """Whether this delta claims its execution too: a later claim that came before it would void it."""

    @property
    def held(self) -> bool:
        """Tell whether nothing but its hold keeps it from being proposed."""
        return self.held_until > 0 and self.upload == "none" and not self.proposed

    @property
    def seq(self) -> Seq:
        """The execution that this is about."""
        proposal = self.proposal
        if isinstance(proposal, JoinProposal):
            return Seq(0)
        return proposal.delta.seq if isinstance(proposal, DeltaProposal) else proposal.seq

    @property
    def mark(self) -> Mark:
        """The execution, and which audit of it, that this is about."""
        audit = self.proposal.delta.audit if isinstance(self.proposal, DeltaProposal) else 0
        return Mark(self.seq, audit)

    @property
    def afresh(self) -> bool:
        """Tell whether this claims an execution that goes on for a lost process."""
        return isinstance(self.proposal, ClaimProposal) and self.proposal.afresh

    def delay_s(self) -> float:
        """Return how long to wait before the next try."""
        return min(RETRY_MAX_S, RETRY_MIN_S * 2.0 ** min(self.tries, 10))


class Outbox:
    """Three lanes: claims are light and do not wait for the uploads of earlier deltas; joining is once.

    A claim waits a moment for the delta that makes it needless; with `holds`, a delta for others to go along.
    """

    def __init__(self, *, holds: bool = False) -> None:
        self.open = False
        self._delta_hold_s = DELTA_HOLD_S if holds else 0.0
        self.joins: deque[Waiting] = deque()
        self.claims: deque[Waiting] = deque()
        self.deltas: deque[Waiting] = deque()
        self._claimed = Seq(0)
        """The last execution of this replica whose claim the log holds."""

    # -- in ------------------------------------------------------------------------------------------

    def add_claim(
        self, seq: Seq, fence: Fence, birth: int, now: float, *, afresh: bool = False
    ) -> list[Effect]:
        """Take the start of an execution; one that begins `afresh` waits for no delta and is not held."""
        held_until = 0.0 if afresh else now + CLAIM_HOLD_S
        self.claims.append(Waiting(ClaimProposal(seq, fence, afresh), birth, "none", held_until))
        return self._move(now)

    def add_failure(self, seq: Seq, fence: Fence, why: str, now: float) -> list[Effect]:
        """Take the failure of an execution; it keeps its place behind earlier deltas and needs no claim."""
        self._drop_held_claim(seq)
        self.deltas.append(Waiting(FailureProposal(seq, fence, why), 0, "none"))
        return self._move(now)

    def add_delta(self, delta: Delta, birth: int, now: float) -> list[Effect]:
        """Take what an execution changed; one that is here already, or has no room, is ignored.

        The process keeps what it has not seen committed, and offers it again at its next greeting.
        """
        if any(waiting.mark == delta.mark for waiting in self.deltas) or len(self.deltas) >= DELTAS_MAX:
            return []
        upload = "waiting" if delta.blobs() else "none"
        held_until = now + self._delta_hold_s if self._delta_hold_s else 0.0
        waiting = Waiting(DeltaProposal(delta), birth, upload, held_until)
        if delta.audit:
            self.deltas.append(waiting)
            return self._move(now)
        if upload == "none" and all(earlier.upload == "none" for earlier in self.deltas):
            self._drop_held_claim(delta.seq)
            waiting.unclaimed = delta.seq > max(self._claimed, self._last_claim())
        elif delta.seq > max(self._claimed, self._last_claim()):
            self.claims.append(Waiting(ClaimProposal(delta.seq, delta.fence), birth, "none"))
        self.deltas.append(waiting)
        return self._move(now)

    def _last_claim(self) -> Seq:
        return self.claims[-1].seq if self.claims else Seq(0)

    def _drop_held_claim(self, seq: Seq) -> None:
        """Do without the claim of an execution that has ended before the claim was proposed."""
        if self._last_claim() == seq and not self.claims[-1].proposed:
            self.claims.pop()

    # -- what became of it -----------------------------------------------------------------------------

    def group_opened(self, address: str, now: float) -> list[Effect]:
        """Begin to propose, first of all that the replica at `address` is a member."""
        self.open = True
        self.joins.append(Waiting(JoinProposal(address), 0, "none"))
        return self._move(now)

    def joined(self) -> None:
        """Note that the log holds the membership."""
        self.joins.clear()

    def upload_ended(self, mark: Mark, why: str, now: float) -> list[Effect]:
        """Note the end of an upload."""
        for waiting in self.deltas:
            if waiting.mark == mark and waiting.upload == "running":
                waiting.why = why
                if why:
                    waiting.upload = "waiting"
                    waiting.retry_at = now + waiting.delay_s()
                    waiting.tries += 1
                else:
                    waiting.upload, waiting.retry_at, waiting.tries = "none", None, 0
        return self._move(now)

    def upload_delayed(self, mark: Mark, why: str) -> list[Effect]:
        """Note why an upload that is being retried does not get through."""
        for waiting in self.deltas:
            if waiting.mark == mark and waiting.upload == "running":
                waiting.why = why
        return []

    def proposal_failed(self, key: str, why: str, now: float) -> list[Effect]:
        """Note that a proposal may not have been appended: it is proposed again later.

        So are the deltas that were proposed with it, because none may overtake another.
        """
        for lane in (self.joins, self.claims, self.deltas):
            failed = False
            for waiting in lane:
                failed = failed or waiting.proposal.key == key
                if failed and waiting.proposed:
                    self._put_back(waiting, why, now)
        return []

    @staticmethod
    def _put_back(waiting: Waiting, why: str, now: float) -> None:
        """Let a proposal wait for its next try; without `why` nobody answered in time.

        That is told from the second time on: one late answer is a busy machine's, and the member tells of a
        majority that it does not see.
        """
        waiting.proposed = False
        waiting.why = why or (NO_MAJORITY if waiting.tries else "")
        waiting.retry_at = now + waiting.delay_s()
        waiting.tries += 1

    def settled(self, mark: Mark, now: float) -> tuple[list[Waiting], list[Effect]]:
        """Take out everything up to `mark`, which the log decided; return it and what follows."""
        done = []
        while self.deltas and self.deltas[0].mark <= mark:
            done.append(self.deltas.popleft())
        self.claims = deque(waiting for waiting in self.claims if waiting.seq > mark.seq)
        return done, self._move(now)

    def claim_settled(self, seq: Seq, now: float) -> list[Effect]:
        """Take out the claims up to `seq`, which the log has decided."""
        self._claimed = max(self._claimed, seq)
        for waiting in self.deltas:
            waiting.unclaimed = waiting.unclaimed and waiting.seq > seq
        self.claims = deque(waiting for waiting in self.claims if waiting.seq > seq)
        return self._move(now)

    def holds(self, seq: Seq) -> bool:
        """Tell whether a delta or a failure of execution `seq` is on its way."""
        return any(waiting.seq == seq for waiting in self.deltas)

    def newest(self) -> tuple[Seq, Fence]:
        """Return the last execution whose delta is on its way, and its fence."""
        deltas = self._on_their_way()
        return max(((delta.seq, delta.fence) for delta in deltas), default=(Seq(0), Fence(0)))

    def _on_their_way(self) -> list[Delta]:
        return [
            waiting.proposal.delta for waiting in self.deltas if isinstance(waiting.proposal, DeltaProposal)
        ]

    def newest_whole(self) -> Seq:
        """Return the last execution that is whole with the deltas on their way; 0 when none is."""
        return max((delta.seq for delta in self._on_their_way() if delta.whole), default=Seq(0))

    def stored_deltas(self) -> list[Delta]:
        """Return the deltas on their way whose blobs the store has, up to the first one that lacks some."""
        found: list[Delta] = []
        for waiting in self.deltas:
            if waiting.upload != "none":
                break
            if isinstance(waiting.proposal, DeltaProposal):
                found.append(waiting.proposal.delta)
        return found

    def digests_on_their_way(self) -> set[Digest]:
        """Return the chunks that the deltas on their way name: no log does yet."""
        return {digest for delta in self._on_their_way() for digest in delta.digests()}

    def withdraw(self, seq: Seq, now: float) -> list[Effect]:
        """Take out execution `seq` alone, which the log has overruled."""
        self.deltas = deque(waiting for waiting in self.deltas if waiting.seq != seq)
        self.claims = deque(waiting for waiting in self.claims if waiting.seq != seq)
        return self._move(now)

    def overtaken(self, seq: Seq, now: float) -> list[Effect]:
        """Take out what is on its way of executions before `seq`, which goes on without them."""
        self.deltas = deque(waiting for waiting in self.deltas if waiting.seq >= seq)
        self.claims = deque(waiting for waiting in self.claims if waiting.seq >= seq)
        return self._move(now)

    def find(self, key: str) -> Waiting | None:
        """Return the proposal `key`, if it is still waiting."""
        lanes = (self.joins, self.claims, self.deltas)
        return next((waiting for lane in lanes for waiting in lane if waiting.proposal.key == key), None)

    def refused(self, key: str) -> Waiting | None:
        """Take out and return the proposal `key`, which the log has refused, if it is still waiting."""
        for lane in (self.joins, self.claims, self.deltas):
            for waiting in lane:
                if waiting.proposal.key == key:
                    lane.remove(waiting)
                    return waiting
        return None

    # -- moving ----------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Effect]:
        """Retry what is due; a proposal without an answer counts as failed."""
        for waiting in (*self.joins, *self.claims, *self.deltas):
            if waiting.proposed and waiting.retry_at is not None and waiting.retry_at <= now:
                self._put_back(waiting, "", now)
                waiting.retry_at = now
        return self._move(now)

    def _move(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        if not (self.deltas or self.claims or self.joins):
            return effects
        free = self._free_uploads()
        for waiting in self.deltas:
            if free <= 0:
                break
            if waiting.upload == "waiting" and _due(waiting, now):
                assert isinstance(waiting.proposal, DeltaProposal)
                waiting.upload, waiting.retry_at = "running", None
                free -= 1
                blobs = tuple(waiting.proposal.delta.blobs())
                effects.append(UploadBlobs(waiting.seq, blobs, waiting.mark.audit))
        for head in self._heads():
            if self._ready(head, now) and head.held_until <= now:
                self._start(head, now)
                effects.append(Propose(head.proposal, self._start_following(head, now)))
        return effects

    def _ready(self, waiting: Waiting, now: float) -> bool:
        """Tell whether nothing keeps `waiting` from being proposed but a hold."""
        return self.open and waiting.upload == "none" and not waiting.proposed and _due(waiting, now)

    @staticmethod
    def _start(waiting: Waiting, now: float) -> None:
        waiting.proposed = True
        waiting.retry_at = now + max(PROPOSAL_TIMEOUT_S, waiting.delay_s())

    def _start_following(self, head: Waiting, now: float) -> tuple[DeltaProposal, ...]:
        """Return the deltas that go with `head`: those right behind it that wait for nothing but time."""
        if not self._delta_hold_s or not isinstance(head.proposal, DeltaProposal):
            return ()
        together: list[DeltaProposal] = []
        for waiting in islice(self.deltas, 1, TOGETHER_MAX):
            if not self._ready(waiting, now) or not isinstance(waiting.proposal, DeltaProposal):
                break
            self._start(waiting, now)
            together.append(waiting.proposal)
        return tuple(together)

    def _heads(self) -> list[Waiting]:
        """Return what may be proposed now: the first of each lane.

        Claims only while few deltas wait, and none that claims its execution itself.
        """
        full = len(self.deltas) >= CLAIMS_AHEAD_MAX or any(waiting.unclaimed for waiting in self.deltas)
        held = full and not (self.claims and (self.claims[0].proposed or self.claims[0].afresh))
        lanes = (self.joins, self.deltas) if held else (self.joins, self.claims, self.deltas)
        return [lane[0] for lane in lanes if lane]

    def deadline(self) -> float | None:
        """Return when something must be retried, or None.

        It is asked after each event, of each replica: most of the time nothing is on its way.
        """
        if not (self.deltas or self.claims or self.joins):
            return None
        heads = self._heads()
        times = [waiting.retry_at for waiting in self._active(heads) if waiting.retry_at is not None]
        if self.open:
            times += [max(head.held_until, head.retry_at or 0.0) for head in heads if head.held]
        return min(times, default=None)

    def _active(self, heads: list[Waiting]) -> list[Waiting]:
        """Return what time alone moves: an upload that is due waits for others to end while too many run."""
        uploads = [waiting.upload for waiting in self.deltas if waiting.upload != "none"]
        if not uploads:
            return heads
        if uploads.count("running") >= UPLOADS_MAX:
            return [waiting for waiting in heads if waiting.upload != "waiting"]
        return heads + [waiting for waiting in self.deltas if waiting.upload == "waiting"]

    def _free_uploads(self) -> int:
        return UPLOADS_MAX - sum(waiting.upload == "running" for waiting in self.deltas)

    def trouble(self) -> tuple[Seq, str] | None:
        """Return the first delta that is in trouble, and why."""
        for waiting in self.deltas:
            if waiting.why:
                return waiting.seq, waiting.why
        return None

    def check_invariants(self) -> None:
        """Raise AssertionError when the laws of this file are broken."""
        numbers = [waiting.mark for waiting in self.deltas]
        assert numbers == sorted(numbers), f"deltas out of order: {numbers}"
        proposed = [waiting.proposed for waiting in self.deltas]
        assert proposed == sorted(proposed, reverse=True), "a delta overtook another"
        assert self._delta_hold_s or sum(proposed) <= 1, "deltas were proposed together"
        assert not any(w.proposed and w.upload != "none" for w in self.deltas), "proposed before its upload"
        assert len(self.deltas) <= DELTAS_MAX + 1, "the queue of deltas has no bound"
        assert sum(w.upload == "running" for w in self.deltas) <= UPLOADS_MAX
