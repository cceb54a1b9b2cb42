"""The contract of consensus: entries go in at any member, come out at every member in one order.

Implementations: `raft.RaftMember` (PySyncObj) and `memory.MemoryMember` (tests). Law: an error means
unknown: the entry may still be applied, even twice, so what is proposed carries an idempotency key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import msgspec

from replkernel.errors import ReplkernelError

PROPOSAL_TIMEOUT_S = 5.0
"""A proposal without an outcome after this long is reported as Unknown."""

PROPOSALS_MAX = 1024
"""A member takes no more proposals than this at a time."""

PROPOSAL_BYTES_MAX = 64 * 1024 * 1024
"""A member holds no more bytes of waiting proposals than this."""


ADD_AGAIN = "remove the member from its group and add it again under a free address"


class RaftAddressLost(ReplkernelError):
    """The address that a member was promised belongs to somebody else by now."""

    def __init__(self, address: str, problem: str, fix: str = ADD_AGAIN) -> None:
        super().__init__(f"The Raft address {address} cannot be bound ({problem}): {fix}.")
        self.address = address


class JournalDamaged(ReplkernelError):
    """A member's journal or snapshot file cannot be read."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(
            f"The Raft file {path} cannot be read ({problem}): remove the member's directory, "
            "remove the member from its group and add it again; the other members hold its entries."
        )
        self.path = path


class JournalUnavailable(ReplkernelError):
    """A member's files cannot be opened for now, for want of room or descriptors; another try may do."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(
            f"The Raft file {path} cannot be opened ({error.strerror}); "
            "make room on that disk or move it to a larger one (setting JUPYTER_DATA_DIR). It is tried again."
        )
        self.path = path


class ProposalCommitted(msgspec.Struct, frozen=True):
    """The entry is in the log at `index`, and was applied here before this was said."""

    index: int


class ProposalUnknown(msgspec.Struct, frozen=True):
    """Nobody knows whether the entry is or will be in the log; proposing it again is safe."""

    why: str
    trouble: str = ""
    """What of this member's own stands in the way, in a sentence for the user."""


ProposalOutcome: TypeAlias = ProposalCommitted | ProposalUnknown
Done: TypeAlias = Callable[[ProposalOutcome], None]


class RaftStatus(msgspec.Struct, frozen=True):
    """How a member stands.

    `current` tells whether it has applied all that was committed when it last heard of a leader;
    `quorum` whether it sees a leader with a majority behind it.
    """

    role: Literal["leader", "follower", "candidate", "closed"]
    term: int
    commit: int
    applied: int
    leader: str | None
    members: tuple[str, ...] = ()
    quorum: bool = False
    current: bool = False


class StateCallbacks(msgspec.Struct, frozen=True):
    """What a member calls, on its own thread; each must be quick, and none may raise.

    `on_apply(index, entry)` in log order, and again from the last snapshot on after a restart;
    `snapshot()` returns the applied state; `restore(state)` replaces it, at the start or when the
    member was so far behind that the leader sent its snapshot; `on_quorum` tells changes only.
    """

    on_apply: Callable[[int, bytes], None]
    snapshot: Callable[[], bytes]
    restore: Callable[[bytes], None]
    on_quorum: Callable[[bool], None] | None = None


class Consensus(Protocol):
    """One member of one group. Every method may be called from any thread."""

    @property
    def address(self) -> str:
        """Return this member's own address."""

    def start(self) -> None:
        """Bind the address, take up the journal, and begin.

        Raises RaftAddressLost, JournalDamaged, or JournalUnavailable, after which another try may succeed.
        """

    def propose(self, entry: bytes, done: Done | None = None) -> None:
        """Propose an entry; entries of one member come out in the order in which they were proposed.

        `done` is called once, within the proposal time-out. Raises EntryTooLarge.
        """

    def status(self) -> RaftStatus:
        """Return how the member stands."""

    def add_member(self, address: str, done: Done | None = None) -> None:
        """Add a member to the group, one change at a time; one that is in it is added at once."""

    def remove_member(self, address: str, done: Done | None = None) -> None:
        """Remove a member from the group, one change at a time. The leader must hand over first."""

    def transfer_leadership(self, address: str) -> bool:
        """Ask the member at `address` to take over; tell whether it was asked (only the leader can)."""

    def compact(self) -> None:
        """Soon replace the log by a snapshot: who joins after that is sent the whole state."""

    def pace(self, busy: bool) -> None:
        """Set how often members talk: quick while an execution is open, slow at rest.

        Call it with the same value on every member, as the log says it (`machine.busy`).
        """

    def close(self) -> None:
        """Leave without a word: no thread, port or file handle stays. Waiting proposals are Unknown."""
