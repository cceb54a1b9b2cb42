"""The desk of jobs, without a socket: whose agents hear of whose jobs, and what a lost word costs."""

from __future__ import annotations

import re
from math import inf, nan
from typing import Literal, cast

import msgspec
import pytest
from replkernel_scheduler.events import Event, HostDown, LeaseAsked
from replkernel_scheduler.harvest.types import (
    Cores,
    HostJobs,
    HostUsed,
    JobHoldAsked,
    JobName,
    JobSpec,
    JobStopAsked,
    JobSubmitted,
    type_of_shapes,
    type_on_cores,
)
from replkernel_scheduler.types import HostName, KernelId, LeaseRequest, RequestId
from replkernel_server.handlers.scheduler_jobs import why_gone
from replkernel_server.scheduling.desk_words import HostTakenDown, JobCame, Joined, Left
from replkernel_server.scheduling.identity import Identity

from replkernel.errors import ProtocolMismatch
from replkernel.jobs.life import END_SHARE
from replkernel.leasing import wire
from replkernel.ranks.launcher import GRACE_S
from tests.support.scheduler_client import offer
from tests.unit.scheduler.desk import ALICE, BOB, GUEST, ROOT, JobRoom


def test_a_job_goes_to_an_agent_of_its_own_user_alone() -> None:
    room = JobRoom()
    room.agent("a", 2, ROOT)
    alices, bobs = room.line("a", ALICE), room.line("a", BOB)
    room.submit("j", BOB)
    assert room.started(bobs) == [("j", 1, 1)] and room.started(alices) == []
    assert wire.JobsAwait(True) in room.heard[bobs] and wire.JobsAwait(True) not in room.heard[alices]


def test_a_job_waits_until_an_agent_of_its_user_is_there_and_its_host_is_up() -> None:
    room = JobRoom()
    room.agent("a", 2, ROOT)
    room.line("b", ALICE)
    room.submit("j")
    assert room.job("j").state == "waiting"  # type: ignore[union-attr]
    room.say(room.join("agent", "b", ROOT), offer("b", 2))
    line = next(
        client for client, said in room.heard.items() if any(isinstance(m, wire.StartJob) for m in said)
    )
    assert room.started(line) == [("j", 1, 1)]
    assert room.job("j").host == "b"  # type: ignore[union-attr]


def test_who_may_not_offer_a_host_may_run_his_jobs_and_who_may_not_lease_may_not() -> None:
    room = JobRoom()
    assert room.line("a", GUEST) not in room.closed
    nobody = Identity(BOB.user, may_host=True, may_lease=False)
    assert "may not lease" in room.closed[room.line("a", nobody)]


def test_nobody_speaks_of_anothers_job() -> None:
    room = JobRoom()
    room.agent("a", 2, ROOT)
    alices, bobs = room.line("a", ALICE), room.line("a", BOB)
    room.submit("j", ALICE)
    room.say(alices, wire.JobSaid("j", 1, "runs"))
    heard = room.say(bobs, wire.JobSaid("j", 1, "done"))
    assert heard == [wire.StopJob("j", 1, 0.0, False)]
    room.say(bobs, wire.JobsHere(()))
    assert room.job("j").state == "running"  # type: ignore[union-attr]


def test_an_end_that_was_not_heard_is_told_again_and_then_forgotten() -> None:
    room = JobRoom()
    room.agent("a", 2)
    first = room.line("a")
    room.submit("j")
    room.say(first, wire.JobSaid("j", 1, "runs"))
    room.do(room.desk.handle(Left(first), room.now))
    second = len(room.heard) + 1
    room.heard[second] = []
    room.do(room.desk.handle(Joined(second, wire.Hello(1, "jobs", "a"), ALICE), room.now))
    assert wire.JobGone("j") not in room.heard[second]
    room.say(second, wire.JobSaid("j", 1, "done"), wire.JobsHere(()))
    assert room.job("j") is None
    assert wire.JobGone("j") in room.heard[second]
    assert room.started(second) == []
    again = room.say(second, wire.JobSaid("j", 1, "done"))
    assert again == [wire.JobGone("j")]


def test_a_start_that_got_lost_is_said_again_when_the_agent_comes_back() -> None:
    room = JobRoom()
    room.agent("a", 2)
    first = room.line("a")
    room.submit("j")
    room.do(room.desk.handle(Left(first), room.now))
    second = room.line("a")
    assert room.started(second) == [("j", 2, 1)]
    third = room.line("a", ALICE, ("j", 2))
    assert room.started(third) == []
    assert room.job("j").attempt == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("goes_on", [False, True], ids=["it waits", "it goes on elsewhere"])
def test_a_job_on_a_host_that_is_taken_down_while_its_agent_lives_is_ended_there(goes_on: bool) -> None:
    room = JobRoom()
    room.agent("a", 1)
    line = room.line("a")
    room.submit("j")
    room.say(line, wire.JobSaid("j", 1, "runs"))
    if goes_on:
        room.agent("b", 1)
        other = room.line("b")
    room.feed(HostDown(HostName("a")))
    room.do(room.desk.handle(HostTakenDown(HostName("a")), room.now))
    room.wait(2.0)
    assert [said for said in room.heard[line] if isinstance(said, wire.StopJob)] == [
        wire.StopJob("j", 1, 0.0, False)
    ]
    if goes_on:
        assert room.started(other) == [("j", 2, 1)]
        assert not [said for said in room.heard[other] if isinstance(said, wire.StopJob)]


def test_a_cell_has_the_job_stopped_within_its_time() -> None:
    room = JobRoom()
    room.agent("a", 1)
    line = room.line("a")
    room.submit("j")
    room.say(line, wire.JobSaid("j", 1, "runs"))
    room.say(room.router("k"), wire.LeaseWish("r", 1))
    (stop,) = [said for said in room.heard[line] if isinstance(said, wire.StopJob)]
    assert stop.saves and 0.0 < stop.within_s <= 30.0
    room.say(line, wire.JobSaid("j", 1, "stopped"))
    assert room.job("j").state == "waiting"  # type: ignore[union-attr]
    assert [lease.phase for lease in room.core.view().leases] == ["active"]


