"""Who waits at a listener and has not proved itself yet: how many may, for how long, and who goes first.

Laws: a stranger has the same time in all, however much it says; when there are too many, the oldest goes, at
first of those that are not expected: another Unix user's of this machine, or one from an unknown address. So
who cannot prove anything keeps nobody out who can. `Strangers` is pure: time is an argument.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from ipaddress import ip_address
from typing import Generic, TypeVar

import msgspec

from replkernel.hosts.socket_owner import owner_of

UNEXPECTED, EXPECTED, PROVEN = 0, 1, 2

Who = TypeVar("Who")


class _Wait(msgspec.Struct):
    address: str
    since: float
    standing: int


class Strangers(Generic[Who]):
    """Those that wait at one listener: so many `in_all`, so many `of_address`, and for `limit_s` at most."""

    def __init__(self, *, in_all: int, of_address: int, limit_s: float) -> None:
        self._in_all, self._of_address, self._limit_s = in_all, of_address, limit_s
        self._waiting: dict[Who, _Wait] = {}

    def __bool__(self) -> bool:
        """Tell whether anybody waits."""
        return bool(self._waiting)

    def __iter__(self) -> Iterator[Who]:
        """Go through those who wait."""
        return iter(tuple(self._waiting))

    def arrive(self, who: Who, address: str, *, expected: bool, now: float) -> list[Who]:
        """Enter a connection; return those to shut out for it, itself perhaps: they are forgotten."""
        self._waiting[who] = _Wait(address, now, EXPECTED if expected else UNEXPECTED)
        counts = Counter(each.address for each in self._waiting.values())
        if counts[address] > self._of_address:
            first = self._first(each for each, wait in self._waiting.items() if wait.address == address)
        elif len(self._waiting) > self._in_all:
            first = self._first(self._waiting)
        else:
            return []
        self.leave(first)
        return [first]

    def prove(self, who: Who) -> None:
        """Note that a connection has shown the secret: it goes last."""
        if who in self._waiting:
            self._waiting[who].standing = PROVEN

    def leave(self, who: Who) -> None:
        """Forget a connection that is closed, or whose owner is known."""
        self._waiting.pop(who, None)

    def overdue(self, now: float) -> list[Who]:
        """Return those whose time is over."""
        return [who for who, wait in self._waiting.items() if now - wait.since >= self._limit_s]

    def _first(self, of: Iterable[Who]) -> Who:
        first: Who = min(of, key=lambda who: (self._waiting[who].standing, self._waiting[who].since))
        return first


Place = tuple[str, int]


def is_expected(came_from: Place, arrived_at: Place, addresses: Collection[str]) -> bool:
    """Tell whether a connection is of this user on this machine, or from one of `addresses` elsewhere."""
    host = came_from[0].partition("%")[0]
    if ip_address(host).is_loopback or host == arrived_at[0]:
        return owner_of(came_from, arrived_at) in (None, os.getuid())
    return host in addresses
