"""A paused cell goes on with GPUs that its state can come back to, and with no others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.errors import StateKept
from replkernel.gpu.backend import Kept, Moved, Outcome
from replkernel.kernel import leased_gpus
from replkernel.kernel.leased_gpus import LeasedGpus
from replkernel.leasing.notebook import GpuAnswer, GpuQuestion, PausedOn

LEFT = PausedOn("l1", 1, 7200.0, 0.0, "H100")


class Kernel:
    """One whose router grants a lease at each question, on another GPU each time."""

    def __init__(self, outcomes: list[Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("CUDA_VISIBLE_DEVICES", "REPLKERNEL_CUDA_HIDDEN", "PYTORCH_NVML_BASED_CUDA_CHECK"):
            monkeypatch.setenv(name, "")
        monkeypatch.setattr(leased_gpus, "ELSEWHERE_S", 0.0)
        self.asked: list[PausedOn | None] = []
        self.computes_on_gpus: list[tuple[str, ...]] = []
        self.computes_on: Any = None
        self.birth = SimpleNamespace(ipc_base="")
        self.shell = SimpleNamespace(display_pub=SimpleNamespace(publish=lambda *args, **more: None))
        self.gpus = LeasedGpus(self, lambda thread: True)
        monkeypatch.setattr(self.gpus._occupancy, "lend", lambda gpus, bytes_max: outcomes.pop(0))

    def stands_still(self) -> None:
        """Nothing is counted here."""

    def leased_gpus(self) -> tuple[str, ...]:
        return ("GPU-1",)

    def in_leased_notebook(self) -> bool:
        return True

    def ask_router(self, question: GpuQuestion) -> GpuAnswer:
        self.asked.append(question.paused)
        number = len(self.asked) + 1
        return GpuAnswer(gpus=(f"GPU-{number}",), lease=f"l{number}")

    def leased_in_cell(self, answer: GpuAnswer, notice: str) -> None:
        self.computes_on_gpus.append(answer.gpus)


def test_gpus_to_which_its_state_cannot_come_back_go_back_and_the_cell_waits_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hours of computing are behind it, and no other process can take over."""
    kernel = Kernel([Kept("CUDA keeps GPU-1"), Kept("CUDA keeps GPU-1"), Moved(1000)], monkeypatch)
    kernel.gpus._stands_still(LEFT)
    assert kernel.computes_on_gpus == [("GPU-4",)]
    assert [(each.lease, each.times) for each in kernel.asked if each is not None] == [
        ("l1", 1),
        ("l2", 2),
        ("l3", 3),
    ]


def test_a_cell_whose_state_the_driver_has_for_good_ends_and_says_that_it_was_paused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel([Kept("the driver could not bring it back")], monkeypatch)
    monkeypatch.setattr(kernel.gpus._occupancy._driver, "stuck", "the driver could not bring it back")
    with pytest.raises(StateKept, match="This cell was paused for a shorter one, and cannot go on"):
        kernel.gpus._stands_still(LEFT)
    assert kernel.computes_on_gpus == []
