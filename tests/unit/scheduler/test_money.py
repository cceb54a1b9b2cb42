"""What hosts cost and users are charged: live as in the simulator, to the cent; and budgets that end it."""

from __future__ import annotations

import random

import msgspec
import pytest
from msgspec import UNSET
from replkernel_scheduler.bounds import Bounds, UserBounds
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import LeaseGranted, LeaseRefused, UsageRecorded
from replkernel_scheduler.events import LeaseReleased, MonthBegan, PricesSet, QuotaSet
from replkernel_scheduler.image import CoreImage
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.policies.installed import policies
from replkernel_scheduler.settings import CoreSettings
from replkernel_scheduler.sim import summary
from replkernel_scheduler.sim.costs import FREE
from replkernel_scheduler.sim.plan import Plan, settings_for
from replkernel_scheduler.sim.records import Record, order
from replkernel_scheduler.sim.simulation import Simulation
from replkernel_scheduler.sim.way import way_named
from replkernel_scheduler.types import Fence, HostName, Lease, Prices, UserName, UserQuota
from replkernel_scheduler.view import MoneyView, UserView
from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.engine_usage import EngineUsage
from replkernel_server.scheduling.accounting import cluster_rows, kernel_rows, user_rows
from replkernel_server.scheduling.client_registry import ClientRegistry
from replkernel_server.scheduling.identity import Identity, IdentityUnknown
from replkernel_server.scheduling.messages import granted_lease
from replkernel_server.scheduling.metrics import Clients, JournalFigures, Metrics
from replkernel_server.scheduling.prices import read_prices
from replkernel_server.scheduling.quotas import quota_of

from tests.unit.scheduler.cluster import Cluster, granted, of
from tests.unit.scheduler.test_simulation import Watched, cells

HOUR_S = 3600.0
EIGHT_FOR_TEN = Prices(host_hour=10.0, currency="USD")


def priced(prices: Prices, gpus: int = 8, model: str = "") -> Cluster:
    made = Cluster()
    made.host("a", gpus, model)
    made.feed(PricesSet(prices))
    return made


def money(cluster: Cluster) -> MoneyView:
    found = cluster.core.view().money
    assert isinstance(found, MoneyView)
    return found


def user(cluster: Cluster, name: str) -> UserView:
    return next(view for view in cluster.core.view().users if view.user == name)


def cost(cluster: Cluster, lease: Lease, hours: float) -> float:
    (row,) = of(UsageRecorded, cluster.release(lease, after_s=hours * HOUR_S))
    assert isinstance(row.usage.cost, float)
    return row.usage.cost


def test_four_gpus_and_a_standby_cost_what_the_paper_says() -> None:
    cluster = priced(EIGHT_FOR_TEN)
    lease = granted(cluster.ask("one", gpus=4, kernel="k", user="u", ttl_s=HOUR_S * 9))
    assert lease.price is not UNSET and (lease.price.hour, lease.price.currency) == (5.75, "USD")
    assert cost(cluster, lease, 2.0) == pytest.approx(11.5)
    standing = priced(EIGHT_FOR_TEN)
    standing.kernel("k", gpus=4, replicas=1, user="u")
    standing.now += HOUR_S
    standing.feed(MonthBegan(), after_s=0.0)
    assert user(standing, "u").spent == pytest.approx(1.4375), "a standby, for an hour"


def test_a_replica_whose_kernel_runs_a_cell_there_is_no_standby() -> None:
    cluster = priced(EIGHT_FOR_TEN)
    cluster.kernel("k", gpus=4, replicas=1, user="u")
    lease = granted(cluster.ask("one", gpus=4, kernel="k", user="u", ttl_s=HOUR_S * 9, after_s=0.0))
    assert cost(cluster, lease, 1.0) == pytest.approx(5.75)
    assert user(cluster, "u").spent == pytest.approx(5.75), "nothing for the replica beside"


