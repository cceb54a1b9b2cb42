"""Cells that hold GPUs and leave them idle: who is told, and by setting interrupted. Pure.

A user's quota may have a rule of its own; what holds when a cell gets its GPUs holds until it is over.
Laws: a reading that is missing, or that the driver does not give, is no reason to tell anybody; one at or
above the bound begins the time anew; nobody is interrupted who was not told that long before. Who cannot be
told now is told at a later reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec
from msgspec import UNSET
from replkernel_scheduler.types import HostName, KernelId, Lease, LeaseId, UserQuota

from replkernel.leasing.wire import GpuUse
from replkernel_server.errors import ServiceSettingError

MINUTE_S = 60.0
MINUTES_MAX = 10_080.0
GAP_S = 20.0
"""After so long without a reading nothing is known of what was before it."""
EXAMPLE = "below=5 minutes=15 interrupt=30"
OFF = "off"
"""The rule of users whose cells may leave GPUs idle."""


class Rule(msgspec.Struct, frozen=True):
    """A cell is told once its GPUs have computed less than the share `below` for `told_s`.

    It is interrupted `interrupt_s` after that, if they still do (None: never).
    """

    below: float
    told_s: float
    interrupt_s: float | None = None


class Idle(msgspec.Struct, frozen=True):
    """Tell a cell's router: its GPUs have computed `share` of the last `for_s`.

    `ends_in_s`: it is interrupted then (None: never); 0 is now.
    """

    kernel_id: KernelId
    lease: LeaseId
    share: float
    for_s: float
    ends_in_s: float | None


class _Watch:
    """One lease that a cell has, and its rule: since when its GPUs are idle, and what they did since."""

    __slots__ = ("count", "ended", "gpus", "lease", "rule", "seen_at", "since", "told_at", "total")

    def __init__(self, lease: Lease, rule: Rule, now: float) -> None:
        self.lease, self.rule, self.gpus = lease, rule, frozenset(str(gpu) for gpu in lease.gpus)
        self.begins(now)

    def begins(self, now: float) -> None:
        """Count from now on."""
        self.since = self.seen_at = now
        self.total, self.count = 0.0, 0
        self.told_at: float | None = None
        self.ended = False


class Underuse:
    """The leases that cells have, by host."""

    def __init__(self, rule: Rule | None) -> None:
        """Begin without any; `rule` is for whom no other is stated, and without one nobody is told."""
        self.rule = rule
        self._host_of: dict[LeaseId, HostName] = {}
        self._on: dict[HostName, dict[LeaseId, _Watch]] = {}

    def began(self, lease: Lease, now: float, quota: UserQuota | None = None) -> None:
        """Take note that a cell has whole GPUs; of a part nobody knows who computes there."""
        rule = self.rule if quota is None or quota.idle_gpus is UNSET else kept_rule(quota.idle_gpus)
        if rule is None or not lease.gpus or lease.share is not UNSET or lease.lease in self._host_of:
            return
        self._host_of[lease.lease] = lease.host
        self._on.setdefault(lease.host, {})[lease.lease] = _Watch(lease, rule, now)

    def over(self, lease: LeaseId) -> None:
        """Take note that its cell is over."""
        host = self._host_of.pop(lease, None)
        if host is not None:
            watches = self._on[host]
            del watches[lease]
            if not watches:
                del self._on[host]

    def seen(
        self, host: HostName, uses: Iterable[GpuUse], now: float, hears: Callable[[KernelId], bool]
    ) -> list[Idle]:
        """Take what a host's GPUs do now; return who is to be told, of kernels that hear it."""
        watches = self._on.get(host)
        if not watches:
            return []
        by_uuid = {use.uuid: use for use in uses}
        due = [watch for watch in list(watches.values()) if self._looked(watch, by_uuid, now)]
        return [self._word(watch, now) for watch in due if hears(watch.lease.kernel_id)]

    def _looked(self, watch: _Watch, uses: dict[str, GpuUse], now: float) -> bool:
        """Take a reading; say whether something is to be told."""
        rule = watch.rule
        mine = [uses[gpu] for gpu in watch.gpus if gpu in uses]
        share = sum(use.utilisation for use in mine) / len(watch.gpus)
        known = len(mine) == len(watch.gpus) and all(use.read for use in mine)
        if not known or share >= rule.below or now - watch.seen_at > GAP_S:
            watch.begins(now)
            return False
        watch.seen_at = now
        watch.total, watch.count = watch.total + share, watch.count + 1
        if watch.told_at is None:
            return now - watch.since >= rule.told_s
        return not watch.ended and rule.interrupt_s is not None and now - watch.told_at >= rule.interrupt_s

    def _word(self, watch: _Watch, now: float) -> Idle:
        """Tell a cell, or the second time end it."""
        lease, rule = watch.lease, watch.rule
        first = watch.told_at is None
        ends_in_s = rule.interrupt_s if first else 0.0
        watch.ended = not first
        watch.told_at = now if first else watch.told_at
        share = watch.total / watch.count
        return Idle(lease.kernel_id, lease.lease, share, now - watch.since, ends_in_s)


def read_rule(name: str, text: str) -> Rule | None:
    """Return the rule in the setting `name`: `below=5 minutes=15`, with `interrupt=30` if cells are ended."""
    words = text.split()
    if not words or words == [OFF]:
        return None
    said: dict[str, float] = {}
    for word in words:
        key, _, value = word.partition("=")
        most = 100.0 if key == "below" else MINUTES_MAX
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if key not in ("below", "minutes", "interrupt") or not 0 < number <= most:
            raise ServiceSettingError(
                f"{name} has {word[:60]!r}, which is no percentage below=, nor minutes= or interrupt= up to "
                f"{MINUTES_MAX:.0f}: write it like '{EXAMPLE}'."
            )
        said[key] = number
    if "below" not in said or "minutes" not in said:
        raise ServiceSettingError(
            f"{name}={text[:60]!r} lacks below= or minutes=: write it like '{EXAMPLE}'."
        )
    interrupt_s = said["interrupt"] * MINUTE_S if "interrupt" in said else None
    return Rule(said["below"] / 100, said["minutes"] * MINUTE_S, interrupt_s)


def written(rule: Rule | None) -> str:
    """Return what `read_rule` reads as this rule."""
    if rule is None:
        return OFF
    words = f"below={rule.below * 100:g} minutes={rule.told_s / MINUTE_S:g}"
    return words if rule.interrupt_s is None else f"{words} interrupt={rule.interrupt_s / MINUTE_S:g}"


def mildest(rules: Iterable[Rule | None]) -> Rule | None:
    """Return what bears least on a user for whom all of these hold, word by word."""
    found = list(rules)
    stated = [rule for rule in found if rule is not None]
    if len(stated) < len(found):
        return None
    ends = [rule.interrupt_s for rule in stated if rule.interrupt_s is not None]
    return Rule(
        min(rule.below for rule in stated),
        max(rule.told_s for rule in stated),
        max(ends) if len(ends) == len(stated) else None,
    )


@lru_cache(maxsize=1024)
def kept_rule(text: str) -> Rule | None:
    """Return the rule that a quota has kept; a text that no release writes is none."""
    try:
        return read_rule("idle_gpus", text)
    except ServiceSettingError:
        return None
