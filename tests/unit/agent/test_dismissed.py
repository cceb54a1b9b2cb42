"""A standby's process that nobody needs for now ends, and is forked again when it is wanted."""

from __future__ import annotations

from replkernel.agent.core import effects as want
from replkernel.agent.core import events as fact
from replkernel.agent.core.process_life import Phase
from replkernel.records import Fence, ReplicaId, Seq
from tests.unit.agent.transcript import Story, delta, hello, logged

GONE = fact.ProcessEnded(1, "it ended", 0.0)
STOP = "process < stop (its process has ended until a cell runs)"


def _dormant() -> Story:
    story = Story().live()
    story.tell(fact.DismissalAsked())
    story.tell(GONE)
    return story


def test_a_dismissed_process_is_asked_to_end_and_no_other_one_is_forked() -> None:
    story = Story().live()
    assert story.tell(fact.DismissalAsked()) == [STOP]
    assert story.tell(GONE) == ["router  < dormant"]
    assert story.keeper.life.phase is Phase.DORMANT
    assert story.keeper.deadline() is None


def test_a_recalled_process_is_forked_and_gets_what_it_missed() -> None:
    story = _dormant()
    assert story.tell(logged(delta(1, replica="r2"))) == []
    assert story.tell(fact.DismissalAsked(recalled=True)) == ["fork 2"]
    story.tell(fact.ProcessForked(2, 101))
    assert story.tell(fact.ProcessGreeted(2, hello(pid=101))) == [
        "router  < ready pid=101 applied=0",
        "send state after 0",
    ]


def test_one_that_is_recalled_before_it_has_ended_is_forked_at_its_end() -> None:
    story = Story().live()
    story.tell(fact.DismissalAsked())
    assert story.tell(fact.DismissalAsked(recalled=True)) == []
    assert story.tell(GONE) == ["router  < lost (it ended) returning", "fork 2"]


def test_one_that_does_not_end_is_killed() -> None:
    story = Story().live()
    story.tell(fact.DismissalAsked())
    assert story.wait() == ["signal 15"]
    assert story.wait() == ["signal 9"]
    assert story.keeper.deadline() is None or story.wait() == []
    assert story.tell(GONE) == ["router  < dormant"]


def test_a_process_that_runs_a_cell_is_not_dismissed() -> None:
    story = Story().live()
    story.tell(fact.ExecutionClaimed(Seq(1), Fence(1)))
    assert story.tell(fact.DismissalAsked()) == ["router  < ready pid=100 applied=0"]
    assert story.keeper.life.phase is Phase.LIVE


def test_the_recall_of_one_that_has_a_process_is_answered() -> None:
    assert Story().live().tell(fact.DismissalAsked(recalled=True)) == ["router  < ready pid=100 applied=0"]


def test_a_kernel_that_ends_forgets_a_recall() -> None:
    story = Story().live()
    story.tell(fact.DismissalAsked())
    story.tell(fact.DismissalAsked(recalled=True))
    assert story.tell(fact.EndAsked("over")) == ["signal 9"]
    assert story.tell(GONE) == ["forget"]


def test_the_next_agent_ends_a_process_that_was_leaving() -> None:
    story = Story()
    story.keeper.restore(fact.GroupNamed({ReplicaId("r1"): "a:1"}, "secret"), birth=1, pid=100, dormant=True)
    assert story.tell(fact.ReplicaRestored(alive=True)) == ["open group of 1"]
    assert story.wait() == ["signal 15"]
    assert story.tell(GONE) == ["router  < dormant"]


def test_a_dormant_replica_votes_against_itself() -> None:
    asked = _dormant().keeper.handle(fact.ElectionAsked(Seq(2), Fence(2)), 9.0)
    (vote,) = [effect.proposal for effect in asked if isinstance(effect, want.Propose)]
    assert isinstance(vote, want.VoteProposal)
    assert not vote.lead


def test_a_router_that_comes_hears_that_it_is_dormant() -> None:
    assert _dormant().tell(fact.RouterCame()) == ["router  < dormant"]


def test_the_next_agent_leaves_a_dormant_replica_without_a_process() -> None:
    story = Story()
    named = fact.GroupNamed({ReplicaId("r1"): "a:1"}, "secret")
    story.keeper.restore(named, birth=3, pid=0, dormant=True)
    assert story.tell(fact.ReplicaRestored(alive=False)) == ["open group of 1"]
    assert story.tell(fact.DismissalAsked(recalled=True)) == ["fork 4"]


def test_a_kernel_that_ends_forgets_a_dormant_replica_at_once() -> None:
    assert _dormant().tell(fact.EndAsked("over")) == ["forget"]


def test_a_kernel_that_ends_kills_a_process_that_is_leaving() -> None:
    story = Story().live()
    story.tell(fact.DismissalAsked())
    assert story.tell(fact.EndAsked("over")) == ["signal 9"]
    assert story.tell(GONE) == ["forget"]
