"""What is read back from the journal is the state that wrote it, byte for byte, however often it stopped."""

from __future__ import annotations

import asyncio
import tempfile
from math import inf, nan
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replkernel_scheduler.effects import (
    Effect,
    LeaseGranted,
    Prewarm,
    ProvisionHost,
    ReclaimLease,
    StartReplica,
)
from replkernel_scheduler.errors import UnexpectedEvent
from replkernel_scheduler.events import Event, HostNotProvisioned, LeaseAsked
from replkernel_scheduler.harvest.types import JobName, JobProgress
from replkernel_scheduler.policies.built_in import notebook
from replkernel_scheduler.types import KernelId, LeaseRequest, RequestId, ReservationId
from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import BadRequest, JournalFailed
from replkernel_server.scheduling.clock import CoreClock
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.recovery import recover
from replkernel_server.scheduling.settings import ServiceSettings

from tests.unit.scheduler.stories import Step, World

STEP = st.tuples(*[st.integers(0, 41)] * 4)
PHASES = st.lists(st.lists(STEP, max_size=25), min_size=1, max_size=4)
SETS = [
    {"set": "notebook"},
    {"set": "fcfs-batch"},
    {"set": "notebook", "prewarm": "minimum", "order": "fifo"},
]


class Journalled(World):
    """A world whose core belongs to a driver with a journal; it can be stopped and started."""

    def __init__(self, path: Path, policies: dict[str, str]) -> None:
        super().__init__(notebook(), provisions=False)
        self.setup = ServiceSettings(f"sqlite:///{path}", policies=policies)
        self.loop = asyncio.new_event_loop()
        self.start()

    def start(self) -> None:
        journal = Journal(JournalPlace(self.setup.database))
        recovered = recover(journal, self.setup)
        self.now = recovered.at
        clock = CoreClock(recovered.at, lambda: self.now)
        self.driver = self.loop.run_until_complete(self._driver(recovered, journal, clock))
        self.core = self.driver.core

    async def _driver(self, *parts: object) -> SchedulerDriver:
        return SchedulerDriver(*parts)  # type: ignore[arg-type]

    def stop(self) -> None:
        self.loop.run_until_complete(self.driver.close())

    def feed(self, event: Event, after_s: float = 0.0) -> list[Effect]:
        self.now += after_s
        try:
            effects = self.loop.run_until_complete(self.driver.apply(event))
        except UnexpectedEvent:
            effects = []
        for effect in effects:
            if isinstance(effect, LeaseGranted):
                self.held[effect.lease.lease] = effect.lease
            elif isinstance(effect, StartReplica | ProvisionHost | Prewarm | ReclaimLease):
                self.awaited.append(effect)
        return effects

    def bytes(self) -> bytes:
        return msgspec.json.encode(self.core.view())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(PHASES, st.sampled_from(SETS))
def test_a_replay_has_the_same_bytes(phases: list[list[Step]], policies: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = Journalled(Path(directory) / "journal.sqlite", policies)
        try:
            for phase in phases:
                for step in phase:
                    world.play(step)
                world.feed(HostNotProvisioned(ReservationId("nobody's")))
                before, number = world.bytes(), world.driver.number
                world.stop()
                world.start()
                assert world.bytes() == before
                assert world.driver.number == number
                world.core.check_invariants()
                world.loop.run_until_complete(world.driver.resume(30.0))
        finally:
            world.stop()
            world.loop.close()


def wish(name: str) -> Event:
    return LeaseAsked(LeaseRequest(RequestId(name), KernelId(name), 1, 10.0))


async def test_no_effect_leaves_before_its_event_is_on_the_disk_and_none_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = ServiceSettings(f"sqlite:///{tmp_path / 'journal.sqlite'}")
    journal = Journal(JournalPlace(setup.database))
    driver = SchedulerDriver(recover(journal, setup), journal)
    told: list[list[Effect]] = []
    on_disk: list[int] = []
    driver.listen(lambda effects, _: told.append(effects))
    append = journal.append

    def watched(*work: object) -> None:
        assert len(told) == sum(on_disk)
        append(*work)  # type: ignore[arg-type]
        on_disk.append(len(work[0]))  # type: ignore[arg-type]

    monkeypatch.setattr(journal, "append", watched)
    await asyncio.gather(*(driver.apply(wish(f"r{number}")) for number in range(20)))
    assert sum(on_disk) == len(told) == 20
    assert len(on_disk) <= 3, "what comes together is committed together"

    def full(*work: object) -> None:
        raise JournalFailed("The disk is full.")

    monkeypatch.setattr(journal, "append", full)
    outcomes = await asyncio.gather(
        *(driver.apply(wish(f"s{number}")) for number in range(3)), driver.view(), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes[:3]] == [JournalFailed] * 3
    with pytest.raises(JournalFailed):
        await driver.apply(wish("late"))
    with pytest.raises(JournalFailed):
        await driver.view()
    assert driver.failed.is_set() and len(told) == 20
    await driver.close()


@pytest.mark.parametrize("number", [nan, inf, -inf])
async def test_an_event_with_a_number_that_json_has_not_is_never_decided_nor_written(
    tmp_path: Path, number: float
) -> None:
    setup = ServiceSettings(f"sqlite:///{tmp_path / 'journal.sqlite'}")
    journal = Journal(JournalPlace(setup.database))
    driver = SchedulerDriver(recover(journal, setup), journal)
    with pytest.raises(BadRequest, match="JobProgress"):
        await driver.apply(JobProgress(JobName("j"), 1, number))
    nested = LeaseRequest(RequestId("r"), KernelId("k"), 1, 10.0, expected_s=number)
    with pytest.raises(BadRequest, match="LeaseAsked"):
        driver.submit(LeaseAsked(nested))
    await driver.apply(wish("r"))
    await driver.close()
    journal = Journal(JournalPlace(setup.database))
    assert recover(journal, setup).number == driver.number == 1
    journal.close()
