"""Requests that wait, in the lines where GPUs may come free for them.

A request for certain hosts stands in the line of each of them, one for any host in the line of its shape and
in that of everybody like it, in which a place is found with one look. It *claims* one host, where it stops
whoever comes behind it. Law: whoever waits stands in its lines and nowhere else; only the first of a shape
claims a host, every other waiting request that has hosts claims one of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from math import inf
from typing import TypeAlias

from msgspec import UNSET

from replkernel_scheduler.host_index import Hosts
from replkernel_scheduler.hosts import Host, Line, Waiting
from replkernel_scheduler.policies.protocol import Rank
from replkernel_scheduler.types import RequestId, Shape

Lengths: TypeAlias = list[tuple[float, Rank, Waiting]]
"""The same requests by how long they think to hold their GPUs, those that do not say last."""


class Queue:
    """Everybody who waits."""

    __slots__ = ("_hosts", "any_lines", "anybody", "by_request", "lengths", "shares")

    def __init__(self, hosts: Hosts) -> None:
        """Start with nobody."""
        self._hosts = hosts
        self.by_request: dict[RequestId, Waiting] = {}
        self.any_lines: dict[Shape, Line] = {}
        self.lengths: dict[Shape, Lengths] = {}
        """Of each of these lines."""
        self.anybody: Line = []
        self.shares = 0
        """How many of these want a share of a GPU."""

    def add(self, waiting: Waiting) -> None:
        """Let a request wait; it claims nothing yet."""
        self.by_request[waiting.wish.request] = waiting
        self.shares += waiting.wish.share is not UNSET
        self._join_lines(waiting)

    def remove(self, waiting: Waiting) -> None:
        """Take a request out of its lines, with its claim."""
        del self.by_request[waiting.wish.request]
        self.shares -= waiting.wish.share is not UNSET
        self.claim(waiting, None)
        self._leave_lines(waiting)

    def stand_at(self, waiting: Waiting, hosts: list[Host]) -> None:
        """Let a request that is for certain hosts be for others."""
        self.claim(waiting, None)
        self._leave_lines(waiting)
        waiting.hosts = hosts
        self._join_lines(waiting)

    def claim(self, waiting: Waiting, host: Host | None) -> None:
        """Let a request claim `host` and nothing else."""
        before = waiting.claim
        if before is host:
            return
        waiting.claim = host
        if before is not None:
            _drop(before.claims, waiting)
            if not before.claims:
                self._moved(before)
        if host is not None:
            insort(host.claims, (waiting.key, waiting))
            if len(host.claims) == 1:
                self._moved(host)

    def _moved(self, host: Host) -> None:
        for pool in host.pools:
            self._hosts.moved(pool)

    def ordered(self) -> list[Waiting]:
        """Return everybody, next one first."""
        return sorted(self.by_request.values(), key=lambda waiting: waiting.key)

    def ahead(self, waiting: Waiting) -> Line | None:
        """Return the line in which others may be before `waiting`, if it stands in one."""
        if waiting.hosts is None:
            return self.anybody
        return None if waiting.claim is None else waiting.claim.claims

    def position(self, waiting: Waiting) -> int:
        """Return how many are served before it, and one: among those who compete for the same host."""
        line = self.ahead(waiting)
        return 1 + bisect_left(line, (waiting.key,)) if line else 1

    def _join_lines(self, waiting: Waiting) -> None:
        place = (waiting.key, waiting)
        if waiting.hosts is None:
            insort(self.any_lines.setdefault(waiting.shape, []), place)
            insort(self.lengths.setdefault(waiting.shape, []), _length(waiting))
            insort(self.anybody, place)
        else:
            for host in waiting.hosts:
                insort(host.line, place)

    def _leave_lines(self, waiting: Waiting) -> None:
        if waiting.hosts is not None:
            for host in waiting.hosts:
                _drop(host.line, waiting)
            return
        shape = waiting.shape
        _drop(self.anybody, waiting)
        _drop(self.any_lines[shape], waiting)
        lengths = self.lengths[shape]
        del lengths[bisect_left(lengths, _length(waiting)[:2])]
        if not lengths:
            del self.any_lines[shape], self.lengths[shape]


def _length(waiting: Waiting) -> tuple[float, Rank, Waiting]:
    return (waiting.wish.expected_s or inf, waiting.key, waiting)


def _drop(line: Line, waiting: Waiting) -> None:
    del line[bisect_left(line, (waiting.key,))]