def test_each_model_has_its_price_and_one_without_has_that_of_all_others() -> None:
    prices = Prices((("H100", 4.0), ("", 1.0)), factor=1.0)
    for model, hour in (("H100", 4.0), ("T4", 1.0)):
        cluster = priced(prices, gpus=1, model=model)
        assert cost(cluster, granted(cluster.ask("one", ttl_s=HOUR_S * 9)), 1.0) == pytest.approx(hour)


def test_without_prices_nothing_has_a_cost() -> None:
    cluster = Cluster()
    cluster.host("a", 8)
    lease = granted(cluster.ask("one"))
    (row,) = of(UsageRecorded, cluster.release(lease))
    assert (lease.price, row.usage.cost, cluster.core.view().money) == (UNSET, UNSET, UNSET)


def test_who_has_spent_the_budget_is_refused_by_name_until_the_month_is_over() -> None:
    cluster = priced(EIGHT_FOR_TEN)
    cluster.feed(QuotaSet(UserName("u"), UserQuota(budget_month=5.0)))
    cost(cluster, granted(cluster.ask("one", gpus=4, user="u", ttl_s=HOUR_S * 9)), 1.0)
    (refused,) = of(LeaseRefused, cluster.ask("two", user="u"))
    assert "budget_month of u is 5 USD, and 5.75 are spent" in refused.why
    granted(cluster.ask("free", gpus=0, user="u"))
    granted(cluster.ask("other", user="v"))
    cluster.feed(MonthBegan())
    granted(cluster.ask("three", user="u"))


def test_a_cell_costs_the_same_in_its_row_as_its_user_pays_though_prices_change_in_it() -> None:
    cluster = priced(EIGHT_FOR_TEN)
    lease = granted(cluster.ask("one", gpus=4, user="u", ttl_s=HOUR_S * 9))
    cluster.feed(PricesSet(Prices(host_hour=30.0, currency="USD")), after_s=HOUR_S)
    kept = msgspec.msgpack.decode(msgspec.msgpack.encode(cluster.core.image()), type=CoreImage)
    again = SchedulerCore(random.Random(0), notebook(), CoreSettings(), Fence(0))
    again.restore(kept)
    effects = cluster.release(lease, after_s=HOUR_S)
    (row,) = [each.usage for each in of(UsageRecorded, effects)]
    assert row.cost == pytest.approx(money(cluster).charged)
    assert row.cost == pytest.approx(5.75 + 3 * 5.75), "an hour at the old price, one at three times that"
    (same,) = [
        each.usage
        for each in of(UsageRecorded, again.handle(LeaseReleased(lease.lease, lease.fence), cluster.now))
    ]
    assert same.cost == row.cost


@pytest.mark.parametrize("backfill", ["none", "easy"])
def test_who_waits_is_refused_once_the_budget_is_spent(backfill: str) -> None:
    cluster = Cluster(policies("notebook", backfill=backfill))
    cluster.host("a", 4)
    cluster.feed(PricesSet(EIGHT_FOR_TEN))
    cluster.feed(QuotaSet(UserName("u"), UserQuota(budget_month=5.0)))
    first = granted(cluster.ask("one", gpus=4, user="u", ttl_s=HOUR_S * 9))
    for number in range(20):
        cluster.ask(f"more-{number}", gpus=4, user="u")
    cluster.ask("other", gpus=4, user="v")
    other = granted(cluster.release(first, after_s=HOUR_S))
    assert other.request == "other"
    effects = cluster.release(other)
    refused = of(LeaseRefused, effects)
    assert len(refused) == 20 and not of(LeaseGranted, effects)
    assert all("budget_month of u is 5 USD" in each.why for each in refused)
    assert cluster.waiting() == [] and user(cluster, "u").waited == 0
    cluster.feed(MonthBegan())
    granted(cluster.ask("next", gpus=4, user="u"))


