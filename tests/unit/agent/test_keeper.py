"""The keeper's core as transcripts: what it is told, and what it then wants done."""

from __future__ import annotations

import pytest

from replkernel.agent.core import effects as want
from replkernel.agent.core import events as fact
from replkernel.agent.core.group_pace import LEAD_PERIOD_S, LEAD_QUIET_S
from replkernel.agent.core.outbox import CLAIMS_AHEAD_MAX, RETRY_MAX_S
from replkernel.agent.core.process_life import YOUNG_DEATHS_MAX, Phase
from replkernel.protocol.agent_to_router import Committed
from replkernel.records import Digest, Fence, Mark, Pin, ReplicaId, Seq
from tests.unit.agent.transcript import PEERS, Story, delta, hello, logged

R1, R2 = ReplicaId("r1"), ReplicaId("r2")


def test_a_process_is_forked_before_anything_else_and_is_ready_before_raft() -> None:
    story = Story()
    assert story.tell(fact.ReplicaRequested()) == ["fork 1", "router  < prepared a:1"]
    assert story.tell(fact.ProcessForked(1, 100)) == []
    assert story.tell(fact.ProcessGreeted(1, hello())) == [
        "router  < ready pid=100 applied=0",
        "send state after 0",
    ]
    assert story.tell(fact.GroupNamed(PEERS, "secret")) == ["open group of 3"]
    assert story.tell(fact.GroupOpened()) == ["propose join-a:1"]
    assert story.tell(fact.MemberLogged(R1)) == []
    assert story.keeper.deadline() is None, "an idle keeper wakes nobody"


def test_routers_hear_what_is_unfaithful_when_that_changes_and_when_they_come() -> None:
    story = Story().live()
    pin = Pin("x", "Drops", R2, Seq(1))
    assert story.tell(fact.StateTaken(Seq(1), 1, 10, 0)) == []
    assert story.tell(fact.StateTaken(Seq(2), 1, 10, 0, 0, (pin,))) == ["router  < unfaithful ['x']"]
    assert story.tell(fact.StateTaken(Seq(3), 1, 10, 0, 4, (pin,))) == []
    assert story.tell(fact.RouterCame())[-1] == "router  < unfaithful ['x']"
    assert story.tell(fact.StateTaken(Seq(4), 1, 10, 0)) == ["router  < unfaithful []"]


def test_asking_twice_answers_twice_and_forks_once() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    assert story.tell(fact.ReplicaRequested()) == ["router  < prepared a:1"]
    story.tell(fact.GroupNamed(PEERS, "secret"))
    assert story.tell(fact.GroupNamed(PEERS, "secret")) == []


def test_a_cell_from_claim_to_commit() -> None:
    story = Story().live()
    assert story.tell(fact.ExecutionClaimed(Seq(1), Fence(1))) == ["quicken"]
    assert story.wait() == ["propose claim-1-1"]
    assert story.tell(fact.ClaimLogged(Seq(1), Fence(1), R1)) == []
    assert story.tell(fact.DeltaArrived(delta(1, blobs=2))) == ["upload 1 (2)"]
    assert story.tell(fact.UploadEnded(Seq(1))) == ["propose delta-1-1"]
    assert story.tell(logged(delta(1, blobs=2))) == [
        "process < delta committed 1",
        "router  < committed 1",
    ]
    assert story.wait() == ["rest"]
    assert story.keeper.deadline() is None


def test_a_commit_says_how_long_the_capture_took() -> None:
    story = Story().live()
    story.keeper.handle(fact.DeltaArrived(delta(1), 0.25), 0.0)
    (said,) = [
        effect.message
        for effect in story.keeper.handle(logged(delta(1)), 0.0)
        if isinstance(effect, want.ToRouter)
    ]
    assert isinstance(said, Committed)
    assert said.capture_s == 0.25