def test_a_stopped_jobs_agent_is_told_that_it_is_over_and_need_not_stay() -> None:
    room = JobRoom()
    room.agent("a", 1)
    line = room.line("a")
    room.submit("j")
    room.feed(cast("Event", JobStopAsked(JobName("j"))))
    room.say(line, wire.JobSaid("j", 1, "stopped"))
    assert room.heard[line][-2:] == [wire.JobGone("j"), wire.JobsAwait(False)]


def test_epochs_tell_when_a_job_is_thought_to_end() -> None:
    room = JobRoom()
    room.agent("a", 2)
    line = room.line("a")
    room.submit("j", ALICE, 2, epochs=10.0)
    room.say(line, wire.JobSaid("j", 1, "runs"))
    for epoch in range(1, 5):
        room.say(line, wire.JobSaid("j", 1, "progress", epoch=float(epoch), loss=0.5))
        room.wait(30.0)
    assert room.desk.jobs is not None
    told = room.desk.jobs.told_of[JobName("j")]
    assert (told.epoch, told.loss, told.left_s(10.0)) == (4.0, 0.5, 180.0)
    assert room.job("j").left == pytest.approx(180.0 * 1.8)  # type: ignore[union-attr]


def test_words_that_come_together_tell_no_speed_and_speeds_of_other_shapes_are_remembered() -> None:
    room = JobRoom()
    agent, line = room.agent("a", 2), room.line("a")
    room.beats(agent, 2)
    room.submit("j", ALICE, 1, 2, epochs=100.0)
    room.say(line, wire.JobSaid("j", 1, "runs"), wire.JobSaid("j", 1, "progress", epoch=10.0))
    room.say(line, wire.JobSaid("j", 1, "progress", epoch=11.0))
    assert room.desk.jobs is not None
    assert room.desk.jobs.told_of[JobName("j")].left_s(100.0) is None
    assert room.job("j").left is None  # type: ignore[union-attr]
    room.beats(agent, 10)
    room.say(line, wire.JobSaid("j", 1, "progress", epoch=20.0))
    told, kind = room.desk.jobs.told_of[JobName("j")], room.job("j").spec.type  # type: ignore[union-attr]
    assert told.ends_in(kind, 100.0) == {1: pytest.approx(144.0), 2: pytest.approx(80.0)}
    assert told.ends_in(kind, None) == {}
    room.beats(agent, 36)
    assert told.done_since(1, room.now) == 0.0, "nothing is known of one GPU"
    done = told.done_since(2, room.now)
    assert told.ends_in(kind, 100.0, done) == {1: pytest.approx(79.2), 2: pytest.approx(44.0)}
    assert told.ends_in(kind, 100.0, 1e9) == {1: 0.0, 2: 0.0}
    room.say(room.router("k"), wire.LeaseWish("r", 1))
    room.say(line, wire.JobSaid("j", 1, "stopped"), wire.JobSaid("j", 2, "runs"))
    room.say(line, wire.JobSaid("j", 2, "progress", epoch=20.0))
    assert room.desk.jobs.told_of[JobName("j")].ends_in(kind, 100.0)[2] == pytest.approx(80.0)
    room.beats(agent, 10)
    room.say(line, wire.JobSaid("j", 2, "progress", epoch=30.0))
    seen = room.beside.desk.jobs.by_name[JobName("j")].type
    assert seen.rate(1) == pytest.approx(seen.rate(2)), "the rules know that the second GPU gained nothing"

    room.restart(30.0)
    agent, line = room.agent("a", 2), room.line("a", ALICE, ("j", 2))
    room.say(line, wire.JobSaid("j", 2, "progress", epoch=31.0))
    for epoch in (40.0, 50.0, 60.0):
        room.beats(agent, 10)
        room.say(line, wire.JobSaid("j", 2, "progress", epoch=epoch))
    assert room.desk.jobs.told_of[JobName("j")].speeds.keys() == {1, 2}, "a restart forgets none"
    seen = room.beside.desk.jobs.by_name[JobName("j")].type
    assert seen.rate(1) == pytest.approx(seen.rate(2), rel=0.1)


@pytest.mark.parametrize("number", [nan, inf, -inf])
@pytest.mark.parametrize("field", ["epoch", "loss"])
def test_progress_that_is_no_finite_number_is_refused(field: str, number: float) -> None:
    said = wire.JobSaid("j", 1, "progress", epoch=1.0, loss=1.0)
    assert wire.decode_from_client(wire.encode(said)) == said
    with pytest.raises(ProtocolMismatch):
        wire.decode_from_client(wire.encode(msgspec.structs.replace(said, **{field: number})))


def test_a_guess_beyond_all_numbers_is_none() -> None:
    room = JobRoom()
    room.agent("a", 1)
    line = room.line("a")
    room.submit("j", ALICE, epochs=10.0)
    room.say(line, wire.JobSaid("j", 1, "runs"))
    for epoch in (0.0, 5e-324, 5e-324):
        room.say(line, wire.JobSaid("j", 1, "progress", epoch=epoch))
        room.wait(30.0)
    assert room.desk.jobs is not None
    told, kind = room.desk.jobs.told_of[JobName("j")], type_of_shapes("j", (1, 64))
    assert told.left_s(10.0) is None and told.ends_in(kind, 10.0) == {}
    assert room.job("j").left is None  # type: ignore[union-attr]
    told.speeds[64] = 5e-324
    assert told.ends_in(kind, 10.0) == {}, "slower still with one GPU"


def test_that_a_job_is_over_is_said_to_its_owners_agents_alone() -> None:
    room = JobRoom()
    room.agent("a", 1, ROOT)
    alices, bobs = room.line("a", ALICE), room.line("a", BOB)
    room.submit("secret-name", ALICE)
    room.say(alices, wire.JobSaid("secret-name", 1, "runs"))
    room.feed(cast("Event", JobStopAsked(JobName("secret-name"))))
    room.say(alices, wire.JobSaid("secret-name", 1, "stopped"))
    assert wire.JobGone("secret-name") in room.heard[alices]
    assert "secret-name" not in str(room.heard[bobs])
    room.line("a", ALICE, ("stale", 3))
    assert "stale" not in str(room.heard[bobs])


