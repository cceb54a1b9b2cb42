"""Where a job could run at all, with nothing else there, and where its program has failed already.

Laws: a job that no host could take is refused when it comes; one that none of its owner's hosts could take
says so, and keeps nobody from growing. A program that has failed on some hosts is started on others, as long
as there are any; after so many hosts it has failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.leasing import STARTS_WITHIN, Leasing
from replkernel_scheduler.harvest.reach import Reach
from replkernel_scheduler.harvest.types import Cores
from replkernel_scheduler.types import HostName, KernelId, LeaseRequest, RequestId

FAILS_MAX = 3
"""On so many hosts, or sets of them, a program fails before its job has failed."""


class Chances:
    """Looks at what hosts have; `reach` says where each job can be started."""

    def __init__(self, leasing: Leasing, reach: Reach) -> None:
        """Look at nothing yet."""
        self._leasing, self._reach = leasing, reach

    def never(self, job: JobRecord) -> str:
        """Say why no host that is known, or can be had, could ever take a job; "" if one could."""
        if job.cores is not None:
            return ""  # What notebooks leave of memory changes.
        known, wish = self._leasing.known(), _wish(job)
        if not known or any(self._leasing.gpus_of(host, wish) >= wish.gpus for host in known):
            return ""
        return self._leasing.why_never(wish)

    def not_here(self, job: JobRecord) -> str:
        """Say that too few of its owner's hosts could take a job with nothing else there, if that is so."""
        if self.could_run(job):
            return ""
        each = job.spec.type.least // job.span
        such = f"{each} such GPU{'' if each == 1 else 's'}"
        if job.span == 1:
            return f"No host on which an agent of yours runs has {such}."
        return f"No {job.span} of its hosts have {such} each."

    def could_run(self, job: JobRecord) -> bool:
        """Say whether a job could start if all that it wants were idle."""
        return sum(1 for _ in islice(self._able(job), job.span)) == job.span

    def avoids(self, job: JobRecord, hosts: Iterable[HostName]) -> bool:
        """Say whether a job is not to start on these hosts: it has failed there, and there are others."""
        return tuple(sorted(hosts)) in job.failed and self._untried(job)

    def apart(self, job: JobRecord, hosts: Collection[HostName]) -> list[HostName]:
        """Return those of some hosts on which a job, if it runs on one, may start."""
        if not job.failed or job.span > 1 or not self._untried(job):
            return list(hosts)
        return [host for host in hosts if (host,) not in job.failed]

    def tried(self, job: JobRecord, host: HostName) -> int:
        """Return how often a job has failed where this was among its hosts."""
        return sum([host in failed for failed in job.failed])

    def has_others(self, job: JobRecord) -> bool:
        """Say whether a job that has just failed may be started on hosts where it has not."""
        return len(job.failed) < FAILS_MAX and self._untried(job)

    def able(self, job: JobRecord) -> list[HostName]:
        """Return the hosts of its owner that have what a job wants of each, with nothing else on them."""
        return list(self._able(job))

    def _able(self, job: JobRecord) -> Iterator[HostName]:
        """Yield them one by one: the first few mostly tell enough."""
        reach = self._reach.of(job)
        among = self._leasing.known() if reach is None else reach
        wish = _wish(job)
        for host in among:
            if job.cores is not None:
                enough = self._is_large_enough(host, job.cores)
            else:
                enough = self._leasing.gpus_of(host, wish) >= wish.gpus
            if enough:
                yield host

    def _is_large_enough(self, host: HostName, wanted: Cores) -> bool:
        size = self._leasing.size_of(host)
        if size is None:
            return False
        return wanted.count <= size.cores and wanted.memory_gb <= size.memory_gb * STARTS_WITHIN

    def _untried(self, job: JobRecord) -> bool:
        """Say whether there are hosts for a job on which it has not failed together."""
        best = sorted(self.able(job), key=lambda host: (self.tried(job, host), host))[: job.span]
        return len(best) == job.span and tuple(sorted(best)) not in job.failed


def _wish(job: JobRecord) -> LeaseRequest:
    """Return what a job wants of each of its hosts at least."""
    spec = job.spec
    each = spec.type.least // job.span
    return LeaseRequest(
        RequestId(""), KernelId(""), each, 0.0, (), spec.owner, spec.gpu_model, spec.vram_gb
    )  # fmt: skip
