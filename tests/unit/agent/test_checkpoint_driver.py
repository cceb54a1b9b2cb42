"""A checkpoint that is being written when its kernel ends is awaited by whoever empties the store."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.agent.io import checkpoint_store
from replkernel.agent.io.checkpoint_driver import CheckpointDriver
from replkernel.agent.io.group import summary_of
from replkernel.agent.io.host_kernel import HostKernel
from replkernel.objects.store import ObjectStore, open_store
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import KernelId, ReplicaId
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
        raft_status=lambda: None, summary=lambda: said, checkpoint=lambda: (machine.snapshot(), set(), said)
    )
    member = SimpleNamespace(generation=1)
    return SimpleNamespace(core=SimpleNamespace(member=member), group=group)


def test_a_kernel_that_ends_as_its_checkpoint_is_being_written_leaves_nothing_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = KernelSpec(
        kernel_id=KernelId("k"), incarnation="one", key="key", signature_scheme="hmac-sha256",
        python="python", env={}, cwd="/", store_url=f"file://{tmp_path}", replicas=1,
    )  # fmt: skip
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
