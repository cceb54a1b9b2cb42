"""Whoever was away is sent what was missed, in order; nobody is sent anything twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.router.core import replay
from replkernel.router.core.replay import Audience, Publication
from tests.support.examples import examples

PAGE = "page"


def publication(number: int, client: str = PAGE, kind: str = "stream", cell: str = "cell") -> Publication:
    """Return a publication that is known by its number."""
    return Publication([str(number).encode()], kind, cell, client)


class Stage:
    """An audience, and what each of its subscribers was sent."""

    def __init__(self) -> None:
        self.now = 100.0
        self.audience = Audience(0.0)
        self.audience.settle(self.now)
        self.sent: dict[int, list[int]] = {}
        self.public: set[int] = set()
        self.there: list[int] = []
        self.count = 0

    def join(self) -> int:
        """Have somebody subscribe."""
        number, public = self.audience.joined(self.now)
        self.sent[number] = []
        self.there.append(number)
        if public:
            self.public.add(number)
        return number

    def leave(self, number: int) -> None:
        """Have a subscriber go."""
        self.there.remove(number)
        self.public.discard(number)
        self.audience.left(self.now)

    def publish(self, client: str = PAGE, kind: str = "stream", cell: str = "cell") -> int:
        """Publish a message."""
        self.count += 1
        message = publication(self.count, client, kind, cell)
        for number in self.public:
            self.sent[number].append(self.count)
        missed = bool(client) and self.audience.may_miss(client)
        for number in self.audience.published(message, self.now, missed=missed):
            self._deliver(number, [message])
        return self.count

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        for _ in range(100_000):
            due = self.audience.deadline()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            for number, messages in self.audience.advance(self.now):
                self._deliver(number, messages)
            self.audience.settle(self.now)
        self.now = end
        self.audience.check_invariants()

    def _deliver(self, number: int, messages: list[Publication]) -> None:
        if number in self.there:
            self.sent[number] += [int(message.frames[0]) for message in messages]


class Page:
    """A client that leaves and comes back."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._connection = 0
        self.seen: list[int] = []
        self.subscriber: int | None = None

    def come(self) -> None:
        """Connect: subscribe, then say something."""
        if self.subscriber is None:
            self._connection += 1
            self.subscriber = self._stage.join()
            self.speak()

    def speak(self) -> None:
        """Send a message on shell."""
        if self.subscriber is not None:
            self._stage.audience.heard(PAGE, self._stage.now, named=True, connection=self._connection)

    def go(self) -> None:
        """Lose the connection, with everything that had arrived read."""
        if self.subscriber is not None:
            self.seen += self._stage.sent[self.subscriber]
            self._stage.leave(self.subscriber)
            self._stage.audience.dropped(self._connection, self._stage.now)
            self._stage.wait(0.01)
            self.subscriber = None


STEP = st.tuples(
    st.sampled_from(["come", "go", "speak", "publish", "other", "join", "leave", "wait"]), st.integers(0, 20)
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(STEP, max_size=40))
def test_a_page_sees_all_its_output_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    stage = Stage()
    page = Page(stage)
    page.come()
    mine: list[int] = []
    nobodys: list[int] = []
    others: list[int] = []
    for kind, value in steps:
        if kind == "come":
            page.come()
        elif kind == "go":
            stage.wait(1)  # What is on its way to a page that dies cannot be called back.
            page.go()
        elif kind == "speak":
            page.speak()
        elif kind == "publish":
            mine.append(stage.publish())
        elif kind == "other":
            nobodys.append(stage.publish(client=""))
        elif kind == "join":
            others.append(stage.join())
        elif kind == "leave" and others:
            stage.leave(others.pop(value % len(others)))
        elif kind == "wait":
            stage.wait(value)
        stage.audience.check_invariants()
    page.come()
    stage.wait(100)
    page.go()
    assert [number for number in page.seen if number in set(mine)] == mine
    for sent in stage.sent.values():
        assert len(sent) == len(set(sent))
        for one in (mine, nobodys):
            assert [number for number in sent if number in set(one)] == sorted(set(one) & set(sent))


def test_a_silent_newcomer_is_sent_what_was_missed_after_a_while() -> None:
    stage = Stage()
    missed = [stage.publish() for _ in range(3)]
    newcomer = stage.join()
    stage.wait(replay.UNNAMED_S - 1)
    assert stage.sent[newcomer] == []
    stage.wait(2)
    assert stage.sent[newcomer] == missed


def test_clients_that_come_back_to_the_next_router_need_not_say_anything() -> None:
    stage = Stage()
    stage.audience = Audience(stage.now)
    stage.audience.missed(publication(1))
    stage.now += 0.2
    subscriber = stage.join()
    stage.count = 1
    stage.publish()
    stage.wait(30)
    assert stage.sent[subscriber] == [1, 2]
    assert not stage.audience.may_miss(PAGE)
    again = stage.join()
    stage.publish()
    stage.wait(30)
    assert stage.sent[again] == [3]


def test_once_as_many_are_back_as_there_were_nobody_misses_anything() -> None:
    stage = Stage()
    stage.audience = Audience(stage.now)
    stage.audience.expect(2, {PAGE})
    stage.join()
    stage.wait(replay.SPEAK_S * 2)
    assert stage.audience.may_miss(PAGE)
    assert stage.audience.listeners == 2
    assert not stage.audience.complete
    stage.join()
    assert stage.audience.complete
    stage.wait(replay.SPEAK_S)
    assert not stage.audience.may_miss(PAGE)
    stage.join()
    assert stage.audience.listeners == 3


