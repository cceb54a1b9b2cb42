"""The course of a cell on several hosts: all starts or nothing, all ends, and why is said once."""

from __future__ import annotations

import pytest

from replkernel.ranks.course import (
    END_S,
    START_S,
    BeginOn,
    Came,
    Course,
    Effect,
    Emptied,
    Event,
    Gave,
    Gone,
    Interrupted,
    Leased,
    LinkLost,
    Over,
    RankEnded,
    Refused,
    StopOn,
    Tell,
    TimeCame,
    Waits,
)

A, B = Came(b"a", "a", "10.0.0.1", 2001), Came(b"b", "b", "10.0.0.2", 2002)
LEASED = Leased(("a", "b"), 2)


def played(*events: Event, gives_back: bool = False, at: float = 0.0) -> list[Effect]:
    """Return what follows from the last of these events."""
    course = Course(2, gives_back=gives_back)
    effects: list[Effect] = []
    for event in events:
        effects = course.handle(event, at)
    return effects


def ended(*ranks: int) -> list[Event]:
    return [RankEnded(rank, 0) for rank in ranks]


@pytest.mark.parametrize("events", [(LEASED, A, B), (A, LEASED, B), (B, A, LEASED), (LEASED, B, A)])
def test_processes_start_once_launchers_are_on_all_hosts(events: tuple[Event, ...]) -> None:
    assert [each for each in played(*events[:-1]) if isinstance(each, BeginOn)] == []
    assert played(*events) == [
        BeginOn(b"a", 0, 2, 4, "10.0.0.1", 2001),
        BeginOn(b"b", 2, 2, 4, "10.0.0.1", 2001),
    ]


def test_a_cell_is_over_when_all_processes_are() -> None:
    assert played(LEASED, A, B, *ended(0, 2, 3)) == []
    assert played(LEASED, A, B, *ended(0, 2, 3, 1)) == [StopOn(b"a"), StopOn(b"b"), Over()]


def test_the_result_of_rank_0_is_there_before_the_cell_is_over() -> None:
    assert played(LEASED, A, B, Gave(b"x"), *ended(3, 1, 2, 0), gives_back=True)[-1] == Over("", b"x")
    assert played(LEASED, A, B, Gave(b"x"), *ended(0, 1, 2, 3), gives_back=True)[-1] == Over("", b"x")


def test_rank_0_that_ends_without_giving_back_ends_the_cell() -> None:
    assert played(LEASED, A, B, *ended(1, 0), gives_back=True) == [StopOn(b"a"), StopOn(b"b")]
    (over,) = played(LEASED, A, B, *ended(0), Gone(b"a"), Gone(b"b"), gives_back=True)
    assert isinstance(over, Over) and over.error.startswith("Rank 0 on host a ended without giving back")


def test_the_first_process_that_fails_ends_all_and_is_named() -> None:
    course = Course(2, gives_back=False)
    for event in (LEASED, A, B):
        course.handle(event, 0.0)
    assert course.handle(RankEnded(2, 1, "ValueError: no data"), 1.0) == [StopOn(b"a"), StopOn(b"b")]
    assert course.deadline() == 1.0 + END_S
    assert course.handle(RankEnded(0, -9), 1.1) == []
    assert course.handle(Gone(b"b"), 1.2) == []
    assert course.handle(Gone(b"a"), 1.3) == [
        Over("Rank 2 on host b ended with status 1: ValueError: no data")
    ]
    assert course.handle(Gone(b"a"), 1.4) == []


def test_a_signal_is_named() -> None:
    assert played(LEASED, A, B, RankEnded(1, -9), Gone(b"a"), Gone(b"b")) == [
        Over("Rank 1 on host a was ended by signal 9")
    ]


def test_a_host_that_is_lost_ends_those_on_the_others() -> None:
    effects = played(LEASED, A, B, Gone(b"b"))
    assert effects == [StopOn(b"a")]
    (over,) = played(LEASED, A, B, Gone(b"b"), Gone(b"a"))
    assert isinstance(over, Over) and over.error.startswith("Host b is gone")


def test_a_host_that_leaves_when_its_processes_have_ended_well_is_no_loss() -> None:
    assert played(LEASED, A, B, *ended(2, 3), Gone(b"b")) == []
    assert played(LEASED, A, B, *ended(2, 3), Gone(b"b"), *ended(0, 1)) == [StopOn(b"a"), Over()]
    assert played(LEASED, A, B, *ended(2), Gone(b"b")) == [StopOn(b"a")]
    assert played(LEASED, A, B, *ended(2, 3), Gone(b"a")) == [StopOn(b"b")]


