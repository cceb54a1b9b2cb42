"""When checkpoints are written, and what a router that wants one is told, as transcripts."""

from __future__ import annotations

import msgspec
import pytest

from replkernel.agent.core.checkpointing import (
    BULKY_EVERY_S,
    BULKY_QUIET_S,
    CHECKPOINT_EVERY_S,
    CHECKPOINT_QUIET_S,
    LOOKS_MAX,
    RETRY_MAX_S,
    SETTLE_LIMIT_S,
    Asked,
    Changed,
    Checkpointing,
    Ended,
    Event,
    Say,
    Standing,
    TimeCame,
    Write,
)
from replkernel.records import KernelId, Pin, ReplicaId, Seq
from replkernel.replication.checkpoint import Place

LEADS = Standing(leads=True, quorum=True, place=Place(1, 5), seq=Seq(3), execution_count=3)
FOLLOWS = msgspec.structs.replace(LEADS, leads=False)


class Story:
    """The checkpoints of one kernel, told one event after the other."""

    def __init__(self, standing: Standing = LEADS) -> None:
        self.core = Checkpointing(KernelId("k"))
        self.standing = standing
        self.now = 100.0

    def tell(self, event: Event) -> list[str]:
        effects = self.core.handle(event, self.now)
        self.core.check_invariants()
        return [self._line(effect) for effect in effects]

    @staticmethod
    def _line(effect: Write | Say) -> str:
        if isinstance(effect, Write):
            return "write forced" if effect.forced else "write"
        told = effect.message
        return f"say {told.name or '-'}{': ' + told.why if told.why else ''}"

    def wait(self) -> tuple[float, list[str]]:
        """Let time go by to the deadline; return how long that was, and what was done."""
        due = self.core.deadline()
        assert due is not None
        waited, self.now = max(0.0, due - self.now), max(self.now, due)
        return waited, self.tell(TimeCame(self.standing))

    def written(self, name: str = "c1") -> list[str]:
        at = self.standing
        return self.tell(Ended(name, at.place, at.seq, at.execution_count))


def test_a_checkpoint_follows_the_last_commit_of_a_while() -> None:
    story = Story()
    assert story.core.deadline() is None
    story.tell(Changed())
    story.now += 1
    story.tell(Changed())
    assert story.wait() == (CHECKPOINT_QUIET_S, ["write"])
    assert story.written() == []
    assert story.core.deadline() is None, "what is written wakes nobody"
    assert story.core.last is not None
    assert story.core.last.name == "c1"


def test_commits_that_never_pause_are_written_all_the_same() -> None:
    story = Story()
    began = story.now
    story.tell(Changed())
    while story.core.deadline() is not None and story.core.deadline() > story.now:
        story.now = min(story.now + 1, story.core.deadline() or 0.0)
        if story.now < began + CHECKPOINT_EVERY_S:
            story.tell(Changed())
    assert story.now == began + CHECKPOINT_EVERY_S
    assert story.wait()[1] == ["write"]


def test_where_much_was_stored_the_next_one_comes_soon_but_not_in_a_row() -> None:
    story = Story()
    story.tell(Changed(bulky=True))
    assert story.wait() == (pytest.approx(BULKY_QUIET_S), ["write"])
    story.written()
    story.now += 0.1
    story.tell(Changed(bulky=True))
    waited, done = story.wait()
    assert done == ["write"]
    assert waited == pytest.approx(BULKY_EVERY_S - 0.1)


def test_a_write_that_failed_is_not_hurried() -> None:
    story = Story()
    story.tell(Changed())
    story.wait()
    story.tell(Ended(why="the store is full"))
    story.tell(Changed(bulky=True))
    assert story.wait()[0] > BULKY_EVERY_S


def test_a_change_during_a_write_is_written_after_it() -> None:
    story = Story()
    story.tell(Changed())
    story.wait()
    story.now += 1
    story.tell(Changed())
    assert story.core.deadline() is None, "one write at a time"
    story.now += 0.5
    story.written()
    assert story.wait() == (CHECKPOINT_QUIET_S - 0.5, ["write"])


def test_a_follower_writes_nothing_but_takes_over_when_it_comes_to_lead() -> None:
    story = Story(FOLLOWS)
    story.tell(Changed())
    assert story.wait() == (CHECKPOINT_QUIET_S, [])
    story.standing = LEADS
    assert story.wait() == (CHECKPOINT_EVERY_S, ["write"])


def test_a_follower_stops_looking() -> None:
    story = Story(FOLLOWS)
    story.tell(Changed())
    for _ in range(LOOKS_MAX):
        assert story.wait()[1] == []
    assert story.core.deadline() is None
    story.tell(Changed())
    assert story.wait()[1] == []
    assert story.core.deadline() is not None, "each commit has it look as often"


def test_a_store_that_fails_is_tried_again_ever_more_slowly() -> None:
    story = Story()
    story.tell(Changed())
    story.wait()
    delays = []
    for _ in range(8):
        assert story.tell(Ended(why="no room")) == []
        waited, done = story.wait()
        assert done == ["write"]
        delays.append(waited)
    assert delays == sorted(delays)
    assert delays[-1] == RETRY_MAX_S
    assert story.core.why == "no room"
    story.written()
    assert story.core.why == ""
    story.tell(Changed())
    assert story.wait() == (CHECKPOINT_QUIET_S, ["write"]), "a failure that is over delays nothing"


