"""Consensus by Raft: one member of one kernel's group, over PySyncObj, on the process's Raft thread.

Owns the order and the time-outs of proposals, the group's pace and what is told of the quorum; Raft
itself is PySyncObj's. Law: proposals leave one at a time, so entries of a member keep their order.
"""

from __future__ import annotations

import errno
import logging
import shutil
import threading
from collections import deque
from collections.abc import Collection
from functools import partial
from pathlib import Path
from time import monotonic

from pysyncobj.syncobj import SyncObjException

from replkernel.errors import ReplkernelError
from replkernel.replication import raft_thread
from replkernel.replication.addresses import claim_raft_address, listens_at
from replkernel.replication.consensus import (
    PROPOSAL_BYTES_MAX,
    PROPOSAL_TIMEOUT_S,
    PROPOSALS_MAX,
    Done,
    JournalDamaged,
    JournalUnavailable,
    ProposalCommitted,
    ProposalOutcome,
    ProposalUnknown,
    RaftAddressLost,
    RaftStatus,
    StateCallbacks,
)
from replkernel.replication.entries import ENTRY_BYTES_MAX, EntryTooLarge
from replkernel.replication.raft_files import drop_what_a_snapshot_holds
from replkernel.replication.raft_fit import fit_pysyncobj
from replkernel.replication.raft_node import (
    BIRTH,
    BUSY,
    DENIED,
    JOURNAL_FILE,
    REST,
    SETTLE,
    SNAPSHOT_FILE,
    SUCCESS,
    Pace,
    RaftNode,
    SnapshotFile,
    between,
    read_snapshot,
)
from replkernel.replication.raft_wire import sealed_channel

_PASSING = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR)
)
"""What another try, later, may overcome."""

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))

ROOM_RETRY_S = 0.5
"""A proposal for which the journal had no room is written again after this long."""
RESEND_S = 1.0
"""A proposal that got no answer is sent again after this long."""
RETRY_S = 0.02
SUSPECT_S = 0.6
"""A leader that leaves a proposal unanswered for this long, and says nothing else, is doubted."""
BIRTH_LIMIT_S = 10.0
SETTLE_LIMIT_S = 3.0
"""A member tries often for this long to find peers that start after it."""
SEEK_LIMIT_S = 10.0
"""A peer whose connection broke is looked for often for this long: most agents are back within a second."""
QUORUM_GRACE_S = 1.0
"""An election this short is not told as a lost quorum."""
KEEP_LINKS_S = 5.0
ROUNDS_MAX = 32
"""A member takes no more turns than this before it lets the others have theirs."""

CAMPAIGN_MIN_S, CAMPAIGN_MAX_S = 0.4, 0.9
"""A candidate that was not elected stands again after a random time between these, at rest as well."""
RETURN_S, RETURN_STEP_S = 0.35, 0.15
"""A restarted member stands for election so long after its first connection, by its rank in the group,"""
LED_RETURN_S, LED_RETURN_STEP_S = 1.2, 0.25
"""or so long after a peer said that it has a leader, which finds the member in that time."""

LEADER_STAYS = "the leader cannot be removed; transfer the leadership first"

log = logging.getLogger(__name__)


class Proposal:
    """What waits to be committed: an entry, or a change of the membership."""

    __slots__ = ("adds", "change", "deadline", "done", "entry", "retry_at", "sent_at", "sent_term")

    def __init__(self, entry: bytes, change: str, adds: bool, done: Done | None, deadline: float) -> None:
        self.entry = entry
        self.change = change
        self.adds = adds
        self.done = done
        self.deadline = deadline
        self.sent_at = 0.0
        self.sent_term = 0
        self.retry_at = 0.0