def test_the_leadership_goes_to_the_executors_member_once_it_is_quiet() -> None:
    story = Story().live()
    story.tell(logged(delta(1, replica="r2")))
    story.at(0.1).tell(logged(delta(2, replica="r2")))
    assert story.wait() == ["lead at a:2"]
    assert story.now == 0.1 + LEAD_QUIET_S
    assert story.keeper.deadline() is None, "an idle keeper wakes nobody"


def test_the_leadership_is_not_thrown_to_and_fro() -> None:
    story = Story().live()
    story.tell(logged(delta(1, replica="r2")))
    story.wait()
    story.tell(logged(delta(2, replica="r3")))
    assert story.wait() == ["lead at a:3"]
    assert story.now == LEAD_QUIET_S + LEAD_PERIOD_S


def test_who_runs_the_cells_itself_gives_no_leadership_away() -> None:
    story = Story().live()
    story.tell(logged(delta(1, replica="r2")))
    story.tell(fact.DeltaArrived(delta(2)))
    story.tell(logged(delta(2)))
    assert story.keeper.deadline() is None


def test_deltas_are_proposed_one_by_one_in_order_whatever_uploads_first() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1, blobs=1)))
    story.tell(fact.DeltaArrived(delta(2, blobs=1)))
    story.tell(fact.DeltaArrived(delta(3)))
    assert story.tell(fact.UploadEnded(Seq(2))) == []
    assert story.tell(fact.UploadEnded(Seq(1))) == ["propose delta-1-1"]
    assert story.tell(logged(delta(1)))[-1] == "propose delta-2-2"
    assert story.tell(logged(delta(2)))[-1] == "propose delta-3-3"


def test_claims_do_not_wait_for_uploads() -> None:
    story = Story().live()
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    story.tell(fact.ClaimLogged(Seq(1), Fence(1), R1))
    story.tell(fact.DeltaArrived(delta(1, blobs=1)))
    story.tell(fact.ExecutionClaimed(Seq(2), Fence(2)))
    assert "propose claim-2-2" in story.wait()


def test_claims_wait_when_too_many_deltas_do() -> None:
    story = Story().live()
    for seq in range(1, CLAIMS_AHEAD_MAX + 1):
        story.tell(fact.ExecutionClaimed(Seq(seq), Fence(seq)))
        story.tell(fact.ClaimLogged(Seq(seq), Fence(seq), R1))
        story.tell(fact.DeltaArrived(delta(seq, blobs=1)))
    late = CLAIMS_AHEAD_MAX + 1
    assert story.tell(fact.ExecutionClaimed(Seq(late), Fence(late))) == []
    story.tell(fact.UploadEnded(Seq(1)))
    story.tell(logged(delta(1)))
    assert f"propose claim-{late}-{late}" in story.wait()


def test_only_a_few_uploads_run_at_a_time() -> None:
    story = Story().live()
    told = [text for seq in range(1, 8) for text in story.tell(fact.DeltaArrived(delta(seq, blobs=1)))]
    assert [text for text in told if "upload" in text] == [f"upload {seq} (1)" for seq in range(1, 5)]
    assert story.tell(fact.UploadEnded(Seq(3))) == ["upload 5 (1)"]


def test_nothing_is_proposed_before_the_group_is_open() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    story.tell(fact.ProcessForked(1, 100))
    story.tell(fact.ProcessGreeted(1, hello()))
    assert story.tell(fact.ExecutionClaimed(Seq(1), Fence(1))) == ["quicken"]
    assert story.tell(fact.DeltaArrived(delta(1))) == []
    story.tell(fact.GroupNamed(PEERS, "secret"))
    assert story.tell(fact.GroupOpened()) == ["propose join-a:1", "propose delta-1-1"]


def test_an_unknown_outcome_is_proposed_again_for_ever_with_the_same_key() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1)))
    delays = []
    for _ in range(12):
        story.tell(fact.ProposalFailed("delta-1-1", "no majority"))
        before = story.now
        assert story.wait() == ["propose delta-1-1"]
        delays.append(story.now - before)
    assert delays == sorted(delays)
    assert delays[-1] == RETRY_MAX_S


