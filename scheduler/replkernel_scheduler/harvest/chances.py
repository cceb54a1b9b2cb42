"""Where a job could run at all, with nothing else there, and where its program has failed already.

Laws: a job that no host could take is refused when it comes; one that none of its owner's hosts could take
says so, and keeps nobody from growing. All GPUs of a job are of one model, on several hosts as well. A
program that has failed on some hosts is started on others, as long as there are any; after so many hosts it
has failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from replkernel_scheduler.harvest.jobs import JobRecord
from replkernel_scheduler.harvest.leasing import STARTS_WITHIN, Leasing
from replkernel_scheduler.harvest.openings import samples_of
from replkernel_scheduler.harvest.reach import Reach
from replkernel_scheduler.harvest.types import Cores
from replkernel_scheduler.types import HostName, KernelId, LeaseRequest, RequestId

FAILS_MAX = 3
"""On so many hosts, or sets of them, a program fails before its job has failed."""
MODELS_TOLD_MAX = 3


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
        least = job.spec.type.least
        if job.span == 1:
            return f"No host on which an agent of yours runs has {least} such GPU{'' if least == 1 else 's'}."
        counts = self._by_model(job)
        return needs(job, {model: list(on.values()) for model, on in counts.items()}, "there")

    def models(self, job: JobRecord, hosts: Iterable[HostName]) -> list[str]:
        """Return of which models hosts have GPUs for a job, in the order in which it is done with each."""
        wish, left, least = _wish(job), samples_of(job), job.spec.type.least
        found = {model for host in hosts for model in self._leasing.models_of(host, wish)}
        return sorted(found, key=lambda model: (job.type_on(model).run_s(left, least), model))

    def could_run(self, job: JobRecord) -> bool:
        """Say whether a job could start if all that it wants were idle."""
        if job.span == 1:
            return any(True for _ in self._able(job))
        return any(len(hosts) >= job.span for hosts in self._sets(job))

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

    def _among(self, job: JobRecord) -> Collection[HostName]:
        reach = self._reach.of(job)
        return self._leasing.known() if reach is None else reach

    def _by_model(self, job: JobRecord) -> dict[str, dict[HostName, int]]:
        """Return, of each model, how many GPUs each host of its owner has for a job."""
        wish, found = _wish(job), dict[str, dict[HostName, int]]()
        for host in self._among(job):
            for model, gpus in self._leasing.models_of(host, wish).items():
                found.setdefault(model, {})[host] = gpus
        return found

    def _sets(self, job: JobRecord) -> list[list[HostName]]:
        """Return the hosts among which a job may be on any: on several, those with enough of one model."""
        if job.span == 1:
            return [list(self._able(job))]
        each = job.spec.type.least // job.span
        counts = self._by_model(job).values()
        return [[host for host, gpus in on.items() if gpus >= each] for on in counts]

    def _able(self, job: JobRecord) -> Iterator[HostName]:
        """Yield the hosts of its owner that have what a job on one wants: the first mostly tells enough."""
        wish = _wish(job)
        for host in self._among(job):
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
        for able in self._sets(job):
            best = sorted(able, key=lambda host: (self.tried(job, host), host))[: job.span]
            if len(best) == job.span and tuple(sorted(best)) not in job.failed:
                return True
        return False


def needs(job: JobRecord, counts: Mapping[str, Iterable[int]], how: str) -> str:
    """Say what a job on several hosts needs, and how much of that is there of each model, by its hosts."""
    least, span, named = job.spec.type.least, job.span, job.spec.gpu_model
    most = {model: span * sorted((0,) * span + tuple(on))[-span] for model, on in counts.items()}
    first = sorted(most, key=lambda model: (-most[model], model))[:MODELS_TOLD_MAX]
    told = [f"{most[m]} of {m}" if m and not named else f"{most[m]}" for m in first if most[m]]
    there = f"at most {' and '.join(told)}" if told else "none"
    what = f"{least} {named or 'GPUs of one model'} on {span} hosts, {least // span} on each"
    return f"It needs {what}; {there} are {how}."


def _wish(job: JobRecord) -> LeaseRequest:
    """Return what a job wants of each of its hosts at least."""
    spec = job.spec
    each = spec.type.least // job.span
    return LeaseRequest(
        RequestId(""), KernelId(""), each, 0.0, (), spec.owner, spec.gpu_model, spec.vram_gb
    )  # fmt: skip
