"""A cell beside jobs waits for nothing but other cells and what leaves; a scheduler that dawdles is seen."""

from __future__ import annotations

import pytest
from replkernel_scheduler.effects import ReclaimLease
from replkernel_scheduler.events import LeaseLingered
from replkernel_scheduler.harvest.types import (
    HarvestEffect,
    JobHosts,
    JobStopped,
    ReshapeJob,
    StartJob,
    StopJob,
)
from replkernel_scheduler.types import HostName, UserName

from tests.support.beside_day import BEFORE_S, DAY, HOST_GPUS, SHAPES, SLACK_S
from tests.support.cell_waits import CellWait, Decided, Reshaped, cell_waits, reshapes
from tests.unit.scheduler.beside import Beside
from tests.unit.scheduler.test_jobs_across_hosts import LONG, TRAIN


@pytest.fixture
def world() -> Beside:
    world = Beside()
    world.host("a", 4)
    return world


def decided(world: Beside) -> list[Decided]:
    return [Decided(at, event, effects) for event, at, effects in world.journal]


def waits(world: Beside) -> dict[str, CellWait]:
    return {wait.request: wait for wait in cell_waits(decided(world))}


def a_job_leaves(world: Beside) -> None:
    """A cell wants two of the four GPUs of a job, which has left them after three seconds."""
    world.submit("train", 2, 4, samples=LONG)
    world.runs("train")
    world.until(100.0)
    world.cell("c", 2)
    world.until(103.0)
    world.stopped("train")
    world.until(110.0)
    world.runs("train")


def test_a_cell_waits_for_the_job_as_long_as_that_takes_to_leave_and_no_longer(world: Beside) -> None:
    a_job_leaves(world)
    wait = waits(world)["c"]
    assert (wait.whole_s, wait.for_leaving_s, wait.for_others_s) == pytest.approx((3.0, 3.0, 0.0))
    assert wait.own_s == pytest.approx(0.0)
    assert reshapes(decided(world), TRAIN) == [Reshaped(0, 4, None), Reshaped(4, 2, 10.0)]


def test_a_cell_that_waits_for_cells_would_wait_without_jobs_as_well(world: Beside) -> None:
    world.cell("long", 3)
    world.submit("train", 1)
    world.runs("train")
    world.cell("c", 2)
    world.until(world.now + 60.0)
    world.over("long")
    wait = waits(world)["c"]
    assert (wait.for_leaving_s, wait.for_others_s) == pytest.approx((0.0, 60.0))
    assert wait.own_s == pytest.approx(0.0)


def test_a_scheduler_that_grants_later_than_the_job_has_left_is_seen(world: Beside) -> None:
    a_job_leaves(world)
    late = []
    for at, event, effects in decided(world):
        if isinstance(event, JobStopped):
            late += [Decided(at, event, []), Decided(at + 5.0, event, effects)]
        else:
            late.append(Decided(at, event, effects))
    (wait,) = cell_waits(late)
    assert wait.own_s == pytest.approx(5.0)


def test_a_scheduler_that_asks_late_for_what_a_cell_wants_is_seen(world: Beside) -> None:
    a_job_leaves(world)
    late = []
    for at, event, effects in decided(world):
        if at == 100.0 and effects:
            late += [Decided(at, event, []), Decided(at + 1.0, event, effects)]
        else:
            late.append(Decided(at, event, effects))
    (wait,) = cell_waits(late)
    assert wait.own_s == pytest.approx(1.0)


LEAVES_S, GIVES_BACK_S, BEGINS_S, STEP_S = 0.8, 0.5, 1.0, 0.1


class Day(Beside):
    """The day of three notebooks, which keep what a cell had until it is asked back, and of a job."""

    def __init__(self) -> None:
        super().__init__()
        self.host("a", HOST_GPUS)
        self.feed(JobHosts(UserName("ann"), (HostName("a"),)))
        self.lease_of: dict[str, str] = {}
        """The last request of each notebook."""
        self.due: list[tuple[float, str, str]] = []
        self.lasts: dict[str, float] = {}

    def play(self, until: float) -> None:
        for recorded in DAY:
            self.due.append((recorded.at + BEFORE_S, "cell", f"{recorded.notebook} {recorded.gpus}"))
        lasts = {(recorded.at + BEFORE_S, recorded.notebook): recorded.lasts_s for recorded in DAY}
        self.due.append((BEFORE_S, "job", ""))
        while self.now < until:
            self.until(self.now + STEP_S)
            for what in sorted([due for due in self.due if due[0] <= self.now]):
                self.due.remove(what)
                at, kind, name = what
                match kind:
                    case "cell":
                        notebook, gpus = name.split()
                        self._cell(notebook, int(gpus), lasts[at, notebook])
                    case "over":
                        self._over(name, lasts_s=0.0)
                    case "back" if name in self.cells:
                        self.over(name)
                    case "job":
                        self.submit("train", 1, 2, 4, samples=LONG)
                    case "left" if TRAIN in self.processes:
                        self.stopped("train")
                    case "begins" if TRAIN in self.processes:
                        self.runs("train")

    def _cell(self, notebook: str, gpus: int, lasts_s: float) -> None:
        if not gpus:
            self.over(self.lease_of[notebook])
            return
        name = self.lease_of[notebook] = f"{notebook}{self.now:.0f}"
        self.cell(name, gpus, kernel=notebook)
        self._over(name, lasts_s)

    def _over(self, name: str, lasts_s: float) -> None:
        """End a cell once it has run for its time from its grant on."""
        granted_at = self.granted_at.get(name)
        if granted_at is None or lasts_s:
            self.lasts[name] = lasts_s or self.lasts[name]
            self.due.append((self.now + STEP_S, "over", name))
        elif self.now < granted_at + self.lasts[name]:
            self.due.append((granted_at + self.lasts[name], "over", name))
        else:
            lease = self.cells[name]
            self.feed(LeaseLingered(lease.lease, lease.fence))

    def _see(self, effect: HarvestEffect) -> None:
        super()._see(effect)
        match effect:
            case ReclaimLease():
                name = next(name for name, lease in self.cells.items() if lease.lease == effect.lease.lease)
                self.due.append((self.now + GIVES_BACK_S, "back", name))
            case StopJob():
                self.due.append((self.now + LEAVES_S, "left", ""))
            case StartJob() | ReshapeJob():
                self.due.append((self.now + BEGINS_S, "begins", ""))


def test_three_notebooks_wait_for_nothing_but_each_other_and_what_leaves() -> None:
    day = Day()
    day.play(420.0)
    made = decided(day)
    shapes = [each.after for each in reshapes(made, TRAIN)]
    assert tuple(shapes[: len(SHAPES)]) == SHAPES
    found = cell_waits(made)
    assert len(found) == 5
    assert max(wait.own_s for wait in found) <= SLACK_S
    assert sum(wait.for_leaving_s > 0.0 for wait in found) >= 2
    assert max(wait.for_leaving_s for wait in found) <= LEAVES_S + GIVES_BACK_S + 2 * STEP_S
