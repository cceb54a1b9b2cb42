"""How long a request is deferred is chosen beside the core, journalled, and learned anew after a restart."""

from __future__ import annotations

import asyncio
import math
import threading
from pathlib import Path

import pytest
from replkernel_scheduler.errors import SchedulerError
from replkernel_scheduler.events import DeferralChosen, HostUp, KernelStarted, LeaseAsked, LeaseReleased
from replkernel_scheduler.policies.installed import OWN
from replkernel_scheduler.policies.preempt_deferred import Deferred
from replkernel_scheduler.policies.preempt_shortest import Shortest
from replkernel_scheduler.pool.types import Context, Deferral
from replkernel_scheduler.types import Gpu, GpuUuid, HostName, KernelId, KernelSpec, LeaseRequest, RequestId
from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import ServiceSettingError
from replkernel_server.scheduling.deferring import Deferring, preempting
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.recovery import recover
from replkernel_server.scheduling.settings import read_service_settings

HOST = HostName("a")


class Remembering(Shortest):
    """Defers by a fixed time, and remembers what it is told."""

    defers = True

    def __init__(self, defer_s: float) -> None:
        super().__init__()
        self._defer_s = defer_s
        self.asked: list[Context] = []
        self.learned: list[Deferral] = []

    def defer_s(self, context: Context, dice: object) -> float:
        self.asked.append(context)
        return self._defer_s

    def learn(self, deferral: Deferral) -> None:
        self.learned.append(deferral)


def asked(name: str, expected_s: float, *, preemptible: bool = False) -> LeaseAsked:
    request = LeaseRequest(RequestId(name), KernelId(name), 1, 600.0, (HOST,), expected_s=expected_s)
    return LeaseAsked(request if not preemptible else _allowed(request))


def _allowed(request: LeaseRequest) -> LeaseRequest:
    import msgspec

    return msgspec.structs.replace(request, preemptible=True)


async def play(database: Path, policy: Remembering, *events: object) -> list[str]:
    """Feed a service that has such a policy; return the leases that are in force then, by request."""
    settings = read_service_settings({"REPLKERNEL_SCHEDULER_DB": f"sqlite:///{database}"})
    journal = Journal(JournalPlace(settings.database))
    driver = SchedulerDriver(recover(journal, settings), journal)
    deferring = Deferring(driver, policy)
    await driver.resume(5.0)
    for event in events:
        await driver.apply(event)  # type: ignore[arg-type]
        await deferring.close()
    leases = [str(entry.lease.request) for entry in driver.core.view().leases]
    await driver.close()
    return leases


def test_a_choice_is_in_the_journal_and_a_replay_asks_no_predictor(tmp_path: Path) -> None:
    database = tmp_path / "journal.sqlite"
    first, second = Remembering(0.0), Remembering(0.0)
    up = HostUp(HOST, (Gpu(GpuUuid("g0")),))
    kernels = [KernelStarted(KernelSpec(KernelId(name), replicas=1), (HOST,)) for name in ("long", "short")]
    begin = [up, *kernels, asked("long", 1000.0, preemptible=True), asked("short", 5.0)]
    asyncio.run(play(database, first, *begin))
    assert [context.remaining_s for context in first.asked] == [5.0]
    journal = Journal(JournalPlace(f"sqlite:///{database}"))
    chosen = [entry.event for entry in journal.entries() if "DeferralChosen" in entry.event]
    journal.close()
    assert len(chosen) == 1
    assert asyncio.run(play(database, second)) == ["long"]
    assert second.asked == []


@pytest.mark.parametrize("answer", [ValueError("singular matrix"), math.nan], ids=["it fails", "nonsense"])
def test_a_policy_that_fails_defers_nothing_and_no_cell_waits_for_its_answer(
    tmp_path: Path, answer: Exception | float, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Remembering):
        def defer_s(self, context: Context, dice: object) -> float:
            self.asked.append(context)
            assert threading.current_thread() is not threading.main_thread(), "routers are heard meanwhile"
            if isinstance(answer, Exception):
                raise answer
            return answer

    policy = Failing(0.0)
    up = HostUp(HOST, (Gpu(GpuUuid("g0")),))
    kernels = [KernelStarted(KernelSpec(KernelId(name), replicas=1), (HOST,)) for name in ("long", "short")]
    begin = [up, *kernels, asked("long", 1000.0, preemptible=True), asked("short", 5.0)]
    asyncio.run(play(tmp_path / "journal.sqlite", policy, *begin))
    journal = Journal(JournalPlace(f"sqlite:///{tmp_path / 'journal.sqlite'}"))
    chosen = [entry.event for entry in journal.entries() if "DeferralChosen" in entry.event]
    journal.close()
    assert (len(policy.asked), len(chosen)) == (1, 1)
    assert ("singular matrix" in caplog.text) == isinstance(answer, Exception)


def test_a_policy_of_ones_own_that_cannot_be_made_is_refused_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mine() -> object:
        raise SchedulerError("It needs a table that is not there.")

    monkeypatch.setitem(OWN, ("preempt", "mine"), mine)
    with pytest.raises(ServiceSettingError, match="It needs a table that is not there"):
        preempting("mine")


def test_an_unanswered_question_is_asked_again_by_the_next_service(tmp_path: Path) -> None:
    """The one before it died between the question and its answer."""
    database = tmp_path / "journal.sqlite"
    settings = read_service_settings({"REPLKERNEL_SCHEDULER_DB": f"sqlite:///{database}"})

    async def without_answers() -> None:
        journal = Journal(JournalPlace(settings.database))
        driver = SchedulerDriver(recover(journal, settings), journal)
        await driver.apply(HostUp(HOST, (Gpu(GpuUuid("g0")),)))
        for name in ("long", "short"):
            await driver.apply(KernelStarted(KernelSpec(KernelId(name), replicas=1), (HOST,)))
        await driver.apply(asked("long", 1000.0, preemptible=True))
        await driver.apply(asked("short", 5.0))
        await driver.close()

    asyncio.run(without_answers())
    policy = Remembering(0.0)
    asyncio.run(play(database, policy, LeaseReleased("none", 1)))  # type: ignore[arg-type]
    assert len(policy.asked) == 1


def test_a_policy_is_found_by_its_name_and_one_that_looks_at_intervals_is_refused() -> None:
    assert isinstance(preempting("deferred"), Deferred)
    assert not preempting("never").on_arrival
    with pytest.raises(ServiceSettingError, match="looks at all jobs at intervals"):
        preempting("periodic")
    with pytest.raises(ServiceSettingError, match="There is no preempt policy 'mine'"):
        preempting("mine")
    assert DeferralChosen(RequestId("r"), 0.0).defer_s == 0.0
