"""The cluster's last day for charts: counts of what was, bounded, and thinned where it is long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
from replkernel_scheduler.effects import ReplicaMoved, UsageRecorded
from replkernel_scheduler.view import ClusterView
from replkernel_server.scheduling.past import (
    DELAYS_MAX,
    GPU_LOOKS,
    POINTS_MAX,
    POINTS_TOLD_MAX,
    SAMPLE_S,
    Busy,
    PastKeeper,
    Sample,
)

from replkernel.leasing.wire import GpuUse


def view(hosts: int = 1, waiting: int = 0, **phases: int) -> ClusterView:
    """Return a cluster of hosts with four GPUs each, of which so many are leased in each phase."""
    some = SimpleNamespace
    leases = [
        some(phase=phase, lease=some(request="k/1", gpus=[f"{phase}-{n}" for n in range(count)]))
        for phase, count in phases.items()
    ]
    held = [some(gpus=["g"] * 4, subscribed=6) for _ in range(hosts)]
    kernels = [some(hosts=["a", "b", "c"])]
    return cast("ClusterView", some(hosts=held, leases=leases, waiting=[None] * waiting, kernels=kernels))


def effect(kind: type[msgspec.Struct], **said: Any) -> Any:
    """Return an effect of a kind that says only this."""
    return kind(**{name: said.get(name) for name in kind.__struct_fields__})


def test_a_look_counts_gpus_by_what_they_do_and_who_waits() -> None:
    past = PastKeeper()
    past.look(view(2, waiting=3, active=2, bound=1, lingering=1), 100.0)
    (point,) = past.tell().points
    assert (point.at, point.provisioned, point.leased, point.lingering, point.waiting) == (100, 8, 3, 1, 3)
    assert point.ratio == 0.5


def test_who_waits_is_told_as_of_now_beside_the_newest_look() -> None:
    past = PastKeeper()
    assert past.newest(waiting=2) == []
    past.look(view(1, waiting=1), 100.0)
    (point,) = past.newest(waiting=2)
    assert (point.at, point.waiting) == (100.0, 2)


def test_moves_and_hosts_that_come_and_go_are_happenings_and_waits_are_delays() -> None:
    past = PastKeeper()
    past.look(view(1), 0.0)
    past.observe([effect(ReplicaMoved), effect(ReplicaMoved)], 0.0)
    past.observe([effect(UsageRecorded, usage=SimpleNamespace(queued_s=1.23456))], 0.0)
    past.look(view(3), SAMPLE_S)
    past.look(view(2), 2 * SAMPLE_S)
    told = past.tell()
    assert [(one.at, one.kind, one.count) for one in told.happenings] == [
        (SAMPLE_S, "replica moved", 2),
        (SAMPLE_S, "hosts added", 2),
        (2 * SAMPLE_S, "hosts gone", 1),
    ]
    assert told.delays == [1.235]


def test_however_long_it_lasts_no_more_is_kept_or_told_than_the_bounds() -> None:
    past = PastKeeper()
    for number in range(POINTS_MAX + 10):
        past.look(view(), number * SAMPLE_S)
        past.observe([effect(UsageRecorded, usage=SimpleNamespace(queued_s=0.0))], 0.0)
    told = past.tell()
    assert POINTS_TOLD_MAX // 2 < len(told.points) <= POINTS_TOLD_MAX
    assert told.points[-1].at == (POINTS_MAX + 9) * SAMPLE_S, "the newest is always told"
    assert len(told.delays) == DELAYS_MAX


def test_how_busy_each_gpu_was_is_kept_each_minute() -> None:
    past = PastKeeper()
    for number in range(GPU_LOOKS + 1):
        use = {"g1": GpuUse("g1", number / 10, 2.5)}
        past.look(view(), number * SAMPLE_S, {"a": use})
    assert past.tell().busy == [Busy(0.0, "a/g1", 0.0, 2.5), Busy(60.0, "a/g1", 0.4, 2.5)]


def test_another_process_goes_on_from_the_samples_of_this_one() -> None:
    past, after = PastKeeper(), PastKeeper()
    past.observe([effect(UsageRecorded, usage=SimpleNamespace(queued_s=2.0))], 0.0)
    samples = [past.look(view(1), 0.0, {"a": {"g": GpuUse("g", 0.5)}}), past.look(view(2), SAMPLE_S)]
    told = past.tell()
    after.restore(msgspec.json.decode(msgspec.json.encode(one), type=Sample) for one in samples)
    assert after.tell() == told
    after.look(view(2), 2 * SAMPLE_S)
    assert after.tell().happenings == told.happenings, "hosts that were there before are not called new"
