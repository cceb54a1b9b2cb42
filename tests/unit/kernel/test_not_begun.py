"""A cell that could not begin leaves nothing behind that holds while one runs with GPUs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from replkernel.errors import QuorumLost
from replkernel.kernel.execution import Execution
from replkernel.kernel.kernel import ReplicatedKernel


def test_a_cell_whose_state_cannot_be_brought_is_over_for_the_gpus_too() -> None:
    over: list[str] = []
    execution = Execution(None)
    execution.trouble = QuorumLost("no majority")
    kernel: Any = SimpleNamespace(
        _current=lambda: execution,
        hold_interrupts=lambda: None,
        gpus=SimpleNamespace(over=lambda: over.append("over")),
        _refusal=lambda trouble: {"status": "error", "evalue": str(trouble)},
    )
    reply: Any = asyncio.run(ReplicatedKernel.do_execute(kernel, "1", False))  # type: ignore[arg-type]
    assert (reply["status"], over) == ("error", ["over"])