def test_a_proposal_that_nobody_answers_is_proposed_again() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1)))
    assert story.wait() == ["propose delta-1-1"], "one late answer is a busy machine's"
    told = story.wait()
    assert told[0] == "propose delta-1-1"
    assert told[1].startswith("router  < trouble 1: The majority")


def test_a_proposal_whose_outcome_is_unknown_once_is_no_lost_majority() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1)))
    assert story.tell(fact.ProposalFailed("delta-1-1", "")) == []
    assert story.wait() == ["propose delta-1-1"]
    assert story.tell(fact.ProposalFailed("delta-1-1", ""))[0].startswith("router  < trouble 1: The majority")


def test_trouble_is_told_once_and_so_is_its_end() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1, blobs=1)))
    assert story.tell(fact.UploadDelayed(Seq(1), "no bucket")) == [
        "router  < trouble 1: no bucket",
        "process < durability: no bucket",
    ]
    assert story.tell(fact.UploadDelayed(Seq(1), "no bucket")) == []
    assert story.tell(fact.RouterCame())[-1] == "router  < trouble 1: no bucket"
    assert story.tell(fact.UploadEnded(Seq(1))) == [
        "propose delta-1-1",
        "router  < trouble 1: over",
        "process < durability: fine",
    ]


def test_an_upload_that_failed_is_tried_again() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1, blobs=1)))
    assert (
        story.tell(fact.UploadEnded(Seq(1), "a chunk is gone"))[0] == "router  < trouble 1: a chunk is gone"
    )
    assert story.wait() == ["upload 1 (1)"]


def test_foreign_deltas_are_handed_over_once_and_in_order() -> None:
    story = Story().live()
    assert story.tell(logged(delta(1, replica="r2"))) == ["process < apply 1"]
    assert story.tell(logged(delta(1, replica="r2"))) == []
    story.tell(fact.StateSent(Seq(3)))
    assert story.tell(logged(delta(3, replica="r2"))) == []
    assert story.tell(logged(delta(4, replica="r2"))) == ["process < apply 4"]


def test_a_standby_that_dies_comes_back_at_once() -> None:
    story = Story().live().at(100.0)
    assert story.tell(fact.ProcessEnded(1, "killed")) == ["router  < lost (killed) returning", "fork 2"]
    assert story.tell(logged(delta(1, replica="r2"))) == [], "nobody is there to take it"
    story.tell(fact.ProcessForked(2, 200))
    assert story.tell(fact.ProcessGreeted(2, hello(pid=200))) == [
        "router  < ready pid=200 applied=0",
        "send state after 0",
    ]


def test_an_executor_that_dies_has_its_execution_failed() -> None:
    story = Story().live().at(100.0)
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    story.tell(fact.ClaimLogged(Seq(1), Fence(1), R1))
    assert story.tell(fact.ProcessEnded(1, "out of memory")) == [
        "router  < lost (out of memory) returning",
        "propose failure-1-1",
        "fork 2",
    ]
    assert story.tell(fact.FailureLogged(Seq(1), R1)) == []


def test_a_delta_outlives_its_process_and_reaches_the_next_one_as_foreign() -> None:
    story = Story().live().at(100.0)
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    story.tell(fact.DeltaArrived(delta(1, blobs=1)))
    assert "propose failure-1-1" not in story.tell(fact.ProcessEnded(1, "killed"))
    story.tell(fact.ProcessForked(2, 200))
    story.tell(fact.ProcessGreeted(2, hello(pid=200)))
    story.tell(fact.UploadEnded(Seq(1)))
    assert story.tell(logged(delta(1))) == ["process < apply 1", "router  < committed 1"]


def test_a_failure_waits_behind_earlier_deltas() -> None:
    story = Story().live().at(100.0)
    story.tell(fact.DeltaArrived(delta(1, blobs=1)))
    story.tell(fact.ExecutionClaimed(Seq(2), Fence(2)))
    assert "propose failure-2-2" not in story.tell(fact.ProcessEnded(1, "killed"))
    story.tell(fact.UploadEnded(Seq(1)))
    assert "propose failure-2-2" in story.tell(logged(delta(1)))


