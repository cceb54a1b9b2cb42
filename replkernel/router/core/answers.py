"""The messages that the router itself originates: statuses, replies, errors, aborts.

Pure. Law: what is answered here looks on the wire as a stock kernel's answer does, with its busy/idle pair.
"""

from __future__ import annotations

from typing import Any

import msgspec

from replkernel.router.core.events import Answer, ClientRequest, Effect, Publish
from replkernel.router.core.wire import pack, timestamp


class Fault(msgspec.Struct, frozen=True):
    """Why something cannot be done: the error's name and one sentence, for the user."""

    ename: str
    evalue: str

    def content(self) -> dict[str, Any]:
        """Return the fault as the content of an ``error`` message."""
        line = f"\x1b[0;31m{self.ename}\x1b[0m: {self.evalue}"
        return {"ename": self.ename, "evalue": self.evalue, "traceback": [line]}


BUSY = pack({"execution_state": "busy"})
IDLE = pack({"execution_state": "idle"})
STARTING = pack({"execution_state": "starting"})


def busy(request: ClientRequest) -> Publish:
    """Return the status that opens the handling of a request."""
    return Publish("status", request.header_frame, BUSY)


def idle(request: ClientRequest) -> Publish:
    """Return the status that closes the handling of a request."""
    return Publish("status", request.header_frame, IDLE)


def reply_type(msg_type: str) -> str:
    """Return the type of the reply to a request type."""
    return msg_type.removesuffix("_request") + "_reply"


def reply(request: ClientRequest, content: bytes, metadata: bytes = b"{}") -> Answer:
    """Return the reply to a request, on the channel that it came by."""
    return Answer(
        channel=request.channel,
        identities=request.identities,
        msg_type=reply_type(request.header.msg_type),
        parent=request.header_frame,
        content=content,
        metadata=metadata,
    )


def whole(request: ClientRequest, content: bytes, metadata: bytes = b"{}") -> list[Effect]:
    """Return a complete answer: busy, the reply, idle."""
    return [busy(request), reply(request, content, metadata), idle(request)]


def refusal(request: ClientRequest, fault: Fault) -> list[Effect]:
    """Return a complete error answer to a request that is no execution."""
    if not request.header.msg_type.endswith("_request"):
        return [busy(request), idle(request)]
    return whole(request, pack({"status": "error", **fault.content()}), status_metadata("error"))


def abort(request: ClientRequest) -> list[Effect]:
    """Return the answer to an execution that an earlier cell's error aborts."""
    return whole(request, pack({"status": "aborted"}), status_metadata("aborted"))


def failed_reply(request: ClientRequest, fault: Fault, execution_count: int) -> Answer:
    """Return the execute_reply of an execution that ended by a fault of the system."""
    content = {
        "status": "error",
        **fault.content(),
        "execution_count": execution_count,
        "user_expressions": {},
        "payload": [],
    }
    return reply(request, pack(content), status_metadata("error"))


def failed_error(request: ClientRequest, fault: Fault) -> Publish:
    """Return the ``error`` message that shows a fault under its cell."""
    return Publish("error", request.header_frame, pack(fault.content()))


def execute_input(request: ClientRequest, code: str, execution_count: int) -> Publish:
    """Return the echo of a cell's source for the clients that listen."""
    content = pack({"code": code, "execution_count": execution_count})
    return Publish("execute_input", request.header_frame, content)


def stderr(request: ClientRequest, text: str) -> Publish:
    """Return a line of text under a cell, as its standard error stream."""
    content = pack({"name": "stderr", "text": text if text.endswith("\n") else f"{text}\n"})
    return Publish("stream", request.header_frame, content, topic=b"stream.stderr")


def comm_close(comm_id: str) -> Publish:
    """Return the notice to front ends that the kernel's end of a comm is gone."""
    return Publish(
        "comm_close", b"{}", pack({"comm_id": comm_id, "data": {}}), topic=f"comm-{comm_id}".encode()
    )


def status_metadata(status: str) -> bytes:
    """Return the metadata that a stock kernel gives a reply of this status."""
    return pack({"started": timestamp(), "dependencies_met": True, "status": status})