class RaftMember:
    """One member of one group; see Consensus for the methods.

    `peers` are the addresses of all members, this one's included or not. `directory` is this member's
    alone, and its owner removes it once the member is closed for good. `joining`: the group already
    exists, and this member must not stand for election before it has heard of the leader. `bind` is the IP
    address at which it listens, where others reach it at another one.
    """

    def __init__(
        self,
        address: str,
        peers: Collection[str],
        secret: str,
        directory: Path,
        callbacks: StateCallbacks,
        *,
        joining: bool = False,
        proposal_timeout_s: float = PROPOSAL_TIMEOUT_S,
        bind: str = "",
    ) -> None:
        self._address = address
        self._bind = bind
        self._peers = sorted({address, *peers})
        self._secret = secret
        self._directory = directory
        self._callbacks = callbacks
        self._joining = joining
        self._timeout_s = proposal_timeout_s
        self._lock = threading.Lock()
        self._outbox: deque[Proposal] = deque()
        self._held_bytes = 0
        self._thread: raft_thread.RaftThread | None = None
        # From here on: the Raft thread's alone.
        self._node: RaftNode | None = None
        self._flying: Proposal | None = None
        self._pace: Pace = BIRTH
        self._busy = False
        self._restarted = False
        self._linked = False
        self._born_at = 0.0
        self._seeks_until = 0.0
        self._campaign = -1
        """The last term for which this member stood for election."""
        self._quorum: bool | None = None
        self._quorum_seen_at = 0.0
        self._links_kept_at = 0.0
        self._trouble = ""
        """Why the last proposal could not be written here."""

    @property
    def address(self) -> str:
        return self._address

    # -- coming and going --

    def start(self) -> None:
        """Bind the address, take up the journal, and begin; takes milliseconds, or CLAIM_S where it is taken.

        Raises RaftAddressLost, JournalDamaged, JournalUnavailable, or AuthenticationFailed for a secret that
        is too short.
        """
        if self._thread is not None:
            raise ReplkernelError("A Raft member starts once; make a new one to start again.")
        fit_pysyncobj()
        sealed_channel(self._secret)
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _of_file(self._directory, error) from error
        self._restarted = (self._directory / JOURNAL_FILE).exists()
        snapshot = self._directory / SNAPSHOT_FILE
        begins = read_snapshot(snapshot) if snapshot.exists() else None
        thread = self._thread = raft_thread.acquire()
        try:
            claim_raft_address(self._address, self._bind)
            thread.call(partial(self._begin, thread, begins))
        except BaseException:
            self.close()
            raise

    def _begin(self, thread: raft_thread.RaftThread, begins: SnapshotFile | None) -> None:
        poller = raft_thread.MemberPoller(thread, self)
        guarded = StateCallbacks(self._on_apply, self._callbacks.snapshot, self._callbacks.restore)
        journal = self._directory / JOURNAL_FILE
        try:
            if begins is not None and self._restarted:
                drop_what_a_snapshot_holds(str(journal), begins.previous, begins.last)
            node = RaftNode(
                self._address,
                self._peers,
                self._secret,
                self._directory,
                guarded,
                poller,
                self._on_link,
                self._on_led,
                listens_at(self._address, self._bind),
            )
        except SyncObjException as error:
            raise RaftAddressLost(self._address, "taken by another process") from error
        except OSError as error:
            raise _of_file(journal, error) from error
        except Exception as error:
            raise JournalDamaged(str(journal), repr(error)) from error
        self._node = node
        self._born_at = self._quorum_seen_at = monotonic()
        self._seeks_until = self._born_at + SETTLE_LIMIT_S
        if node.alone():
            node.elect_within(0.0)
        else:
            node.elect_not_before(between(REST.timeout_min_s, REST.timeout_max_s))
        thread.add(self)
        self.tick(self._born_at)
        if node.fault:
            raise JournalDamaged(str(self._directory / SNAPSHOT_FILE), node.fault)

    def close(self) -> None:
        """Leave without a word; waiting proposals are Unknown. On the Raft thread it happens soon."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None:
            return
        if thread.inside():
            thread.post(partial(self._end, thread))
        else:
            thread.call(partial(self._end, thread))
        raft_thread.release()

    def _end(self, thread: raft_thread.RaftThread) -> None:
        node, self._node = self._node, None
        with self._lock:
            waiting = list(self._outbox)
            self._outbox.clear()
        if self._flying is not None:
            waiting.insert(0, self._flying)
            self._flying = None
        thread.remove(self)
        if node is not None:
            node.destroy()
            thread.remove(self)
        for proposal in waiting:
            self._tell(proposal, ProposalUnknown("the member is closed"))

    # -- proposals, from any thread --

    def propose(self, entry: bytes, done: Done | None = None) -> None:
        """Propose an entry; `done` is called once, on the Raft thread, within the proposal time-out."""
        if len(entry) > ENTRY_BYTES_MAX:
            raise EntryTooLarge("An entry", len(entry), ENTRY_BYTES_MAX)
        self._put(Proposal(entry, "", False, done, monotonic() + self._timeout_s))

    def add_member(self, address: str, done: Done | None = None) -> None:
        """Add a member to the group; start it (with `joining=True`) when this is committed."""
        self._put(Proposal(b"", address, True, done, monotonic() + self._timeout_s))

    def remove_member(self, address: str, done: Done | None = None) -> None:
        """Remove a member from the group, then close it; the leader must transfer its leadership first."""
        self._put(Proposal(b"", address, False, done, monotonic() + self._timeout_s))

    def _put(self, proposal: Proposal) -> None:
        with self._lock:
            thread = self._thread
            full = len(self._outbox) >= PROPOSALS_MAX or self._held_bytes > PROPOSAL_BYTES_MAX
            if thread is not None and not full:
                self._outbox.append(proposal)
                self._held_bytes += len(proposal.entry)
        if thread is not None and not full:
            thread.wake(self)
        elif proposal.done is not None:
            proposal.done(ProposalUnknown("too much is proposed already" if full else "the member is closed"))

    def pace(self, busy: bool) -> None:
        """Be quick while a cell runs, slow at rest; see Consensus."""
        with self._lock:
            thread, changed = self._thread, self._busy != busy
            self._busy = busy
        if thread is not None and changed:
            thread.wake(self)

    def transfer_leadership(self, address: str) -> bool:
        """Ask the member at `address` to take over; tell whether it was asked (only the leader can)."""
        thread, node = self._thread, self._node
        if thread is None or node is None:
            return False
        asked: list[int] = []
        thread.call(lambda: node.transferLeadership(address, lambda _, reason: asked.append(reason)))
        return asked == [SUCCESS]

    def compact(self) -> None:
        """Write a snapshot soon and drop the log below it, without waiting until the log is long."""
        thread, node = self._thread, self._node
        if thread is not None and node is not None:
            thread.call(node.forceLogCompaction)
            thread.wake(self)

    def status(self) -> RaftStatus:
        """Return how the member stands, as of this moment."""
        node = self._node
        if node is None:
            return RaftStatus("closed", 0, 0, 0, None)
        return RaftStatus(
            role="leader" if node.leads() else "candidate" if node.campaigns() else "follower",
            term=node.raftCurrentTerm,
            commit=node.raftCommitIndex,
            applied=node.raftLastApplied,
            leader=node.leader(),
            members=tuple(node.members()),
            quorum=bool(self._quorum),
            current=node.current(),
        )

    # -- on the Raft thread --

    def tick(self, now: float) -> float:
        """Move proposals and Raft on, and return when to be ticked next."""
        node = self._node
        if node is None:
            return now + REST.tick_s
        for _ in range(ROUNDS_MAX):
            self._send_next(node, now)
            if not self._step(node, now):
                break
            if self._node is None:
                return now + REST.tick_s
            moves_alone = self._flying is not None and node.alone() and node.leads()
            moves_on = self._flying is None and bool(self._outbox) and node.reaches_leader()
            if not (moves_alone or moves_on):
                break
        self._expire(now)
        self._keep_pace(node, now)
        self._watch_leader(node, now)
        self._watch_campaign(node)
        self._watch_quorum(node, now)
        self._keep_house(node, now)
        period_s = self._pace.tick_s
        if self._flying is not None or self._outbox:
            period_s = min(period_s, RETRY_S)
        # On a common grid, so that all members of the process wake it together; but elections on time, for
        # on the grid those of different processes would meet.
        left_s = node.election_in_s() if node.leader() is None else 0.0
        grid = (now // period_s + 1) * period_s
        return min(grid, now + left_s) if left_s > 0.0 else grid

    def _step(self, node: RaftNode, now: float) -> bool:
        """Move Raft on; False when the disk is full: then the log has not got the proposal."""
        try:
            node.doTick(0.0)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            if not self._trouble:
                self._trouble = _no_room(self._directory)
                log.warning("%s: %s (%s)", self._address, self._trouble, error)
            if self._flying is not None:
                self._flying.retry_at = now + ROOM_RETRY_S
            return False
        return True

    def forgive(self, late_s: float) -> None:
        """Do not take this process's own stall for a silent leader."""
        if self._flying is not None:
            self._flying.sent_at += late_s
        if self._node is not None:
            self._node.forgive(late_s)

    def _send_next(self, node: RaftNode, now: float) -> None:
        if self._flying is None:
            with self._lock:
                if not self._outbox or not node.reaches_leader():
                    return
                self._flying = self._outbox.popleft()
            self._send(node, self._flying, now)
        elif node.reaches_leader() and now >= (self._flying.retry_at or self._flying.sent_at + RESEND_S):
            in_own_log = node.leads() and self._flying.sent_term == node.raftCurrentTerm
            if self._flying.retry_at or not in_own_log:
                self._send(node, self._flying, now)

    def _send(self, node: RaftNode, proposal: Proposal, now: float) -> None:
        proposal.sent_at, proposal.sent_term, proposal.retry_at = now, node.raftCurrentTerm, 0.0
        answer = partial(self._answered, proposal)
        if not proposal.change:
            node.submit(proposal.entry, answer)
        elif (proposal.change in node.members()) == proposal.adds:
            self._answered(proposal, int(node.raftLastApplied), SUCCESS)
        elif proposal.adds:
            node.addNodeToCluster(proposal.change, answer)
        elif proposal.change == node.leader():
            self._finish(proposal, ProposalUnknown(LEADER_STAYS))
        else:
            node.removeNodeFromCluster(proposal.change, answer)

    def _answered(self, proposal: Proposal, index: object, reason: int) -> None:
        """Take PySyncObj's answer: committed, or to be tried again until the time-out (it may be twice)."""
        node = self._node
        if self._flying is not proposal or node is None:
            return
        if reason == SUCCESS:
            committed = index if isinstance(index, int) else int(node.raftLastApplied) + 1
            self._finish(proposal, ProposalCommitted(committed))
        else:
            proposal.retry_at = monotonic() + (5 * RETRY_S if reason == DENIED else RETRY_S)

    def _expire(self, now: float) -> None:
        why = f"no outcome within {self._timeout_s:g} s"
        if self._flying is not None and self._flying.deadline <= now:
            self._finish(self._flying, ProposalUnknown(why, self._trouble))
        while self._outbox and self._outbox[0].deadline <= now:
            with self._lock:
                proposal = self._outbox.popleft()
            self._tell(proposal, ProposalUnknown(why, self._trouble))

    def _finish(self, proposal: Proposal, outcome: ProposalOutcome) -> None:
        self._flying = None
        if isinstance(outcome, ProposalCommitted):
            self._trouble = ""
        self._tell(proposal, outcome)

    def _tell(self, proposal: Proposal, outcome: ProposalOutcome) -> None:
        with self._lock:
            self._held_bytes -= len(proposal.entry)
        if proposal.done is not None:
            try:
                proposal.done(outcome)
            except Exception:
                log.exception("the callback of a proposal failed (%s)", self._address)

    def _on_apply(self, index: int, entry: bytes) -> None:
        try:
            self._callbacks.on_apply(index, entry)
        except Exception:
            log.exception("entry %d could not be applied (%s)", index, self._address)

    def _on_link(self, address: str, up: bool) -> None:
        """Hasten elections where silence has a known cause: a group's birth, or its leader's death."""
        node = self._node
        if node is None:
            return
        if not up:
            self._seeks_until = monotonic() + SEEK_LIMIT_S
            if address == node.leader() and not node.leads():
                node.elect_within(between(0.05, 0.3))
        elif not self._linked and not self._joining:
            self._linked = True
            rank = self._peers.index(self._address)
            # A restarted member waits long enough for a living leader, or for a peer to tell of one.
            node.elect_within(RETURN_S + RETURN_STEP_S * rank if self._restarted else 0.01 + 0.1 * rank)

    def _on_led(self) -> None:
        """Give the leader that a peer follows the time to find this member, which has just returned."""
        if self._node is not None and self._restarted and self._node.leader() is None:
            rank = self._peers.index(self._address)
            self._node.elect_not_before(LED_RETURN_S + LED_RETURN_STEP_S * rank)

    def _keep_pace(self, node: RaftNode, now: float) -> None:
        if self._pace is BIRTH and node.leader() is None and now - self._born_at < BIRTH_LIMIT_S:
            return
        seeks = now < self._seeks_until and not node.linked()
        wanted = BUSY if self._busy else SETTLE if seeks else REST
        before = self._pace
        if before is wanted:
            return
        self._pace = wanted
        node.set_pace(wanted)
        if node.leads():
            node.greet()
        elif {before, wanted} == {SETTLE, REST}:
            return  # Both bear a silence for as long: an election that is due stays due.
        elif wanted is not BUSY:
            node.elect_not_before(between(wanted.timeout_min_s, wanted.timeout_max_s))
        else:
            node.elect_within(between(wanted.timeout_min_s, wanted.timeout_max_s))

    def _watch_leader(self, node: RaftNode, now: float) -> None:
        """Doubt a leader that answers neither a proposal nor otherwise: at rest its heartbeat is slow."""
        leader, flying = node.leader(), self._flying
        if flying is None or flying.retry_at or leader is None or node.leads():
            return
        if now - max(flying.sent_at, node.heard.get(leader, 0.0)) > SUSPECT_S:
            node.elect_within(between(0.0, 0.15))

    def _watch_campaign(self, node: RaftNode) -> None:
        """Have a candidate stand again soon: two that stood at once got a vote each."""
        if node.campaigns() and node.raftCurrentTerm != self._campaign:
            self._campaign = node.raftCurrentTerm
            node.elect_within(between(CAMPAIGN_MIN_S, CAMPAIGN_MAX_S))

    def _watch_quorum(self, node: RaftNode, now: float) -> None:
        leader = node.leader()
        if node.leads():
            seen = bool(node.hasQuorum)
        else:
            heard_at = node.heard.get(leader, 0.0) if leader is not None else 0.0
            seen = node.reaches_leader() and now - heard_at < self._pace.timeout_max_s + QUORUM_GRACE_S
        if seen:
            self._quorum_seen_at = now
        elif now - self._quorum_seen_at < (QUORUM_GRACE_S if self._quorum else 3 * QUORUM_GRACE_S):
            return
        if seen != self._quorum:
            self._quorum = seen
            if self._callbacks.on_quorum is not None:
                self._callbacks.on_quorum(seen)

    def _keep_house(self, node: RaftNode, now: float) -> None:
        if now - self._links_kept_at >= KEEP_LINKS_S:
            self._links_kept_at = now
            node.keep_links()
        if node.is_long():
            node.forceLogCompaction()


def _of_file(path: Path, error: OSError) -> ReplkernelError:
    """Return the error of a file that cannot be opened: for now, or as it is."""
    if error.errno in _PASSING:
        return JournalUnavailable(str(path), error)
    return JournalDamaged(str(path), repr(error))


def _no_room(directory: Path) -> str:
    """Say that the journal cannot be written, and what room there is."""
    return (
        f"No space is left on the disk of {directory} ({shutil.disk_usage(directory).free >> 20} MiB "
        "free), so what cells change cannot be committed for now: cells go on; make room there, or move the "
        "directory to a larger disk (setting JUPYTER_DATA_DIR)."
    )
