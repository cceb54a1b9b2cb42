"""Which jobs run on cores and memory alone, and where: beside notebooks, by aggressive oversubscription.

Policies of `queues` and `discipline` decide, the same that the simulator plays; what they are asked about is
made here for one moment. A core has as many processes as its part says at most: those of jobs, and one for
each core on which notebooks have just computed. Laws: the jobs that stay on a host have, with all else there,
no more memory than the host without its reserve; where that grows, the newest of them leaves. Nobody waits
behind a job that no host could take now, however many jobs ended. Owners that reach the same hosts have one
queue; another's reservation is not known in it, so a large job may wait long where queues share a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from replkernel_scheduler.errors import InvariantBroken
from replkernel_scheduler.harvest.chances import Chances
from replkernel_scheduler.harvest.jobs import JobRecord, Jobs
from replkernel_scheduler.harvest.leasing import STARTS_WITHIN, STAYS_WITHIN, Leasing
from replkernel_scheduler.harvest.reach import Reach
from replkernel_scheduler.harvest.types import ChangeWhy, Cores, HostUsed, JobName
from replkernel_scheduler.jobs.line import Line
from replkernel_scheduler.jobs.protocol import Discipline, Queues
from replkernel_scheduler.jobs.shape import Shape
from replkernel_scheduler.jobs.types import JobWanted, NodeShape, Part, Place
from replkernel_scheduler.types import HostName, UserName

LEAVES_S = 30.0
PAUSE_S, PAUSE_S_MAX = 30.0, 1800.0
"""Who has to leave pauses so long, each time twice as long, or as at first if it has run for the longest."""
PAUSES = "Notebooks needed its memory; it starts again after a pause."
ROUNDING_GB = 1e-6


class Acts(Protocol):
    """What can be done with a job on cores."""

    def starts_on(self, job: JobRecord, host: HostName, now: float) -> None:
        """Have it started on a host."""
        ...

    def stops(
        self,
        job: JobRecord,
        until: float | None,
        why: Literal["wanted back", "lease over"],
        now: float,
        *,
        saves: bool = True,
    ) -> None:
        """Have it saved and stopped, or ended at once."""
        ...

    def goes_on(self, job: JobRecord, now: float, why: ChangeWhy) -> None:
        """Have it wait: nothing of it runs any more."""
        ...


class Spot(msgspec.Struct, frozen=True):
    """A host as jobs see it: `busy` cores are notebooks', `memory_gb` is what jobs may have together."""

    host: HostName
    cores: int
    busy: int
    memory_gb: float

    def could(self, wanted: Cores, multiplicity: int) -> bool:
        """Say whether it would take a job if no other one ran there."""
        cores = self.cores if multiplicity > 1 else self.cores - self.busy
        return wanted.count <= cores and wanted.memory_gb <= self.memory_gb


