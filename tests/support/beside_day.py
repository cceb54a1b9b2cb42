"""Three notebooks whose cells come at recorded times, and what a journal says of a job beside them.

The times are made for a job of 1, 2 or 4 of a host's four GPUs: it has 1, 2, 4, 2, none, 1. The scheduler
lets jobs grow each minute, so the day begins when the job is submitted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
from jupyter_client import BlockingKernelClient
from replkernel_scheduler.effects import UsageRecorded
from replkernel_scheduler.harvest.types import (
    HarvestEvent,
    JobName,
    JobStopped,
    ReshapeJob,
    StartJob,
    StopJob,
)
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.recovery import make_beside

from tests.support.cell_waits import Decided
from tests.support.live import reply_to

HOST_GPUS = 4
SLACK_S = 0.1
"""So long a cell may wait beyond what it would without the job, and what leaving takes."""
SHAPES = (1, 2, 4, 2, 0, 1)
BEFORE_S = 4.0
"""The first cells run so long before the job comes."""


class Recorded(NamedTuple):
    """A cell: when it is run, by which notebook, on how many GPUs, how long it computes."""

    at: float
    notebook: str
    gpus: int
    lasts_s: float


DAY = (
    Recorded(-BEFORE_S, "a", 1, 45.0 + BEFORE_S),
    Recorded(-BEFORE_S, "b", 2, 50.0 + BEFORE_S),
    Recorded(48.0, "a", 0, 0.0),
    Recorded(215.0, "c", 2, 45.0),
    Recorded(240.0, "a", 2, 45.0),
    Recorded(250.0, "b", 1, 40.0),
)
"""Of no GPUs: the notebook gives back what it holds. The other keeps its own until a job asks them back."""


class Played(NamedTuple):
    """A cell that has run: how it ended, and how long it waited for its GPUs."""

    cell: Recorded
    status: str
    waited_s: float


class Notebooks:
    """Plays the day on kernels' clients by their names; `begin` runs the first cells, `play` all others."""

    def __init__(self, clients: Mapping[str, BlockingKernelClient]) -> None:
        self._clients = clients
        self._began = time.monotonic() + BEFORE_S
        self._sent: list[tuple[Recorded, str]] = []

    def begin(self) -> None:
        """Run what is before the job, and return when that is to be submitted."""
        self._run_until(0.0)
        time.sleep(max(0.0, self._began - time.monotonic()))

    def play(self) -> list[Played]:
        """Run the others; return all cells in the order of their times, once they are over."""
        self._run_until(float("inf"))
        played = []
        for cell, sent in self._sent:
            reply = reply_to(self._clients[cell.notebook], sent, cell.lasts_s + 60.0)
            said = reply["metadata"]["replkernel"]
            played.append(Played(cell, reply["content"]["status"], float(said.get("queued_s", 0.0))))
        return played

    def _run_until(self, end: float) -> None:
        for cell in DAY[len(self._sent) :]:
            if cell.at >= end:
                break
            time.sleep(max(0.0, self._began + cell.at - time.monotonic()))
            code = f"%%gpu {cell.gpus}\nimport time\ntime.sleep({cell.lasts_s})"
            code = code if cell.gpus else "%gpu release"
            self._sent.append((cell, str(self._clients[cell.notebook].execute(code))))


def trained(log: str, epochs: int) -> int:
    """Return how many epochs a job's program has trained again, of those that came after it had saved.

    AssertionError where one is missing, or more than one is trained again after a start.
    """
    again, at = 0, 0
    for start in log.split("BEGINS epoch=")[1:]:
        begins = int(start.split()[0])
        assert at - 1 <= begins <= at, f"it saved {at} epochs, and went on from {begins}"
        again += at - begins
        seen = [int(epoch) for epoch in re.findall(r"EPOCH (\d+)", start)]
        assert seen == list(range(begins, begins + len(seen))), seen
        at = begins + len(seen)
    assert at == epochs
    return again


def journal_of(path: Path, dice: Random | None = None) -> list[Decided]:
    """Return all that a scheduler has decided, as its journal makes it again; `dice`: not by its own."""
    journal = Journal(JournalPlace(f"sqlite:///{path}"))
    try:
        head = journal.head()
        assert head is not None
        core, told = make_beside(head, dice), []
        for entry in journal.entries():
            event = msgspec.json.decode(entry.event, type=HarvestEvent)
            told.append(Decided(entry.at, event, core.handle(event, entry.at)))
            core.check_invariants()
        return told
    finally:
        journal.close()


class JobHistory(NamedTuple):
    """A job's: the GPUs of each start (0: it rests), how long it took to leave, and how long cells waited."""

    shapes: list[int]
    left_in_s: list[float]
    waits_s: dict[str, float]


def history_of(decided: list[Decided], job: JobName) -> JobHistory:
    """Return the history of a job, with the waits of all cells by their requests."""
    shapes: list[int] = []
    left_in_s: list[float] = []
    waits: dict[str, float] = {}
    asked_off: float | None = None
    for at, event, effects in decided:
        starts = [
            len(effect.gpus)
            for effect in effects
            if (isinstance(effect, StartJob) and effect.spec.job == job)
            or (isinstance(effect, ReshapeJob) and effect.job == job)
        ]
        if isinstance(event, JobStopped) and event.job == job:
            assert asked_off is not None
            left_in_s.append(at - asked_off)
            starts = starts or [0]
        shapes += starts
        for effect in effects:
            if isinstance(effect, StopJob) and effect.job == job:
                asked_off = at
            elif isinstance(effect, UsageRecorded) and not effect.usage.request.startswith("job."):
                waits[effect.usage.request] = effect.usage.queued_s
    return JobHistory(shapes, left_in_s, waits)
