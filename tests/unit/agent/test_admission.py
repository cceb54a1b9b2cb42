"""What becomes of a kernel that nobody serves any more."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.agent.core.custody import Custody
from replkernel.agent.io.admission import REST_LIMIT_S, Admission
from replkernel.launch.kernel_record import KernelRecord, read_record, this_machine, write_record
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import KernelId


@pytest.mark.parametrize("recorded", [True, False])
def test_a_kernel_that_ran_for_hours_without_a_router_keeps_its_store_if_it_can_be_found_again(
    tmp_path: Path, recorded: bool
) -> None:
    spec = KernelSpec(
        kernel_id=KernelId("k"), incarnation="one", key="key", signature_scheme="hmac-sha256",
        python="python", env={}, cwd="/", store_url=f"file://{tmp_path}", replicas=1,
    )  # fmt: skip
    if recorded:
        record = KernelRecord(
            kernel_id=spec.kernel_id, kernel_name="replkernel", incarnation="one", connection={"key": "key"},
            connection_file="", cwd="/", machine=this_machine(), state="live",
        )  # fmt: skip
        write_record(tmp_path, record)

    async def play() -> list[bool]:
        nobody: Any = None
        admission = Admission("a", tmp_path / "agents" / "a", tmp_path, nobody, nobody, nobody)
        kept: list[bool] = []
        kernel: Any = SimpleNamespace(
            spec=spec,
            custody=Custody(spec, 30.0, time.monotonic() - REST_LIMIT_S - 60),
            whole=True,
            checkpoints=SimpleNamespace(standing=lambda: SimpleNamespace(busy=True)),
            end=lambda reason, *, keeping: kept.append(keeping),
        )
        admission.alive()[spec.kernel_id] = kernel
        admission._orphaned(kernel, "its router has been gone")
        await asyncio.gather(*admission._tasks)
        return kept

    assert asyncio.run(play()) == [recorded]
    found = read_record(tmp_path, spec.kernel_id)
    assert (found is not None and found.state == "hibernated") == recorded