def test_processes_that_do_not_end_are_not_waited_for_longer_than_that() -> None:
    course = Course(2, gives_back=False)
    for event in (LEASED, A, B, Interrupted()):
        course.handle(event, 5.0)
    assert course.handle(TimeCame(), 5.0 + END_S - 1) == []
    assert course.handle(TimeCame(), 5.0 + END_S) == [Over("The cell was interrupted.")]


def test_a_launcher_that_does_not_come_is_named() -> None:
    course = Course(2, gives_back=False)
    course.handle(LEASED, 0.0)
    course.handle(A, 1.0)
    assert course.deadline() == START_S
    assert course.handle(TimeCame(), START_S) == [StopOn(b"a")]
    (over,) = course.handle(Gone(b"a"), START_S)
    assert isinstance(over, Over) and "from b within 60 s" in over.error


def test_a_cell_that_is_refused_or_interrupted_while_it_waits_is_over_at_once() -> None:
    assert played(Refused("No two hosts have 8 GPUs each.")) == [Over("No two hosts have 8 GPUs each.")]
    assert played(Waits(2, 0), Interrupted()) == [Over("The cell was interrupted.")]


def test_a_lease_that_is_over_ends_all() -> None:
    assert played(LEASED, A, B, Refused("The lease on host b is over.")) == [StopOn(b"a"), StopOn(b"b")]


@pytest.mark.parametrize("late", [Came(b"c", "c", "10.0.0.3", 1), Came(b"a2", "a", "10.0.0.1", 1)])
def test_a_launcher_that_nobody_wants_is_stopped(late: Came) -> None:
    assert played(LEASED, A, late) == [StopOn(late.peer)]
    assert played(LEASED, A, B, *ended(0, 1, 2, 3), late) == [StopOn(late.peer)]


def test_a_scheduler_that_says_again_what_it_has_granted_changes_nothing() -> None:
    assert played(LEASED, A, B, LEASED) == []


def test_other_gpus_than_it_has_are_its_end() -> None:
    had, other = Leased(("a", "b"), 2, ("l1", "l2")), Leased(("a", "b"), 2, ("l3", "l4"))
    assert played(had, A, B, had) == []
    (over,) = played(had, A, B, other, Gone(b"a"), Gone(b"b"))
    assert isinstance(over, Over) and "other GPUs" in over.error


def test_a_scheduler_that_is_away_is_told_of_once_while_the_cell_waits() -> None:
    (told,) = played(Waits(1, 0), LinkLost("It does not answer."))
    assert isinstance(told, Tell) and "keeps its place" in told.text and "does not answer" in told.text
    assert played(Waits(1, 0), LinkLost("It does not answer."), LinkLost("It does not answer.")) == []
    assert len(played(Waits(1, 0), LinkLost("x"), Waits(1, 0), LinkLost("x"))) == 1
    assert played(LEASED, A, B, LinkLost("It does not answer.")) == []


def test_hosts_whose_processes_nobody_has_seen_end_are_known() -> None:
    course = Course(2, gives_back=False)
    for event in (LEASED, A):
        course.handle(event, 0.0)
    assert course.unsure() == (), "nothing has begun"
    course.handle(B, 0.0)
    assert course.unsure() == ("a", "b")
    for event in (Interrupted(), Emptied(b"a"), Gone(b"a"), Gone(b"b")):
        course.handle(event, 1.0)
    assert course.phase == "over" and course.unsure() == ("b",)
    well = Course(2, gives_back=False)
    for event in (LEASED, A, B, *ended(0, 1, 2, 3)):
        well.handle(event, 0.0)
    assert well.unsure() == ()


def test_a_host_that_ends_its_processes_ends_those_on_the_others() -> None:
    assert played(LEASED, A, B, Emptied(b"b")) == [StopOn(b"a"), StopOn(b"b")]
    (over,) = played(LEASED, A, B, Emptied(b"b"), Gone(b"b"), Gone(b"a"))
    assert isinstance(over, Over) and over.error.startswith("Host b has ended its processes")


def test_a_host_whose_processes_are_over_may_go() -> None:
    assert played(LEASED, A, B, *ended(2, 3), Emptied(b"b")) == []
    assert played(LEASED, A, B, *ended(2, 3), Gone(b"b")) == []
    assert played(LEASED, A, B, *ended(2, 3), Gone(b"b"), *ended(0, 1))[-1] == Over()


@pytest.mark.parametrize(
    ("waits", "text"),
    [
        (
            Waits(1, 1, 40.0),
            "Waiting for GPUs on 2 hosts. It has 1 of 2 hosts. The next is expected in 40 s.",
        ),
        (Waits(3, 0), "Waiting for GPUs on 2 hosts. 2 cells on several hosts are before it."),
        (Waits(2, 0), "Waiting for GPUs on 2 hosts. One cell on several hosts is before it."),
    ],
)
def test_a_waiting_cell_says_what_it_waits_for(waits: Waits, text: str) -> None:
    assert played(waits) == [Tell(text)]
