"""The laws of gangs, checked from the tables after every event of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replkernel_scheduler.errors import InvariantBroken
from replkernel_scheduler.gangs.types import GangRecord
from replkernel_scheduler.types import LeaseId, RequestId
from replkernel_scheduler.view import ClusterView, LeaseView

if TYPE_CHECKING:
    from replkernel_scheduler.gangs.desk import Gangs


def check(view: ClusterView, gangs: Gangs) -> None:
    """Raise InvariantBroken if a law does not hold."""
    records = list(gangs.by_id.values())
    if not records:
        _require(not gangs.renew_at, "a gang that is over is renewed")
        return
    leases = {each.lease.lease: each for each in view.leases}
    waiting = {each.request.request for each in view.waiting}
    held = [name for gang in records for name in gang.leases]
    _require(len(held) == len(set(held)), "a lease is of two gangs")
    _require(not gangs.unsettled, "a gang was not seen to")
    gathering = [gang for gang in records if not gang.granted and (gang.leases or gang.request is not None)]
    _require(len(gathering) <= 1, "two gangs gather, and could wait for each other")
    first = next((gang for gang in records if not gang.granted), None)
    _require(not gathering or gathering[0] is first, "a gang gathers before its turn")
    _require(first is None or not gangs.idle_beside(first), "a gang waits beside a host that it could have")
    renewed = {gang.spec.gang for gang in records if gang.leases and gang.ends_at is None}
    _require(renewed == set(gangs.renew_at), "a gang is not renewed")
    for gang in records:
        _gang(gang, leases, waiting)


def _gang(gang: GangRecord, leases: dict[LeaseId, LeaseView], waiting: set[RequestId]) -> None:
    spec = gang.spec
    if gang.ends_at is None:
        has_all = len(gang.leases) == spec.hosts
        _require(gang.granted == has_all, "a gang has some of its hosts, or waits with all")
    else:
        _require(gang.granted and bool(gang.leases), "a gang ends and has nothing")
    _require(gang.granted or gang.told is not None, "a gang that waits was not told")
    _require((gang.request is None) or gang.request in waiting, "a gang waits for nothing")
    hosts = {lease.host for lease in gang.leases.values()}
    _require(len(hosts) == len(gang.leases), "a gang has two leases on one host")
    _require(not spec.among or hosts <= set(spec.among), "a gang is where it may not be")
    for name, lease in gang.leases.items():
        known = leases.get(name)
        _require(known is not None, "a gang has a lease that is over")
        assert known is not None
        _require(known.phase == "active" and known.lease == lease, "a gang's lease is another one by now")
        _require(len(lease.gpus) == spec.gpus, "a gang has another number of GPUs on a host")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InvariantBroken(what)