def test_a_group_that_was_followed_by_another_writes_no_more() -> None:
    story = Story()
    story.tell(Changed())
    story.wait()
    story.tell(Ended(why="followed", followed=True))
    story.tell(Changed())
    while story.core.deadline() is not None:
        assert story.wait()[1] == []


def test_a_wish_is_answered_with_a_checkpoint_of_everything() -> None:
    story = Story()
    story.tell(Asked(Seq(3)))
    assert story.wait() == (0.0, ["write"])
    assert story.written("c2") == ["say c2"]
    story.tell(Asked(Seq(3)))
    assert story.wait()[1] == ["say c2"], "nothing changed: it is not written twice"


def test_a_wish_waits_for_what_is_on_its_way() -> None:
    story = Story(msgspec.structs.replace(LEADS, busy=True, seq=Seq(2)))
    story.tell(Asked(Seq(3)))
    assert story.wait()[1] == []
    story.standing = msgspec.structs.replace(LEADS, seq=Seq(2))
    assert story.wait()[1] == [], "the last execution is not committed yet"
    story.standing = msgspec.structs.replace(LEADS, owing=True)
    assert story.wait()[1] == [], "an audit is owed"
    story.standing = LEADS
    assert story.wait()[1] == ["write"]


def test_the_audit_that_a_lost_process_owes_is_not_waited_for() -> None:
    owing = msgspec.structs.replace(LEADS, owing=True, executor=ReplicaId("r1"))
    story = Story(owing)
    story.tell(Asked(Seq(3), gone={ReplicaId("r1"): owing.seq}))
    assert story.wait()[1] == ["write"]


def test_a_wish_that_cannot_be_granted_says_why_in_the_end() -> None:
    story = Story(msgspec.structs.replace(LEADS, quorum=False))
    began = story.now
    story.tell(Asked(Seq(3)))
    done: list[str] = []
    while not done:
        done = story.wait()[1]
    assert done[0].startswith("say -: The majority")
    assert story.now >= began + SETTLE_LIMIT_S


def test_a_pinned_variable_is_named() -> None:
    pin = Pin("line", "socket.socket", ReplicaId("r1"), Seq(1), reason="cannot pickle it.")
    story = Story(msgspec.structs.replace(LEADS, pins=(pin,)))
    story.tell(Asked(Seq(3)))
    (said,) = story.wait()[1]
    assert said.startswith("say -: `line` (socket.socket) cannot be kept in a checkpoint: cannot pickle it;")


def test_a_pin_lost_with_its_process_keeps_nobody_awake() -> None:
    pin = Pin("line", "socket.socket", ReplicaId("r1"), Seq(1), reason="cannot pickle it.")
    story = Story(msgspec.structs.replace(LEADS, pins=(pin,)))
    story.tell(Asked(Seq(3), gone={ReplicaId("r1"): Seq(1)}))
    assert story.wait()[1] == ["write"]
    story = Story(msgspec.structs.replace(LEADS, pins=(msgspec.structs.replace(pin, seq=Seq(2)),)))
    story.tell(Asked(Seq(3), gone={ReplicaId("r1"): Seq(1), ReplicaId("r2"): Seq(2)}))
    assert story.wait()[1][0].startswith("say -: `line`")


def test_a_host_that_does_not_lead_leaves_it_to_the_one_that_does() -> None:
    story = Story(FOLLOWS)
    for seq in (3, 4):  # What it lacks itself, the leader may have.
        story.tell(Asked(Seq(seq)))
        assert story.wait()[1] == ["say -"]


def test_a_write_that_had_begun_before_the_wish_does_not_answer_it() -> None:
    story = Story()
    story.tell(Changed())
    story.wait()
    story.standing = msgspec.structs.replace(LEADS, place=Place(1, 9), seq=Seq(4))
    story.tell(Asked(Seq(4)))
    assert story.tell(Ended("c1", Place(1, 5), Seq(3), 3)) == []
    assert story.wait()[1] == ["write"]
    assert story.written("c2") == ["say c2"]


def test_a_write_for_an_earlier_wish_does_not_answer_a_later_one() -> None:
    story = Story()
    story.tell(Asked(Seq(3), pinned=True))
    assert story.wait()[1] == ["write"]
    story.now += 60  # The store stalls, the router gives up, and a cell runs meanwhile.
    story.standing = msgspec.structs.replace(LEADS, place=Place(1, 9), seq=Seq(4))
    story.tell(Asked(Seq(4)))
    assert story.tell(Ended("c1", Place(1, 5), Seq(3), 3)) == [], "execution 4 is not in it"
    assert story.wait()[1] == ["write"]
    assert story.written("c2") == ["say c2"]


def test_a_forced_checkpoint_needs_no_majority() -> None:
    story = Story(msgspec.structs.replace(FOLLOWS, quorum=False, busy=True))
    story.tell(Asked(Seq(9), forced=True))
    assert story.wait() == (0.0, ["write forced"])
    assert story.tell(Ended(why="the store is away")) == ["say -: the store is away"]
