"""The desk and a core behind it, without a socket: connections are method calls, the clock is the test's.

Law: after every event the laws of the core, and of its jobs, are checked.
"""

from __future__ import annotations

import random
from typing import Literal, cast

from msgspec import UNSET
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.events import Event, Resumed
from replkernel_scheduler.harvest.core import HarvestCore
from replkernel_scheduler.harvest.types import (
    HarvestEvent,
    JobName,
    JobsDue,
    JobSpec,
    JobSubmitted,
    JobView,
    type_of_shapes,
)
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.types import UserName
from replkernel_server.scheduling.desk import Desk, DeskTimes
from replkernel_server.scheduling.desk_words import (
    Act,
    Answered,
    Close,
    Feed,
    JobCame,
    Joined,
    Said,
    Send,
    TimeCame,
    Told,
)
from replkernel_server.scheduling.identity import Identity

from replkernel.leasing import wire
from tests.support.scheduler_client import offer

ALICE, BOB = Identity(UserName("alice")), Identity(UserName("bob"))
ROOT = Identity(UserName("root"), admin=True)
GUEST = Identity(UserName("guest"), may_host=False)


class Room:
    """A desk and a core behind it, with a clock that the test turns."""

    def __init__(self, grace_s: float = 30.0) -> None:
        self.core = SchedulerCore(random.Random(0), notebook())
        self.now = 0.0
        self.fed: list[Event] = []
        self.restart(grace_s)

    def restart(self, grace_s: float) -> None:
        """Forget all connections, as a new process does."""
        self.heard: dict[int, list[wire.FromScheduler]] = {}
        self.closed: dict[int, str] = {}
        self.desk = Desk(self.core.view(), self.now, DeskTimes(60.0, grace_s))

    def do(self, acts: list[Act]) -> None:
        for act in acts:
            match act:
                case Send(client, message):
                    self.heard[client].append(message)
                case Close(client, why):
                    self.closed[client] = why
                case Feed(event, client):
                    self.feed(event, client)

    def feed(self, event: Event, client: int | None = None) -> None:
        self.fed.append(event)
        effects = self.core.handle(event, self.now)
        self.core.check_invariants()
        self.do(self.desk.handle(Told(effects), self.now))
        if client is not None:
            self.do(self.desk.handle(Answered(client, event, effects), self.now))

    def join(self, role: Literal["agent", "router"], name: str, who: Identity = ALICE) -> int:
        client = len(self.heard) + 1
        self.heard[client] = []
        self.do(
            self.desk.handle(Joined(client, wire.Hello(1, role, name, idles=role == "router"), who), self.now)
        )
        return client

    def say(self, client: int, *messages: wire.FromClient) -> list[wire.FromScheduler]:
        """Say something; return what this client hears then."""
        before = len(self.heard[client])
        for message in messages:
            self.do(self.desk.handle(Said(client, message), self.now))
        return self.heard[client][before:]

    def wait(self, seconds: float) -> None:
        """Let time pass, as a driver with two timers does."""
        until = self.now + seconds
        while (at := self.desk.deadline()) <= until:
            self.now = max(self.now, at)
            self.do(self.desk.handle(TimeCame(), self.now))
        self.now = until
        self.feed(Resumed(0.0))

    def agent(self, name: str, gpus: int = 2, who: Identity = ALICE) -> int:
        client = self.join("agent", name, who)
        self.say(client, offer(name, gpus))
        return client

    def router(self, name: str, hosts: str = "a", who: Identity = ALICE) -> int:
        client = self.join("router", name, who)
        self.say(client, wire.KernelHere(tuple(hosts.split())))  # type: ignore[arg-type]
        return client

    def lease(self, client: int, request: str, gpus: int = 1) -> wire.GrantedLease:
        said = self.say(client, wire.LeaseWish(request, gpus))
        assert isinstance(said[0], wire.Granted), said
        return said[0].lease

    def hosts(self) -> list[str]:
        return [str(host.name) for host in self.core.view().hosts if host.state == "up"]


class JobRoom(Room):
    """A room whose core has jobs beside its kernels."""

    def restart(self, grace_s: float) -> None:
        super().restart(grace_s)
        if not hasattr(self, "beside"):
            self.beside = HarvestCore(self.core)
        self.desk = Desk(self.core.view(), self.now, DeskTimes(60.0, grace_s), beside=self.beside)

    def do(self, acts: list[Act]) -> None:
        """Do all of it, then what is due, as the driver does."""
        self.deep = getattr(self, "deep", 0) + 1
        super().do(acts)
        self.deep -= 1
        self.pass_jobs()

    def pass_jobs(self) -> None:
        while not self.deep and (due := self.beside.jobs_due()) is not None and due <= self.now:
            self.feed(cast("Event", JobsDue()))

    def submitted(self, event: HarvestEvent) -> None:
        self.feed(cast("Event", event))
        self.pass_jobs()

    def feed(self, event: Event, client: int | None = None) -> None:
        self.fed.append(event)
        effects = self.beside.handle(event, self.now)
        self.beside.check_invariants()
        self.do(self.desk.handle(Told(effects), self.now))
        if client is not None:
            self.do(self.desk.handle(Answered(client, event, effects), self.now))

    def line(self, host: str, who: Identity = ALICE, *here: tuple[str, int]) -> int:
        client = len(self.heard) + 1
        self.heard[client] = []
        self.do(self.desk.handle(Joined(client, wire.Hello(1, "jobs", host), who), self.now))
        if client not in self.closed:
            self.say(client, wire.JobsHere(here, ranks=True, uses=True, spans=True))
        return client

    def submit(
        self, name: str, who: Identity = ALICE, *shapes: int, epochs: float | None = None, hosts: int = 1
    ) -> None:
        spec = JobSpec(
            job=JobName(name), type=type_of_shapes(name, shapes or (1,)), owner=who.user, command=("train",),
            directory="/w", seal="s", epochs=epochs, hosts=hosts if hosts > 1 else UNSET,
        )  # fmt: skip
        assert self.desk.jobs is not None
        self.feed(cast("Event", self.desk.jobs.before(who.user)))
        self.submitted(JobSubmitted(spec))
        self.do(self.desk.handle(JobCame(who.user), self.now))

    def beats(self, agent: int, seconds: int) -> None:
        """Let time pass on a host whose agent is heard."""
        for _ in range(seconds // 2):
            self.say(agent, wire.HostBeat())
            self.wait(2.0)

    def started(self, client: int) -> list[tuple[str, int, int]]:
        """Return name, attempt and number of GPUs of each start that was told."""
        said = [one for one in self.heard[client] if isinstance(one, wire.StartJob)]
        return [(one.job, one.attempt, len(one.gpus)) for one in said]

    def job(self, name: str) -> JobView | None:
        return next((job for job in self.beside.jobs() if job.spec.job == name), None)