def test_no_router_speaks_for_what_stands_for_a_job() -> None:
    room = JobRoom()
    room.agent("a", 1, ROOT)
    room.line("a", ALICE)
    room.submit("j", ALICE)
    (lease,) = room.core.view().leases
    for who in (ALICE, BOB, ROOT):
        assert "are jobs'" in room.closed[room.join("router", lease.lease.kernel_id, who)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_host_where_only_a_job_runs_is_in_use_and_no_more_when_the_job_is_over(restarted: bool) -> None:
    room = JobRoom()
    agent, line = room.agent("a", 1, ROOT), room.line("a", ALICE)
    room.submit("j", ALICE)
    if restarted:
        room.restart(30.0)
        agent, line = room.agent("a", 1, ROOT), room.line("a", ALICE, ("j", 1))
    room.say(line, wire.JobSaid("j", 1, "runs"))
    owners = room.desk.owners
    assert owners.in_use(HostName("a")) and owners.held_by(ALICE.user) == 0
    room.say(agent, wire.HostLeaves())
    job = room.job("j")
    assert job is not None and (job.state, job.host) == ("running", "a")
    room.say(line, wire.JobSaid("j", 1, "done"))
    assert not owners.in_use(HostName("a")) and not owners.leases and not owners.requests


def test_a_job_whose_agent_never_comes_back_goes_on_elsewhere() -> None:
    room = JobRoom()
    agent, line = room.agent("a", 1, ROOT), room.line("a")
    room.submit("j")
    room.say(line, wire.JobSaid("j", 1, "runs"))
    room.do(room.desk.handle(Left(line), room.now))
    room.beats(agent, 290)
    assert room.job("j").state == "running", "it may be back in time"  # type: ignore[union-attr]
    room.beats(agent, 20)
    assert room.hosts() == ["a"]
    assert room.job("j").state == "waiting"  # type: ignore[union-attr]
    assert not room.core.view().leases
    room.agent("b", 1, ROOT)
    assert room.started(room.line("b")) == [("j", 2, 1)]
    late = room.line("a", ALICE, ("j", 1))
    assert [said for said in room.heard[late] if isinstance(said, wire.StopJob)]


@pytest.mark.parametrize("end", ["done", "failed"])
def test_a_job_that_ended_while_its_agent_was_given_up_is_over_when_that_says_so(
    end: Literal["done", "failed"],
) -> None:
    room = JobRoom()
    agent, line = room.agent("a", 1, ROOT), room.line("a")
    room.submit("j")
    room.say(line, wire.JobSaid("j", 1, "runs"))
    room.do(room.desk.handle(Left(line), room.now))
    room.beats(agent, 310)
    assert room.job("j").state == "waiting"  # type: ignore[union-attr]
    back = room.join("jobs", "a", ALICE)
    room.say(back, wire.JobSaid("j", 1, end, "it has ended", 9.0), wire.JobsHere())
    assert room.job("j") is None and room.started(back) == [], "it is not begun again"
    assert wire.JobGone("j") in room.heard[back]
    (past,) = room.beside.desk.past
    assert (past.why, past.said, past.epoch) == (end, "it has ended", 9.0)


def test_an_agent_that_is_back_in_time_has_its_job() -> None:
    room = JobRoom()
    agent, line = room.agent("a", 1, ROOT), room.line("a")
    room.submit("j")
    room.say(line, wire.JobSaid("j", 1, "runs"))
    room.do(room.desk.handle(Left(line), room.now))
    room.beats(agent, 290)
    room.line("a", ALICE, ("j", 1))
    room.beats(agent, 600)
    job = room.job("j")
    assert job is not None and (job.state, job.attempt) == ("running", 1)


def test_after_a_restart_an_agent_that_is_gone_has_as_long_to_come_back() -> None:
    room = JobRoom()
    room.agent("a", 1, ROOT)
    room.line("a")
    room.submit("j")
    room.restart(30.0)
    agent = room.agent("a", 1, ROOT)
    room.beats(agent, 290)
    assert room.job("j").state == "starting"  # type: ignore[union-attr]
    room.beats(agent, 20)
    assert room.hosts() == ["a"]
    assert room.job("j").state == "waiting"  # type: ignore[union-attr]


def test_jobs_are_told_once_a_connection_and_only_ones_own_are_written_down() -> None:
    room = JobRoom()
    room.agent("a", 2, ROOT)
    alices = room.line("a", ALICE)
    room.submit("j", ALICE)
    room.say(alices, wire.JobSaid("j", 1, "runs"))
    before, heard = len(room.fed), len(room.heard[alices])
    bobs = room.line("a", BOB, ("j", 1), ("nobodys", 7))
    stops = [said for said in room.heard[bobs] if isinstance(said, wire.StopJob)]
    assert stops == [wire.StopJob("j", 1, 0.0, False), wire.StopJob("nobodys", 7, 0.0, False)]
    assert HostJobs(HostName("a"), (), BOB.user) in room.fed and "nobodys" not in str(room.fed)
    assert room.heard[alices][heard:] == [], "another user's agent does not stop a job"
    before = len(room.fed)
    for _ in range(10):
        (refused,) = room.say(bobs, wire.JobsHere((("j", 1),)))
        assert isinstance(refused, wire.Refused)
    room.say(alices, *[wire.JobSaid("j", 1, "stopped")] * 10)
    assert len(room.fed) - before <= 2


def test_a_job_that_is_over_has_what_it_told_last_and_how_often_it_was_started() -> None:
    room = JobRoom()
    room.agent("a", 1)
    line = room.line("a")
    room.submit("j")
    room.say(line, wire.JobSaid("j", 1, "runs"), wire.JobSaid("j", 1, "progress", epoch=3.0, loss=0.25))
    room.say(room.router("k"), wire.LeaseWish("r", 1))
    room.say(line, wire.JobSaid("j", 1, "stopped"))
    job = room.beside.desk.jobs.by_name[JobName("j")]
    assert (job.state, job.epoch, job.loss) == ("waiting", 3.0, 0.25)
    room.feed(cast("Event", JobStopAsked(JobName("j"))))
    (past,) = room.beside.desk.past
    assert (past.why, past.attempt, past.epoch, past.loss) == ("stopped", 1, 3.0, 0.25)


# -- jobs on cores --------------------------------------------------------------------------------------


def machine(
    room: JobRoom,
    host: str,
    cores: float = 4.0,
    memory_gb: float = 16.0,
    who: tuple[Identity, ...] = (ALICE,),
) -> int:
    """Have a host offered by agents of users; return the last one."""
    for one in who:
        agent = room.join("agent", host, one)
        room.say(agent, wire.HostOffer((), cores, memory_gb))
    return agent


def submit_on_cores(room: JobRoom, name: str, who: Identity = ALICE, *, epochs: float | None = None) -> None:
    spec = JobSpec(
        job=JobName(name), type=type_on_cores(name), owner=who.user, command=("prepare",), directory="/w",
        seal="s", epochs=epochs, cores=Cores(2, 2.0),
    )  # fmt: skip
    assert room.desk.jobs is not None
    room.feed(cast("Event", room.desk.jobs.before(who.user)))
    for used in room.desk.jobs.before_on_cores(who.user):
        room.feed(cast("Event", used))
    room.submitted(JobSubmitted(spec))
    room.do(room.desk.handle(JobCame(who.user), room.now))


def used(room: JobRoom) -> list[HostUsed]:
    return [event for event in room.fed if isinstance(event, HostUsed)]


def test_hosts_use_is_journalled_only_while_there_are_jobs_on_cores() -> None:
    room = JobRoom()
    machine(room, "a")
    line = room.line("a")
    room.say(line, wire.HostUse(0.0, 2.0, 0.0), wire.HostUse(1.0, 3.0, 0.0))
    assert used(room) == []
    submit_on_cores(room, "j")
    assert used(room) == [HostUsed(HostName("a"), 1, 3.0)]
    room.say(line, wire.HostUse(1.0, 2.9, 0.1), wire.HostUse(2.0, 3.4, 0.6), wire.HostUse(2.0, 3.9, 0.6))
    assert used(room)[1:] == [HostUsed(HostName("a"), 2, 3.0), HostUsed(HostName("a"), 2, 3.5)]
    room.say(line, wire.HostUse(2.0, 3.5, 0.6), wire.HostUse(2.0, 4.0, 0.6), wire.HostUse(2.0, 3.5, 0.6))
    assert len(used(room)) == 3, "it wavers about a step"
    room.say(line, wire.HostUse(2.0, 3.0, 0.6))
    assert used(room)[3:] == [HostUsed(HostName("a"), 2, 2.5)]
    room.say(line, wire.JobSaid("j", 1, "done"), wire.HostUse(0.0, 2.0, 0.0))
    assert len(used(room)) == 4


def test_a_job_on_cores_starts_with_its_bounds_where_its_users_agent_has_told_what_is_used() -> None:
    room = JobRoom()
    agent = machine(room, "a")
    line = room.line("a")
    submit_on_cores(room, "j")
    assert room.started(line) == []
    room.say(line, wire.HostUse(0.0, 2.0, 0.0))
    (start,) = [said for said in room.heard[line] if isinstance(said, wire.StartJob)]
    assert (start.gpus, start.cpus, start.memory_gb) == ((), 2, 2.0)
    room.say(line, wire.JobSaid("j", 1, "runs"), wire.JobSaid("j", 1, "progress", "", 1.0, 0.5))
    assert room.job("j").state == "running"  # type: ignore[union-attr]
    room.beats(agent, 30)
    room.say(line, wire.HostUse(0.0, 15.0, 0.0))
    assert not [said for said in room.heard[line] if isinstance(said, wire.StopJob)], "told once"
    room.say(line, wire.HostUse(0.0, 15.0, 0.0))
    (stop,) = [said for said in room.heard[line] if isinstance(said, wire.StopJob)]
    assert stop.saves and 0.0 < stop.within_s <= 30.0


def stops(room: JobRoom, client: int) -> list[str]:
    return [said.job for said in room.heard[client] if isinstance(said, wire.StopJob)]


def shared(room: JobRoom) -> tuple[int, int]:
    """Return the lines of Alice and Bob, on whose host each has a job of 2 GiB that runs."""
    machine(room, "a", 8.0, who=(ALICE, BOB))
    alices, bobs = room.line("a", ALICE), room.line("a", BOB)
    room.say(alices, wire.HostUse(0.0, 3.0, 0.0))
    room.say(bobs, wire.HostUse(0.0, 3.0, 0.0))
    submit_on_cores(room, "j", ALICE)
    submit_on_cores(room, "k", BOB)
    room.say(alices, wire.JobSaid("j", 1, "runs"))
    room.say(bobs, wire.JobSaid("k", 1, "runs"))
    return alices, bobs


def test_agents_of_several_users_on_a_host_tell_of_its_memory_once_and_of_their_cores_together() -> None:
    room = JobRoom()
    alices, bobs = shared(room)
    room.say(alices, wire.HostUse(1.0, 6.0, 1.0))
    room.say(bobs, wire.HostUse(2.0, 6.2, 2.0))
    assert used(room)[-1] == HostUsed(HostName("a"), 3, 3.5)


def test_memory_of_a_job_whose_agent_is_away_is_still_its_own_and_a_second_connection_is_no_second_job() -> (
    None
):
    room = JobRoom()
    alices, bobs = shared(room)
    room.say(alices, wire.HostUse(0.0, 6.0, 1.5))
    room.say(bobs, wire.HostUse(0.0, 6.0, 1.5))
    assert used(room)[-1] == HostUsed(HostName("a"), 0, 3.0)
    newer = room.line("a", BOB, ("k", 1))
    room.say(newer, wire.HostUse(0.0, 6.0, 1.5))
    room.say(bobs, wire.HostUse(0.0, 6.0, 1.5))
    assert used(room)[-1] == HostUsed(HostName("a"), 0, 3.0)
    for line in (bobs, newer):
        room.do(room.desk.handle(Left(line), room.now))
    room.say(alices, wire.HostUse(0.0, 6.1, 1.6))
    assert used(room)[-1] == HostUsed(HostName("a"), 0, 3.0)
    assert stops(room, alices) == stops(room, bobs) == stops(room, newer) == []


def test_after_a_restart_nothing_is_told_of_a_host_until_all_whose_jobs_are_there_have_told() -> None:
    room = JobRoom()
    alices, bobs = shared(room)
    room.say(alices, wire.HostUse(0.0, 15.0, 2.0))
    room.say(bobs, wire.HostUse(0.0, 15.0, 2.0))
    told = len(used(room))
    assert used(room)[-1] == HostUsed(HostName("a"), 0, 11.0)
    room.restart(30.0)
    agent = machine(room, "a", 8.0, who=(ALICE, BOB))
    alices = room.line("a", ALICE, ("j", 1))
    room.say(alices, *[wire.HostUse(0.0, 15.0, 2.0)] * 2)
    assert len(used(room)) == told and stops(room, alices) == []
    bobs = room.line("a", BOB, ("k", 1))
    room.say(alices, wire.HostUse(0.0, 14.0, 2.0))
    assert len(used(room)) == told, "Bob's agent has still to tell"
    room.beats(agent, 40)
    room.say(alices, wire.HostUse(0.0, 14.0, 2.0))
    assert used(room)[-1] == HostUsed(HostName("a"), 0, 10.0), "it never does: his job has what it booked"
    room.say(bobs, wire.HostUse(0.0, 14.0, 1.0))
    assert used(room)[-1] == HostUsed(HostName("a"), 0, 11.0)
    assert stops(room, alices) == stops(room, bobs) == []


@pytest.mark.parametrize("lie", [wire.HostUse(0.0, 1e6, 0.0), wire.HostUse(0.0, 0.0, 1e6)])
def test_a_lying_agent_ends_nobodys_job_and_hides_no_more_than_its_own(
    lie: wire.HostUse,
) -> None:
    room = JobRoom()
    alices, bobs = shared(room)
    room.say(alices, *[wire.HostUse(0.0, 12.0, 1.0)] * 2)
    room.say(bobs, lie, lie, lie)
    assert stops(room, alices) == stops(room, bobs) == []
    assert 9.0 <= used(room)[-1].memory_gb <= 11.5
    room.say(alices, wire.HostUse(0.0, 12.0, 1.0))
    assert stops(room, alices) == stops(room, bobs) == []
    room.say(bobs, wire.HostUse(1e6, 12.0, 1.0))
    assert used(room)[-1].busy == 8
    room.say(alices, wire.HostUse(0.0, 14.0, 1.0))
    room.say(bobs, wire.HostUse(0.0, 14.0, 1.0))
    assert len(stops(room, alices) + stops(room, bobs)) == 1, "two agree"


def test_one_users_word_alone_ends_no_job_of_somebody_who_is_away() -> None:
    room = JobRoom()
    alices, bobs = shared(room)
    room.do(room.desk.handle(Left(alices), room.now))
    room.say(bobs, *[wire.HostUse(0.0, 16.0, 0.0)] * 3)
    assert stops(room, bobs) == []
    back = room.line("a", ALICE, ("j", 1))
    room.say(back, wire.HostUse(0.0, 16.0, 1.0))
    assert stops(room, bobs) == ["k"]


def test_who_does_not_offer_a_host_does_not_say_what_is_used_of_it() -> None:
    room = JobRoom()
    machine(room, "a")
    alices, bobs = room.line("a", ALICE), room.line("a", BOB)
    submit_on_cores(room, "j")
    room.say(bobs, *[wire.HostUse(0.0, 2.0, 0.0)] * 2)
    assert used(room) == [] and room.started(alices) == []
    room.say(alices, wire.HostUse(0.0, 2.0, 0.0))
    room.say(bobs, *[wire.HostUse(4.0, 16.0, 0.0)] * 2)
    assert used(room) == [HostUsed(HostName("a"), 0, 2.0)]
    assert room.started(alices) == [("j", 1, 0)]


def test_where_an_agent_may_have_less_than_the_machine_jobs_start_and_stay_within_that() -> None:
    room = JobRoom()
    machine(room, "a", memory_gb=64.0)
    line = room.line("a")
    submit_on_cores(room, "j")
    room.say(line, wire.HostUse(0.0, 7.0, 0.0, 8.0))
    assert room.started(line) == []
    room.say(line, wire.HostUse(0.0, 1.0, 0.0, 8.0))
    assert room.started(line) == [("j", 1, 0)]
    room.say(line, wire.JobSaid("j", 1, "runs"), *[wire.HostUse(0.0, 5.4, 0.0, 8.0)] * 2)
    assert stops(room, line) == []
    room.say(line, *[wire.HostUse(0.0, 7.0, 0.0, 8.0)] * 2)
    assert stops(room, line) == ["j"]


def test_how_far_a_job_on_cores_is_tells_when_it_ends() -> None:
    room = JobRoom()
    room.now = 100.0
    machine(room, "a")
    line = room.line("a")
    room.say(line, wire.HostUse(0.0, 2.0, 0.0))
    submit_on_cores(room, "j", epochs=10.0)
    room.say(line, wire.JobSaid("j", 1, "runs"), wire.JobSaid("j", 1, "progress", "", 1.0))
    room.now = 130.0
    room.say(line, wire.JobSaid("j", 1, "progress", "", 4.0))
    assert room.job("j").ends_at == room.now + 60.0  # type: ignore[union-attr]


def test_an_agent_is_asked_what_is_used_if_it_can_tell_and_an_older_one_is_given_no_job_on_cores() -> None:
    room = JobRoom()
    machine(room, "a", who=(ALICE, BOB))
    assert wire.UseWanted() in room.heard[room.line("a", BOB)]
    older = len(room.heard) + 1
    room.heard[older] = []
    room.do(room.desk.handle(Joined(older, wire.Hello(1, "jobs", "a"), ALICE), room.now))
    room.say(older, wire.JobsHere(()))
    assert wire.UseWanted() not in room.heard[older]
    room.say(older - 1, wire.HostUse(0.0, 2.0, 0.0))
    submit_on_cores(room, "j")
    job = room.job("j")
    assert room.started(older) == [] and job is not None and job.state == "waiting"
    assert "No host on which an agent of yours runs takes jobs on cores" in refused(room, "j")
    room.do(room.desk.handle(Left(older), room.now))
    newer = room.line("a")
    room.say(newer, wire.HostUse(0.0, 2.0, 0.0))
    assert room.started(newer) == [("j", 1, 0)]


def test_an_older_agent_that_comes_while_a_job_on_cores_starts_leaves_it_to_other_hosts() -> None:
    room = JobRoom()
    machine(room, "a")
    line = room.line("a")
    room.say(line, wire.HostUse(0.0, 2.0, 0.0))
    submit_on_cores(room, "j")
    room.do(room.desk.handle(Left(line), room.now))
    older = len(room.heard) + 1
    room.heard[older] = []
    room.do(room.desk.handle(Joined(older, wire.Hello(1, "jobs", "a"), ALICE), room.now))
    room.say(older, wire.JobsHere(()))
    job = room.job("j")
    assert room.started(older) == [] and job is not None and job.state == "waiting"
    machine(room, "b")
    other = room.line("b")
    room.say(other, wire.HostUse(0.0, 2.0, 0.0))
    assert [name for name, _, _ in room.started(other)] == ["j"]


def refused(room: JobRoom, name: str) -> str:
    return room.beside.desk.jobs.by_name[JobName(name)].refused


MEETS = wire.JobMeets("j", 1, "job.j.1.abc", "curve://h:1/k", "seal")


def two_hosts() -> tuple[JobRoom, int, int]:
    """Return a room with a job on two hosts, and the agents of these."""
    room = JobRoom()
    for host in ("a", "b"):
        room.agent(host, 2)
    first, other = room.line("a"), room.line("b")
    room.submit("j", ALICE, 4, hosts=2)
    return room, first, other


def test_the_first_host_of_a_job_on_two_has_the_other_one_start_a_launcher() -> None:
    room, first, other = two_hosts()
    (start,) = [said for said in room.heard[first] if isinstance(said, wire.StartJob)]
    assert (len(start.gpus), [(each.host, len(each.gpus)) for each in start.others]) == (2, [("b", 2)])
    assert room.started(other) == []
    room.say(first, MEETS)
    (ranks,) = [said for said in room.heard[other] if isinstance(said, wire.StartRanks)]
    assert ranks == wire.StartRanks(MEETS.gang, start.others[0].gpus, "/w", MEETS.endpoint, MEETS.seal), (
        "on the GPUs of its own host"
    )


def test_nobody_but_the_jobs_first_host_has_launchers_started_and_for_its_newest_attempt_alone() -> None:
    room, first, other = two_hosts()
    bobs = room.line("a", BOB)
    for client, meets in (
        (other, MEETS),
        (bobs, MEETS),
        (first, msgspec.structs.replace(MEETS, gang="job.j.2.abc")),
        (first, msgspec.structs.replace(MEETS, gang="job.k.1.abc")),
        (first, msgspec.structs.replace(MEETS, gang="nonsense")),
    ):
        heard = room.say(client, meets)
        assert [said for said in heard if isinstance(said, wire.StopJob)], meets
    assert not [said for said in room.heard[other] if isinstance(said, wire.StartRanks)]


def test_a_job_whose_other_host_has_no_agent_any_more_goes_on_elsewhere() -> None:
    room, first, other = two_hosts()
    room.say(first, wire.JobSaid("j", 1, "runs"))
    room.do(room.desk.handle(Left(other), room.now))
    heard = room.say(first, MEETS)
    assert heard == [wire.StopJob("j", 1, 0.0, False)]
    room.agent("c", 2)
    room.line("c")
    room.say(first, wire.JobSaid("j", 1, "stopped"))
    room.wait(2.0)
    start = [said for said in room.heard[first] if isinstance(said, wire.StartJob)][-1]
    assert (start.attempt, [each.host for each in start.others]) == (2, ["c"])


def test_an_agent_that_goes_while_a_job_begins_on_its_host_has_that_begin_elsewhere() -> None:
    room, first, other = two_hosts()
    room.do(room.desk.handle(Left(other), room.now))
    assert room.heard[first][-1] == wire.StopJob("j", 1, 60.0), "what trains still is saved"


def grows_on_two() -> tuple[JobRoom, int, int]:
    """Return a room with a job that grows: its first attempt is saved still."""
    room = JobRoom()
    agents = [room.agent(host, 2) for host in ("a", "b")]
    first, other = room.line("a"), room.line("b")
    room.submit("k", ALICE, 1)
    room.submit("j", ALICE, 2, 4, hosts=2)
    room.wait(2.0)
    room.say(first, MEETS, wire.JobSaid("j", 1, "runs"))
    k = room.job("k")
    assert k is not None
    room.say(first if k.host == "a" else other, wire.JobSaid("k", 1, "runs"), wire.JobSaid("k", 1, "done"))
    for _ in range(60):
        for agent in agents:
            room.say(agent, wire.HostBeat())
        room.wait(2.0)
        if room.job("j").attempt == 2:  # type: ignore[union-attr]
            break
    assert room.job("j").state == "starting"  # type: ignore[union-attr]
    return room, first, other


def test_an_agent_that_is_gone_for_a_moment_while_a_job_grows_ends_neither_shape() -> None:
    room, first, other = grows_on_two()
    before = len(room.heard[first])
    room.do(room.desk.handle(Left(other), room.now))
    stops = [said for said in room.heard[first][before:] if isinstance(said, wire.StopJob)]
    assert stops == [wire.StopJob("j", 2, 60.0)]
    back = len(room.heard) + 1
    room.heard[back] = []
    room.do(room.desk.handle(Joined(back, wire.Hello(1, "jobs", "b"), ALICE), room.now))
    gangs = (MEETS.gang, "job.j.0.abc")
    room.say(back, wire.JobsHere((), ranks=True, gangs=gangs, uses=True, spans=True))
    assert ranks_stopped(room, back) == [("job.j.0.abc", 0.0, False)]


def test_a_job_that_one_of_its_hosts_cannot_run_has_failed_and_says_why() -> None:
    room, _, other = two_hosts()
    room.say(other, wire.RanksFailed(MEETS.gang, "Host b has no directory /w."))
    assert room.job("j") is None
    past = next(iter(room.beside.desk.past))
    assert (past.why, past.said) == ("failed", "Host b has no directory /w.")


def on_three() -> tuple[JobRoom, int, int, int]:
    room, first, other = two_hosts()
    agent = room.agent("c", 2)
    room.line("c")
    room.say(first, MEETS)
    return room, first, other, agent


def starts_on(room: JobRoom, client: int) -> list[str]:
    start = [said for said in room.heard[client] if isinstance(said, wire.StartJob)][-1]
    return [each.host for each in start.others]


def test_a_host_that_cannot_start_its_part_now_is_left_out_for_a_while() -> None:
    room, first, other, _ = on_three()
    room.say(other, wire.RanksFailed(MEETS.gang, "Host b cannot start its part: disk full.", for_now=True))
    assert room.heard[first][-1] == wire.StopJob("j", 1, 60.0)
    room.say(first, wire.JobSaid("j", 1, "stopped"))
    room.wait(2.0)
    assert (room.job("j").attempt, starts_on(room, first)) == (2, ["c"])  # type: ignore[union-attr]


def test_a_job_goes_on_without_a_host_whose_launcher_does_not_come_and_later_with_it() -> None:
    room, first, _, agent = on_three()
    why = "no launcher has come from b within 60 s"
    room.say(first, wire.JobSaid("j", 1, "stopped", why, without="b"))
    room.wait(2.0)
    assert starts_on(room, first) == ["c"]
    assert room.desk.jobs is not None
    assert room.desk.jobs.meetings.why_left_out(ALICE.user) == f"host b is left out for a while: {why}"
    assert room.desk.jobs.reach(ALICE.user, across=True) == ("a", "c")
    assert room.desk.jobs.reach(ALICE.user) == ("a", "b", "c"), "which other jobs of the user may have"
    assert room.desk.jobs.reach_of_ranks(ALICE.user) == ("a", "c"), "a cell would wait for a launcher there"
    room.beats(agent, 130)
    assert room.desk.jobs.reach(ALICE.user, across=True) == ("a", "b", "c")


def test_an_agent_that_comes_back_keeps_a_jobs_launcher_and_ends_one_of_an_older_attempt() -> None:
    room, _, other = two_hosts()
    room.do(room.desk.handle(Left(other), room.now))
    back = len(room.heard) + 1
    room.heard[back] = []
    room.do(room.desk.handle(Joined(back, wire.Hello(1, "jobs", "b"), ALICE), room.now))
    gangs = (MEETS.gang, "job.j.0.abc")
    heard = room.say(back, wire.JobsHere((), ranks=True, gangs=gangs, uses=True, spans=True))
    assert [said for said in heard if isinstance(said, wire.StopRanks)] == [
        wire.StopRanks("job.j.0.abc", saves=False)
    ]
    assert room.job("j").state == "starting"  # type: ignore[union-attr]


def runs_on_two() -> tuple[JobRoom, int, int]:
    room, first, other = two_hosts()
    room.say(first, MEETS, wire.JobSaid("j", 1, "runs"))
    return room, first, other


def ranks_stopped(room: JobRoom, client: int) -> list[tuple[str, float, bool]]:
    said = [one for one in room.heard[client] if isinstance(one, wire.StopRanks)]
    return [(one.gang, one.within_s, one.saves) for one in said]


def wants_a_gpu_of(room: JobRoom, host: str) -> None:
    wish = LeaseRequest(RequestId("c"), KernelId("k"), 1, 1e5, (HostName(host),))
    room.feed(cast("Event", LeaseAsked(wish)))


def test_a_cells_gpu_on_a_jobs_other_host_is_free_in_time_also_where_the_first_does_not_end_it() -> None:
    room, first, other = runs_on_two()
    wants_a_gpu_of(room, "b")
    (stop,) = [said for said in room.heard[first] if isinstance(said, wire.StopJob)]
    ((gang, within_s, saves),) = ranks_stopped(room, other)
    assert (gang, saves) == ("job.j", False)
    assert stop.within_s * END_SHARE - GRACE_S < within_s < stop.within_s - GRACE_S, "the last resort"


def test_while_the_first_host_has_no_agent_the_others_have_a_job_save_and_end() -> None:
    room, first, other = runs_on_two()
    room.do(room.desk.handle(Left(first), room.now))
    wants_a_gpu_of(room, "b")
    asked, last = ranks_stopped(room, other)
    assert asked == ("job.j", 0.0, True)
    assert 0.0 < last[1] < 30.0 and not last[2]


def test_a_job_whose_first_hosts_agent_is_given_up_is_ended_on_the_others_at_once() -> None:
    room, first, other = runs_on_two()
    room.do(room.desk.handle(Left(first), room.now))
    agents = [client for client in room.heard if client not in (first, other)]
    for _ in range(160):
        room.say(agents[0], wire.HostBeat())
        room.say(agents[1], wire.HostBeat())
        room.wait(2.0)
        if ranks_stopped(room, other):
            break
    assert ranks_stopped(room, other) == [("job.j", 0.0, False)]
    assert room.job("j").held == 4, "until it has"  # type: ignore[union-attr]


def test_an_agent_that_comes_back_hears_what_it_missed_of_a_job_that_stops() -> None:
    room, first, other = runs_on_two()
    room.do(room.desk.handle(Left(other), room.now))
    wants_a_gpu_of(room, "b")
    room.do(room.desk.handle(Left(first), room.now))
    back = len(room.heard) + 1
    room.heard[back] = []
    room.do(room.desk.handle(Joined(back, wire.Hello(1, "jobs", "b"), ALICE), room.now))
    room.say(back, wire.JobsHere((), ranks=True, gangs=(MEETS.gang,), uses=True, spans=True))
    asked, last = ranks_stopped(room, back)
    assert asked == (MEETS.gang, 0.0, True) and last[0] == MEETS.gang and not last[2]


def test_no_launcher_is_started_for_a_job_that_stops() -> None:
    room, first, other = two_hosts()
    room.feed(cast("Event", JobStopAsked(JobName("j"))))
    room.say(first, MEETS)
    assert not [said for said in room.heard[other] if isinstance(said, wire.StartRanks)]


def test_a_stale_attempt_that_one_host_still_has_does_not_end_the_launchers_of_the_newest() -> None:
    room, first, other = runs_on_two()
    room.say(first, wire.JobSaid("j", 1, "stopped"))
    room.wait(2.0)
    assert room.job("j").attempt == 2  # type: ignore[union-attr]
    before = len(ranks_stopped(room, other))
    room.line("c", ALICE, ("j", 1))
    assert len(ranks_stopped(room, other)) == before


def test_a_job_on_several_hosts_is_not_for_agents_of_an_earlier_release() -> None:
    room, _, _ = two_hosts()
    room.agent("c", 2)
    old = len(room.heard) + 1
    room.heard[old] = []
    room.do(room.desk.handle(Joined(old, wire.Hello(1, "jobs", "c"), ALICE), room.now))
    room.say(old, wire.JobsHere((), ranks=True, uses=True))
    room.submit("k", ALICE, 2, hosts=2)
    assert room.job("k").state == "waiting"  # type: ignore[union-attr]
    room.submit("l", ALICE, 2)
    assert room.started(old) == [("l", 1, 2)], "but it has all others of its user"


def test_an_end_on_a_host_that_a_job_has_left_is_not_answered() -> None:
    room = JobRoom()
    agent, line = room.agent("a", 1, ROOT), room.line("a")
    room.submit("j")
    room.do(room.desk.handle(Left(line), room.now))
    room.beats(agent, 310)
    room.agent("b", 1, ROOT)
    room.line("b")
    late = room.line("a")
    room.say(late, wire.JobSaid("j", 1, "failed", "it ended with exit code 1"))
    assert not [said for said in room.heard[late] if isinstance(said, wire.StopJob)], "it would say so again"
    assert (room.job("j").attempt, room.job("j").state) == (2, "starting")  # type: ignore[union-attr]


def test_a_program_that_fails_too_often_on_a_host_is_started_on_another_one() -> None:
    room = JobRoom()
    for host in ("a", "b"):
        room.agent(host, 1)
    lines = {host: room.line(host) for host in ("a", "b")}
    room.submit("j")
    (first,) = [host for host, line in lines.items() if room.started(line)]
    other = "b" if first == "a" else "a"
    failed = wire.JobSaid("j", 1, "failed", "it ended with exit code 1, 6 times in a row", elsewhere=True)
    room.say(lines[first], failed)
    room.wait(2.0)
    assert room.started(lines[other]) == [("j", 2, 1)]
    heard = len(room.fed)
    room.say(lines[first], failed)
    assert not room.fed[heard:], "it was told before"
    room.say(lines[other], wire.JobSaid("j", 2, "failed", "it ended with exit code 1", elsewhere=True))
    assert room.job("j") is None, "there is no third one"
    assert all(wire.JobGone("j") in room.heard[line] for line in lines.values()), "none keeps it for ever"


@pytest.mark.parametrize(
    ("asked", "then"),
    [(JobStopAsked(JobName("j")), "it is stopped"), (JobHoldAsked(JobName("j"), held=True), "it is held")],
)
def test_a_job_that_is_to_stop_is_not_said_to_go_on_where_its_hosts_have_no_agent(
    asked: JobStopAsked | JobHoldAsked, then: str
) -> None:
    room, first, other = runs_on_two()
    for line in (first, other):
        room.do(room.desk.handle(Left(line), room.now))
    room.submitted(asked)
    assert room.desk.jobs is not None
    jobs, record = room.desk.jobs, room.beside.desk.jobs.by_name[JobName("j")]
    away = why_gone(record, jobs.away_until(record), room.now)
    assert away.endswith(f"if that is not back in 300 s, {then} with its last checkpoint")
    record.gone_at = room.now + 20.0
    assert why_gone(record, None, room.now).endswith(f"in 20 s at most, {then} with its last checkpoint")


def test_a_program_that_failed_too_often_where_it_was_given_up_is_started_on_another_host() -> None:
    room = JobRoom()
    agents, lines = list[int](), dict[str, int]()
    for host, job in (("a", "j"), ("b", "k")):
        agents.append(room.agent(host, 1))
        lines[host] = room.line(host)
        room.submit(job)
        room.say(lines[host], wire.JobSaid(job, 1, "runs"))
    room.do(room.desk.handle(Left(lines["a"]), room.now))
    for _ in range(155):
        for agent in agents:
            room.say(agent, wire.HostBeat())
        room.wait(2.0)
    assert room.job("j").state == "waiting"  # type: ignore[union-attr]
    failed = wire.JobSaid("j", 1, "failed", "it ended with exit code 1", elsewhere=True)
    back = room.join("jobs", "a", ALICE)
    room.say(back, failed, wire.JobsHere(spans=True, uses=True))
    room.wait(2.0)
    assert room.job("j") is not None and room.started(back) == [], "it has failed there"
    room.say(lines["b"], wire.JobSaid("k", 1, "done"))
    room.wait(2.0)
    assert room.started(lines["b"]) == [("k", 1, 1), ("j", 2, 1)]


def test_a_job_on_two_hosts_that_both_have_no_agent_goes_on_elsewhere_in_the_end() -> None:
    room, first, other = runs_on_two()
    agents = [room.agent(host, 2) for host in ("c", "d")]
    for host in ("c", "d"):
        room.line(host)
    hosts = [client for client in room.heard if client not in (first, other)]
    for line in (first, other):
        room.do(room.desk.handle(Left(line), room.now))
    assert room.desk.jobs is not None
    record = room.beside.desk.jobs.by_name[JobName("j")]
    jobs, told = room.desk.jobs, set[str]()
    for _ in range(310):
        told.add(re.sub(r"\d+ s", "… s", why_gone(record, jobs.away_until(record), room.now)))
        for client in (*hosts[:2], *agents):
            room.say(client, wire.HostBeat())
        room.wait(2.0)
        if record.attempt == 2:
            break
    assert sorted(record.hosts()) == ["c", "d"]
    elsewhere = "it goes on elsewhere from its checkpoint"
    assert told == {
        f"its agent on host a is away: if that is not back in … s, {elsewhere}",
        f"host a is lost: once its other hosts have ended it, in … s at most, {elsewhere}",
    }
    assert [change.why for change in record.changes] == ["idle", "lost", "idle"]
