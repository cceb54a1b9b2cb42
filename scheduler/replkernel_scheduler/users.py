"""Users: their quotas, what they hold and wait for, and their turn in the fair queue.

Law: `held` and `waited` are the GPUs of the user's active leases and waiting requests; the hours of a month
only grow until the month is over. The tag follows start-time fair queuing: whoever used little comes first.
"""

from __future__ import annotations

from replkernel_scheduler.ledger import Meter
from replkernel_scheduler.types import UserName, UserQuota

HOUR_S = 3600.0
NO_QUOTA = UserQuota()


class User:
    """One user."""

    __slots__ = ("gpu_s_month", "held", "last_tag", "money", "name", "quota", "since", "tag", "waited")

    def __init__(self, name: UserName) -> None:
        """Start without limits."""
        self.name = name
        self.quota = NO_QUOTA
        self.held = self.waited = 0
        self.money = Meter()
        """What the user is charged."""
        self.gpu_s_month = self.since = self.tag = 0.0
        self.last_tag = 0.0
        """The turn that the newest request was given; it counts while one waits."""

    def hold(self, gpus: int, now: float) -> None:
        """Hold so many more GPUs (or fewer) from now on."""
        self.gpu_s_month += self.held * (now - self.since)
        self.since = now
        self.held += gpus

    def used_s(self, now: float) -> float:
        """Return this month's GPU-seconds until now."""
        return self.gpu_s_month + self.held * (now - self.since)

    def problem(self, gpus: int, now: float) -> str | None:
        """Say which quota `gpus` more GPUs would break."""
        quota = self.quota
        if quota.gpu_quota is not None and self.held + self.waited + gpus > quota.gpu_quota:
            return (
                f"The quota gpu_quota of {self.name or 'this user'} is {quota.gpu_quota} GPUs at once; "
                f"{self.held} are in use, {self.waited} asked for, {gpus} more are wanted."
            )
        if quota.gpu_hours_month is not None and gpus and self.used_s(now) >= quota.gpu_hours_month * HOUR_S:
            return (
                f"The quota gpu_hours_month of {self.name or 'this user'} is "
                f"{quota.gpu_hours_month:g} GPU-hours, "
                f"and {self.used_s(now) / HOUR_S:.2f} are used; it counts anew next month."
            )
        return None


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
        if user.waited:
            tag = max(tag, user.last_tag)
        user.last_tag = tag
        return tag

    def month_began(self, now: float) -> None:
        """Count everybody's hours from nothing."""
        for user in self.by_name.values():
            user.hold(0, now)
            user.gpu_s_month = 0.0
