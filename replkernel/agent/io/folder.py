"""What a replica leaves on disk, so that another agent can restore it: its record, journal, dump and logs.

Everything lies in ``<data>/agents/<host>/kernels/<kernel>/<incarnation>/<replica>/``, 0700, files 0600.
Law: a record is replaced as a whole or not at all; what cannot be read is left alone and named.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.hosts.own_file import replace_own
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import ReplicaId

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REPLICA = re.compile(r"r[1-9][0-9]{0,5}")


class ProcessRecord(msgspec.Struct, frozen=True):
    """A kernel process as the next agent finds it again; `started` is its start time in clock ticks."""

    birth: int
    token: str
    pid: int = 0
    started: int = 0
    dormant: bool = False
    """Whether it has ended, or is about to, until it is wanted again."""


class ReplicaRecord(msgspec.Struct, frozen=True):
    """One replica: the kernel it belongs to, its Raft member, its process."""

    spec: KernelSpec
    replica: ReplicaId
    raft_address: str
    process: ProcessRecord
    peers: dict[ReplicaId, str] = {}
    secret: str = ""
    checkpoint: str = ""
    checkpoint_digest: str = ""
    generation: int = 1
    joining: bool = False
    opened: bool = False
    """Whether its Raft member has had a journal: one that is without it has forgotten what it promised."""


class _Base(msgspec.Struct, frozen=True):
    """The state that the replica's group started from, and the digest of the checkpoint it was made of."""

    checkpoint_digest: str
    state: bytes


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ReplicaRecord)


def problem_with_names(spec: KernelSpec, replica: ReplicaId) -> str:
    """Return why these names cannot become paths, or an empty string."""
    for what, value, pattern in (
        ("kernel id", spec.kernel_id, _PART),
        ("incarnation", spec.incarnation, _PART),
        ("replica", replica, _REPLICA),
    ):
        if not pattern.fullmatch(value):
            return f"the {what} {value!r} is not one this agent can keep files under"
    return ""


class ReplicaFolder:
    """The directory of one replica."""

    def __init__(self, kernels: Path, spec: KernelSpec, replica: ReplicaId) -> None:
        self.path = kernels / spec.kernel_id / spec.incarnation / replica
        self._kernels = kernels

    @property
    def raft(self) -> Path:
        """The Raft member's own directory: its journal and snapshot."""
        return self.path / "raft"

    @property
    def snapshot(self) -> Path:
        """The Raft member's snapshot, from which it goes on if there is one."""
        return self.raft / "raft.snapshot"

    @property
    def journal(self) -> Path:
        """The Raft member's journal, there from its first start on."""
        return self.raft / "raft.journal"

    @property
    def log(self) -> Path:
        """What the kernel process writes to its descriptors 1 and 2 outside of cells."""
        return self.path / "process.log"

    def save(self, record: ReplicaRecord) -> None:
        """Write the record, replacing the one before."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_own(self.path / "replica.json", _encoder.encode(record))

    def save_base(self, checkpoint_digest: str, state: bytes) -> None:
        """Keep what the replica's group started from: its journal means nothing without."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = msgspec.msgpack.encode(_Base(checkpoint_digest, state))
        replace_own(self.path / "base.msgpack", data, lasting=True)

    def read_base(self, checkpoint_digest: str) -> bytes | None:
        """Return what the group started from; None when that is not here (or another group's)."""
        try:
            base = msgspec.msgpack.decode((self.path / "base.msgpack").read_bytes(), type=_Base)
        except (OSError, *UNREADABLE):
            return None
        return base.state if base.checkpoint_digest == checkpoint_digest else None

    def delete(self) -> None:
        """Delete the directory, and those of the incarnation and the kernel when nothing else is in them."""
        shutil.rmtree(self.path, ignore_errors=True)
        for parent in (self.path.parent, self.path.parent.parent):
            try:
                parent.rmdir()
            except OSError:
                return


def saved_replicas(kernels: Path) -> Iterator[ReplicaRecord | str]:
    """Yield the record of each replica below `kernels`, or one sentence on what could not be read."""
    for path in sorted(kernels.glob("*/*/*/replica.json")):
        try:
            record = _decoder.decode(path.read_bytes())
        except (OSError, *UNREADABLE) as error:
            yield f"The replica in {path.parent} cannot be restored ({error}): delete that directory."
            continue
        if path.parent != ReplicaFolder(kernels, record.spec, record.replica).path:
            yield f"The replica in {path.parent} is not what its directory says: delete that directory."
            continue
        yield record
