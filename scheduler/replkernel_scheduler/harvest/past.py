"""Jobs that are over, for those who ask how they ended.

Law: so many of a user, and so many in all; of too many in all, those of who has the most go first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from replkernel_scheduler.harvest.types import PastJob
from replkernel_scheduler.types import UserName

OF_USER_MAX = 50
IN_ALL_MAX = 1_000


class PastJobs:
    """The last of them, in the order in which they ended."""

    def __init__(self) -> None:
        """Start with none."""
        self._jobs: list[PastJob] = []
        self.gpu_s: dict[UserName, float] = {}
        """What the jobs of each user had of GPUs, also of those that are forgotten."""

    def __iter__(self) -> Iterator[PastJob]:
        """Yield them, the oldest first."""
        return iter(self._jobs)

    def __reversed__(self) -> Iterator[PastJob]:
        """Yield them, the newest first."""
        return reversed(self._jobs)

    def restore(self, jobs: Iterable[PastJob], gpu_s: Iterable[tuple[UserName, float]]) -> None:
        """Go on with those that an image has."""
        self._jobs, self.gpu_s = list(jobs), dict(gpu_s)

    def add(self, job: PastJob) -> None:
        """Remember one more; forget an older one where there are too many."""
        self._jobs.append(job)
        owner = job.spec.owner
        self.gpu_s[owner] = self.gpu_s.get(owner, 0.0) + job.gpu_s
        of_user = Counter(each.spec.owner for each in self._jobs)
        if of_user[job.spec.owner] > OF_USER_MAX:
            self._forget(job.spec.owner)
        elif len(self._jobs) > IN_ALL_MAX:
            self._forget(of_user.most_common(1)[0][0])

    def _forget(self, owner: UserName) -> None:
        """Forget a user's oldest."""
        del self._jobs[next(place for place, job in enumerate(self._jobs) if job.spec.owner == owner)]