def test_a_process_that_keeps_dying_young_is_given_up_and_said_so() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    pauses = []
    for birth in range(1, YOUNG_DEATHS_MAX):
        story.tell(fact.ProcessForked(birth, 100 + birth))
        told = story.tell(fact.ProcessEnded(birth, "broken"))
        assert told[0] == "router  < lost (broken) returning"
        if f"fork {birth + 1}" not in told:
            before = story.now
            assert story.wait() == [f"fork {birth + 1}"]
            pauses.append(story.now - before)
    assert pauses == sorted(pauses)
    assert story.tell(fact.ProcessEnded(YOUNG_DEATHS_MAX, "broken")) == [
        "router  < lost (broken) for good",
        "router  < notice [error]",
    ]
    assert story.keeper.deadline() is None
    assert story.tell(fact.ReplicaRequested())[0] == f"fork {YOUNG_DEATHS_MAX + 1}", (
        "asked again, tried again"
    )


def test_old_processes_may_die_any_number_of_times() -> None:
    story = Story().live()
    for birth in range(1, 20):
        story.at(story.now + 1000)
        assert f"fork {birth + 1}" in story.tell(fact.ProcessEnded(birth, "killed"))
        story.tell(fact.ProcessForked(birth + 1, 100 + birth))
        story.tell(fact.ProcessGreeted(birth + 1, hello(pid=100 + birth)))


def test_a_process_that_never_greets_is_killed() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    story.tell(fact.ProcessForked(1, 100))
    assert story.wait() == ["signal 9"]


def test_a_birth_that_fails_counts_as_a_death() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    assert story.tell(fact.BirthFailed(1, "no python")) == ["router  < lost (no python) returning", "fork 2"]


def test_the_end_is_polite_first() -> None:
    story = Story().live()
    assert story.tell(fact.EndAsked("restart")) == ["process < stop (restart)"]
    assert story.tell(fact.ProcessEnded(1, "gone")) == ["forget"]
    assert story.tell(logged(delta(1))) == [], "nothing is heard after the end"


def test_the_end_does_not_depend_on_the_process() -> None:
    story = Story().live()
    story.tell(fact.EndAsked("restart"))
    assert [story.wait(), story.wait(), story.wait()] == [["signal 15"], ["signal 9"], ["forget"]]
    assert story.now <= 5.0, "the router waits no longer"


def test_an_end_in_which_the_other_members_close_first_is_not_told_as_a_lost_majority() -> None:
    story = Story().live()
    story.tell(fact.EndAsked("shut down"))
    assert story.tell(fact.MajoritySeen(False)) == []
    assert story.tell(fact.ProcessEnded(1, "gone")) == ["forget"]


def test_after_the_end_no_time_is_waited_for() -> None:
    """Its timer would ring for ever: nothing is heard any more that could take the time away."""
    story = Story().live()
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    story.tell(fact.DeltaArrived(delta(1)))
    story.tell(fact.EndAsked("shut down"))
    assert story.tell(fact.ProcessEnded(1, "gone"))[-1] == "forget"
    assert story.keeper.deadline() is None


def test_the_end_awaits_a_birth_under_way() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    assert story.tell(fact.EndAsked("never mind")) == []
    assert story.tell(fact.ProcessForked(1, 100)) == ["signal 9"]
    assert story.tell(fact.ProcessEnded(1, "killed")) == ["forget"]


def test_an_adopted_process_goes_on_with_what_it_ran() -> None:
    story = Story()
    story.keeper.restore(fact.GroupNamed(PEERS, "secret"), birth=4, pid=100)
    assert story.tell(fact.ReplicaRestored(alive=True)) == ["open group of 3"]
    story.tell(fact.GroupOpened())
    assert story.tell(fact.ClaimLogged(Seq(2), Fence(2), R1)) == ["quicken"]
    assert story.keeper.running
    told = story.tell(fact.ProcessGreeted(4, hello(2, delta(2))))
    assert told == ["router  < ready pid=100 applied=2", "send state after 2", "propose delta-2-2"]
    assert story.tell(logged(delta(2))) == [
        "process < delta committed 2",
        "router  < committed 2",
    ]


