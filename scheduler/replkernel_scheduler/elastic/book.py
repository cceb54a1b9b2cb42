"""Who trains where with how many GPUs, how much is left, and when all that is thought to end.

Law: predictions are those of the specification, 2.2 and 2.3: of every job, not only of the two that a
change is about. GPUs that a job lets go of belong to whom they were promised from that moment on, and to
nobody twice.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from math import ceil
from typing import Literal, NamedTuple, TypeAlias

from replkernel_scheduler.elastic.line import Line
from replkernel_scheduler.elastic.types import ROUNDING, JobType, ReshapeCosts, TrainingWanted

State: TypeAlias = Literal["starting", "running", "yielding", "adjusting"]
"""yielding: it trains on with what it had until it is stopped to be reshaped."""
PLACES = 6
"""Sums of ends that differ by less than a microsecond are the same."""


class Score(NamedTuple):
    """How good a choice is, less is better: the makespan first (spec 2.3)."""

    makespan: float
    completions: float
    """By how much the sum of all ends changes: that tells choices apart as the sum does."""
    gpus: int
    overhead_s: float


class Outlook:
    """When the last jobs are thought to be over, at one moment: choices are compared by it."""

    __slots__ = ("_end_of", "_first", "_last", "_second", "now")

    def __init__(
        self, last: str, first: float, second: float, end_of: Callable[[str], float], now: float
    ) -> None:
        """Keep which job is over last, when it and the one before are, and who tells of any other."""
        self._last, self._first, self._second = last, first, second
        self._end_of, self.now = end_of, now

    def score(
        self,
        new: float | None = None,
        changed: str | None = None,
        end: float = 0.0,
        gpus: int = 0,
        overhead_s: float = 0.0,
    ) -> Score:
        """Return how good it is if a job comes that ends at `new`, and `changed` ends at `end`."""
        makespan, completions = self._first, 0.0
        if changed is not None:
            makespan = max(self._second if changed == self._last else self._first, end)
            completions = end - self._end_of(changed)
        if new is not None:
            makespan, completions = max(makespan, new), completions + new
        return Score(makespan, round(completions, PLACES), gpus, overhead_s)


class Training:
    """A launched job; `ready` is when it is thought to train again while it does not."""

    __slots__ = (
        "at_once",
        "gives",
        "gpus",
        "host",
        "iteration_s",
        "left",
        "rate",
        "ready",
        "since",
        "state",
        "trains_with",
        "type",
        "wanted",
    )  # fmt: skip

    def __init__(self, wanted: TrainingWanted, host: int, gpus: int, ready: float, model: str = "") -> None:
        """Start as launched, on GPUs of a model."""
        self.type = wanted.type_on(model)
        self.wanted, self.host, self.gpus, self.ready = wanted, host, gpus, ready
        self.state: State = "starting"
        self.trains_with = gpus
        self.left, self.since = wanted.samples, ready
        self.settle()

    def settle(self) -> None:
        """Work out what follows from its state and its GPUs: asked for far more often than they change."""
        self.rate = self.type.rate(self.trains_with)
        """Samples a second while it trains."""
        self.at_once, self.iteration_s = self.type.batch * self.gpus, self.type.iteration_s[self.gpus]
        """Samples of an iteration with the GPUs that it has or is to have, and its seconds."""
        self.gives = self.state == "running" and self.gpus > self.type.least
        """Whether it trains, with more GPUs than it needs."""

    def samples_left(self, now: float) -> float:
        """Return what it is thought to have left: profiles say how fast it is."""
        if self.state not in ("running", "yielding"):
            return self.left
        return max(0.0, self.left - (now - self.since) * self.rate)


class Book:
    """Hosts, jobs, and who waits."""

    def __init__(self, hosts: tuple[int, ...], costs: ReshapeCosts, models: tuple[str, ...] = ()) -> None:
        """Start with idle hosts of so many GPUs; `models` are those of the hosts, where they differ."""
        self.hosts, self.costs = hosts, costs
        self._finish_s = costs.finish_s
        self.models = models or ("",) * len(hosts)
        self.idle = list(hosts)
        self.trainings: dict[str, Training] = {}
        self.waiting = Line()
        self.drawn: dict[str, int] = {}
        """What was drawn once for jobs that wait, so that it is not drawn until it suits."""
        self._on: list[dict[str, Training]] = [{} for _ in hosts]
        self.giving: set[int] = set()
        """The hosts on which a job trains with more GPUs than its least."""
        self._outlook: Outlook | None = None
        self._latest: list[tuple[float, str]] = []
        """The jobs that train, by a time that none of them is thought to end after, but who is late."""
        self._latest_of: dict[str, float] = {}
        self._pausing: dict[str, Training] = {}
        """The jobs that do not, or are to be stopped."""
        self._changed_at: dict[int, int] = {}
        """When each host changed, by the number of the change; who changed last stands last."""
        self._donors: dict[int, tuple[float, list[tuple[str, Training]]]] = {}
        """Those of a host at a moment."""

    # -- what changes ------------------------------------------------------------------------------------

    def launch(self, job: str, training: Training) -> None:
        """Take GPUs of a host for a job that waits."""
        self.idle[training.host] -= training.gpus
        self.waiting.leave(job)
        self.drawn.pop(job, None)
        self.seat(job, training)

    def seat(self, job: str, training: Training) -> None:
        """Have a job on its host, on GPUs that are counted already."""
        self.trainings[job] = self._on[training.host][job] = training
        self.changed(training)

    def over(self, job: str) -> None:
        """Have a job's GPUs idle again."""
        training = self.trainings.pop(job)
        del self._on[training.host][job]
        self._pausing.pop(job, None)
        self._leaves_order(job)
        self.idle[training.host] += training.gpus
        self.changed(training)

    def changed(self, training: Training) -> None:
        """Take note that a job of its host is in another state, or has other GPUs."""
        training.settle()
        self._outlook, host, job = None, training.host, training.wanted.job
        if self.trainings.get(job) is training:
            self._put_in_order(job, training)
        self._donors.pop(host, None)
        self._changed_at.pop(host, None)
        self._changed_at[host] = self.waiting.changed()
        if any(each.gives for each in self._on[host].values()):
            self.giving.add(host)
        else:
            self.giving.discard(host)

    def _put_in_order(self, job: str, training: Training) -> None:
        """Have a job where its end can be found among the last ones."""
        self._leaves_order(job)
        if training.state != "running":
            self._pausing[job] = training
            return
        self._pausing.pop(job, None)
        last = training.since + (training.left / training.at_once + 1) * training.iteration_s + self._finish_s
        last += abs(last) * 1e-9  # For rounding.
        self._latest_of[job] = last
        insort(self._latest, (last, job))

    def _leaves_order(self, job: str) -> None:
        last = self._latest_of.pop(job, None)
        if last is not None:
            del self._latest[bisect_left(self._latest, (last, job))]

    @property
    def has_room(self) -> bool:
        """Whether any job that waits may find GPUs, idle or another job's: most events leave none."""
        return bool(self.giving) or max(self.idle) >= self.waiting.least()

    # -- what is thought of it ---------------------------------------------------------------------------

    def donors(self, host: int, now: float) -> list[tuple[str, Training]]:
        """Return the jobs of a host that may be reshaped: they train, and have something left."""
        known = self._donors.get(host)
        if known is None or known[0] != now:
            there = [
                (job, training)
                for job, training in self._on[host].items()
                if training.state == "running" and training.samples_left(now) > 0
            ]
            known = self._donors[host] = now, there
        return known[1]

    def outlook(self, now: float) -> Outlook:
        """Return what choices of this moment are compared by.

        Few are looked at: those that do not train, and of the others the last, until no other can be later.
        """
        if self._outlook is not None and self._outlook.now == now:
            return self._outlook
        last, first, second = "", 0.0, 0.0
        trainings, late = self.trainings, now + self._finish_s
        ends = [(self.end(training, now), job) for job, training in self._pausing.items()]
        for bound, job in reversed(self._latest):
            if second >= bound and second >= late:
                break
            end = self.end(trainings[job], now)
            if end > first:
                last, first, second = job, end, first
            elif end > second:
                second = end
        for end, job in ends:
            if end > first:
                last, first, second = job, end, first
            elif end > second:
                second = end
        self._outlook = Outlook(last, first, second, lambda job: self.end(trainings[job], now), now)
        return self._outlook

    def worth_a_look(self, wanted: TrainingWanted) -> Iterable[int]:
        """Return the hosts that have changed since such a job was tried in vain, in their order."""
        tried, found = self.waiting.tried(wanted), list[int]()
        if tried is None:
            return range(len(self.hosts))
        for host in reversed(self._changed_at):
            if self._changed_at[host] <= tried:
                break
            found.append(host)
        return sorted(found)

    def type_on(self, wanted: TrainingWanted, host: int) -> JobType:
        """Return what a job is on the GPUs of a host."""
        return wanted.type_on(self.models[host])

    def new_end(self, wanted: TrainingWanted, gpus: int, donor: bool, now: float, host: int = 0) -> float:
        """F_new: when a job that is launched now on a host is thought to be over."""
        begins_s = self.costs.joins_s if donor else self.costs.start_s
        run_s = self.type_on(wanted, host).run_s(wanted.samples, gpus)
        return now + begins_s + run_s + self.costs.finish_s

    def end(self, training: Training, now: float) -> float:
        """When a job is thought to be over if nobody changes it."""
        begins = now if training.state == "running" else max(now, training.ready)
        left = max(0.0, training.samples_left(now) - ROUNDING)
        return begins + ceil(left / training.at_once) * training.iteration_s + self._finish_s

    def reshaped_end(self, training: Training, gpus: int, now: float) -> float:
        """F_run: when it is thought to be over if it goes on with `gpus`."""
        pause_s = self.costs.down_s if gpus < training.gpus else self.costs.up_s
        run_s = training.type.run_s(training.samples_left(now), gpus)
        return now + pause_s + run_s + self.costs.finish_s
