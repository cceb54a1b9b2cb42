"""The records of replicated state: what a delta, a component, a blob reference and a pin are.

Every process that touches state speaks in these frozen structs, so they import nothing but msgspec.
Law: a record never carries an unpickled object. User data is bytes, named by digest, or inline.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, NewType

import msgspec

KernelId = NewType("KernelId", str)
"""The id of the one logical kernel that a user sees, as Jupyter knows it."""

ReplicaId = NewType("ReplicaId", str)
"""A replica's name inside its kernel: ``r1``, ``r2``, … (never reused within one incarnation)."""

HostName = NewType("HostName", str)
"""The name of a host, which is the name of the agent that serves it."""

ComponentId = NewType("ComponentId", str)
"""A component's id. Process state uses ids that begin with ``@`` (``@environ``, ``@random``, …)."""

Digest = NewType("Digest", str)
"""Hex BLAKE3-256 of the bytes that it names."""

Seq = NewType("Seq", int)
"""The number of an execution inside one incarnation: 1, 2, 3, … Silent executions count as well."""

Fence = NewType("Fence", int)
"""A number that only grows; whoever holds an older one is refused."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of all records: immutable, compact on the wire."""


class ChunkRef(Record, array_like=True):
    """A piece of a blob: the content-named bytes in the store, with their length in bytes."""

    digest: Digest
    size: int


class BlobRef(Record):
    """A blob: `size` bytes, which are its chunks one after the other."""

    size: int
    chunks: tuple[ChunkRef, ...]


class Payload(Record):
    """The captured bytes of one component.

    `head` is the pickle stream without its large buffers; exactly one of `head` and `head_blob` is set.
    `buffers` holds the out-of-band buffers in the order in which the stream asks for them.
    """

    head: bytes | None = None
    head_blob: BlobRef | None = None
    buffers: tuple[bytes | BlobRef, ...] = ()


class Pin(Record):
    """An object that cannot travel: which variable reaches it, what it is, who holds it, who made it.

    `path` says where below the variable the object sits (``model.hooks[2]``); `reason` is one sentence.
    `cell` is the number of `seq` as the user saw it: silent executions, and those that moved on, have none.
    """

    name: str
    type_name: str
    replica: ReplicaId
    seq: Seq
    path: str = ""
    reason: str = ""
    cell: int = 0

    @property
    def shown_cell(self) -> int:
        """Return the number to tell the user."""
        return self.cell or self.seq


class Making(Record):
    """What is to be said of a variable: the cell that bound it to the object that it has, and its type.

    `cell` is 0 where that is the cell of its component, `type_name` is empty where it is a builtin's.
    """

    name: str
    cell: int = 0
    type_name: str = ""


class ComponentRecord(Record):
    """One component as of execution `seq`: the names that it binds and the bytes that rebuild it.

    `modules` are the top-level packages that rebuilding imports; `state_bytes` counts head and buffers;
    `digest` names the payload as a whole; `pins` are the tombstones inside the payload. `reads` are the
    globals that code inside it mentions, and the classes (``class:…``) that it refers to; ``*`` is anything.
    `gpus`: it lies on so many leased GPUs, and is rebuilt only in a process that has a lease. `cell` is the
    number of `seq` as the user saw it; `made` says more of those names of which there is more to say.
    """

    cid: ComponentId
    names: tuple[str, ...]
    seq: Seq
    payload: Payload
    digest: Digest
    state_bytes: int
    modules: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    reads: tuple[str, ...] = ()
    gpus: int = 0
    cell: int = 0
    made: tuple[Making, ...] = ()

    def making(self, name: str) -> Making:
        """Return what is to be said of one of its names; `cell` is never 0."""
        told = next((made for made in self.made if made.name == name), Making(name))
        return Making(name, told.cell or self.cell or self.seq, told.type_name)


class Mark(NamedTuple):
    """How far somebody has come: an execution, and how many audits of what it left to be checked."""

    seq: Seq
    audit: int = 0


class Unaudited(Record):
    """A variable (or ``class:…``) that was not checked after the delta's execution: it may be stale.

    `cell` is the last cell, as its user counts, after which it was checked, 0 when it was never captured;
    `replica` is the one whose process has it. `held`: it was checked, and the store has no room for it.
    """

    name: str
    cell: int
    replica: ReplicaId
    held: bool = False


