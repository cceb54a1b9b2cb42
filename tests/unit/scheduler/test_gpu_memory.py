"""The memory of GPUs, counted to the MiB: what can be asked for, and cards that are measured anew."""

from __future__ import annotations

import pytest
from replkernel_scheduler.effects import Effect, LeaseEnded, LeaseGranted, LeaseRefused
from replkernel_scheduler.events import HostUp, LeaseAsked
from replkernel_scheduler.types import (
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    LeaseRequest,
    RequestId,
    Share,
)

from tests.unit.scheduler.cluster import Cluster, granted, of

H100_GB = 81_008 / 1024
"""What an H100 "80GB" leaves to processes: 79.11 GiB."""


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.host("a", 2, "H100", H100_GB)
    return made


def test_a_whole_gpu_is_found_by_the_size_that_it_is_sold_with(cluster: Cluster) -> None:
    assert granted(cluster.ask("sold", 2, vram_gb=80.0)).gpus == ("GPU-a-0", "GPU-a-1")


def test_nobody_gets_more_memory_than_a_card_has_and_what_is_named_can_be_asked_for(cluster: Cluster) -> None:
    refused = of(LeaseRefused, cluster.ask("more", vram_gb=82.0))
    assert refused[0].why == (
        "No host has 1 GPU of 82 GiB; the largest possible request is 2 H100 GPUs of 79.1 GiB."
    )
    assert granted(cluster.ask("most", 2, vram_gb=79.1)).gpus == ("GPU-a-0", "GPU-a-1")


def test_a_part_never_gets_more_memory_than_its_card_has_though_a_whole_one_would_do(
    cluster: Cluster,
) -> None:
    refused = of(LeaseRefused, part(cluster, "more", 0.5, vram_gb=80.0))
    assert "No host has 0.5 of a GPU of 80 GiB" in refused[0].why
    assert granted(part(cluster, "most", 0.5, vram_gb=79.1)).gpus == ("GPU-a-0",)


def test_parts_of_a_card_come_to_its_memory_to_the_mib(cluster: Cluster) -> None:
    halves = [granted(part(cluster, name, 0.5)) for name in "ab"]
    assert [(lease.gpus, lease.share.vram_mib) for lease in halves if isinstance(lease.share, Share)] == [
        (("GPU-a-0",), 40_504)
    ] * 2
    assert granted(part(cluster, "c", 0.5, vram_gb=40_505 / 1024)).gpus == ("GPU-a-1",)
    assert not of(LeaseGranted, part(cluster, "d", 0.5)), "its half of 40,504 MiB is 1 MiB too much"


def test_leases_outlive_that_their_cards_are_measured_anew() -> None:
    cluster = Cluster()
    cluster.host("a", 3, "H100", 80.0)
    whole = granted(cluster.ask("whole", 1, vram_gb=80.0))
    parts = [granted(part(cluster, name, 0.1, vram_gb=gb)) for name, gb in (("a", 40.0), ("b", 40.0))]
    assert parts[0].gpus == parts[1].gpus != whole.gpus
    ended = of(LeaseEnded, cluster.host("a", 3, "H100", H100_GB))
    assert [(effect.lease.lease, effect.why) for effect in ended] == [(parts[1].lease, "gpu gone")], (
        "two parts of 40 GiB are more than the card has"
    )
    held = {entry.lease.request for entry in cluster.core.view().leases}
    assert held == {whole.request, parts[0].request}
    assert not of(LeaseEnded, cluster.host("a", 3, "H100", 80.0))


def test_a_part_ends_whose_memory_nothing_bounds_once_its_card_is_measured() -> None:
    cluster = Cluster()
    cluster.host("a", 1, "H100")
    lease = granted(part(cluster, "a", 0.5))
    ended = of(LeaseEnded, cluster.host("a", 1, "H100", H100_GB))
    assert [effect.lease.lease for effect in ended] == [lease.lease]


def test_gpus_of_a_model_that_differ_by_little_are_leased_together() -> None:
    cluster = Cluster()
    sizes = (H100_GB, H100_GB - 300 / 1024, H100_GB)
    gpus = tuple(Gpu(GpuUuid(f"GPU-{i}"), "H100", gb) for i, gb in enumerate(sizes))
    cluster.feed(HostUp(HostName("a"), (*gpus, Gpu(GpuUuid("GPU-3"), "H100", 40.0))))
    refused = of(LeaseRefused, cluster.ask("more", 3, vram_gb=82.0))
    assert "is 3 H100 GPUs of 78.81 GiB." in refused[0].why
    assert len(granted(cluster.ask("all", 3, vram_gb=78.81)).gpus) == 3


def part(cluster: Cluster, name: str, of_one: float, vram_gb: float = 0.0) -> list[Effect]:
    """Ask for a part of a GPU."""
    share = Share(round(of_one * 1000), 1)
    kernel = KernelId(f"kernel-{name}")
    return cluster.feed(
        LeaseAsked(LeaseRequest(RequestId(name), kernel, 1, 100.0, vram_gb=vram_gb, share=share))
    )