def test_the_members_of_a_group_share_its_budget() -> None:
    cluster = priced(EIGHT_FOR_TEN)
    quota = UserQuota(group_budgets=(("class", 8.0),))
    for name in ("u", "v"):
        cluster.feed(QuotaSet(UserName(name), quota))
    cost(cluster, granted(cluster.ask("one", gpus=4, user="u", ttl_s=HOUR_S * 9)), 1.0)
    cost(cluster, granted(cluster.ask("two", gpus=4, user="v", ttl_s=HOUR_S * 9)), 1.0)
    (refused,) = of(LeaseRefused, cluster.ask("three", user="u"))
    assert "group_budget_month of the group class is 8 USD, and its members have spent 11.50" in refused.why
    assert dict(money(cluster).groups) == pytest.approx({"class": 11.5})
    view = cluster.core.view()
    text = Metrics(view).write(view, JournalFigures(1, 1), Clients({}, {})).decode()
    assert 'replkernel_scheduler_group_budget_month{group="class"} 8.0' in text
    cluster.feed(QuotaSet(UserName("u"), UserQuota()))
    granted(cluster.ask("four", user="u"))


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_said_last_of_a_groups_budget_counts_for_all_of_its_members(restarts: bool) -> None:
    cluster = priced(EIGHT_FOR_TEN)
    for name, budget in (("v", 8.0), ("u", 8.0), ("v", 5.0)):
        cluster.feed(QuotaSet(UserName(name), UserQuota(group_budgets=(("class", budget),))))
    if restarts:
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(cluster.core.image()), type=CoreImage)
        cluster.core = SchedulerCore(random.Random(0), notebook(), CoreSettings(), Fence(0))
        cluster.core.restore(kept)
    assert money(cluster).budgets == (("class", 5.0),)
    view = cluster.core.view()
    text = Metrics(view).write(view, JournalFigures(1, 1), Clients({}, {})).decode()
    assert 'replkernel_scheduler_group_budget_month{group="class"} 5.0' in text
    cost(cluster, granted(cluster.ask("one", gpus=4, user="v", ttl_s=HOUR_S * 9)), 1.0)
    (refused,) = of(LeaseRefused, cluster.ask("two", user="u"))
    assert "class is 5 USD, and its members have spent 5.75" in refused.why, "u was told of 8"
    cluster.feed(QuotaSet(UserName("v"), UserQuota(group_budgets=(("class", 20.0),))))
    granted(cluster.ask("three", user="u"))


def test_a_groups_budget_that_is_as_a_user_knew_it_and_not_as_another_did_is_news() -> None:
    registry = ClientRegistry(Bounds(UserBounds()), {})

    def comes(user: str, budget: float) -> bool:
        quota = UserQuota(group_budgets=(("class", budget),))
        return registry.quota_of(Identity(UserName(user), quota=quota)) is not None

    assert [comes("u", 8.0), comes("u", 8.0), comes("v", 20.0)] == [True, False, True]
    assert [comes("u", 8.0), comes("v", 8.0), comes("u", 8.0)] == [True, True, False]


def test_figures_and_accounts_have_the_money() -> None:
    cluster = priced(EIGHT_FOR_TEN)
    metrics = Metrics(cluster.core.view())
    cost(cluster, granted(cluster.ask("one", gpus=8, kernel="k", user="u", ttl_s=HOUR_S * 9)), 2.0)
    view = cluster.core.view()
    (row,) = cluster_rows(view)
    assert (row.currency, row.cost, row.charged) == ("USD", pytest.approx(20.0, abs=0.01), 23.0)
    assert row.margin == pytest.approx(3 / 23, abs=0.001)
    assert [each.cost for each in user_rows(view) if each.user == "u"] == [23.0]
    assert [each.cost for each in kernel_rows(view) if each.kernel_id == "k"] == [23.0]
    text = metrics.write(view, JournalFigures(1, 1), Clients({}, {})).decode()
    assert 'replkernel_scheduler_users_charged{currency="USD"} 23.0' in text
    assert list(cluster_rows(Cluster().core.view())) == []


