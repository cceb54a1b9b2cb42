"""What a kernel's router tells of its executions: how far each is, where, on which GPUs, whether it is safe.

Pure: structs alone, one vocabulary for the router, the server extension and (generated from it) the page.
Times are seconds of the router's own clock, to be compared with `now` of the same answer and nothing else.
"""

from __future__ import annotations

from typing import Literal

import msgspec

REQUEST = "replkernel_progress_request"
GPU_REQUEST = "replkernel_gpus_request"
TOLD_MAX = 50
"""So many executions are in one answer; whoever wants more asks on from its version."""

State = Literal["queued", "waiting", "moving", "running", "done"]
"""Behind another cell; for GPUs; sent to a replica that has not begun; running; answered."""
Safety = Literal["pending", "durable", "lost", "nothing"]
"""Not yet committed; committed by a majority, its blobs stored; never to be; there is nothing to commit."""


class Execution(msgspec.Struct, kw_only=True):
    """One run of a cell. A step that has not come yet, or that nobody saw, has no time."""

    msg_id: str
    cell_id: str
    code_digest: str = ""
    """SHA-256 of the code that runs, in hex: in a copy of its notebook the cell may hold other code."""
    state: State = "queued"
    safety: Safety = "pending"
    status: str = ""
    """Of its reply: `ok`, `error` or `aborted`."""
    ename: str = ""
    """The error's name."""
    count: int | None = None
    replica: str = ""
    host: str = ""
    gpus: tuple[str, ...] = ()
    part: float = 0.0
    """Which part of the one GPU it has; 0: all of it."""
    part_gb: float = 0.0
    """GiB of its memory that go with a part; 0: not known."""
    wanted: int | float = 0
    """How many GPUs it asks for; a fraction is a part of one."""
    model: str = ""
    """The model that they must be, if that was said."""
    position: int | None = None
    """Its place in the queue for GPUs; 0: granted, the host gets ready."""
    estimate_s: float | None = None
    awaits: str = ""
    """What it waits for, in a clause."""
    told_at: float | None = None
    """When that was told; `estimate_s` counts from then."""
    paused: bool = False
    """Whether it waits because it has left its GPUs for a shorter cell."""
    trouble: str = ""
    """Why its wish for GPUs is not heard at the moment, or, once it is done, why it was refused."""
    unaudited: tuple[str, ...] = ()
    """Variables that are checked for changes before the execution is durable."""
    accepted_at: float | None = None
    wished_at: float | None = None
    granted_at: float | None = None
    election_at: float | None = None
    """When replicas were asked who runs it, which lasted until it was sent; None: nobody had to be asked."""
    sent_at: float | None = None
    began_at: float | None = None
    ended_at: float | None = None
    durable_at: float | None = None
    capture_s: float | None = None
    """How long its process took to find what it changed, which is a part of the time until it is durable."""
    bind_s: float | None = None
    """How long its process took to have its GPUs, with the state on them, before it began."""
    cost: float | None = None
    """What its lease has cost, in `currency`; None: nothing is charged, or it is not over."""
    currency: str = ""
    version: int = 0


class Holding(msgspec.Struct, frozen=True):
    """GPUs that the kernel holds under a lease; they linger when `cell` is empty."""

    lease: str
    host: str
    gpus: tuple[str, ...]
    cell: str
    since: float
    part: float = 0.0
    """With `part_gb` GiB of its memory it is this part of the one GPU; 0: all of it."""
    part_gb: float = 0.0


class Moving(msgspec.Struct, frozen=True):
    """A replica's move to a host; `trouble` is why it came to nothing, empty while it is wanted or made."""

    host: str
    trouble: str = ""


class ProgressQuestion(msgspec.Struct, frozen=True):
    """The content of a request: executions that changed since a version."""

    since: int = 0


class ProgressAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the reply."""

    status: str = "ok"
    now: float
    version: int
    executions: tuple[Execution, ...] = ()
    kept: tuple[str, ...] = ()
    """The message ids of all executions that are remembered, oldest first."""
    holdings: tuple[Holding, ...] = ()
    default_gpus: int | float = 0
    """What each cell of the notebook asks for that does not say it itself; a fraction is a part of one."""
    default_vram_gb: float = 0.0
    """GiB that each of these GPUs must have (0: any), or that go with a part."""
    move: Moving | None = None
    """The move of a replica that is asked for or under way, or the last one if it came to nothing."""
    rest: str = "awake"
    """How far a hibernation has come: `awake`, `wanted`, `saving`, `stopping`, `asleep`."""
    executor: str = ""
    busy: bool = False
    """Whether a cell runs or waits."""
    scheduler: str = ""
    """Why the scheduler does not listen; empty when it does, or was not needed yet."""