def test_a_process_found_dead_has_its_claim_failed_when_the_log_shows_it() -> None:
    story = Story()
    story.keeper.restore(fact.GroupNamed(PEERS, "secret"), birth=4, pid=100)
    assert story.tell(fact.ReplicaRestored(alive=False)) == ["open group of 3", "fork 5"]
    story.tell(fact.GroupOpened())
    story.tell(fact.ClaimLogged(Seq(1), Fence(1), R1))
    story.tell(fact.MemberLogged(R1))
    assert story.keeper.running is False
    assert story.keeper.pending() == (Seq(0), Fence(0))


def test_replayed_claims_whose_deltas_follow_in_the_log_are_harmless() -> None:
    story = Story()
    story.keeper.restore(fact.GroupNamed(PEERS, "secret"), birth=4, pid=100)
    story.tell(fact.ReplicaRestored(alive=False))
    story.tell(fact.GroupOpened())
    story.tell(fact.MemberLogged(R1))
    assert story.tell(fact.ClaimLogged(Seq(1), Fence(1), R1)) == ["quicken", "propose failure-1-1"]
    assert story.tell(logged(delta(1))) == ["router  < committed 1"]
    assert story.tell(fact.EntryRefused("failure-1-1", "has already been applied")) == []
    assert story.keeper.outbox.deadline() is None


def test_an_adopted_process_is_not_held_to_what_the_log_has_ended() -> None:
    story = Story()
    story.keeper.restore(fact.GroupNamed(PEERS, "secret"), birth=4, pid=100)
    story.tell(fact.ReplicaRestored(alive=True))
    story.tell(fact.GroupOpened())
    for ended in (fact.FailureLogged(Seq(1), R1), logged(delta(1))):
        story.tell(fact.ClaimLogged(Seq(1), Fence(1), R1))
        story.tell(ended)
        assert not story.keeper.running


def test_an_execution_without_a_result_is_failed_when_the_next_one_starts() -> None:
    story = Story().live()
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    story.tell(fact.ClaimLogged(Seq(1), Fence(1), R1))
    assert story.tell(fact.ExecutionClaimed(Seq(2), Fence(2))) == ["propose failure-1-1"]
    assert story.wait() == ["propose claim-2-2"]
    assert story.tell(fact.DeltaArrived(delta(2))) == []
    assert story.tell(fact.FailureLogged(Seq(1), R1)) == ["propose delta-2-2"]


def test_an_entry_that_the_log_holds_is_acknowledged_and_not_proposed_again() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1)))
    story.tell(logged(delta(1)))
    told = story.tell(fact.ProcessGreeted(1, hello(1, delta(1))))
    assert told[-1] == "process < delta committed 1"
    assert not any(text.startswith("propose") for text in told)


def test_a_refused_claim_is_told_and_leaves_earlier_deltas_alone() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1, blobs=1)))
    story.tell(fact.ExecutionClaimed(Seq(2), Fence(2)))
    assert story.tell(fact.EntryRefused("claim-2-2", "fence 9 is in force")) == [
        "process < refused 2: fence 9 is in force"
    ]
    assert story.tell(fact.UploadEnded(Seq(1))) == ["propose delta-1-1"]
    story.tell(logged(delta(1)))
    assert not any("failure" in text for text in story.at(50.0).tell(fact.ProcessEnded(1, "killed")))


def test_a_refused_delta_makes_room_for_the_next() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1)))
    story.tell(fact.DeltaArrived(delta(2)))
    assert story.tell(fact.EntryRefused("delta-1-1", "superseded")) == [
        "process < refused 1: superseded",
        "propose delta-2-2",
    ]


