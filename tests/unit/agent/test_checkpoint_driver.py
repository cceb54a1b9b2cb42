"""What a host writes of a kernel that ends: nothing beside its end, nothing before its group has begun."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.agent.core.events import GroupNamed, ReplicaRequested
from replkernel.agent.core.keeper import Keeper
from replkernel.agent.io import checkpoint_store
from replkernel.agent.io.checkpoint_driver import CheckpointDriver
from replkernel.agent.io.checkpoint_store import Shelf, find_checkpoint, write_checkpoint
from replkernel.agent.io.group import ReplicaGroup, summary_of
from replkernel.agent.io.host_kernel import HostKernel
from replkernel.agent.io.mail import LoopMail
from replkernel.objects.store import ObjectStore, open_store
from replkernel.protocol.agent_to_router import AgentToRouter, CheckpointWritten
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import HostName, KernelId, ReplicaId, Seq
from replkernel.replication.machine import KernelMachine

HERE_S = 30.0


class SlowStore:
    """A kernel's store: what is written there waits until it may."""

    def __init__(self, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self.begun, self.may = threading.Event(), threading.Event()
        write = checkpoint_store.write_mark

        def slowly(*about: Any, **named: Any) -> None:
            self.begun.set()
            assert self.may.wait(HERE_S)
            write(*about, **named)

        monkeypatch.setattr(checkpoint_store, "write_mark", slowly)

    async def opened(self, _: float) -> ObjectStore:
        return self.store

    def checkpointed(self) -> None:
        pass

    async def forget(self, *, collecting: bool) -> None:
        """Delete all that is there now."""
        for name in self.documents():
            self.store.delete_document(name)

    def documents(self) -> list[str]:
        return sorted(self.store.list_documents("k"))


def replica() -> Any:
    """Return a replica whose state is empty."""
    machine = KernelMachine()
    said = summary_of(machine)
    group = SimpleNamespace(
        begun=True,
        raft_status=lambda: None,
        summary=lambda: said,
        checkpoint=lambda: (machine.snapshot(), set(), said),
    )
    member = SimpleNamespace(generation=1, checkpoint="")
    return SimpleNamespace(core=SimpleNamespace(member=member), group=group)


def spec_at(directory: Path) -> KernelSpec:
    """Return a kernel whose store is a directory."""
    return KernelSpec(
        kernel_id=KernelId("k"), incarnation="one", key="key", signature_scheme="hmac-sha256",
        python="python", env={}, cwd="/", store_url=f"file://{directory}", replicas=1,
    )  # fmt: skip


def test_a_kernel_that_ends_as_its_checkpoint_is_being_written_leaves_nothing_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_at(tmp_path)
    around: Any = SlowStore(open_store(spec.store_url, {}), monkeypatch)

    async def play() -> None:
        checkpoints = CheckpointDriver(spec, {ReplicaId("r1"): replica()}, around, lambda message: None)
        kernel: Any = SimpleNamespace(
            keeping=False, checkpoints=checkpoints, _around=SimpleNamespace(kernel_store=around)
        )
        writing = asyncio.create_task(checkpoints.write_for_rest())
        assert await asyncio.to_thread(around.begun.wait, HERE_S)
        writing.cancel()
        checkpoints.close()
        tidying = asyncio.create_task(HostKernel.tidy_store(kernel, collecting=False))
        await asyncio.sleep(0.05)
        around.may.set()
        await tidying

    asyncio.run(play())
    assert around.documents() == []


def test_a_group_that_has_not_begun_writes_nothing_over_the_checkpoint_that_it_goes_on_from(
    tmp_path: Path,
) -> None:
    spec = spec_at(tmp_path)
    store = open_store(spec.store_url, {})
    machine = KernelMachine()
    said = summary_of(machine)._replace(applied=5)
    before = write_checkpoint(store, Shelf(spec), 1, machine.snapshot(), set(), said)

    async def play() -> None:
        def never(*about: Any) -> Any:
            raise AssertionError("the group is opened")

        async def opened(_: float) -> ObjectStore:
            return store

        around: Any = SimpleNamespace(opened=opened, checkpointed=lambda: None)
        core = Keeper(ReplicaId("r1"), HostName("a"), "a:1")
        group = ReplicaGroup(core.replica, core.host, never, LoopMail(), lambda event: None)
        named = GroupNamed({core.replica: "a:1"}, "secret", before.name, "digest", generation=2)
        core.handle(ReplicaRequested(), 0.0)
        core.handle(named, 0.0)
        driver: Any = SimpleNamespace(core=core, group=group)
        told: asyncio.Queue[AgentToRouter] = asyncio.Queue()
        checkpoints = CheckpointDriver(spec, {core.replica: driver}, around, told.put_nowait)
        assert "not begun" in await checkpoints.write_for_rest()
        checkpoints.ask(Seq(0), forced=True)  # `replkernel recover`
        said = await told.get()
        assert isinstance(said, CheckpointWritten)
        assert "not begun" in said.why
        checkpoints.close()

    asyncio.run(play())
    assert find_checkpoint(store, spec).name == before.name
