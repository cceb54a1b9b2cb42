"""What is done to one kernel by whoever has its record: it is asked on its control channel, or forgotten.

Law: a kernel is asked with the key in its record; nothing is forgotten while anybody could still need it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from replkernel.errors import ReplkernelError
from replkernel.inquiry import ask_agents
from replkernel.kernel_record import KernelRecord, forget_kernel, kernel_dir, read_record, router_lives
from replkernel.records import KernelId
from replkernel.settings import data_dir, read_settings

ANSWER_LIMIT_S = 90.0
"""A kernel may take so long: what is on its way is awaited, checkpoints are written, processes end."""


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


def ask_kernel(record: KernelRecord, msg_type: str) -> dict[str, Any]:
    """Send a control request to a kernel's router, return the reply; raises ReplkernelError if it refuses."""
    from jupyter_client.blocking.client import BlockingKernelClient

    client: Any = BlockingKernelClient()
    client.load_connection_info(dict(record.connection))
    channel = client.control_channel
    channel.start()
    try:
        content = {"restart": False} if msg_type == "shutdown_request" else {}
        message = client.session.msg(msg_type, content)
        channel.send(message)
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while (left := deadline - time.monotonic()) > 0:
            reply = _receive(channel, left)
            if reply is not None and reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                break
        else:
            raise ReplkernelError(f"Kernel {record.kernel_id} did not answer within {ANSWER_LIMIT_S:g} s.")
    finally:
        channel.stop()
        client.context.destroy(linger=0)
    answer: dict[str, Any] = reply["content"]
    if answer.get("status") != "ok":
        raise ReplkernelError(str(answer.get("evalue") or "The kernel refused."))
    return answer


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