def test_nothing_counts_as_seen_while_more_waits_for_one_who_came_back() -> None:
    stage = Stage()
    stage.audience = Audience(stage.now)
    stage.audience.expect(1, {PAGE})
    missed = [stage.publish()]
    subscriber = stage.join()
    missed.append(stage.publish())
    assert not stage.audience.complete
    stage.wait(0.1)
    assert stage.audience.complete
    assert stage.sent[subscriber] == missed


def test_a_newcomer_is_not_taken_for_one_who_is_not_back_yet() -> None:
    stage = Stage()
    stage.audience = Audience(stage.now)
    stage.audience.expect(1, {PAGE})
    newcomer = stage.join()
    stage.wait(replay.SPEAK_S / 2)
    stage.audience.heard("newcomer", stage.now, named=True, connection=7)
    stage.wait(replay.RETURN_S)
    missed = [stage.publish() for _ in range(3)]
    assert stage.audience.may_miss(PAGE)
    page = Page(stage)
    page.come()
    stage.wait(1)
    page.go()
    assert page.seen == missed
    assert stage.sent[newcomer] == missed


def test_behind_a_newcomer_an_old_client_counts_when_it_is_back_and_says_nothing() -> None:
    stage = Stage()
    stage.audience = Audience(stage.now)
    stage.audience.expect(1, {PAGE})
    stage.join()
    stage.audience.heard("newcomer", stage.now, named=True, connection=7)
    stage.join()
    stage.wait(replay.SPEAK_S)
    assert not stage.audience.may_miss(PAGE)


def test_a_newcomer_that_leaves_again_is_no_longer_counted() -> None:
    stage = Stage()
    stage.audience = Audience(stage.now)
    stage.audience.expect(1, {PAGE})
    newcomer = stage.join()
    stage.audience.heard("newcomer", stage.now, named=True, connection=7)
    stage.audience.dropped(7, stage.now)
    stage.leave(newcomer)
    stage.join()
    stage.wait(replay.SPEAK_S)
    assert not stage.audience.may_miss(PAGE)


def test_one_that_listened_and_does_not_come_back_is_not_awaited_for_ever() -> None:
    stage = Stage()
    stage.audience = Audience(stage.now)
    stage.audience.expect(2, {PAGE})
    stage.join()
    stage.wait(replay.LATE_S - 1)
    assert stage.audience.may_miss(PAGE)
    stage.wait(1)
    assert not stage.audience.may_miss(PAGE)


def test_messages_sent_again_keep_below_the_servers_limits() -> None:
    stage = Stage()
    for _ in range(1000):
        stage.publish(kind="display_data")
    subscriber = stage.join()
    stage.audience.heard(PAGE, stage.now, named=True, connection=1)
    stage.wait(1.0)
    assert 400 <= len(stage.sent[subscriber]) <= 550
    stage.wait(2.0)
    assert len(stage.sent[subscriber]) == 1000


def test_missed_messages_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(replay, "MISSED_MAX", 10)
    stage = Stage()
    for _ in range(50):
        stage.publish()
        stage.audience.check_invariants()
    subscriber = stage.join()
    stage.audience.heard(PAGE, stage.now, named=True, connection=1)
    stage.wait(5)
    assert stage.sent[subscriber] == list(range(41, 51))


def test_one_that_sends_and_leaves_misses_nothing() -> None:
    stage = Stage()
    stage.publish(client=f"{replay.DETACHED}1")
    newcomer = stage.join()
    assert newcomer in stage.public
    assert not stage.sent[newcomer]


def closed_page_missed(stage: Stage, count: int, kind: str = "stream") -> list[int]:
    """Have a page close for good while its cell runs, and somebody else listen."""
    stage.join()
    page = Page(stage)
    page.come()
    stage.wait(1)
    page.go()
    return [stage.publish(kind=kind) for _ in range(count)]


def newcomer(stage: Stage, client: str = "b") -> int:
    """Have another page open, and say something."""
    number = stage.join()
    stage.audience.heard(client, stage.now, named=True, connection=9)
    stage.wait(0)
    return number


def test_the_cell_of_a_page_does_not_wait_behind_what_a_closed_page_missed() -> None:
    stage = Stage()
    missed = closed_page_missed(stage, 1000, "display_data")
    page = newcomer(stage)
    own = [stage.publish("b", kind) for kind in ("status", "stream", "status")]
    assert stage.sent[page][-3:] == own
    stage.wait(60)
    assert [number for number in stage.sent[page] if number not in own] == missed


def test_a_widget_is_told_its_values_in_their_order_also_where_a_closed_page_missed_some() -> None:
    stage = Stage()
    missed = closed_page_missed(stage, 100, "comm_msg")
    page = newcomer(stage)
    newer = [stage.publish("", "comm_msg"), stage.publish("b", "comm_msg"), stage.publish("b", "status")]
    stage.wait(60)
    assert stage.sent[page] == [*missed, *newer]


def test_what_a_saved_notebook_holds_is_sent_to_no_later_page() -> None:
    stage = Stage()
    missed = closed_page_missed(stage, 3)
    later = stage.publish(cell="later")
    stage.audience.keep_only(lambda msg_id: msg_id == "later")
    stage.audience.check_invariants()
    page = newcomer(stage)
    stage.wait(60)
    assert stage.sent[page] == [later], missed
    stage.audience.keep_only(lambda msg_id: False)
    assert not stage.audience.owes(PAGE)
    assert newcomer(stage) in stage.public


def test_nobody_who_listens_falls_silent_because_many_came_after(monkeypatch: Any) -> None:
    monkeypatch.setattr(replay, "SUBSCRIBERS_MAX", 3)
    stage = Stage()
    closed_page_missed(stage, 1)
    pages = [newcomer(stage, f"page {number}") for number in range(6)]
    stage.wait(60)
    last = stage.publish("page 0")
    assert [stage.sent[page][-1] for page in pages] == [last] * 6
