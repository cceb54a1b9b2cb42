"""The errors of replkernel: one root, each error carries its data and says what to do about it.

Law: a message is one clear sentence that names the setting at fault and the fix.
"""

from __future__ import annotations

import errno
from typing import Final, Literal

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What an OSError says where a disk is full, or a quota or a limit on files is used up."""

UNREADABLE: Final = (ValueError, RecursionError)
"""What decoding raises for bytes that do not fit; who decodes what a peer, file or store gave catches both.

The errors of msgspec and json are ValueErrors, as is that for text which is not UTF-8; lists in lists end in
the other."""


class ReplkernelError(Exception):
    """The root of every error that replkernel raises on purpose."""


class SettingError(ReplkernelError):
    """A setting has a value that cannot be used."""

    def __init__(self, setting: str, value: str, problem: str, fix: str) -> None:
        super().__init__(f"{setting}={value!r}: {problem}; {fix}.")
        self.setting = setting
        self.value = value
        self.problem = problem
        self.fix = fix


class ConnectionFileError(ReplkernelError):
    """The connection file cannot be read, or lacks what a kernel needs."""


class PortInUseError(ReplkernelError):
    """A port that the connection file names is taken by another process."""


class AgentUnavailable(ReplkernelError):
    """No host agent answers, and none could be started."""


class ProtocolMismatch(ReplkernelError):
    """Two processes of replkernel speak different protocol versions."""


class AuthenticationFailed(ReplkernelError):
    """A peer did not present the secret that its place in the system requires."""


class NoReplicaReady(ReplkernelError):
    """No replica of a kernel can take a cell: none has started, or all are gone."""


class QuorumLost(ReplkernelError):
    """The majority of a kernel's replicas does not answer, so nothing can be committed."""


class FenceRefused(ReplkernelError):
    """An execution, a delta or a bind came with a fence older than one already seen."""

    def __init__(self, what: str, fence: int, newest: int) -> None:
        super().__init__(f"{what} carries fence {fence}, but {newest} is already in force.")
        self.fence = fence
        self.newest = newest


class StoreError(ReplkernelError):
    """The object store refused or failed; `setting` and `fix` tell the user what to change.

    `url` carries no secret. The blob cache of a host fails with the same error under its own `place`.
    """

    def __init__(
        self,
        url: str,
        problem: str,
        fix: str,
        *,
        place: str = "The object store",
        setting: str = "REPLKERNEL_STORE",
    ) -> None:
        super().__init__(f"{place} {url} {problem}; {fix} (setting {setting}).")
        self.setting = setting
        self.url = url
        self.problem = problem
        self.fix = fix


class DocumentUnfit(StoreError):
    """What has a document's name in the store is none: no regular file, or too long. It has not been read."""


class StoreRefused(StoreError):
    """The object store said no (credentials, rights, bucket): trying again soon does not help."""


class BlobMissing(StoreError):
    """A blob that the log names is not in the store."""


class BlobDamaged(StoreError):
    """A blob's bytes do not match the digest that names them."""


CellEffect = Literal["none", "behind", "unsettled", "kept"]
"""What is left of a lost cell: nothing; nothing, nor of some before it; what its host has and the log does
not yet; what the log has."""

BACK_AT = "the notebook is back at"
"""How every message begins that says what a lost process costs."""

_SAID_OF: dict[CellEffect, str] = {
    "none": f"{BACK_AT} the cell before this one: run this one again",
    "behind": (
        f"{BACK_AT} the cell before this one, or at an earlier one: "
        "the next cell says at which, and which cells to run again"
    ),
    "unsettled": "it is not settled yet whether its changes are kept: look before it is run again",
    "kept": (
        "what this cell changed is kept, only its reply is lost: look before it is run again "
        "(`%replkernel history` tells whether a cell that was to go back did)"
    ),
}


class ExecutorLost(ReplkernelError):
    """The process that ran a cell died before the cell was done, or before its reply had left."""

    def __init__(self, why: str, effect: CellEffect = "none") -> None:
        super().__init__(f"{why}; {_SAID_OF[effect]}")
        self.why = why


WITHIN = ".…"
"""How the path of an object ends that lies in what stands before, where nobody can look: ``reader.…``."""


class StateLostError(ReplkernelError):
    """A variable's object could not travel to the replica that now runs the notebook.

    Raised by a tombstone when it is touched. `replica` is the one that holds the real object; `rebuilt`: it
    was copied, but what others made of it was not as it was; `transient`: its user did not want it copied.
    """

    def __init__(
        self,
        name: str,
        type_name: str,
        replica: str,
        cell: int,
        rebuilt: bool = False,
        transient: bool = False,
    ) -> None:
        holder = name.removesuffix(WITHIN)
        shown = repr(name) if name == holder else f"Something that {holder!r} holds"
        why = "other replicas could not rebuild as it was" if rebuilt else "cannot be copied between replicas"
        why = "was not copied, because you marked it transient" if transient else why
        super().__init__(
            f"{shown} is a {type_name} that {why}: it was made in cell [{cell}] "
            f"on replica {replica}, by a process that no longer runs this notebook. Run that cell again."
        )
        self.name = name
        self.type_name = type_name
        self.replica = replica
        self.cell = cell
        self.rebuilt = rebuilt
        self.transient = transient

    def __reduce__(self) -> tuple[type[StateLostError], tuple[str, str, str, int, bool, bool]]:
        told = (self.name, self.type_name, self.replica, self.cell, self.rebuilt, self.transient)
        return (StateLostError, told)


class StateSuspended(ReplkernelError):
    """Something would read bytes that were moved off the GPU for somebody else."""


class NoLease(ReplkernelError, RuntimeError):
    """Something would use a GPU that its cell has no lease on, and cannot get one."""


class LeaseLost(ReplkernelError):
    """A cell's lease ended while it computed, so it was interrupted; what it had done until then stays."""


class StateKept(ReplkernelError):
    """A cell's state could not be brought to the GPUs of its lease; nothing is lost."""
