"""Who is connected to the scheduler's channel, as whom, within which bounds; the quotas that come with it.

Pure. Law: a user has as many connections as clients, and no more than the bounds allow unless he is an admin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
from replkernel_scheduler.bounds import Bounds
from replkernel_scheduler.events import QuotaSet
from replkernel_scheduler.types import UserName, UserQuota

from replkernel.leasing import wire
from replkernel_server.scheduling.identity import Identity


class Client(msgspec.Struct, frozen=True):
    """Who a connection is: an agent of a host or for jobs, the router of a kernel, or a cell's gang."""

    hello: wire.Hello
    identity: Identity


class ClientRegistry:
    """All clients, by the numbers of their connections."""

    def __init__(self, bounds: Bounds, quotas: dict[UserName, UserQuota]) -> None:
        """Start with none; `quotas` are those that users have."""
        self._bounds, self._quotas = bounds, quotas
        self._budgets: dict[str, float] = {}
        """What was told last of groups' budgets, whoever of a group it came with."""
        self._connected: Counter[UserName] = Counter()
        self.by_id: dict[int, Client] = {}

    def why_not(self, who: Identity) -> str:
        """Say why a user cannot have one more connection."""
        return "" if who.admin else self._bounds.connects(who.user, self._connected[who.user])

    def joins(self, client: int, hello: wire.Hello, who: Identity) -> None:
        """Take note of a client."""
        self.by_id[client] = Client(hello, who)
        self._connected[who.user] += 1

    def leaves(self, client: int) -> Client | None:
        """Forget a client; return who it was."""
        known = self.by_id.pop(client, None)
        if known is not None:
            self._connected[known.identity.user] -= 1
            if not self._connected[known.identity.user]:
                del self._connected[known.identity.user]
        return known

    def roles(self) -> Iterator[str]:
        """Yield what each client is."""
        return (known.hello.role for known in self.by_id.values())

    # -- quotas -----------------------------------------------------------------------------------

    def quota_of(self, who: Identity) -> QuotaSet | None:
        """Return the event that gives a user the quota that came with its identity, if that is news."""
        if who.quota is None:
            return None
        budgets = dict(who.quota.group_budgets or ())
        if self._quotas.get(who.user) == who.quota and budgets.items() <= self._budgets.items():
            return None
        self._quotas[who.user] = who.quota
        self._budgets.update(budgets)
        return QuotaSet(who.user, who.quota)

    def quota_now(self, user: UserName) -> UserQuota | None:
        """Return the quota that a user has; None: nobody has stated one."""
        return self._quotas.get(user)

    def quota_given(self, user: UserName, quota: UserQuota) -> None:
        """Note a quota that an admin set; one that comes with an identity counts again."""
        self._quotas[user] = quota

    def lets_pause(self, user: UserName) -> bool:
        """Say whether a user's group lets all of his cells be paused for shorter ones."""
        quota = self._quotas.get(user)
        return quota is not None and quota.preemptible is True
