"""Batch jobs that are reshaped into the GPUs that idle notebooks leave: SideCar's beside NotebookOS.

A job holds GPUs of one host as leases that linger, so the core asks them back as soon as a cell wants them;
then it is saved, and goes on with fewer or waits. Law: cells come first, always; a job never asks for GPUs
that are not idle, and grows only where what is left ends sooner by more than growing takes. Work is
conserved: what a job has left is what it had less what it did; a host that fails takes what was not saved.
"""

from __future__ import annotations

from collections.abc import Callable

from replkernel_scheduler.effects import LeaseEnded, LeaseGranted, ReclaimLease
from replkernel_scheduler.elastic.types import SIDECAR, JobType
from replkernel_scheduler.events import (
    ARRIVES,
    FREES,
    Event,
    HostDown,
    HostUp,
    LeaseAsked,
    LeaseLingered,
    LeaseReleased,
    LeaseRenewed,
    LeaseWithdrawn,
)
from replkernel_scheduler.sim.agenda import LATE, Agenda
from replkernel_scheduler.sim.elastic_way import ElasticWay, samples_of
from replkernel_scheduler.sim.figures import Figures
from replkernel_scheduler.sim.records import Job
from replkernel_scheduler.sim.task import Parts, Task
from replkernel_scheduler.types import HostName, KernelId, Lease, LeaseId, LeaseRequest, RequestId, UserName

LOOK_EVERY_S = 60.0
LEASE_S = 86_400.0
SAVES_S = SIDECAR.checkpoint_s + SIDECAR.process_stop_s
"""From being asked until the GPUs are given back: saved, stopped."""


class HarvestRun:
    """A job: `left` samples at `since`, if it trains; `version` tells what was put down before a change."""

    __slots__ = (
        "gpus",
        "host",
        "kind",
        "leases",
        "left",
        "number",
        "ready_at",
        "since",
        "stopped_at",
        "task",
        "trains",
        "version",
    )

    def __init__(self, task: Task, kind: JobType, left: float) -> None:
        """Start as submitted."""
        self.task, self.kind, self.left = task, kind, left
        self.leases: dict[LeaseId, Lease] = {}
        self.host: HostName | None = None
        self.gpus = self.version = self.number = 0
        self.since = self.ready_at = 0.0
        self.stopped_at = task.submitted
        self.trains = False

    def held(self) -> int:
        """Return how many GPUs it holds."""
        return sum(len(lease.gpus) for lease in self.leases.values())


