"""What is used of hosts beside jobs on cores, from the words of agents, each its own user's. Pure.

Laws: of what is used only the agents of users whose offer of the host stands speak, each by its newest
connection. No word counts for more than the host has, or hides more than its user's jobs there may have. Jobs
leave only where two words agree: of two users' agents, or of the only one, one after the other. While the
memory of somebody's jobs is not known, nothing is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, inf

import msgspec
from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.leasing import STARTS_WITHIN, STAYS_WITHIN
from replkernel_scheduler.harvest.types import HostUsed
from replkernel_scheduler.types import HostName, Size, UserName

from replkernel.leasing.wire import USE_S, HostUse

STEP_GB = 0.5
"""Memory that is used is told to the core in steps, and not where it is one less: each is an event."""
SPEAKS_WITHIN_S = 6 * USE_S
"""An agent that can tell what is used has so long to do so; then its jobs count as they have booked."""


class Speaker(msgspec.Struct, frozen=True):
    """The newest connection of a user's agent on a host.

    `trusted`: the host is up by its user's offer too. `speaks`: it can tell what is used.
    """

    client: int
    trusted: bool
    speaks: bool
    since: float


class Word(msgspec.Struct, frozen=True):
    """What an agent told last, and before that on the same connection."""

    client: int
    use: HostUse
    before: HostUse | None = None

    def jobs_gb(self, most: float) -> float:
        """Return what its jobs have of what it tells."""
        return min(self.use.jobs_gb, most)

    def jobs_gb_agreed(self, most: float) -> float:
        """Return the most that it told of that twice."""
        return min(
            max(self.use.jobs_gb, self.use.jobs_gb if self.before is None else self.before.jobs_gb), most
        )


class HostUses:
    """The last words about all hosts."""

    def __init__(self) -> None:
        """Begin without any."""
        self._words: dict[HostName, dict[UserName, Word]] = {}
        self._now = -inf

    def heard(self, client: int, user: UserName, host: HostName, use: HostUse, now: float) -> None:
        """Take a word from the newest connection of a user's agent."""
        self._now = max(self._now, now)
        words = self._words.setdefault(host, {})
        last = words.get(user)
        words[user] = Word(client, use, last.use if last is not None and last.client == client else None)

    def used(
        self,
        host: HostName,
        size: Size | None,
        jobs: Sequence[JobRecord],
        speakers: Mapping[UserName, Speaker],
        known: HostUsed | None,
    ) -> HostUsed | None:
        """Return what to tell the core, with the `jobs` on cores there; None if that is nothing new."""
        booked = _booked(jobs)
        self._forget(host, booked, speakers)
        words = self._words.get(host, {})
        spoken = [
            word.use
            for user, word in words.items()
            if (by := speakers.get(user)) is not None and by.client == word.client and by.trusted
        ]
        if size is None or not spoken or any(self._is_awaited(user, words, speakers) for user in booked):
            return None
        step = self._step(size, jobs, words, spoken, speakers)
        if known is not None and (step + 1) * STEP_GB == known.memory_gb:
            step += 1
        busy = ceil(round(sum([min(use.busy, size.cores) for use in spoken]), 2))
        told = HostUsed(host, min(busy, size.cores), step * STEP_GB)
        return None if told == known else told

    def _step(
        self,
        size: Size,
        jobs: Sequence[JobRecord],
        words: Mapping[UserName, Word],
        spoken: Sequence[HostUse],
        speakers: Mapping[UserName, Speaker],
    ) -> int:
        """Return how many steps of memory are used: no more than the jobs there leave, unless words agree."""
        booked = _booked(jobs)
        theirs = sum([words[user].jobs_gb(gb) if user in words else gb for user, gb in booked.items()])
        starts = max([_used_gb(use, size, STARTS_WITHIN) for use in spoken]) - theirs
        stay_gb = sum([job.cores.memory_gb for job in jobs if job.cores and job.state != "stopping"])
        if not stay_gb:
            return _steps(starts)
        agreed = self._agreed(size, booked, words, spoken, speakers)
        left = size.memory_gb * STAYS_WITHIN - stay_gb
        if agreed > left:
            return _steps(agreed)
        return min(_steps(starts), max(0, floor(left / STEP_GB)))

    def _agreed(
        self,
        size: Size,
        booked: Mapping[UserName, float],
        words: Mapping[UserName, Word],
        spoken: Sequence[HostUse],
        speakers: Mapping[UserName, Speaker],
    ) -> float:
        """Return the memory that is used as far as two words agree about it."""
        theirs = sum([words[user].jobs_gb_agreed(gb) if user in words else gb for user, gb in booked.items()])
        told = sorted([_used_gb(use, size, STAYS_WITHIN) for use in spoken])
        if len(told) > 1:
            return told[-2] - theirs
        ((word),) = [word for word in words.values() if word.use is spoken[0]]
        if word.before is None or any(user not in speakers for user in booked):
            return 0.0  # Who is away would not hear, and cannot say otherwise.
        return min(told[0], _used_gb(word.before, size, STAYS_WITHIN)) - theirs

    def _is_awaited(
        self, user: UserName, words: Mapping[UserName, Word], speakers: Mapping[UserName, Speaker]
    ) -> bool:
        """Say whether it is still to be told what the jobs of a user have."""
        if user in words:
            return False
        by = speakers.get(user)
        return by is None or (by.speaks and self._now < by.since + SPEAKS_WITHIN_S)

    def _forget(
        self, host: HostName, booked: Mapping[UserName, float], speakers: Mapping[UserName, Speaker]
    ) -> None:
        """Keep what an agent that is gone told for as long as jobs of its user are there."""
        words = self._words.get(host, {})
        for user in [user for user in words if user not in speakers and user not in booked]:
            del words[user]
        if not words:
            self._words.pop(host, None)


def _booked(jobs: Sequence[JobRecord]) -> dict[UserName, float]:
    """Return how much memory the jobs of each user may have together."""
    found: dict[UserName, float] = {}
    for job in jobs:
        if job.cores is not None:
            found[job.spec.owner] = found.get(job.spec.owner, 0.0) + job.cores.memory_gb
    return found


def _used_gb(use: HostUse, size: Size, within: float) -> float:
    """Return the memory that is used: where an agent has less than the host, the same is left of `within`."""
    most = min(size.memory_gb, use.limit_gb) if use.limit_gb else size.memory_gb
    return min(use.used_gb, most) + within * (size.memory_gb - most)


def _steps(gb: float) -> int:
    return ceil(max(0.0, gb) / STEP_GB)
