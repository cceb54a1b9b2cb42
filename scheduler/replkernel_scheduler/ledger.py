"""Money: what hosts cost whoever provides them, and what users are charged (spec 1.10).

Law: what is charged a second is a function of what there is: GPUs of active leases, and replicas whose kernel
has no active lease on their host. `rerate` makes all of it anew, and every change in between gives the same.
Rates are whole numbers of a billionth an hour, so they add up exactly. Without prices nothing is counted. A
change of prices counts from then on.
"""

from __future__ import annotations

from math import fsum
from typing import Protocol

from msgspec import UNSET

from replkernel_scheduler.cards import counted, share_on
from replkernel_scheduler.host_index import Hosts
from replkernel_scheduler.hosts import Host, LeaseRecord, Pool
from replkernel_scheduler.types import NOBODY, KernelId, LeaseRequest, Price, Prices, UserName
from replkernel_scheduler.users import HOUR_S, NANO, Meter, User, Users


class Known(Protocol):
    """What is charged for, and when it is."""

    now: float
    users: Users
    hosts: Hosts


class Ledger:
    """The provider's meter, and what changes those of users."""

    def __init__(self, parts: Known) -> None:
        """Count nothing until there are prices."""
        self.parts = parts
        self.prices: Prices | None = None
        self.provider = Meter()
        self.by_model: dict[str, float] = {}
        self.groups: dict[str, dict[UserName, None]] = {}
        """Who belongs to a group that has a budget."""
        self.budgets: dict[str, float] = {}
        """What was said last of each such group's budget: that counts for all of its members."""
        self.month = ""
        """Which month it is (`2026-11`); nothing: nobody has said so."""

    def set_prices(self, prices: Prices | None) -> None:
        """Charge these from now on."""
        self.prices = prices
        self.by_model = dict(prices.gpu_hour) if prices is not None else {}
        self.rerate()

    def rerate(self) -> None:
        """Make every rate anew from what there is."""
        parts, now = self.parts, self.parts.now
        for user in parts.users.by_name.values():
            user.money.add(-user.money.rate, now)
        self.provider.add(-self.provider.rate, now)
        for host in parts.hosts.by_name.values():
            host.standing.clear()
            host.rate = 0
            for record in host.leases.values():
                self._rated(record, 0)
        if self.prices is not None:
            for host in parts.hosts.by_name.values():
                self.host_offers(host)

    # -- what there is changes -----------------------------------------------------------------------

    def host_offers(self, host: Host) -> None:
        """Take note of a host that came, or that offers other GPUs now."""
        if self.prices is None:
            return
        for kernel_id in list(host.standing):
            self._stand(host, kernel_id, stands=False)
        self._cost(host, self._host_rate(host))
        for record in list(host.leases.values()):
            if record.phase == "active":
                self._charge(record, self.due_of(record))
        for kernel_id in list(host.replicas):
            self.look(host, kernel_id)

    def host_gone(self, host: Host) -> None:
        """Take note of a host that costs nothing any more."""
        if self.prices is not None:
            for kernel_id in list(host.standing):
                self._stand(host, kernel_id, stands=False)
            self._cost(host, 0)

    def started(self, record: LeaseRecord) -> None:
        """Charge for a lease that a cell uses from now on."""
        if self.prices is not None:
            self._charge(record, self.due_of(record))
            self.look(record.host, record.lease.kernel_id)

    def closed(self, record: LeaseRecord) -> float | None:
        """Charge nothing more for a lease whose use ends now; return what it cost, if that is counted."""
        if self.prices is None:
            return None
        cost = record.paid + _money(record.rate, self.parts.now - record.rated_at)
        self._charge(record, 0)
        self.look(record.host, record.lease.kernel_id, but=record)
        return cost

    def look(self, host: Host, kernel_id: KernelId, but: LeaseRecord | None = None) -> None:
        """Charge for a replica if it stands by; `but` is a lease that is over in a moment."""
        if self.prices is None:
            return
        runs = any(
            record.phase == "active" and record.lease.kernel_id == kernel_id and record is not but
            for record in host.leases.values()
        )
        self._stand(host, kernel_id, stands=kernel_id in host.replicas and not runs)

    # -- what is asked -------------------------------------------------------------------------------

    def price_of(self, pool: Pool, wish: LeaseRequest) -> Price | None:
        """Return what a lease for a request costs its user; None: nothing is charged."""
        if self.prices is None or not wish.gpus:
            return None
        return Price(self.rate_of(pool, wish) / NANO, self.prices.currency)

    def rate_of(self, pool: Pool, wish: LeaseRequest) -> int:
        """Return the rate of these GPUs for their user: their own, and their part of the host's."""
        prices = self.prices
        if prices is None or not wish.gpus:
            return 0
        each = self._gpu_hour(pool.model) + prices.host_hour / pool.host.gpus
        rate = prices.factor * each * wish.gpus * NANO
        return round(rate if wish.share is UNSET else rate * counted(share_on(pool, wish), pool) / 1000)

    def due_of(self, record: LeaseRecord) -> int:
        """Return the rate of a lease that is used; only cells pay."""
        return self.rate_of(record.pool, record.wish) if record.wish.holder is UNSET else 0

    def problem(self, user: User, gpus: int) -> str | None:
        """Say whose budget is used up, of a user who wants GPUs."""
        quota, now = user.quota, self.parts.now
        if self.prices is None or not gpus:
            return None
        money = self.prices.currency
        budget = quota.budget_month
        if isinstance(budget, float | int) and user.money.month(now) >= budget:
            return (
                f"The budget_month of {user.name or 'this user'} is {budget:g} {money}".rstrip()
                + f", and {user.money.month(now):.2f} are spent; it counts anew next month."
            )
        for group, _ in quota.group_budgets or ():
            limit, spent = self.budgets[group], self.spent_of(group)
            if spent >= limit:
                return (
                    f"The group_budget_month of the group {group} is {limit:g} {money}".rstrip()
                    + f", and its members have spent {spent:.2f}; it counts anew next month."
                )
        return None

    def spent_of(self, group: str) -> float:
        """Return what the members of a group have spent this month, in whatever order they came."""
        by_name, now = self.parts.users.by_name, self.parts.now
        return fsum(by_name[name].money.month(now) for name in self.groups.get(group, ()))

    def belongs(self, user: User) -> None:
        """Take note of the groups with a budget to which a user belongs."""
        for members in self.groups.values():
            members.pop(user.name, None)
        for group, limit in user.quota.group_budgets or ():
            self.groups.setdefault(group, {})[user.name] = None
            self.budgets[group] = limit
        for group in [name for name, members in self.groups.items() if not members]:
            del self.groups[group], self.budgets[group]

    def month_began(self, month: str) -> None:
        """Count everybody's month from nothing."""
        now, self.month = self.parts.now, month
        for user in self.parts.users.by_name.values():
            user.money.before = user.money.until(now)

    # -- within --------------------------------------------------------------------------------------

    def _host_rate(self, host: Host) -> int:
        assert self.prices is not None
        gpus = sum([self._gpu_hour(pool.model) * len(pool.uuids) for pool in host.pools])
        return round((self.prices.host_hour + gpus) * NANO)

    def _gpu_hour(self, model: str) -> float:
        found = self.by_model.get(model)
        return self.by_model.get("", 0.0) if found is None else found

    def _cost(self, host: Host, rate: int) -> None:
        self.provider.add(rate - host.rate, self.parts.now)
        host.rate = rate

    def _charge(self, record: LeaseRecord, rate: int) -> None:
        if rate != record.rate:
            self.parts.users.get(record.lease.user).money.add(rate - record.rate, self.parts.now)
            self._rated(record, rate)

    def _rated(self, record: LeaseRecord, rate: int) -> None:
        """Let a lease cost so much from now on."""
        record.paid += _money(record.rate, self.parts.now - record.rated_at)
        record.rate, record.rated_at = rate, self.parts.now

    def _stand(self, host: Host, kernel_id: KernelId, *, stands: bool) -> None:
        """Let a replica stand by for money, or no more."""
        if stands == (kernel_id in host.standing):
            return
        if stands:
            assert self.prices is not None
            fee = round(self.prices.factor * self.prices.standby * host.rate)
            user = host.replicas[kernel_id].user or NOBODY
            host.standing[kernel_id] = (user, fee)
        else:
            user, fee = host.standing.pop(kernel_id)
            fee = -fee
        self.parts.users.get(user).money.add(fee, self.parts.now)


def _money(rate: int, seconds: float) -> float:
    return rate * seconds / (NANO * HOUR_S)
