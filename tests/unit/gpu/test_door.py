"""Who is let in before `cuInit`, and what a zygote must not be forked with."""

from __future__ import annotations

import pytest

from replkernel.agent.io.zygote import cannot_be_forked
from replkernel.gpu.door import Asked, parse, ruling

A, B = "GPU-a", "GPU-b"


@pytest.mark.parametrize(
    ("asked", "leased", "told"),
    [
        (Asked(1, True, "-1"), (), ""),
        (Asked(1, True, "-1"), None, ""),
        (Asked(1, True, "-1"), (A, B), f"use {A},{B}"),
        (Asked(1, False, A), (A,), "go"),
        (Asked(1, False, A), None, ""),
        (Asked(1, False, A), (B,), f"use {B}"),
        (Asked(1, False, f"{A}, {B}"), (A, B), "go"),
        (Asked(1, False, "GPU-"), (B,), "go"),
        (Asked(1, False, "0"), (B,), "go"),
        (Asked(1, False, "*"), (), ""),
        (Asked(1, False, ""), (), "go"),
        (Asked(1, True, ""), (A,), "go"),
        (Asked(1, False, "-1"), (A,), "go"),
    ],
)
def test_who_has_a_lease_or_wishes_for_no_gpu_goes_on_and_others_wait(
    asked: Asked, leased: tuple[str, ...] | None, told: str
) -> None:
    assert ruling(asked, leased) == told


def test_a_malformed_line_is_no_question() -> None:
    assert parse("17 hidden -1\n") == Asked(17, True, "-1")
    assert parse("17 seen GPU-a, GPU-b\n") == Asked(17, False, "GPU-a, GPU-b")
    for line in ("", "x hidden -1", "17 other -1", "17 hidden"):
        assert parse(line) is None


def test_a_zygote_with_a_gpu_open_or_a_thread_names_it_and_the_fix() -> None:
    assert cannot_be_forked((), frozenset(), ["numpy"]) == ""
    assert cannot_be_forked((), None, []) == ""
    said = cannot_be_forked(("Watcher",), frozenset({"nvidia0"}), ["torch", "mine"])
    assert "/dev/nvidia0 is open and thread Watcher runs after REPLKERNEL_PRELOAD=torch,mine" in said
    assert "Take out the package" in said
