"""What is done to one kernel by whoever has its record: it is asked on its control channel, or forgotten.

Law: a kernel is asked with the key in its record; nothing is forgotten while anybody could still need it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

from replkernel.client.inquiry import ask_agents
from replkernel.errors import ReplkernelError
from replkernel.launch.kernel_record import KernelRecord, forget_kernel, kernel_dir, read_record, router_lives
from replkernel.records import KernelId
from replkernel.settings import data_dir, read_settings

ANSWER_LIMIT_S = 90.0
"""A kernel may take so long: what is on its way is awaited, checkpoints are written, processes end."""


class NoReply(ReplkernelError):
    """A kernel has not answered in time."""


def known_record(kernel_id: str, env: Mapping[str, str]) -> KernelRecord:
    """Return the kernel's record; raises ReplkernelError if there is none."""
    record = read_record(data_dir(env), kernel_id)
    if record is None:
        raise ReplkernelError(
            f"No kernel {kernel_id} is known here; `replkernel status` lists those there are."
        )
    return record


def forget(kernel_id: str, env: Mapping[str, str]) -> None:
    """Delete everything that a hibernated kernel has left; raises ReplkernelError if it lives."""
    record = known_record(kernel_id, env)
    if record.state != "hibernated" and router_lives(record):
        raise ReplkernelError(f"Kernel {kernel_id} is live: shut it down, or hibernate it first.")
    if router_lives(record):
        ask_kernel(record, "shutdown_request")
        _await_gone(record)
    else:
        _forget(record, env)


def resume(record: KernelRecord) -> None:
    """Have a kernel's replicas come back with its state, if a router serves it.

    Raises NoReply if they have not come in time. An inspection is answered once a replica has that state;
    what is asked on control does not wait for it.
    """
    with KernelLine(record) as line:
        line.ask("shell", "inspect_request", {"code": "", "cursor_pos": 0, "detail_level": 0})


class KernelLine:
    """A client's connection to one kernel; its channels are opened as they are used, and closed with it."""

    def __init__(self, record: KernelRecord) -> None:
        from jupyter_client.blocking.client import BlockingKernelClient

        self.kernel_id = record.kernel_id
        client: Any = BlockingKernelClient()
        self._client = client
        self._client.load_connection_info(dict(record.connection))
        self._channels: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.stop()
        self._client.context.destroy(linger=0)

    def ask(
        self, channel: str, msg_type: str, content: Mapping[str, Any], limit_s: float = ANSWER_LIMIT_S
    ) -> dict[str, Any]:
        """Send a request and return the whole reply; raises NoReply without one in time."""
        way = self._channel(channel)
        message = self._client.session.msg(msg_type, dict(content))
        way.send(message)
        deadline = time.monotonic() + limit_s
        while (left := deadline - time.monotonic()) > 0:
            reply = _receive(way, left)
            if reply is not None and reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return reply
        raise NoReply(f"Kernel {self.kernel_id} did not answer within {limit_s:g} s.")

    def post(self, msg_id: str, session: str, client: str, content: Mapping[str, Any], about: object) -> None:
        """Send an execution under a given id and session, with metadata `about`; wait for nothing.

        `client` names this connection's shell channel, which must not be open yet.
        """
        self._client.session.session = client
        way = self._channel("shell")
        self._client.session.session = session
        header = self._client.session.msg_header("execute_request") | {"msg_id": msg_id}
        way.send(self._client.session.msg("execute_request", dict(content), header=header, metadata=about))

    def control(
        self, msg_type: str, content: Mapping[str, Any], limit_s: float = ANSWER_LIMIT_S
    ) -> dict[str, Any]:
        """Send a control request and return the reply's content; raises ReplkernelError if it refuses."""
        answer: dict[str, Any] = self.ask("control", msg_type, content, limit_s)["content"]
        if answer.get("status", "ok") != "ok":
            raise ReplkernelError(str(answer.get("evalue") or "The kernel refused."))
        return answer

    def _channel(self, name: str) -> Any:
        if name not in self._channels:
            self._channels[name] = channel = getattr(self._client, f"{name}_channel")
            channel.start()
        return self._channels[name]


def ask_kernel(record: KernelRecord, msg_type: str) -> dict[str, Any]:
    """Send a control request to a kernel's router, return the reply; raises ReplkernelError if it refuses."""
    with KernelLine(record) as line:
        return line.control(msg_type, {"restart": False} if msg_type == "shutdown_request" else {})


def _receive(channel: Any, timeout_s: float) -> dict[str, Any] | None:
    from queue import Empty

    try:
        reply: dict[str, Any] = channel.get_msg(timeout=timeout_s)
    except Empty:
        return None
    return reply


def _await_gone(record: KernelRecord) -> None:
    deadline = time.monotonic() + ANSWER_LIMIT_S
    while router_lives(record) and time.monotonic() < deadline:
        time.sleep(0.05)


def _forget(record: KernelRecord, env: Mapping[str, str]) -> None:
    from replkernel.objects.store import open_store
    from replkernel.objects.withdrawal import end_kernel

    kernel_id = KernelId(record.kernel_id)
    if any(kernel.kernel_id == kernel_id and kernel.replicas for kernel in ask_agents(env).kernels):
        raise ReplkernelError(f"Kernel {kernel_id} still has replicas; wait for REPLKERNEL_ORPHAN_GRACE_S.")
    store = open_store(read_settings(env).store_url, env)
    try:
        end_kernel(store, kernel_id, record.incarnation)
    finally:
        store.close()
    forget_kernel(kernel_dir(data_dir(env), kernel_id))
