"""The laws of jobs beside notebooks, on stories that nobody thought of.

No GPU is leased twice or computed on by two, and no job runs in a shape that it does not allow: checked after
every event. No cell waits longer than without jobs but for the time that leaving takes. A service that is
killed at any moment goes on as if it had not been.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from replkernel_scheduler.effects import ReclaimLease
from replkernel_scheduler.events import HostAway, HostDown, HostDrained, HostUndrained, LeaseReleased
from replkernel_scheduler.harvest.types import (
    HarvestEffect,
    HarvestEvent,
    HostJobs,
    JobHoldAsked,
    JobHosts,
    JobName,
    JobProgress,
    JobStopAsked,
    JobStopped,
    StopJob,
)
from replkernel_scheduler.types import HostName, UserName

from tests.support.examples import examples
from tests.unit.scheduler.beside import Beside, of

pytestmark = pytest.mark.timeout(300)

STEPS_S = (0.0, 0.0, 1.0, 5.0, 30.0, 61.0, 700.0)
SHAPES = ((1,), (2,), (1, 2), (1, 2, 4), (2, 4), (3,))
HOSTS = ("a", "b")
LEAVES_S = 12.0
steps = st.lists(
    st.tuples(st.sampled_from(STEPS_S), st.integers(0, 15), st.integers(0, 40), st.integers(0, 5)),
    max_size=40,
)


class Story(Beside):
    """Numbers become events; each agent answers when its number comes."""

    def __init__(self) -> None:
        super().__init__()
        self.named = 0
        for host in HOSTS:
            self.host(host, 4)

    def play(self, after_s: float, kind: int, which: int, size: int) -> None:
        self.until(self.now + after_s)
        names = sorted(self.processes)
        job = names[which % len(names)] if names else None
        self.named += 1
        match kind:
            case 0 | 1:
                kernel = f"k{which % 3}"
                self.cell(f"c{self.named}", 1 + size % 4, "" if which % 2 else "a b", kernel)
            case 2 | 3 if self.cells:
                self.over(sorted(self.cells)[which % len(self.cells)], lingers=kind == 2)
            case 4 | 5:
                across = which % 5 == 4 and not any(gpus % 2 for gpus in SHAPES[size])
                samples, hosts = [None, 50.0, 1e6][which % 3], 2 if across else 1
                self.submit(f"j{self.named}", *SHAPES[size], samples=samples, hosts=hosts)
            case 6 | 7 | 8 if job is not None:
                if self.processes[job].told:
                    self.stopped(job)
                else:
                    self.runs(job)
            case 9 if job is not None:
                self.ended(job)
            case 10 if job is not None:
                self.feed(JobProgress(job, self.processes[job].attempt, float(which)))
            case 11 if job is not None and which % 3 == 0:
                self.stopped(job)  # Its processes ended by themselves.
            case 12 if self.core.jobs():
                jobs = self.core.jobs()
                name = jobs[which % len(jobs)].spec.job
                self.feed(JobStopAsked(name) if size < 2 else JobHoldAsked(name, size < 4))
            case 12:
                self.feed(JobHosts(UserName("ann"), tuple(HostName(host) for host in HOSTS[: size % 3])))
            case 13:
                self.host_says(HOSTS[which % 2], size)
            case 14 | 15:
                self.give_back(which)
            case _:
                pass
        self.until(self.now)

    def host_says(self, name: str, what: int) -> None:
        host = HostName(name)
        if what == 0:
            self.feed(HostDown(host))
            self.host(name, 4)
        elif what == 1:
            self.feed(HostAway(host))
            self.host(name, 4)
        elif what == 2:
            self.feed(HostDrained(host))
            self.feed(HostUndrained(host))
        elif what == 3:
            self.host(name, 3)
            self.host(name, 4)
        else:
            there = [(job, each.attempt) for job, each in self.processes.items() if each.host == host]
            self.feed(HostJobs(host, tuple(there)))

    def give_back(self, which: int) -> None:
        """Have a kernel move its state off the GPUs that it was asked for."""
        asked = [each.lease for _, _, effects in self.journal for each in of(ReclaimLease, effects)]
        if asked:
            lease = asked[-1 - which % len(asked)]
            self.feed(LeaseReleased(lease.lease, lease.fence))


@settings(max_examples=examples(400), deadline=None)
@given(story=steps)
def test_no_gpu_has_two_and_no_job_another_shape(story: list[tuple[float, int, int, int]]) -> None:
    world = Story()
    for step in story:
        world.play(*step)


@settings(max_examples=examples(120), deadline=None)
@given(story=steps, every=st.integers(1, 5))
def test_a_service_that_is_killed_goes_on_as_if_it_had_not_been(
    story: list[tuple[float, int, int, int]], every: int
) -> None:
    whole, killed = Story(), Story()
    for number, step in enumerate(story):
        whole.play(*step)
        killed.play(*step)
        if number % every == 0:
            killed.restart()
    assert msgspec.msgpack.encode(killed.journal) == msgspec.msgpack.encode(whole.journal)
    again = Beside()
    for event, at, effects in whole.journal:
        written = msgspec.json.encode(event)
        assert again.core.handle(msgspec.json.decode(written, type=HarvestEvent), at) == effects
    assert again.core.jobs() == whole.core.jobs()


cells = st.lists(
    st.tuples(st.integers(0, 600), st.integers(1, 4), st.integers(1, 300)), min_size=1, max_size=10
)
batch = st.lists(st.tuples(st.integers(0, 500), st.sampled_from(SHAPES)), max_size=5)


class Day(Beside):
    """Cells that come and end at known times on one host; jobs train, and leave when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.host("a", 8)
        self.leaving: dict[JobName, float] = {}
        self.behind: dict[str, int] = {}
        """How many cells waited when a cell came."""

    def play(self, wanted: list[tuple[int, int, int]], jobs: list[tuple[int, tuple[int, ...]]]) -> None:
        """Go through it second by second; a cell that is granted late ends when it would have."""
        for at in range(1000):
            self.until(float(at))
            for name in [name for name, when in self.leaving.items() if when <= at]:
                del self.leaving[name]
                self.feed(JobStopped(name, self.processes.pop(name).attempt))
            for number, (comes, _, lasts) in enumerate(wanted):
                if comes + lasts <= at and f"c{number}" in self.cells:
                    self.over(f"c{number}")
            for number, (comes, gpus, _) in enumerate(wanted):
                if comes == at:
                    self.behind[f"c{number}"] = len(self.behind.keys() - self.granted_at.keys())
                    self.cell(f"c{number}", gpus)
            for number, (comes, shapes) in enumerate(jobs):
                if comes == at:
                    self.submit(f"j{number}", *shapes, samples=1e6)
            for job in self.core.jobs():
                if job.state == "starting" and not at % 7:
                    self.runs(job.spec.job)

    def _see(self, effect: HarvestEffect) -> None:
        super()._see(effect)
        if isinstance(effect, StopJob):
            self.leaving[effect.job] = self.now + LEAVES_S


@settings(max_examples=examples(120), deadline=None)
@example(  # A cell asks for more of a job's GPUs while that gives back what it does not need.
    wanted=[(16, 2, 212), (15, 3, 231), (14, 1, 94), (3, 4, 163)],
    jobs=[(29, (2, 4)), (2, (1, 2, 4)), (18, (1,)), (20, (1, 2)), (2, (2,))],
)
@example(  # The last cell stands behind one that waits for a job's GPU.
    wanted=[(0, 1, 208), (0, 4, 208), (194, 2, 1), (195, 3, 1)],
    jobs=[(0, (1,)), (0, (1,))],
)
@given(wanted=cells, jobs=batch)
def test_no_cell_waits_longer_than_without_jobs_but_for_the_time_that_leaving_takes(
    wanted: list[tuple[int, int, int]], jobs: list[tuple[int, tuple[int, ...]]]
) -> None:
    alone, beside = Day(), Day()
    alone.play(wanted, [])
    beside.play(wanted, jobs)
    for name, at in alone.granted_at.items():
        # For a cell that has to let others begin first, GPUs may be asked back only once these have begun.
        leaving_s = LEAVES_S * (1 + beside.behind[name])
        assert beside.granted_at[name] <= at + leaving_s
