"""What `%gpu` and the chooser are told of what cells get from now on: when it holds, and what goes first."""

from __future__ import annotations

from replkernel.leasing.request import GpuRequest
from replkernel.router.core.gpu_answers import preferred


def test_a_new_default_says_from_when_it_holds_and_what_goes_before_it() -> None:
    assert preferred(GpuRequest(1), "") == (
        "From the next cell on, every cell gets 1 GPU unless it asks for a different number."
    )
    asked = preferred(GpuRequest(2, vram_gb=20, cpu=4), "No scheduler listens.")
    assert asked.startswith("From the next cell on, every cell gets 2 GPUs of at least 20 GiB, 4 cores")
    assert asked.endswith(" No scheduler listens.")
    assert preferred(None, "No scheduler listens.") == (
        "From the next cell on, cells get no GPU unless they ask for one."
    )
