"""Notebooks that have a part of a GPU each: two on one card at once, a third waits or goes to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.test_gpu_in_cell import shown
from tests.e2e.test_gpu_state import GPU, two_notebooks
from tests.support.live import Live, eventually, kernel
from tests.support.needs import need

need("torch")
pytestmark = [pytest.mark.timeout(240), pytest.mark.one_host]

HOLD = """%%gpu {asked}
import os, pathlib, time
pathlib.Path("holds").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
while not pathlib.Path("goes").exists():
    time.sleep(0.02)
"""
FILL = """%%gpu 0.5 --vram 0.01
import torch
from replkernel.gpu.fake import put
x = put(torch.ones(1000))
try:
    y = put(torch.ones({count}))
    print("took it")
except torch.OutOfMemoryError as error:
    print(error)
"""
OTHER = GPU.removesuffix("0") + "1"


@contextmanager
def three_notebooks(directory: Path, gpus: int) -> Iterator[tuple[Live, Live, Live]]:
    (directory / "c").mkdir()
    with (
        two_notebooks(directory, gpus, preload={}) as (one, two),
        kernel(directory / "c", REPLKERNEL_REPLICAS="1") as three,
    ):
        yield one, two, three


def hold(live: Live, directory: Path, asked: str = "0.5") -> str:
    """Have a notebook keep its part of a GPU until `directory`/goes is there; return which GPU it sees."""
    live.client.execute(HOLD.format(asked=asked))
    eventually(lambda: (directory / "holds").exists() and (directory / "holds").read_text(), "the cell")
    return (directory / "holds").read_text()


def test_two_halves_share_a_card_and_a_third_waits_for_the_first_to_go(tmp_path: Path) -> None:
    with three_notebooks(tmp_path, gpus=1) as (one, two, three):
        assert hold(one, tmp_path / "a") == GPU
        assert hold(two, tmp_path / "b") == GPU, "both compute there at once"
        message = three.client.execute("%%gpu 0.5\nimport os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])")
        shown(three, message, "Waiting for ½ GPU: number 1 in the queue")
        (tmp_path / "b" / "goes").touch()
        assert three.reply(message)["metadata"]["replkernel"]["gpus"] == [GPU]
        (tmp_path / "a" / "goes").touch()


@pytest.mark.slow
def test_a_third_half_goes_to_another_card_and_a_whole_gpu_to_none_that_is_shared(tmp_path: Path) -> None:
    with three_notebooks(tmp_path, gpus=2) as (one, two, three):
        cards = [hold(one, tmp_path / "a"), hold(two, tmp_path / "b"), hold(three, tmp_path / "c")]
        assert cards == [GPU, GPU, OTHER]
        for name in "abc":
            (tmp_path / name / "goes").touch()
        ran = one.run("%%gpu 2\nimport os\nprint(os.environ['CUDA_VISIBLE_DEVICES'])")
        assert sorted(ran.out.strip().split(",")) == [GPU, OTHER], "what lingered there was given back"


def test_a_bound_of_memory_that_one_hits_leaves_the_other_alone(tmp_path: Path) -> None:
    with two_notebooks(tmp_path, REPLKERNEL_UNLEASED_GPUS="none") as (one, two):
        ran = one.run(FILL.format(count=5_000_000))
        assert "out of memory" in ran.out
        assert any("shares its GPU with others" in str(content) for _, content in ran.messages)
        assert "took it" in two.run(FILL.format(count=100_000)).out
        ran = one.run("%%gpu 0.5 --vram 0.01\nprint(x.sum().item())")
        assert ran.out.strip() == "1000.0"
        plain = one.run("z = put(torch.ones(5_000_000))")
        assert "out of memory" in plain.error, "a cell that asks for nothing has the same part again"
        assert (plain.said["part"], plain.said["gpus"]) == (0.5, [GPU])
        assert not any("shares its GPU with others" in str(content) for _, content in ran.messages), "once"
        assert "½ GPU with 0.00976562 GiB on host" in two.value("%gpu status")


@pytest.mark.slow
def test_state_that_is_larger_than_a_part_does_not_come_to_a_shared_card(tmp_path: Path) -> None:
    with two_notebooks(tmp_path) as (one, two):
        two.run("%%gpu 0.5 --vram 0.01\nhere = 1")
        one.run("%%gpu 1\nimport torch\nfrom replkernel.gpu.fake import put\nx = put(torch.ones(5_000_000))")
        refused = one.run("%%gpu 0.25 --vram 0.01\nran = 1")
        assert "19.1 MiB of this notebook's state belong on the GPU" in refused.error
        assert "its part of one has 10 MiB: ask for a larger part" in refused.error
        assert one.run("%%gpu 1\nprint(x.sum().item(), 'ran' in globals())").out == "5000000.0 False\n"
