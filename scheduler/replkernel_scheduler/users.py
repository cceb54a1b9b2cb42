"""Users: their quotas, what they hold and wait for, and their turn in the fair queue.

Law: `held` and `waited` are the GPUs of the user's active leases and waiting requests, whole ones and shares
apart; the hours of a month
only grow until the month is over. The tag follows start-time fair queuing: whoever used little comes first.
"""

from __future__ import annotations

from msgspec import UNSET

from replkernel_scheduler.types import LeaseRequest, UserName, UserQuota

NANO = 1_000_000_000
HOUR_S = 3600.0
MILLI = 1000
NO_QUOTA = UserQuota()


class Meter:
    """An amount of money that grows at a rate."""

    __slots__ = ("amount", "before", "rate", "since")

    def __init__(self) -> None:
        """Start at nothing."""
        self.amount = self.before = self.since = 0.0
        self.rate = 0
        """Billionths an hour."""

    def until(self, now: float) -> float:
        """Return the amount until now."""
        return self.amount + self.rate * (now - self.since) / (NANO * HOUR_S)

    def month(self, now: float) -> float:
        """Return this month's amount until now."""
        return self.until(now) - self.before

    def add(self, rate: int, now: float) -> None:
        """Grow so much faster from now on, or slower."""
        self.amount = self.until(now)
        self.since = now
        self.rate += rate


def amount(wish: LeaseRequest) -> int | float:
    """Return how many GPUs a request is for: a whole number, but for a share of one."""
    return wish.gpus if wish.share is UNSET else wish.share.milli / MILLI


class User:
    """One user; of shares the thousandths are counted."""

    __slots__ = (
        "gpu_s_month",
        "held",
        "last_tag",
        "milli_held",
        "milli_waited",
        "money",
        "name",
        "quota",
        "since",
        "tag",
        "waited",
    )

    def __init__(self, name: UserName) -> None:
        """Start without limits."""
        self.name = name
        self.quota = NO_QUOTA
        self.held = self.waited = self.milli_held = self.milli_waited = 0
        self.money = Meter()
        """What the user is charged."""
        self.gpu_s_month = self.since = self.tag = 0.0
        self.last_tag = 0.0
        """The turn that the newest request was given; it counts while one waits."""

    def hold(self, wish: LeaseRequest, sign: int, now: float, milli: int) -> None:
        """Hold what a request is for from now on (`sign` 1), or no more (-1); a share counts as `milli`."""
        self.gpu_s_month += self.held * (now - self.since)
        if self.milli_held:
            self.gpu_s_month += self.milli_held * (now - self.since) / MILLI
        self.since = now
        if wish.share is UNSET:
            self.held += sign * wish.gpus
        else:
            self.milli_held += sign * milli

    def wait(self, wish: LeaseRequest, sign: int) -> None:
        """Wait for what a request is for, or (-1) no more."""
        if wish.share is UNSET:
            self.waited += sign * wish.gpus
        else:
            self.milli_waited += sign * wish.share.milli

    @property
    def holds(self) -> int | float:
        """Return how many GPUs are held, shares among them."""
        return self.held + self.milli_held / MILLI if self.milli_held else self.held

    @property
    def waits(self) -> int | float:
        """Return how many GPUs are waited for, shares among them."""
        return self.waited + self.milli_waited / MILLI if self.milli_waited else self.waited

    def used_s(self, now: float) -> float:
        """Return this month's GPU-seconds until now."""
        used_s = self.gpu_s_month + self.held * (now - self.since)
        return used_s + self.milli_held * (now - self.since) / MILLI if self.milli_held else used_s

    def problem(self, wish: LeaseRequest, now: float, milli: int = 0) -> str | None:
        """Say which quota a request would break; a share counts as `milli`."""
        quota, gpus = self.quota, wish.gpus
        more = gpus if wish.share is UNSET else milli / MILLI
        if quota is NO_QUOTA:
            return None
        if quota.gpu_quota is not None and self._asks_milli(wish, milli) > quota.gpu_quota * MILLI:
            return (
                f"The gpu_quota of {self.name or 'this user'} is {quota.gpu_quota} GPUs at once; "
                f"{self.holds:g} are in use, {self.waits:g} are waited for, and this asks for {more:g}."
            )
        if quota.gpu_hours_month is not None and gpus and self.used_s(now) >= quota.gpu_hours_month * HOUR_S:
            return (
                f"The gpu_hours_month of {self.name or 'this user'} is "
                f"{quota.gpu_hours_month:g} GPU-hours, "
                f"and {self.used_s(now) / HOUR_S:.2f} are used; it counts anew next month."
            )
        return None

    def _asks_milli(self, wish: LeaseRequest, milli: int) -> int:
        more = wish.gpus * MILLI if wish.share is UNSET else milli
        return (self.held + self.waited) * MILLI + self.milli_held + self.milli_waited + more


class Users:
    """All users who were ever seen."""

    __slots__ = ("by_name", "virtual")

    def __init__(self) -> None:
        """Start with nobody, at virtual time 0."""
        self.by_name: dict[UserName, User] = {}
        self.virtual = 0.0

    def get(self, name: UserName) -> User:
        """Return the user, who is new if nobody knows the name."""
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = User(name)
        return found

    def tag(self, user: User, cost: float) -> float:
        """Give the user's next request its turn; it is expected to use `cost` GPU-seconds.

        None comes before one of the same user's that waits, though leases took less than was expected.
        """
        tag = max(self.virtual, user.tag)
        user.tag = tag + cost
        if user.last_tag > tag and (user.waited or user.milli_waited):
            tag = user.last_tag
        user.last_tag = tag
        return tag

    def month_began(self, now: float) -> None:
        """Count everybody's hours from nothing."""
        for user in self.by_name.values():
            user.since, user.gpu_s_month = now, 0.0
