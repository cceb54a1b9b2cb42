"""Whose requests and leases they are, also where one is asked anew before its lease's end is told."""

from __future__ import annotations

import random

from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import LeaseEnded, LeaseGranted, LeaseQueued
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.types import Fence, GpuUuid, HostName, KernelId, Lease, LeaseId, RequestId, UserName
from replkernel_server.scheduling.messages import messages
from replkernel_server.scheduling.owners import Owner, Owners

REQUEST, KERNEL, ALICE = RequestId("r"), KernelId("k"), UserName("alice")


def lease(fence: int) -> Lease:
    gpus = (GpuUuid("GPU-0"),)
    return Lease(
        LeaseId(f"lease-{fence}"), REQUEST, KERNEL, HostName("ray-a"), gpus, Fence(fence), 60.0, 60.0, ALICE
    )


def test_a_request_that_is_asked_anew_keeps_its_owner_when_the_end_of_its_lease_is_told() -> None:
    owners = Owners(SchedulerCore(random.Random(0), notebook()).view())
    owners.asks(REQUEST, KERNEL, ALICE)
    owners.told([LeaseGranted(lease(1))])
    assert owners.waiting_of(ALICE) == 0
    owners.asks(REQUEST, KERNEL, ALICE)  # The engine had no GPU for it: it waits behind the engine's jobs.
    owners.told([LeaseEnded(lease(1), "released")])
    assert owners.requests.get(REQUEST) == Owner(KERNEL, ALICE), "nobody can withdraw it any more"
    assert messages(LeaseQueued(REQUEST, 2), 0.0, owners) is not None, "its cell is not told of its place"
    owners.told([LeaseGranted(lease(2))])
    assert owners.waiting_of(ALICE) == 0 and not owners.wishes_of
    owners.told([LeaseEnded(lease(2), "released")])
    assert not owners.requests, "nothing is kept of what is over"