def test_a_membership_that_an_earlier_agent_has_logged_is_proposed_once_and_no_more() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    story.tell(fact.ProcessForked(1, 100))
    story.tell(fact.ProcessGreeted(1, hello()))
    story.tell(fact.GroupNamed(PEERS, "secret"))
    story.tell(fact.MemberLogged(R1))  # Of the journal, as the member starts.
    assert story.tell(fact.GroupOpened()) == ["propose join-a:1"]
    assert story.tell(fact.EntryKnown("join-a:1")) == []
    assert story.keeper.deadline() is None, "an idle keeper wakes nobody"


def test_a_delta_that_came_back_in_a_snapshot_is_committed_and_makes_room_for_the_next() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1)))
    story.tell(fact.DeltaArrived(delta(2)))
    story.tell(fact.TableRestored(Seq(1), 0, Mark(Seq(1))))
    assert story.tell(fact.EntryKnown("delta-1-1", 7)) == [
        "process < delta committed 1",
        "router  < committed 1",
        "propose delta-2-2",
    ]
    assert story.tell(fact.EntryKnown("delta-1-1", 7)) == [], "told once"


def test_a_delta_that_the_log_had_and_dropped_is_refused() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1)))
    (said,) = story.tell(fact.EntryKnown("delta-1-1", dropped=True))
    assert said.startswith("process < refused 1: the kernel went on")


def test_an_overruled_execution_is_told_at_once() -> None:
    story = Story().live()
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    assert story.tell(fact.ExecutionOverruled(R1, Seq(1), "r2 took over")) == [
        "process < refused 1: r2 took over"
    ]
    assert story.tell(fact.ExecutionOverruled(R2, Seq(1), "r3 took over")) == []


def test_a_delta_in_anothers_name_is_refused() -> None:
    story = Story().live()
    told = story.tell(fact.DeltaArrived(delta(1, replica="r2")))
    assert told == ["process < refused 1: it names replica r2, not r1"]


def test_an_election_leads_when_a_process_is_there_and_yields_when_not() -> None:
    story = Story()
    assert story.tell(fact.ElectionAsked(Seq(1), Fence(1))) == ["propose vote-1-1"]
    assert story.tell(fact.ElectionLogged(Seq(1), R2)) == ["router  < elected r2 for 1"]


def test_an_election_without_a_quorum_ends_without_a_winner() -> None:
    story = Story().live()
    story.tell(fact.ElectionAsked(Seq(1), Fence(1)))
    assert story.wait() == ["router  < elected None for 1"]


def test_fetches_are_answered_to_the_process_that_is_there() -> None:
    story = Story().live().at(100.0)
    assert story.tell(fact.BlobsWanted(5, ())) == ["fetch 5"]
    assert story.tell(fact.BlobsFetched(5, (Digest("a"),), "gone")) == ["process < blobs 5 missing=1"]
    story.tell(fact.ProcessEnded(1, "killed"))
    assert story.tell(fact.BlobsFetched(6)) == []


def test_a_group_that_cannot_open_is_tried_again_and_told() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    story.tell(fact.ProcessForked(1, 100))
    story.tell(fact.ProcessGreeted(1, hello()))
    story.tell(fact.GroupNamed(PEERS, "secret"))
    assert story.tell(fact.GroupTrouble("the port is taken")) == ["router  < notice [error]"]
    assert story.wait() == ["open group of 3"]
    assert story.tell(fact.GroupTrouble("the port is taken")) == [], "said once"


def test_a_member_that_can_never_start_is_told_to_every_router() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    story.tell(fact.GroupNamed(PEERS, "secret"))
    broken = "router  < broken: the journal is damaged"
    assert story.tell(fact.GroupTrouble("the journal is damaged", lasting=True))[-1] == broken
    assert broken in story.tell(fact.RouterCame())
    story.tell(fact.GroupOpened())
    assert broken not in story.tell(fact.RouterCame())