class Processors:
    """Decides about them; `used` is what was told last of each host, without which nothing starts there."""

    def __init__(
        self,
        leasing: Leasing,
        jobs: Jobs,
        reach: Reach,
        chances: Chances,
        acts: Acts,
        queues: Queues,
        discipline: Discipline,
    ) -> None:
        """Decide about `jobs`; `reach` says where each can be started."""
        self._leasing, self._jobs, self._reach = leasing, jobs, reach
        self._chances, self._acts = chances, acts
        self._queues, self._discipline = queues, discipline
        self.used: dict[HostName, HostUsed] = {}
        self._multiplicity = self._part(())[0].multiplicity
        self.resumes_at: JobName | None = None
        """Where the next look begins, if the last one did not come to its end."""

    def done_s(self, job: str, now: float) -> float:
        """Return how long a job has run, also before it had to leave: nobody measures how much that is."""
        return self._jobs.by_name[JobName(job)].ran_s(now)

    # -- what is said ---------------------------------------------------------------------------------

    def uses(self, event: HostUsed, now: float) -> None:
        """Take note of what is used on a host; have jobs leave that have no room any more."""
        if self._leasing.is_there(event.host):
            self.used[event.host] = event
            self._make_way(event.host, now)

    def host_changed(self, host: HostName, now: float) -> None:
        """See to the jobs of a host that is gone, is to be emptied, or has less than before."""
        self._make_way(host, now)
        is_there = self._leasing.is_there(host)
        for job in self._on(host) if self._leasing.size_of(host) is None else ():
            if is_there:
                self._leaves(job, None, now)
            else:
                job.since = now  # What was not saved is lost.
                self._acts.stops(job, None, "lease over", now, saves=False)
                self._acts.goes_on(job, now, "lease over")
        if not is_there:
            self.used.pop(host, None)

    # -- who starts -----------------------------------------------------------------------------------

    def launch(self, now: float, hosts_max: int) -> bool:
        """Start those that wait, as far as there is room; say whether some were not looked at.

        To serve a queue takes as long as it has hosts: from `hosts_max` of them on, the next look goes on.
        """
        if not self._jobs.on_cores:
            return False
        spots = self._spots()
        part, among = self._part(spots)
        used = {spot.host for spot in among}
        spared = [spot.host for spot in spots if spot.host not in used]
        there = {spot.host: spot for spot in among if self._has_cores_for_all(spot, part)}
        reached: dict[UserName, tuple[HostName, ...]] = {}
        queues: dict[tuple[HostName, ...], list[JobRecord]] = {}
        for job in self._jobs.waiting_for_cores():
            owner = job.spec.owner
            if job.returns_at > now:
                job.refused = PAUSES
                continue
            if owner not in reached:
                reached[owner] = self._among(there, job)
            if hosts := tuple(self._chances.apart(job, reached[owner])):
                queues.setdefault(hosts, []).append(job)
            else:
                job.refused = _why_nowhere(self._among(spared, job))
        return self._serve_some(part, there, list(queues.items()), now, hosts_max)

    def _serve_some(
        self,
        part: Part,
        there: Mapping[HostName, Spot],
        queues: Sequence[tuple[tuple[HostName, ...], list[JobRecord]]],
        now: float,
        hosts_max: int,
    ) -> bool:
        """Serve queues, from where the last look has stopped on; say whether some are left."""
        names = [[job.spec.job for job in jobs] for _, jobs in queues]
        first = next((number for number, those in enumerate(names) if self.resumes_at in those), 0)
        seen, self.resumes_at = 0, None
        for number in (*range(first, len(queues)), *range(first)):
            hosts, jobs = queues[number]
            if seen >= hosts_max:
                self.resumes_at = names[number][0]
                return True
            seen += len(hosts)
            part = msgspec.structs.replace(part, nodes=len(hosts))
            self._serve(part, [there[host] for host in hosts], jobs, now)
        return False

    def _among(self, hosts: Iterable[HostName], job: JobRecord) -> tuple[HostName, ...]:
        """Return those of some hosts on which a job can be started, as all of its owner's on cores."""
        told = self._reach.of(job)
        reach = None if told is None else frozenset(told)
        return tuple([host for host in hosts if reach is None or host in reach])

    def _spots(self) -> list[Spot]:
        """Return the hosts of which is known what is left, by name."""
        found = []
        for host in sorted(self._leasing.hosts()):
            used, size = self.used.get(host), self._leasing.size_of(host)
            if used is not None and size is not None and size.cores:
                taken_gb = max(used.memory_gb, size.leased_gb)
                busy = min(used.busy, size.cores)
                found.append(Spot(host, size.cores, busy, size.memory_gb * STARTS_WITHIN - taken_gb))
        return found

    def _part(self, spots: Sequence[Spot]) -> tuple[Part, Sequence[Spot]]:
        """Return the part that is for jobs where there are these hosts, and which of them are in it."""
        parts = self._queues.parts(max(1, len(spots)))
        number = self._queues.part(JobWanted("", 1, 0.0))
        before = sum([part.nodes for part in parts[:number]])
        return parts[number], spots[before : before + parts[number].nodes]

    def _has_cores_for_all(self, spot: Spot, part: Part) -> bool:
        """Say whether a host has cores for all its jobs: one that came back with fewer may not."""
        there = sum([job.cores.count for job in self._on(spot.host) if job.cores])
        return there <= spot.cores * part.multiplicity

    def _serve(self, part: Part, spots: Sequence[Spot], jobs: Sequence[JobRecord], now: float) -> None:
        """Start those of one queue: its discipline says who, and where."""
        waiting = {str(job.spec.job): job for job in jobs}
        line = self._line(part, spots, now)
        seen: dict[tuple[int, float], tuple[bool, str]] = {}
        for name, job in waiting.items():
            wanted = job.cores
            assert wanted is not None
            alike = wanted.count, wanted.memory_gb
            if alike not in seen:
                never = _why_never(wanted, part, spots)
                seen[alike] = not never, never or _why_not_yet(wanted, spots, line)
            could, job.refused = seen[alike]
            if could:
                line.wait(_wanted(name, wanted, wanted.count), Shape(1, wanted.count, wanted.count))
        for asked, places in self._discipline.serve(line, None, now):
            line.start(asked, places, now)
            job = waiting[asked.job]
            job.refused = ""
            self._acts.starts_on(job, spots[places[0].node].host, now)

    def _line(self, part: Part, spots: Sequence[Spot], now: float) -> Line:
        """Return the hosts with what runs there: jobs in the order of their starts, then notebooks.

        Which cores they have nobody told: the emptiest ones.
        """
        nodes = [NodeShape(spot.cores, spot.memory_gb + ROUNDING_GB) for spot in spots]
        largest = max([node.cores for node in nodes], default=1)
        line = Line(0, part, NodeShape(largest), self, nodes)
        there = [(number, job) for number, spot in enumerate(spots) for job in self._on(spot.host)]
        for number, job in sorted(there, key=lambda one: (one[1].begun, one[1].number)):
            assert job.cores is not None
            place = _emptiest(line, number, job.cores.count)
            wanted = _wanted(str(job.spec.job), job.cores, len(place.cores))
            line.runs(wanted, (place,), now - job.ran_s(now))
        for number, spot in enumerate(spots):
            busy = min(spot.busy, line.table.free[number])
            if busy:
                line.table.take((_emptiest(line, number, busy),), 0.0)
        return line

    # -- who leaves -----------------------------------------------------------------------------------

    def _make_way(self, host: HostName, now: float) -> None:
        """Have the newest jobs of a host leave until the others have room."""
        for job in self._without_room(host):
            job.evicted = job.evicted + 1 if now - job.begun < PAUSE_S_MAX else 1
            job.returns_at = now + min(PAUSE_S * 2 ** min(job.evicted - 1, 10), PAUSE_S_MAX)
            self._leaves(job, now + LEAVES_S, now)

    def _leaves(self, job: JobRecord, until: float | None, now: float) -> None:
        if job.state in ("starting", "running"):
            self._acts.stops(job, until, "wanted back", now)

    def _without_room(self, host: HostName) -> list[JobRecord]:
        """Return the jobs that stay on a host and have no room there; the first to come have it first."""
        if not self._jobs.count_on_cores(host):
            return []
        size, used = self._leasing.size_of(host), self.used.get(host)
        if size is None:
            return []
        memory_gb = size.memory_gb * STAYS_WITHIN - (0.0 if used is None else used.memory_gb) + ROUNDING_GB
        free, found = size.cores * self._multiplicity, []
        for job in sorted(self._on(host), key=lambda job: -job.spec.priority):
            cores = job.cores
            assert cores is not None
            if job.state == "stopping":
                continue
            if cores.memory_gb > memory_gb or cores.count > min(free, size.cores):
                found.append(job)
            else:
                memory_gb, free = memory_gb - cores.memory_gb, free - cores.count
        return found

    def _on(self, host: HostName) -> list[JobRecord]:
        return self._jobs.on_cores_of(host)

    # -- laws -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise InvariantBroken if a law does not hold."""
        on_cores = [job for job in self._jobs.by_name.values() if job.cores is not None]
        if len(on_cores) != self._jobs.on_cores:
            raise InvariantBroken("jobs on cores are counted wrongly")
        for host in {job.host for job in on_cores if job.host is not None}:
            if self._on(host) != [job for job in on_cores if job.host == host]:
                raise InvariantBroken("a host does not know the jobs on its cores")
        for job in on_cores:
            if job.leases or (job.state == "waiting") != (job.host is None):
                raise InvariantBroken("a job on cores has GPUs, or runs nowhere")
            if job.state in ("starting", "running") and (job.on_hold or job.ending is not None):
                raise InvariantBroken("a job on cores runs that is to wait, or to end")
        for host in {job.host for job in on_cores if job.host is not None}:
            if self._without_room(host):
                raise InvariantBroken("jobs on cores have more of a host than there is")


