"""Who may see and touch what of the scheduler, and what the groups of a user give him."""

from __future__ import annotations

import pytest
from replkernel_scheduler.bounds import Bounds, UserBounds
from replkernel_scheduler.events import KernelEnded
from replkernel_scheduler.types import KernelId, UserName, UserQuota
from replkernel_server.scheduling import access
from replkernel_server.scheduling.client_registry import ClientRegistry
from replkernel_server.scheduling.identity import Identity, IdentityUnknown, one_token, token_of
from replkernel_server.scheduling.quotas import owned_by, quota_of

from replkernel.leasing import wire
from tests.unit.scheduler.cluster import Cluster

ALICE, BOB = UserName("alice"), UserName("bob")
USER = Identity(ALICE, may_host=False)
GROUPS: dict[str, dict[str, object]] = {"class": {"owners": ["alice"]}, "lab": {}}
ADMIN = Identity(UserName("root"), admin=True, may_host=False, may_lease=False)


def test_a_user_sees_and_touches_what_is_his_and_an_admin_everything() -> None:
    assert access.may_see(USER, ALICE)
    assert not access.may_see(USER, BOB)
    assert not access.may_see(USER, None)
    assert access.may_see(ADMIN, BOB)
    assert not access.why_not_touch(USER, ALICE, "Lease x")
    assert not access.why_not_touch(USER, None, "Lease x")
    assert not access.why_not_touch(ADMIN, BOB, "Lease x")
    assert "Lease x is another user's: alice" in access.why_not_touch(USER, BOB, "Lease x")


def test_an_overseer_sees_everything_and_touches_what_is_his() -> None:
    overseer = Identity(ALICE, sees_all=True)
    assert access.may_see(overseer, BOB)
    assert not access.why_not_touch(overseer, ALICE, "Lease x")
    assert "Lease x is another user's: alice" in access.why_not_touch(overseer, BOB, "Lease x")
    assert access.why_not_administer(overseer) and access.why_not_route(overseer, BOB, "k")


def test_gpus_are_booked_for_a_group_by_its_owners_and_for_anybody_by_an_admin() -> None:
    owner = Identity(ALICE, groups=("class", "lab"), owns=owned_by(ALICE, GROUPS))
    assert not access.why_not_book(owner, "class", [])
    for group, users in (("lab", []), ("", []), ("", ["alice"]), ("class", ["bob"])):
        assert "groups that he owns" in access.why_not_book(owner, group, users)
        assert not access.why_not_book(ADMIN, group, users)
    assert owned_by(BOB, GROUPS) == () and owned_by(ALICE, {"odd": {"owners": "alice"}}) == ()


def test_a_router_speaks_for_its_own_users_kernels_only_be_it_an_admins() -> None:
    assert not access.why_not_route(USER, ALICE, "k")
    assert not access.why_not_route(USER, None, "k")
    for who in (USER, ADMIN):
        assert "Kernel k is another user's" in access.why_not_route(who, BOB, "k")


def test_whoever_may_not_lease_is_told_which_scope_he_needs() -> None:
    without = Identity(ALICE, may_lease=False)
    assert "custom:replkernel:lease" in access.why_not_lease(without)
    assert "custom:replkernel:lease" in access.why_not_route(without, None, "k")
    assert not access.why_not_lease(ADMIN)


def test_a_host_is_offered_by_who_may() -> None:
    assert not access.why_not_host(Identity(UserName("service/agents")))
    assert not access.why_not_host(ADMIN)
    assert "custom:replkernel:host" in access.why_not_host(USER)


def test_a_user_has_so_many_connections_at_once_and_an_admin_any_number() -> None:
    clients = ClientRegistry(Bounds(UserBounds(connections=1)), {})
    for number, who in enumerate((USER, ADMIN)):
        clients.joins(number, wire.Hello(wire.WIRE_VERSION, "router", f"k{number}"), who)
    assert "alice has 1 connections" in clients.why_not(USER)
    assert not clients.why_not(ADMIN)
    clients.leaves(0)
    assert not clients.why_not(USER)


def test_only_an_admin_may_do_what_is_for_admins() -> None:
    assert not access.why_not_administer(ADMIN)
    assert "token of alice does not administer" in access.why_not_administer(USER)


@pytest.mark.parametrize(
    ("header", "token"),
    [("token abc", "abc"), ("Bearer abc ", "abc"), ("abc", ""), ("token", ""), ("token a b", ""), ("", "")],
)
def test_the_token_in_a_header(header: str, token: str) -> None:
    assert token_of(header) == token
    assert token_of(header + "x" * 1001) == ""


async def test_who_has_the_one_token_is_the_user_himself() -> None:
    identify = one_token("secret", ALICE)
    found = await identify("secret")
    assert found is not None and found.user == ALICE and found.admin
    assert await identify("other") is None
    assert await identify("") is None
    assert await identify("secrét") is None


def test_of_several_groups_the_best_counts_property_by_property() -> None:
    groups = {
        "a": {"gpu_quota": 2, "gpu_hours_month": 10, "priority": -1},
        "b": {"gpu_quota": 4, "gpu_hours_month": 2.5, "colour": "red"},
    }
    assert quota_of(groups) == UserQuota(4, 10, -1)
    assert quota_of(groups | {"c": {"gpu_quota": None}}) == UserQuota(None, 10, -1)
    assert quota_of(groups | {"c": {"priority": 5}}) == UserQuota(4, 10, 5)


def test_a_quota_that_no_group_states_is_no_limit() -> None:
    assert quota_of({}) == UserQuota(None, None, 0)
    assert quota_of({"a": {"gpu_quota": 0}}) == UserQuota(0, None, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu_quota", "two"),
        ("gpu_quota", -1),
        ("gpu_quota", 1.5),
        ("gpu_quota", True),
        ("gpu_hours_month", float("nan")),
        ("gpu_hours_month", float("inf")),
        ("gpu_hours_month", [1]),
        ("priority", None),
        ("priority", 10**9),
    ],
)
def test_a_property_without_sense_is_named_and_lifts_no_limit(name: str, value: object) -> None:
    with pytest.raises(IdentityUnknown, match=f"{name} of the Hub's group a"):
        quota_of({"a": {name: value}, "b": {"gpu_quota": 1}})


def test_a_kernel_stays_the_users_under_whose_name_it_first_came() -> None:
    cluster = Cluster()
    cluster.host("a", 1)
    core = cluster.core
    assert core.owner_of_kernel(KernelId("k")) is None
    cluster.kernel("k", user="alice")
    cluster.ask("two", kernel="other", user="bob")
    assert (core.owner_of_kernel(KernelId("k")), core.owner_of_kernel(KernelId("other"))) == (ALICE, BOB)
    cluster.feed(KernelEnded(KernelId("k")))
    assert core.owner_of_kernel(KernelId("k")) == ALICE
