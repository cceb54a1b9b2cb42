"""A keeper's driver: what a host that fails costs the replica that it drives."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.agent.core import events as fact
from replkernel.agent.core import group_member
from replkernel.agent.core.keeper import Keeper
from replkernel.agent.io import keeper_driver
from replkernel.agent.io.keeper_driver import KeeperDriver
from replkernel.protocol.agent_to_router import AgentToRouter, RouteNotice
from replkernel.records import HostName, ReplicaId
from replkernel.replication.machine import KernelMachine

HERE_S = 10.0


def test_a_group_whose_start_finds_no_room_says_so_and_is_opened_once_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_member, "GROUP_RETRY_S", 0.01)
    monkeypatch.setattr(keeper_driver, "read_checkpoint", lambda *about: KernelMachine().snapshot())
    full = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "base.msgpack"), TimeoutError()]

    def save_base(digest: str, state: bytes) -> None:
        if full:
            raise full.pop(0)

    async def play() -> list[AgentToRouter]:
        async def soon(*about: Any) -> None:
            pass

        opened, told = asyncio.Event(), list[AgentToRouter]()
        loop = asyncio.get_running_loop()
        group: Any = SimpleNamespace(open=lambda *about, **how: loop.call_soon_threadsafe(opened.set))
        folder: Any = SimpleNamespace(
            snapshot=Path("/nowhere"),
            read_base=lambda digest: None,
            save_base=save_base,
            save=lambda record: None,
        )
        around: Any = SimpleNamespace(
            spec=SimpleNamespace(kernel_id="k"),
            host="a",
            turns=SimpleNamespace(others=soon),
            kernel_store=SimpleNamespace(opened=soon),
            post=SimpleNamespace(to_router=told.append),
            on_commit=lambda: None,
        )
        core = Keeper(ReplicaId("r1"), HostName("a"), "a:1")
        driver = KeeperDriver(core, around, folder, lambda tell: group, lambda driver: None)
        driver.tell(fact.GroupNamed({core.replica: "a:1"}, "secret", "checkpoint", "digest", generation=2))
        await asyncio.wait_for(opened.wait(), HERE_S)
        await asyncio.sleep(0)
        driver.close()
        return told

    room, thread = [message for message in asyncio.run(play()) if isinstance(message, RouteNotice)]
    assert room.text.startswith("Replica r1 cannot join its group for now: no space left on device")
    assert thread.text.startswith("Replica r1 cannot join its group for now: its Raft thread does not answer")