def _wanted(name: str, cores: Cores, there: int) -> JobWanted:
    """Return a job as the rules know it: a process for each core there, with its part of the memory."""
    return JobWanted(name, cores.count, cores.expected_s, cores.memory_gb / there)


def _emptiest(line: Line, node: int, count: int) -> Place:
    """Return the cores of a node with the fewest processes."""
    loads = line.table.loads[node]
    return Place(node, tuple(sorted(range(len(loads)), key=loads.__getitem__)[:count]))


def _why_nowhere(spared: Sequence[HostName]) -> str:
    """Say why no host of an owner's takes jobs now; `spared` are those that the queues leave out."""
    if spared:
        return f"The scheduler's policy keeps host {spared[0]} for notebooks alone."
    return "No host on which an agent of yours runs takes jobs on cores."


def _why_never(wanted: Cores, part: Part, spots: Sequence[Spot]) -> str:
    """Say why no host could take a job, even if no other one ran; "" if one could."""
    if any(spot.could(wanted, part.multiplicity) for spot in spots):
        return ""
    best = max(spots, key=lambda spot: (min(spot.cores, wanted.count), spot.memory_gb))
    left = f"{_cores(best.cores)} and {max(0.0, best.memory_gb):.1f} GiB"
    return f"It wants {_asked(wanted)}; beside notebooks, {best.host} has {left} at most."


def _why_not_yet(wanted: Cores, spots: Sequence[Spot], line: Line) -> str:
    """Say what a job waits for."""
    left = [
        (min(free, wanted.count), min(memory_gb, wanted.memory_gb), spot.host, free, memory_gb)
        for spot, free, memory_gb in zip(spots, line.table.free, line.table.memory, strict=True)
    ]
    count, memory_gb, host, free, free_gb = max(left)
    if (count, memory_gb) == (wanted.count, wanted.memory_gb):
        return "Jobs that came before it wait for cores and memory as well."
    return f"It waits for {_asked(wanted)}; {host} has {_cores(free)} and {max(0.0, free_gb):.1f} GiB left."


def _asked(wanted: Cores) -> str:
    return f"{_cores(wanted.count)} and {wanted.memory_gb:g} GiB"


def _cores(count: int) -> str:
    return f"{count} core{'' if count == 1 else 's'}"