def test_an_administrator_writes_prices_by_the_names_that_people_use() -> None:
    found = read_prices(
        "P", "NVIDIA_H100=4.5 rtx-4090=0.5 other=1 host=0.4 factor=1.2 standby=0 currency=EUR"
    )
    assert found == Prices((("", 1.0), ("H100", 4.5), ("RTX 4090", 0.5)), 0.4, 1.2, 0.0, "EUR")
    assert read_prices("P", "  ") is None
    for text in ("H100", "H100=-1", "H100=nan", "host=much", "currency=", "H100=1e9"):
        with pytest.raises(ServiceSettingError, match=r"^P has"):
            read_prices("P", text)


def test_a_group_states_a_budget_for_each_member_and_one_for_all() -> None:
    groups = {"a": {"budget_month": 10}, "b": {"budget_month": 20.5, "group_budget_month": 100}}
    quota = quota_of(groups)
    assert (quota.budget_month, quota.group_budgets) == (20.5, (("b", 100),))
    assert quota_of({**groups, "c": {"budget_month": None}}).budget_month is UNSET
    with pytest.raises(IdentityUnknown, match="budget_month of the Hub's group a"):
        quota_of({"a": {"budget_month": "much"}})


def test_a_lease_and_the_kernel_that_holds_it_know_the_price() -> None:
    cluster = priced(EIGHT_FOR_TEN)
    lease = granted(cluster.ask("one", gpus=4))
    told = granted_lease(lease, cluster.now)
    assert (told.price_hour, told.currency) == (5.75, "USD")


@pytest.mark.parametrize("policy", ["notebook", "notebook,scaling=buffered"])
def test_a_day_costs_live_what_it_costs_in_the_simulator(policy: str) -> None:
    dice, records = random.Random(3), list[Record]()
    for number in range(40):
        starts = sorted(dice.uniform(0.0, 80_000.0) for _ in range(6))
        apart = [at for at, after in zip(starts, [*starts[1:], 1e9], strict=True) if after - at > 2_000.0]
        made = cells(f"s{number}", *apart, duration_s=dice.uniform(10.0, 1_500.0), gpus=1 + number % 4)
        records.extend(made)
    plan, way = Plan(hosts=6, gpus_per_host=8, costs=FREE), way_named(policy)
    core = Watched(random.Random(0), way.policies, settings_for(plan, way))
    prices = plan.prices
    core.handle(PricesSet(Prices((), prices.host_hour, prices.factor, prices.standby)), 0.0)
    simulation = Simulation(sorted(records, key=order), min(r.at for r in records), way, plan, core=core)
    simulated = summary.of_run(simulation.run(), simulation.now, simulation.events, way, plan).money
    live = core.view().money
    assert isinstance(live, MoneyView)
    assert simulated.revenue > 100.0
    assert live.cost == pytest.approx(simulated.cost)
    assert live.charged == pytest.approx(simulated.revenue, rel=1e-6)
    assert live.margin == pytest.approx(simulated.margin, rel=1e-4)


def test_gpus_that_an_engine_gives_its_own_jobs_are_no_revenue() -> None:
    cluster = priced(EIGHT_FOR_TEN)
    for event in EngineUsage().counted(HostName("a"), 3):
        cluster.feed(event)
    assert len(cluster.leases()) == 3 and all(lease.price is UNSET for lease in cluster.leases())
    cluster.feed(MonthBegan(), after_s=HOUR_S)
    cluster.feed(PricesSet(EIGHT_FOR_TEN))
    assert money(cluster).charged == 0.0
    assert money(cluster).cost > 9.9


def test_a_groups_spending_is_the_same_in_whatever_order_its_members_came() -> None:
    spent = []
    for order_of in ("uvw", "wvu"):
        cluster = priced(EIGHT_FOR_TEN)
        for name in order_of:
            cluster.feed(QuotaSet(UserName(name), UserQuota(group_budgets=(("g", 1e9),))), after_s=0.0)
        for name, amount in (("u", 1e16), ("v", 1.0), ("w", 1.0)):
            cluster.core._parts.users.get(UserName(name)).money.amount = amount
        spent.append(money(cluster).groups)
    assert spent == [(("g", 1e16 + 2.0),)] * 2
