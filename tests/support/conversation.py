"""Talking to a kernel as a client does: connect to one that was started, run a cell that must succeed."""

from __future__ import annotations

from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager


def connected(manager: KernelManager, timeout_s: float) -> BlockingKernelClient:
    """Return a client of a started kernel, once that answers."""
    client = manager.blocking_client()
    client.start_channels(hb=False)
    client.wait_for_ready(timeout=timeout_s)
    return client


def say(client: BlockingKernelClient, code: str, timeout_s: float) -> str:
    """Run a cell that must succeed and return what it printed."""
    printed: list[str] = []

    def hook(message: dict[str, Any]) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=timeout_s, output_hook=hook)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(printed).strip()