def test_a_joining_replica_is_ready_once_its_log_says_that_it_is_a_member() -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    story.tell(fact.ProcessForked(1, 100))
    story.tell(fact.GroupNamed(PEERS, "secret", joining=True))
    assert story.tell(fact.ProcessGreeted(1, hello())) == ["send state after 0"]
    story.tell(fact.GroupOpened())
    assert story.tell(fact.RouterCame()) == []
    assert story.tell(fact.MemberLogged(R1, "a:1")) == ["router  < ready pid=100 applied=0"]


def test_the_members_that_the_next_agent_knows_follow_the_log() -> None:
    story = Story().live()
    assert story.tell(fact.MemberLogged(R2, "a:2")) == []
    assert story.tell(fact.MemberGone(R2)) == []
    assert story.tell(fact.MemberLogged(ReplicaId("r4"), "b:4")) == []
    assert story.keeper.member.peers == {R1: "a:1", ReplicaId("r3"): "a:3", ReplicaId("r4"): "b:4"}


def test_a_snapshot_brings_the_process_up_to_date() -> None:
    story = Story().live()
    assert story.tell(fact.TableRestored(Seq(9), 0, Mark(Seq(9)))) == ["send state after 0"]


def test_interrupts_reach_live_processes_only() -> None:
    story = Story()
    assert story.tell(fact.InterruptAsked()) == ["router  < interrupt sent"]
    assert story.live().tell(fact.InterruptAsked()) == ["signal 2", "router  < interrupt sent"]
    assert story.tell(fact.InterruptAsked(ends=True)) == ["signal 9", "router  < interrupt sent"]


def test_who_waits_for_all_to_be_durable_is_heard_by_live_processes_only() -> None:
    story = Story()
    assert story.tell(fact.SettleAsked()) == []
    assert story.live().tell(fact.SettleAsked()) == ["process < settle"]


def test_an_interrupt_that_comes_late_does_not_hit_the_next_cell() -> None:
    story = Story().live()
    story.tell(fact.ExecutionClaimed(Seq(4), Fence(4)))
    assert story.tell(fact.InterruptAsked(Seq(4))) == ["signal 2", "router  < interrupt sent"]
    story.tell(fact.ExecutionClaimed(Seq(5), Fence(5)))
    assert story.tell(fact.InterruptAsked(Seq(4), ends=True)) == ["router  < interrupt sent"]


@pytest.mark.parametrize("phase", [Phase.RESTING, Phase.GIVEN_UP])
def test_the_end_of_a_replica_without_a_process_is_immediate(phase: Phase) -> None:
    story = Story()
    story.tell(fact.ReplicaRequested())
    birth = 1
    while story.keeper.life.phase is not phase:
        story.tell(fact.BirthFailed(birth, "broken"))
        if story.keeper.life.phase is not phase:
            if story.keeper.life.phase is Phase.RESTING:
                story.wait()
            birth += 1
    assert story.tell(fact.EndAsked("over")) == ["forget"]


def test_a_lost_majority_is_told_though_nothing_waits_and_its_return_too() -> None:
    story = Story().live()
    assert story.tell(fact.MajoritySeen(True)) == []
    lost = ["router  < trouble 0: The majority of this kernel's replicas d"]
    assert story.tell(fact.MajoritySeen(False)) == []
    assert story.wait() == [*lost, "process < durability: The majority of this kernel's replicas d"]
    assert story.tell(fact.MajoritySeen(False)) == [], "said once"
    assert story.keeper.deadline() is None
    assert lost[0] in story.tell(fact.RouterCame()), "the next router hears of it"
    assert story.tell(fact.MajoritySeen(True)) == ["router  < trouble 0: over", "process < durability: fine"]


def test_a_majority_that_is_soon_back_is_not_told_as_lost() -> None:
    """On a busy machine a group elects anew now and then: nobody can do anything about that second."""
    story = Story().live()
    assert story.tell(fact.MajoritySeen(False)) == []
    assert story.tell(fact.MajoritySeen(True)) == []
    assert story.keeper.deadline() is None
    story.tell(fact.MajoritySeen(False))
    due = story.keeper.deadline()
    story.at(story.now + 1.0).tell(fact.MajoritySeen(False))
    assert story.keeper.deadline() == due, "what is said again puts nothing off"


