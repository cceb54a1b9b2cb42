"""What one user may have of the scheduler at once, so that nobody alone stops the others.

Pure: counts and the time are arguments. Laws: a bound that is met is named, with its setting and its value;
what is refused here has never been, in the core and in the journal. Requests for no GPUs count like others.
"""

from __future__ import annotations

import msgspec

from replkernel_scheduler.types import UserName

USERS_KEPT_MAX = 100_000


class UserBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of each user; an administrator, and who has the service for himself, has none."""

    requests: int = 256
    """Requests that wait."""
    leases: int = 256
    connections: int = 512
    """Routers and agents that are connected."""
    calls_per_s: float = 50.0
    """Calls of the REST API; ten seconds' worth may come at once."""
    messages_per_s: float = 1_000.0
    """Messages of all connections together; ten seconds' worth may come at once."""


BURST_S = 10.0


class _Flow:
    """How much of a rate is left; `at` is when that was counted."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left, self.at = left, at


class Bounds:
    """Holds users to their bounds; each method returns why not, or an empty text."""

    def __init__(self, bounds: UserBounds) -> None:
        """Begin with nobody."""
        self.of_user = bounds
        self._calls: dict[UserName, _Flow] = {}
        self._messages: dict[UserName, _Flow] = {}

    def asks(self, user: UserName, waiting: int, held: int) -> str:
        """Take another request, of a user for whom so many wait and who holds so many leases."""
        bounds = self.of_user
        if waiting >= bounds.requests:
            return _met(user, "requests that wait", bounds.requests, "REQUESTS", "withdraw some, or wait")
        if held >= bounds.leases:
            return _met(user, "leases at once", bounds.leases, "LEASES", "give some back")
        return ""

    def connects(self, user: UserName, connected: int) -> str:
        """Take another connection, of a user who has so many."""
        most = self.of_user.connections
        return _met(user, "connections", most, "CONNECTIONS", "end kernels") if connected >= most else ""

    def calls(self, user: UserName, now: float) -> str:
        """Take a call of the REST API."""
        rate = self.of_user.calls_per_s
        return (
            ""
            if _flows(self._calls, user, rate, now)
            else _met(user, "calls a second", rate, "CALLS_PER_S", "wait")
        )

    def says(self, user: UserName, now: float) -> str:
        """Take a message of a connection."""
        rate = self.of_user.messages_per_s
        if _flows(self._messages, user, rate, now):
            return ""
        return _met(user, "messages a second", rate, "MESSAGES_PER_S", "send fewer")


def _flows(flows: dict[UserName, _Flow], user: UserName, rate: float, now: float) -> bool:
    """Count one; say whether it is within the rate."""
    flow = flows.get(user)
    if flow is None:
        while len(flows) >= USERS_KEPT_MAX:
            del flows[next(iter(flows))]
        flow = flows[user] = _Flow(rate * BURST_S, now)
    flow.left = min(rate * BURST_S, flow.left + (now - flow.at) * rate)
    flow.at = now
    within = flow.left >= 1.0
    flow.left -= within
    return within


def _met(user: UserName, what: str, most: float, setting: str, fix: str) -> str:
    return (
        f"{user} has {most:g} {what}, the most that one user may have "
        f"(REPLKERNEL_SCHEDULER_USER_{setting}): {fix}."
    )