class Harvest:
    """All batch jobs that are not over, first come first."""

    def __init__(
        self,
        agenda: Agenda,
        feed: Callable[[Event, float], None],
        figures: Figures,
        way: ElasticWay,
        gpus: int,
    ) -> None:
        """Start with none; hosts have `gpus`."""
        self._agenda, self._feed, self._figures, self._way, self._each = agenda, feed, figures, way, gpus
        self._runs: dict[str, HarvestRun] = {}
        self._of_lease: dict[LeaseId, HarvestRun] = {}
        self._asking: dict[RequestId, HarvestRun] = {}
        self._idle: dict[HostName, int] = {}
        self._held: dict[LeaseId, Lease] = {}
        self._looks = self._soon = False

    @property
    def open(self) -> int:
        """Return how many jobs are not over."""
        return len(self._runs)

    def submit(self, job: Job, task: Task, now: float) -> None:
        """Take a job in."""
        kind = self._way.kind(job, self._each)
        samples = float(samples_of(dict.fromkeys(kind.iteration_s, 0.0)))
        task.duration_s = min(kind.run_s(samples, gpus) for gpus in kind.iteration_s)
        task.parts = Parts()
        if min(kind.iteration_s) > self._each:
            self._figures.given_up(task, "refused", f"no host has the {min(kind.iteration_s)} GPUs")
            return
        self._runs[task.name] = HarvestRun(task, kind, samples)
        self._look_soon(now)

    # -- what the core says -----------------------------------------------------------------------

    def saw(self, event: Event) -> None:
        """Take note of hosts."""
        if isinstance(event, HostUp):
            self._idle[event.host] = len(event.gpus)
        elif isinstance(event, HostDown):
            self._idle.pop(event.host, None)

    def granted(self, effect: LeaseGranted, now: float) -> None:
        """Take note of a lease; a job's own lingers from now on."""
        lease = effect.lease
        if lease.lease not in self._held:
            self._held[lease.lease] = lease
            if lease.host in self._idle:
                self._idle[lease.host] -= len(lease.gpus)
        run = self._asking.pop(lease.request, None)
        if run is not None:
            self._of_lease[lease.lease] = run
            run.leases[lease.lease], run.host = lease, lease.host
            self._figures.committed.add(len(lease.gpus), now)
            self._agenda.post(now + LEASE_S / 2, ARRIVES, self._renew, lease)

    def ended(self, effect: LeaseEnded, now: float) -> None:
        """Take note that GPUs are idle; a job that lost them unasked goes on from where it was saved."""
        lease = self._held.pop(effect.lease.lease, None)
        if lease is not None and lease.host in self._idle:
            self._idle[lease.host] += len(effect.lease.gpus)
        run = self._of_lease.pop(effect.lease.lease, None)
        if run is not None:
            self._figures.committed.add(-len(effect.lease.gpus), now)
            del run.leases[effect.lease.lease]
            if effect.why != "released":
                self._figures.lost_runs += 1
                self._halt(run, now, saved=False)
                self._go_on(run, now)
        if self._runs:
            self._look_soon(now)

    def reclaimed(self, effect: ReclaimLease, now: float) -> bool:
        """Save the job whose GPUs a cell wants; say whether it was a job's."""
        run = self._of_lease.get(effect.lease.lease)
        if run is None:
            return False
        self._halt(run, now, saved=True)
        self._agenda.post(now + SAVES_S, FREES, self._give_back, (run, effect.lease.lease))
        return True

    # -- jobs -------------------------------------------------------------------------------------

    def _look_soon(self, now: float) -> None:
        """Have those that wait looked at once all of this moment has happened, and all within a minute."""
        if not self._soon:
            self._soon = True
            self._agenda.post(now, LATE, self._launch)
        if not self._looks:
            self._looks = True
            self._agenda.post(now + LOOK_EVERY_S, LATE, self._look)

    def _launch(self, _: object, now: float) -> None:
        """Launch those that wait, in their order."""
        self._soon = False
        for run in [run for run in self._runs.values() if not run.leases]:
            self._ask(run, self._best(run, 0, None), now)

    def _look(self, _: object, now: float) -> None:
        """Let jobs grow, unless somebody waits."""
        self._looks = False
        self._launch(None, now)
        if all(run.leases for run in self._runs.values()):
            for run in list(self._runs.values()):
                self._grow(run, now)
        if self._runs:
            self._look_soon(now)

    def _best(self, run: HarvestRun, more_than: int, host: HostName | None) -> tuple[HostName, int] | None:
        """Return the host with the most idle GPUs (or this one), and the most that the job can use there."""
        hosts = self._idle if host is None else {host: self._idle.get(host, 0) + run.held()}
        if not hosts:
            return None
        name = max(hosts, key=lambda each: (hosts[each], each))
        sizes = [gpus for gpus in run.kind.iteration_s if more_than < gpus <= hosts[name]]
        return (name, max(sizes)) if sizes else None

    def _grow(self, run: HarvestRun, now: float) -> None:
        if not run.trains or run.host is None:
            return
        found = self._best(run, run.gpus, run.host)
        if found is None:
            return
        left = max(0.0, run.left - (now - run.since) * run.kind.rate(run.gpus))
        if SIDECAR.up_s + run.kind.run_s(left, found[1]) < run.kind.run_s(left, run.gpus):
            self._halt(run, now, saved=True)
            self._ask(run, found, now)

    def _ask(self, run: HarvestRun, found: tuple[HostName, int] | None, now: float) -> None:
        """Ask for what is missing on a host; take the wish back if it is not there after all."""
        if found is None:
            return
        host, gpus = found
        run.number += 1
        request = RequestId(f"batch.{run.task.name}.{run.number}")
        self._asking[request] = run
        wish = LeaseRequest(
            request, KernelId(request), gpus - run.held(), LEASE_S, (host,), UserName(run.task.user)
        )
        self._feed(LeaseAsked(wish), now)
        if self._asking.pop(request, None) is not None:
            self._feed(LeaseWithdrawn(request), now)
        else:
            lease = next(reversed(run.leases.values()))
            self._feed(LeaseLingered(lease.lease, lease.fence), now)
        if run.leases:
            self._go_on(run, now)

    def _go_on(self, run: HarvestRun, now: float) -> None:
        """Train with the GPUs that there are, as soon as processes are up."""
        self._halt(run, now, saved=True)
        sizes = [gpus for gpus in run.kind.iteration_s if gpus <= run.held()]
        if not sizes:
            for lease in list(run.leases.values()):
                self._feed(LeaseReleased(lease.lease, lease.fence), now)
            return
        task = run.task
        assert task.parts is not None
        run.gpus = max(sizes)
        if task.host is None:
            task.bound, task.host = now, run.host
        takes_s = SIDECAR.start_s if not task.started else SIDECAR.process_start_s
        self._agenda.post(now + takes_s, FREES, self._train, (run, run.version))

    def _train(self, what: tuple[HarvestRun, int], now: float) -> None:
        run, version = what
        if version != run.version:
            return
        if not run.task.started:
            run.task.started = now
        run.trains, run.since = True, now
        self._agenda.post(now + run.kind.run_s(run.left, run.gpus), FREES, self._over, (run, run.version))

    def _halt(self, run: HarvestRun, now: float, *, saved: bool) -> None:
        run.version += 1
        if not run.trains:
            return
        assert run.task.parts is not None
        run.trains = False
        run.task.parts.tries += 1
        run.task.parts.ran_s += now - run.since
        if saved:
            run.left = max(0.0, run.left - (now - run.since) * run.kind.rate(run.gpus))

    def _give_back(self, what: tuple[HarvestRun, LeaseId], now: float) -> None:
        run, name = what
        lease = run.leases.get(name)
        if lease is not None:
            self._feed(LeaseReleased(lease.lease, lease.fence), now)
        if run.leases and run.task.name in self._runs:
            self._go_on(run, now)

    def _over(self, what: tuple[HarvestRun, int], now: float) -> None:
        run, version = what
        if version != run.version:
            return
        self._halt(run, now, saved=True)
        task, parts = run.task, run.task.parts
        assert parts is not None
        del self._runs[task.name]
        task.ended = task.done = now
        parts.waited_s, parts.loaded_s = task.bound - task.submitted, task.started - task.bound
        parts.paused_s = now - task.started - parts.ran_s
        task.gpus = run.held()
        self._figures.finished(task, now)
        for lease in run.leases.values():
            del self._of_lease[lease.lease]
            self._feed(LeaseReleased(lease.lease, lease.fence), now)

    def _renew(self, lease: Lease, now: float) -> None:
        if lease.lease in self._of_lease:
            self._feed(LeaseRenewed(lease.lease, lease.fence), now)
            self._agenda.post(now + LEASE_S / 2, ARRIVES, self._renew, lease)