def test_an_execution_that_owes_an_audit_is_told_as_such_and_again_when_it_is_whole() -> None:
    story = Story().live()
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    story.tell(fact.ClaimLogged(Seq(1), Fence(1), R1))
    story.tell(fact.DeltaArrived(delta(1, owing=True)))
    audit = delta(1, audit=1, blobs=1)
    assert story.tell(fact.DeltaArrived(audit)) == ["upload 1.1 (1)"]
    assert story.tell(fact.UploadEnded(Seq(1), audit=1)) == []
    assert story.tell(logged(delta(1, owing=True))) == [
        "process < delta committed 1 owing",
        "router  < committed 1 owing",
        "propose delta-1-1-1",
    ]
    assert story.tell(logged(audit)) == [
        "process < delta committed 1.1",
        "router  < committed 1.1",
    ]
    assert story.tell(fact.DeltaArrived(audit)) == ["process < delta committed 1.1"]


def test_an_audit_reaches_a_standby_that_has_its_execution() -> None:
    story = Story().live()
    story.tell(logged(delta(1, replica="r2", owing=True)))
    assert story.tell(logged(delta(1, replica="r2", audit=1))) == ["process < apply 1"]
    assert story.tell(logged(delta(1, replica="r2", audit=1))) == []
    story.tell(fact.ProcessEnded(1, "killed"))
    story.tell(fact.ProcessForked(2, 101))
    assert "send state after 1.1" in story.tell(fact.ProcessGreeted(2, hello(1, audit=1, pid=101)))


def test_a_process_that_goes_on_for_a_lost_one_is_told_from_where_once_the_log_has_it() -> None:
    story = Story().live()
    story.at(10.0).tell(logged(delta(1, replica="r2")))
    assert story.tell(logged(delta(2, replica="r2", owing=True))) == [], "what is not whole is nobody's yet"
    claimed = story.at(14.0).tell(fact.ExecutionClaimed(Seq(3), Fence(3), afresh=True))
    assert claimed == ["quicken", "propose afresh-3-3"] or claimed == ["propose afresh-3-3"]
    back = fact.FellBack(Seq(3), R1, Mark(Seq(1)), 1, R2, 2)
    assert story.tell(back) == [
        "process < begun afresh 3 after cell 1 (4 s)",
        "router  < went back to 1 for 3",
    ]


def test_a_process_that_holds_what_the_log_dropped_has_to_end() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1)))
    story.tell(logged(delta(1)))
    story.tell(fact.DeltaArrived(delta(2, owing=True)))
    story.tell(logged(delta(2, owing=True)))
    story.tell(fact.DeltaArrived(delta(2, audit=1, blobs=1)))
    told = story.tell(fact.FellBack(Seq(3), R2, Mark(Seq(1)), 1, R1, 2))
    assert told == ["process < refused 2: the kernel went on from an earlier cell on another replica"]
    assert not story.keeper.outbox.deltas, "what is on its way comes too late"


def test_an_audit_that_lost_ends_its_process_through_a_refusal() -> None:
    story = Story().live()
    story.tell(fact.DeltaArrived(delta(1, owing=True)))
    story.tell(logged(delta(1, owing=True)))
    story.tell(fact.DeltaArrived(delta(1, audit=1)))
    assert story.tell(fact.EntryRefused("delta-1-1-1", "r2 goes on")) == ["process < refused 1: r2 goes on"]


def test_an_execution_without_a_result_is_failed_when_a_delta_comes_that_was_not_claimed() -> None:
    story = Story().live()
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    story.wait()
    story.tell(fact.ClaimLogged(Seq(1), Fence(1), R1))
    assert story.tell(fact.DeltaArrived(delta(2))) == ["propose failure-1-1"]
    assert story.tell(fact.FailureLogged(Seq(1), R1)) == ["propose delta-2-2"]
