"""What is said of cells on several hosts: by the cell, by the agents of its hosts, by the scheduler."""

from __future__ import annotations

from typing import Annotated

import msgspec

from replkernel.leasing.wire.base import GPUS_OF_HOST_MAX, WHY_MAX, Amount, Host, Id, LeaseMessage, Text
from replkernel.leasing.wire.kernels import GrantedLease, HeldLease

GANG_HOSTS_MAX = 64
"""A cell runs on no more hosts than this."""


class RanksFailed(LeaseMessage, frozen=True):
    """An agent's answer to StartRanks: nothing was started, and `why` is one sentence.

    `for_now`: that may change by itself.
    """

    gang: Id
    why: Annotated[str, msgspec.Meta(max_length=WHY_MAX)]
    for_now: bool = False


class GangWish(LeaseMessage, frozen=True):
    """A cell of `kernel` wants `gpus` GPUs on each of `hosts` hosts; said again on each connection.

    Agents of its user start launchers there, in `directory`, which find the cell at `endpoint`. `seal` shows
    them that their user wants that. `leases` are those that it has; GangEnded is the answer where it has them
    no more. `began`: all launchers have come.
    """

    kernel: Id
    gpus: Annotated[int, msgspec.Meta(ge=1, le=GPUS_OF_HOST_MAX)]
    hosts: Annotated[int, msgspec.Meta(ge=2, le=GANG_HOSTS_MAX)]
    directory: Annotated[str, msgspec.Meta(max_length=4096)]
    endpoint: Annotated[str, msgspec.Meta(max_length=1000)]
    seal: Text
    gpu_model: Text = ""
    vram_gb: Amount = 0.0
    cpu: Amount = 0.0
    memory_gb: Amount = 0.0
    leases: Annotated[tuple[HeldLease, ...], msgspec.Meta(max_length=GANG_HOSTS_MAX)] = ()
    began: bool = False


class GangBegan(LeaseMessage, frozen=True):
    """All launchers have come to the cell: none is to be started again."""


class GangDone(LeaseMessage, frozen=True):
    """The cell is over, or waits no more: all of its leases are given back.

    `unsure`: the cell does not know that its processes there have ended.
    """

    unsure: Annotated[tuple[Host, ...], msgspec.Meta(max_length=GANG_HOSTS_MAX)] = ()


class StartRanks(LeaseMessage, frozen=True):
    """Have a launcher run a cell's processes on these GPUs: it finds the cell at `endpoint`.

    The same `gang` again is the same launcher. `seal` is as in StartJob; RanksFailed is told where none runs.
    """

    gang: Id
    gpus: tuple[str, ...]
    directory: str
    endpoint: str
    seal: str


class StopRanks(LeaseMessage, frozen=True):
    """End the launcher of this gang with its processes, unless it has ended by itself in `within_s`.

    `job.NAME` names all that a job has there by now. `saves`: a job may save first, in a few seconds more.
    """

    gang: Id
    within_s: float = 0.0
    saves: bool = True


class GangHas(LeaseMessage, frozen=True):
    """The cell has GPUs on all of its hosts, the one of rank 0 first; said again when it was asked again."""

    leases: tuple[GrantedLease, ...]


class GangWaiting(LeaseMessage, frozen=True):
    """The cell waits: `place` 1 is the next one that wants several hosts, and has `has` of them already."""

    place: int
    has: int = 0
    estimate_s: float | None = None


class GangEnded(LeaseMessage, frozen=True):
    """The cell has no GPUs any more, or will never have them (`refused`); `why` is one sentence."""

    why: str
    refused: bool = False
