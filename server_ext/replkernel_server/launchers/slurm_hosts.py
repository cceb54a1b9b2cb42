"""Which hosts Slurm's jobs make, what is to be told of them, and which jobs are to be asked for or cancelled.

Pure. Laws: a host is a node with one agent; of two jobs on one node the older is the host, and the younger is
asked for elsewhere. A host counts until Slurm says that its job is over or it was given back: that its agent
is silent is noticed by the scheduler, sooner. What ends as soon as it begins is not asked for time and again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from replkernel_server.launchers.protocol import HostComing, HostEnding, HostJoined, HostLost, Word
from replkernel_server.launchers.slurm_jobs import Job, SlurmOptions

PAUSE_S = 10.0
PAUSE_S_MAX = 600.0
LIVED_S = 120.0
"""A job that ended sooner than this after it was seen to run is taken for one that cannot run."""


class Todo(msgspec.Struct, frozen=True):
    """Jobs to be cancelled, and how many to be asked for, on none of these nodes."""

    cancel: tuple[str, ...] = ()
    submit: int = 0
    not_on: tuple[str, ...] = ()


class SlurmHosts:
    """The jobs of one launcher as hosts."""

    def __init__(self, options: SlurmOptions) -> None:
        """Begin without any."""
        self._options = options
        self._jobs: dict[str, Job] = {}
        self._host_jobs: dict[str, str] = {}
        self._seen_at: dict[str, float] = {}
        self._floor = options.hosts
        self._more = 0
        self._given_back: set[str] = set()
        self._over: set[str] = set()
        self._ending: set[str] = set()
        self._coming: dict[str, str] = {}
        self._failures = 0
        self._not_before = 0.0
        self.ever: set[str] = set()
        self.trouble = ""

    @property
    def awaits(self) -> bool:
        """Tell whether something is to change soon."""
        return bool(self._coming or self._more or self._failures)

    def job_of(self, host: str) -> Job | None:
        """Return the job that makes a host."""
        return self._jobs.get(self._host_jobs.get(host, ""))

    def hosts(self) -> list[str]:
        """Return the hosts that are there."""
        return sorted(self._host_jobs)

    def node_of(self, host: str) -> str:
        """Return the node of a host's name."""
        return host.removeprefix(self._options.host_prefix)

    def want(self, more: int) -> None:
        """Want so many hosts beyond those that are there."""
        self._more = more

    def again(self) -> None:
        """Want a host again that was given back."""
        self._floor += 1

    def room(self) -> int:
        """Return how many more hosts there may be."""
        return self._options.most - len(self._host_jobs)

    def give_back(self, host: str) -> list[Word]:
        """Note that a host's job was cancelled."""
        job = self._host_jobs.pop(host, None)
        if job is None:
            return []
        self._given_back.add(job)
        self._floor = max(0, self._floor - 1)
        return [HostLost(host, "it was given back")]

    def told(self, jobs: Sequence[Job], now: float) -> list[Word]:
        """Take all jobs that Slurm knows of by now; return what is new about hosts."""
        before, self._jobs = self._jobs, {job.job: job for job in jobs}
        self._given_back &= set(self._jobs)
        words: list[Word] = []
        for host, number in list(self._host_jobs.items()):
            job = self._jobs.get(number)
            if job is None or job.phase != "up":
                del self._host_jobs[host]
                words.append(HostLost(host, _said_of_end(job)))
        for job in jobs:
            words.extend(self._of_job(job, before.get(job.job), now))
        gone = [name for name in self._coming if name not in self._jobs or self._jobs[name].phase != "coming"]
        words.extend(HostComing(name, "", over=True) for name in gone)
        for name in gone:
            del self._coming[name]
        known = set(self._jobs)
        self._seen_at = {job: at for job, at in self._seen_at.items() if job in known}
        self._ending &= known
        self._over &= known
        return words

    def todo(self, now: float) -> Todo:
        """Return what is to be asked of Slurm, once: what is asked shows in the next `told`."""
        mine = set(self._host_jobs.values())
        doubles = [
            job for job in self._jobs.values() if job.phase == "up" and job.job not in mine | self._given_back
        ]
        coming = [job for job in self._jobs.values() if job.phase == "coming" and job.job not in mine]
        lasting = [job for job in mine if job not in self._ending]
        wanted = max(self._floor - len(lasting), self._more, 0)
        wanted = min(wanted, max(0, self.room()))
        surplus = coming[wanted:] if len(coming) > wanted else []
        submit = max(0, wanted - len(coming)) if now >= self._not_before else 0
        nodes = tuple(sorted({self._jobs[job].node for job in mine if self._jobs[job].node}))
        return Todo(tuple(job.job for job in [*doubles, *surplus]), submit, nodes)

    def _of_job(self, job: Job, before: Job | None, now: float) -> list[Word]:
        if job.phase == "coming":
            why = job.why or job.state
            if self._coming.get(job.job) == why:
                return []
            self._coming[job.job] = why
            return [HostComing(job.job, why)]
        if job.phase == "up" and job.node and job.job not in self._given_back:
            return self._of_host(job, now)
        if job.phase == "ended" and job.job not in self._over | self._given_back:
            self._over.add(job.job)
            if before is not None:
                self._ended(job, now)
        return []

    def _of_host(self, job: Job, now: float) -> list[Word]:
        host = f"{self._options.host_prefix}{job.node}"
        words: list[Word] = []
        if host not in self._host_jobs:
            self._host_jobs[host] = job.job
            self.ever.add(host)
            self._seen_at[job.job] = now
            self._more = max(0, self._more - 1)
            words.append(HostJoined(host, self._options.gpus))
        elif self._host_jobs[host] != job.job:
            return []
        if (
            job.left_s is not None
            and job.left_s <= self._options.drain_before_s
            and job.job not in self._ending
        ):
            self._ending.add(job.job)
            words.append(HostEnding(host, job.left_s, "its job reaches its time limit"))
        if self._failures and now - self._seen_at[job.job] >= LIVED_S:
            self._failures, self.trouble = 0, ""
        return words

    def _ended(self, job: Job, now: float) -> None:
        if job.state in ("CANCELLED", "PREEMPTED", "NODE_FAIL", "TIMEOUT"):
            return
        if now - self._seen_at.get(job.job, now) < LIVED_S:
            self._failures += 1
            self._not_before = now + min(PAUSE_S * 2 ** (self._failures - 1), PAUSE_S_MAX)
            self.trouble = f"job {job.job} ended as soon as it began: {job.why}"


def _said_of_end(job: Job | None) -> str:
    return "Slurm does not know its job any more" if job is None else f"its job {job.job} is over: {job.why}"
