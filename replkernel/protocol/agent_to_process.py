"""What a host agent tells a kernel process: deltas, commits, refusals. `AgentToKernel` is all of it."""

from __future__ import annotations

from typing import TypeAlias

from replkernel.protocol.message import Message
from replkernel.protocol.timeline import Difference, Timeline
from replkernel.records import Delta, Digest, HostName, ReplicaId, Seq


class KernelWelcome(Message):
    """The agent's answer to a kernel hello: where blobs lie on this host, and who we are."""

    host: HostName
    cache_dir: str
    agent_pid: int


class ApplyDelta(Message):
    """A committed delta of another replica, or (on joining) of the past. Applied in order of `seq`."""

    delta: Delta


class DeltaCommitted(Message):
    """This process's own delta is committed, and with it every earlier one: they are durable.

    `owing`: but the log holds some variables as they were before it, so none of it is durable yet.
    """

    seq: Seq
    audit: int = 0
    owing: bool = False


class BegunAfresh(Message):
    """Execution `seq` goes on from the newest whole point, all deltas up to which have been sent before.

    That point, `ago_s` old (None: not known), is after cell `execution_count`. What the log had after it,
    up to cell `reached`, was dropped: it was `executor`'s, which is lost.
    """

    seq: Seq
    execution_count: int
    executor: ReplicaId
    reached: int = 0
    ago_s: float | None = None


class ExecutionRefused(Message):
    """The claim or delta of execution `seq` lost against a newer fence; it must not take effect."""

    seq: Seq
    why: str


class BlobsReady(Message):
    """The answer to `FetchBlobs`; `missing` names what no store could give, with the reason."""

    request: int
    missing: tuple[Digest, ...] = ()
    why: str = ""


class NotebookStatusAnswer(Message):
    """The answer to `NotebookStatusQuery`: the JSON status document of this kernel."""

    request: int
    document: bytes


class HistoryAnswer(Message):
    """The answer to `HistoryQuery`; `way` is None where the point is not kept, or there is too much of it."""

    request: int
    timeline: Timeline
    way: Delta | None = None
    why: str = ""
    differences: tuple[Difference, ...] = ()


class DurabilityTrouble(Message):
    """Deltas cannot be made durable for now; `why` is one sentence, empty when trouble is over."""

    why: str


class FreeGpus(Message):
    """Somebody waits for the GPUs of a lease: move off what lies there, between two cells, and say so."""

    lease: str


class StandStill(Message):
    """Have the cell that runs under a lease stand still off its GPUs, within `within_s`, for a shorter one.

    The process asks its router for GPUs of `gpu_model` to go on with; `GpusFreed` says why it cannot.
    """

    lease: str
    within_s: float
    gpu_model: str = ""


class SettleState(Message):
    """Somebody waits until all is durable: propose what was left for later, between two cells."""


class StopProcess(Message):
    """End yourself in an orderly way; `reason` goes to the log."""

    reason: str


AgentToKernel: TypeAlias = (
    KernelWelcome
    | ApplyDelta
    | DeltaCommitted
    | BegunAfresh
    | ExecutionRefused
    | BlobsReady
    | NotebookStatusAnswer
    | HistoryAnswer
    | DurabilityTrouble
    | FreeGpus
    | StandStill
    | SettleState
    | StopProcess
)
