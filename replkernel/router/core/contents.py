"""What routing reads of messages' contents; everything else in them passes unread.

Pure. Law: content that cannot be read counts as empty, it never breaks the router.
"""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.records import Pin

COUNT_MAX = 2**53
"""A higher number than any cell's, which all that it passes through can still write."""


class Content(msgspec.Struct, frozen=True):
    """The base: fields that are absent have their protocol defaults."""


class ExecuteOptions(Content, frozen=True):
    """Of an execute_request."""

    code: str = ""
    silent: bool = False
    stop_on_error: bool = True
    store_history: bool = True

    @property
    def code_digest(self) -> str:
        """Return the digest by which front ends tell whether a cell still has this code: SHA-256, in hex."""
        return hashlib.sha256(self.code.encode("utf-8", "replace")).hexdigest()


class InterruptOptions(Content, frozen=True):
    """Of an interrupt_request. With a `msg_id` it is meant for that execution, and for no other."""

    msg_id: str = ""


class ExecuteOutcome(Content, frozen=True):
    """Of an execute_reply or an execute_input."""

    status: str = "ok"
    execution_count: int | None = None

    def __post_init__(self) -> None:
        """Take a count that no cell can have for none: user code sets it as it likes."""
        if self.execution_count is not None and not 0 <= self.execution_count <= COUNT_MAX:
            msgspec.structs.force_setattr(self, "execution_count", None)


class ExecuteFault(Content, frozen=True):
    """Of an execute_reply: why an execution failed."""

    status: str = "ok"
    ename: str = ""
    evalue: str = ""


class ReplicaSaid(Content, frozen=True):
    """What a replica says about an execution: `ran` is false when it was refused; no delta will come.

    `declined` are variables that it could not rebuild: nothing was run, and another replica has them. Nor was
    anything with `wants_gpus`: what the execution reaches lies on so many GPUs, and it has no lease.
    `leaves`: its process ends now, because the cell asked for that (`exit`), or, with `renews`, so that
    another one takes over, for it cannot use the lease's GPUs: of the execution nothing was run.
    An execution that was sent back like that, as number `seq`, may be given again, also to the same process.
    `replica` is empty when no replica has said anything. `gpu_bytes` lie on the execution's GPUs as it ends.
    """

    replica: str = ""
    ran: bool = True
    declined: tuple[Pin, ...] = ()
    wants_gpus: int = 0
    leaves: bool = False
    renews: bool = False
    seq: int = 0
    gpu_bytes: int = 0

    @property
    def sent_back(self) -> bool:
        """Whether nothing was run and the router is to have the execution run: no client sees this."""
        return bool(self.declined) or bool(self.wants_gpus) or self.renews


class ReplyMetadata(Content, frozen=True):
    """Of an execute_reply's metadata."""

    replkernel: ReplicaSaid = ReplicaSaid()


class CommContent(Content, frozen=True):
    """Of a comm message."""

    comm_id: str = ""
    target_name: str = ""


class WidgetState(Content, frozen=True):
    """Of a widget's state: where its model is from, and, with anywidget, its class in Python."""

    module: str = msgspec.field(name="_model_module", default="")
    python_class: str = msgspec.field(name="_anywidget_id", default="")


class WidgetData(Content, frozen=True):
    """Of what a widget is opened with."""

    state: WidgetState = WidgetState()


class WidgetContent(Content, frozen=True):
    """Of a comm_open of a widget."""

    data: WidgetData = WidgetData()


class CommInfoContent(Content, frozen=True):
    """Of a comm_info_request."""

    target_name: str | None = None


class DebugContent(Content, frozen=True):
    """Of a debug_request."""

    command: str = ""


class SubshellContent(Content, frozen=True):
    """Of a request or reply that creates or deletes a subshell."""

    subshell_id: str = ""


class ShutdownContent(Content, frozen=True):
    """Of a shutdown_request."""

    restart: bool = False


C = TypeVar("C", bound=Content)
_decoders: dict[type[Content], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind)
    for kind in (
        ExecuteFault,
        ExecuteOptions,
        ExecuteOutcome,
        InterruptOptions,
        ReplyMetadata,
        CommContent,
        WidgetContent,
        CommInfoContent,
        DebugContent,
        SubshellContent,
        ShutdownContent,
    )
}


def read(kind: type[C], content: bytes) -> C:
    """Return the fields of `kind` that `content` has."""
    try:
        found = _decoders[kind].decode(content)
    except UNREADABLE:
        return kind()
    return found if isinstance(found, kind) else kind()