class Limits(Record):
    """How much of the past is kept: points, their age in seconds, and their bytes beyond the live state."""

    points: int = 100
    age_s: float = 7 * 86_400.0
    bytes: int = 256 * 2**20


class Note(Record):
    """What an execution says of itself for the history, beside what it changed.

    `at` is the wall clock when it ended, `source` the first line of its cell. `to` is set where the delta
    takes the state back to that point. `named` are names given to points (None: to
    the one after this execution), `unnamed` those taken away. `branch` is where the notebook goes on;
    `begins`: the branch begins here. `looks`: by its text, the cell only looks at variables. `since` is the
    number of the first cell whose changes wait to be known whole, where several make one step.
    """

    at: float = 0.0
    source: str = ""
    cell_id: str = ""
    to: Mark | None = None
    named: tuple[tuple[str, Mark | None], ...] = ()
    unnamed: tuple[str, ...] = ()
    branch: str = ""
    begins: bool = False
    limits: Limits = Limits()
    looks: bool = False
    since: int = 0


class Delta(Record):
    """Everything that execution `seq` changed: components to set, components to drop.

    A name belongs to exactly one component after the delta is applied: a changed component takes the
    names it lists away from the components that held them, and `dropped` removes components wholly.
    `pins` are the process-level pins that hold after this execution (running threads, child processes);
    the pins of objects are in their components. `order` is set when names came or went: all user names
    in the order of the namespace. `audit` is 0 for what was captured right after the cell; deltas with
    1, 2, … add what audits of the same execution found. `unaudited` is all that is left to be checked
    after this one: the state is whole, and can be durable, when nothing there `holds_back`. Without a `note`
    the execution makes no point of the history. `only` is set where all state is told anew: whatever is not
    among these components was dropped before.
    """

    seq: Seq
    fence: Fence
    replica: ReplicaId
    execution_count: int
    components: tuple[ComponentRecord, ...] = ()
    dropped: tuple[ComponentId, ...] = ()
    pins: tuple[Pin, ...] = ()
    order: tuple[str, ...] | None = None
    audit: int = 0
    unaudited: tuple[Unaudited, ...] = ()
    note: Note | None = None
    only: tuple[ComponentId, ...] | None = None

    def removes(self, known: Iterable[ComponentId]) -> tuple[ComponentId, ...]:
        """Return the components that are no more after it; `known` are those before it."""
        return self.dropped if self.only is None else (*self.dropped, *(set(known) - set(self.only)))

    @property
    def mark(self) -> Mark:
        """Return how far whoever has taken this delta has come."""
        return Mark(self.seq, self.audit)

    @property
    def owing(self) -> bool:
        """Tell whether something is left to be checked; what the store has no room for has been."""
        return is_owing(self.unaudited)

    @property
    def whole(self) -> bool:
        """Tell whether the state after it is that of its execution, with nothing older in it."""
        return not any(map(holds_back, self.unaudited))

    def blobs(self) -> list[BlobRef]:
        """Return every blob that the delta refers to, in a stable order."""
        found: list[BlobRef] = []
        for component in self.components:
            found.extend(payload_blobs(component.payload))
        return found

    def digests(self) -> set[Digest]:
        """Return the chunks of all these blobs."""
        return {chunk.digest for blob in self.blobs() for chunk in blob.chunks}


def is_owing(unaudited: tuple[Unaudited, ...]) -> bool:
    """Tell whether something of an execution that leaves these is still to be checked."""
    return any(not left.held for left in unaudited)


def holds_back(left: Unaudited) -> bool:
    """Tell whether the state is not whole for the sake of this variable.

    One that the store never had room for is missing by name; it is not there in an older version.
    """
    return not left.held or bool(left.cell)


def payload_blobs(payload: Payload) -> list[BlobRef]:
    """Return the blobs that `payload` refers to: its head first, then its buffers in order."""
    head = [] if payload.head_blob is None else [payload.head_blob]
    return head + [buffer for buffer in payload.buffers if isinstance(buffer, BlobRef)]


class MoveRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replica's move that has begun: `replica` on `host` takes the place of `leaves`.

    Before it is `settled`, and the old replica leaves, the next router takes it back. `address` is the new
    one's in the Raft group, once it may have been taken in.
    """

    replica: str
    host: str
    leaves: str
    address: str = ""
    settled: bool = False
