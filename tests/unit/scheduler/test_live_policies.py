"""Which policies run live: every installed one does, or is refused with its name, the reason and the fix."""

from __future__ import annotations

import pytest
from replkernel_scheduler.effects import LeaseEnded, LeaseGranted, LeaseQueued
from replkernel_scheduler.events import GpusAwaited, GpusWanted, KernelEnded, KernelReported, LeaseLingered
from replkernel_scheduler.policies import installed
from replkernel_scheduler.policies.discipline_easy import Easy
from replkernel_scheduler.policies.discipline_fcfs import Fcfs
from replkernel_scheduler.policies.queues_multi import MultiQueue
from replkernel_scheduler.policies.queues_single import SingleQueue
from replkernel_scheduler.types import HostName, KernelId, KernelSpec, UserName
from replkernel_server.errors import ServiceSettingError
from replkernel_server.scheduling.live_policies import check_live, policies_of, queues_of

from tests.unit.scheduler.cluster import Cluster, granted, of

REFUSED = {
    "fcfs-batch": "runs each cell in a process of its own on any host",
    "easy-batch": "runs each cell in a process of its own on any host",
    "large-pool": "runs each cell in a process of its own on any host",
    "harvest": "nobody submits or drives jobs here",
    "prewarm=minimum": "agents do so by themselves",
    "prewarm=little": "agents do so by themselves",
    "scaling=buffered": "wants a launcher that has more hosts come",
    "executor=any-host": "runs each cell in a process of its own on any host",
}


def every_one() -> list[dict[str, str]]:
    kinds = ("placement", "limit", "executor", "order", "migration", "scaling", "prewarm", "backfill")
    sets = [{"set": name} for name in installed.names("set")]
    return [*sets, *({"set": "notebook", kind: name} for kind in kinds for name in installed.names(kind))]


@pytest.mark.parametrize("names", every_one(), ids=str)
def test_each_policy_runs_live_or_is_refused_with_the_reason(names: dict[str, str]) -> None:
    kinds = [f"{kind}={name}" for kind, name in names.items() if kind != "set"]
    asked = " ".join([names["set"], *kinds])
    reason = REFUSED.get(kinds[0] if kinds else names["set"])
    if reason is None:
        check_live(names)
        cluster = live(names)
        assert granted(cluster.ask("cell", kernel="k1")).host == "a"
        return
    with pytest.raises(ServiceSettingError) as caught:
        check_live(names)
    said = str(caught.value)
    assert f"REPLKERNEL_SCHEDULER_POLICIES='{asked}'" in said and reason in said
    assert "`replkernel simulate`" in said and "or unset it" in said


def live(names: dict[str, str]) -> Cluster:
    """Return a core as a service makes it, with one host and two kernels that tell where they are."""
    cluster = Cluster(policies_of(names))
    cluster.host("a", 2)
    for name in ("k1", "k2"):
        spec = KernelSpec(KernelId(name), UserName(name), 0, 1)
        cluster.feed(KernelReported(spec, (HostName("a"),), False, None))
    return cluster


def test_with_reservation_a_kernel_keeps_its_gpus_to_its_end_though_somebody_waits() -> None:
    cluster = live({"set": "reservation"})
    lease = granted(cluster.ask("first", 2, kernel="k1"))
    cluster.feed(LeaseLingered(lease.lease, lease.fence))
    waits = cluster.ask("other", 1, kernel="k2")
    assert of(LeaseQueued, waits)
    cluster.feed(GpusWanted((GpusAwaited((HostName("a"),), 1),)))
    assert [entry.phase for entry in cluster.core.view().leases] == ["lingering"]
    again = granted(cluster.ask("second", 2, kernel="k1"))
    assert again.gpus == lease.gpus, "its own, although another was first to wait"
    cluster.feed(LeaseLingered(again.lease, again.fence))
    ended = cluster.feed(KernelEnded(KernelId("k1")))
    assert of(LeaseEnded, ended)
    assert [one.lease.request for one in of(LeaseGranted, ended)] == ["other"]


def test_the_same_is_asked_back_with_the_notebooks_policies() -> None:
    cluster = live({"set": "notebook"})
    lease = granted(cluster.ask("first", 2, kernel="k1"))
    cluster.feed(LeaseLingered(lease.lease, lease.fence))
    cluster.ask("other", 1, kernel="k2")
    assert [entry.phase for entry in cluster.core.view().leases] == ["reclaiming"]


def test_queues_say_how_jobs_on_cores_are_served_beside_any_set() -> None:
    usual, easy = queues_of({"set": "notebook"})
    assert isinstance(usual, SingleQueue) and usual.m == 2 and isinstance(easy, Easy)
    names = {"set": "notebook", "order": "fifo", "queues": "mq,r=10,mb=1,discipline=fcfs"}
    check_live(names)
    several, first_come = queues_of(names)
    assert isinstance(several, MultiQueue) and (several.r, several.mb) == (10.0, 1)
    assert isinstance(first_come, Fcfs)
    assert policies_of(names) is not None
    for wrong in ("sq,m=0", "sq,r=2", "nobody", "sq,discipline=none"):
        with pytest.raises(ServiceSettingError, match="Correct REPLKERNEL_SCHEDULER_POLICIES"):
            check_live({"set": "notebook", "queues": wrong})
