"""First placement is the paper's, live: the same events give the same hosts by the service and the simulator.

A simulation plays drawn sessions; what its core heard is then told, at the same times, to the service's
driver with a journal on the disk, where requests pass through the documents of its REST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from replkernel_scheduler.core import SchedulerCore
from replkernel_scheduler.effects import Effect, KernelPlaced
from replkernel_scheduler.events import Event, KernelReported, KernelStarted
from replkernel_scheduler.settings import CoreSettings, Policies
from replkernel_scheduler.sim.plan import Plan, settings_for
from replkernel_scheduler.sim.records import Cell, Record, Session, order
from replkernel_scheduler.sim.simulation import Simulation
from replkernel_scheduler.sim.way import way_named
from replkernel_scheduler.types import HostName, KernelId
from replkernel_server.driver import SchedulerDriver
from replkernel_server.scheduling import placement
from replkernel_server.scheduling.clock import CoreClock
from replkernel_server.scheduling.documents import KernelPlacement, PlacementBody
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.journal_tables import Head
from replkernel_server.scheduling.recovery import Recovered, bring_back, make_beside

Placed = dict[KernelId, tuple[HostName, ...]]
SEED = 7


class Watched(SchedulerCore):
    """A core that remembers what it heard."""

    def __init__(self, policies: Policies, numbers: CoreSettings) -> None:
        super().__init__(Random(SEED), policies, numbers)
        self.heard: list[tuple[Event, float]] = []
        self.placed: Placed = {}

    def handle(self, event: Event, now: float) -> list[Effect]:
        effects = super().handle(event, now)
        self.heard.append((event, now))
        note(self.placed, effects)
        return effects


class StoodClock(CoreClock):
    """A clock that the test sets; no timer of it ever rings."""

    def __init__(self) -> None:
        self.at = 0.0
        super().__init__(0.0, lambda: self.at)

    def left_s(self, at: float) -> float:
        return 1e6


def note(placed: Placed, effects: list[Effect]) -> None:
    """Remember where replicas are to begin."""
    for effect in effects:
        if isinstance(effect, KernelPlaced):
            placed[effect.kernel_id] = (*placed.get(effect.kernel_id, ()), *effect.hosts)


sessions = st.lists(
    st.tuples(
        st.integers(0, 900),  # begins
        st.integers(30, 3000),  # lasts
        st.integers(0, 6),  # GPUs
        st.lists(st.tuples(st.integers(0, 600), st.integers(1, 900)), max_size=3),  # cells: after, for
    ),
    min_size=1,
    max_size=12,
)


def records_of(drawn: list[tuple[int, int, int, list[tuple[int, int]]]]) -> list[Record]:
    """Return the trace that was drawn."""
    found: list[Record] = []
    for number, (at, lasts, gpus, cells) in enumerate(drawn):
        name = f"s{number}"
        found.append(Session(name, float(at), float(at + lasts), gpus, f"u{number % 2}"))
        found += [Cell(name, at + min(after, lasts - 1.0), float(for_s), gpus) for after, for_s in cells]
    return sorted(found, key=order)


def simulated(records: list[Record], policy: str, plan: Plan) -> Watched:
    """Play a trace in the simulator."""
    way = way_named(policy)
    core = Watched(way.policies, settings_for(plan, way))
    Simulation(records, 0.0, way, plan, core=core).run()
    return core


def as_asked(event: Event) -> Event:
    """Return what a router's request over REST becomes, for the start of a kernel."""
    if not isinstance(event, KernelStarted):
        return event
    spec = event.kernel
    said = msgspec.json.encode({"gpus": spec.gpus, "replicas": spec.replicas})
    body = msgspec.json.decode(said, type=PlacementBody)
    (started,) = placement.events(placement.spec_of(spec.kernel_id, spec.user, body), None, is_here=False)
    return started


async def live(
    heard: list[tuple[Event, float]], policy: str, numbers: CoreSettings, follow: Callable[..., list[Event]]
) -> Placed:
    """Tell the service's driver the same; return where kernels begin, as their routers are answered."""
    base, *pairs = policy.split(",")
    head = Head(SEED, 0, {"set": base, **dict(pair.split("=") for pair in pairs)}, numbers)
    placed: Placed = {}
    with TemporaryDirectory() as folder:
        journal = Journal(JournalPlace(f"sqlite:///{Path(folder) / 'journal.sqlite'}"))
        journal.begin(head)
        dice, clock = Random(SEED), StoodClock()
        driver = SchedulerDriver(Recovered(make_beside(head, dice), dice), journal, clock)
        driver.listen(lambda effects, _: note(placed, effects))
        waits = []
        for event, at in heard:
            clock.at = at
            waits.append(driver.submit(as_asked(event)))
            waits += [driver.submit(more) for more in follow(driver.core, event)]
            if len(waits) >= 500:
                await asyncio.gather(*waits)
                waits.clear()
        await asyncio.gather(*waits)
        for kernel_id, hosts in placed.items():
            stands = driver.core.placement_of(kernel_id)
            if stands is not None and not stands.missing:
                told = placement.answer(stands, [])[1]
                assert isinstance(told, KernelPlacement) and len(told.hosts) == len(set(told.hosts))
                assert inf > len(hosts) > 0
        seen = driver.core.view()
        again, _ = bring_back(journal, head)
        assert again.core.view() == seen
        await driver.close()
    return placed


def nothing(core: SchedulerCore, event: Event) -> list[Event]:
    """Kernels are what the simulator makes of them."""
    return []


class Routers:
    """Routers that come as soon as their kernels have hosts, and say so."""

    def __init__(self) -> None:
        self.told: set[KernelId] = set()
        self.started: dict[KernelId, KernelStarted] = {}

    def __call__(self, core: SchedulerCore, event: Event) -> list[Event]:
        if isinstance(event, KernelStarted):
            self.started[event.kernel.kernel_id] = event
        found: list[Event] = []
        for kernel_id in [name for name in self.started if name not in self.told]:
            stands = core.placement_of(kernel_id)
            if stands is not None and stands.hosts and not stands.missing:
                self.told.add(kernel_id)
                found.append(KernelReported(stands.spec, stands.hosts, moves=True))
        return found


@settings(max_examples=15, deadline=None)
@given(sessions, st.sampled_from(["notebook", "notebook,limit=static", "notebook,scaling=buffered"]))
def test_the_same_events_give_the_same_hosts_live_and_in_the_simulator(
    drawn: list[tuple[int, int, int, list[tuple[int, int]]]], policy: str
) -> None:
    plan = Plan(hosts=4, gpus_per_host=6, hosts_max=9, seed=SEED)
    core = simulated(records_of(drawn), policy, plan)
    numbers = settings_for(plan, way_named(policy))
    assert asyncio.run(live(core.heard, policy, numbers, nothing)) == core.placed


@settings(max_examples=15, deadline=None)
@given(sessions, st.sampled_from(["notebook,migration=never", "notebook,limit=static,migration=never"]))
def test_routers_that_take_their_kernels_over_change_nothing_for_those_that_begin_after_them(
    drawn: list[tuple[int, int, int, list[tuple[int, int]]]], policy: str
) -> None:
    plan = Plan(hosts=4, gpus_per_host=6, hosts_max=4, seed=SEED)
    core = simulated(records_of(drawn), policy, plan)
    numbers = settings_for(plan, way_named(policy))
    assert asyncio.run(live(core.heard, policy, numbers, Routers())) == core.placed
