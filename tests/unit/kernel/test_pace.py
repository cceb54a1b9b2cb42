"""How often what is large is captured while cells follow each other, and when they pause."""

from __future__ import annotations

import pytest

from replkernel.kernel.pace import PAUSE_MAX_S, POINT_AGE_S, STORED_MAX_S, Pace


class Training:
    """A notebook whose cells all change what is large, on a clock of its own."""

    def __init__(self, cell_s: float, capture_s: float, store_s: float, *, share: float = 0.1) -> None:
        self.now = 1000.0
        self.pace = Pace()
        self.pace.share_is(share)
        self.shipped: list[float] = []
        self.ages: list[float] = []
        self._cell_s, self._capture_s, self._store_s = cell_s, capture_s, store_s
        self._stored_at: float | None = None

    def cell(self, gap_s: float = 0.0) -> str:
        """Run one cell after a gap; return what became of what is large."""
        self.pause(gap_s)
        self.pace.cell_begins(self.now)
        self.advance(self._cell_s)
        pressed = self.pace.presses(self.now)
        took = "pressed" if pressed else "captured" if self.pace.allows(self.now) and gap_s else "left"
        self._capture(whole=took != "left")
        self.pace.cell_ended(self.now)
        self.ages.append(self.now - (self.shipped[-1] if self.shipped else 1000.0))
        return took

    def pause(self, seconds: float) -> bool:
        """Let time pass between cells; return whether an audit was made in it."""
        due_s = self.pace.pause_s(self.now)
        if due_s + self._capture_s > seconds:
            self.advance(seconds)
            return False
        self.advance(due_s)
        self._capture(whole=True)
        self.advance(seconds - due_s - self._capture_s)
        return True

    def _capture(self, *, whole: bool) -> None:
        self.advance(self._capture_s if whole else 0.002)
        self.pace.captured(self._capture_s if whole else 0.002, self.now, whole=whole)
        if whole:
            self.shipped.append(self.now)
            self._stored_at = self.now + self._store_s

    def advance(self, seconds: float) -> None:
        """Let time pass; what is stored by then is told."""
        self.now += seconds
        if self._stored_at is not None and self._stored_at <= self.now:
            self.pace.stored(self._stored_at)
            self._stored_at = None


def test_cells_without_a_pause_ship_for_a_tenth_of_the_time_and_the_point_still_moves() -> None:
    story = Training(cell_s=1.0, capture_s=0.8, store_s=0.7)
    said = [story.cell() for _ in range(100)]
    assert said[:7] == ["left"] * 5 + ["pressed", "left"]
    spent = len(story.shipped) * (0.8 + 0.7 - 0.25)
    assert spent <= 0.11 * (story.now - 1000)
    assert max(story.ages) <= 10 * 1.25 + 1.0 + 0.8 + 0.1, "it is never behind by more"


def test_a_cheap_variable_is_as_old_as_it_may_be_and_no_older() -> None:
    story = Training(cell_s=0.5, capture_s=0.06, store_s=0.1)
    for _ in range(100):
        story.cell()
    assert max(story.ages[20:]) <= POINT_AGE_S + 2 * 0.5 + 0.2


def test_the_first_cell_after_a_while_is_captured_at_once() -> None:
    story = Training(cell_s=1.0, capture_s=0.8, store_s=0.7)
    assert story.cell(gap_s=60.0) == "captured"
    assert story.cell(gap_s=0.1) == "left"
    assert story.cell(gap_s=60.0) == "captured"


def test_cells_with_short_gaps_ship_for_a_tenth_of_the_time_as_well() -> None:
    story = Training(cell_s=1.0, capture_s=0.2, store_s=0.5)
    for _ in range(100):
        story.cell(gap_s=0.5)
    assert len(story.shipped) * (0.2 + 0.25) <= 0.13 * (story.now - 1000)


def test_a_pause_moves_the_point_though_the_share_is_used_up() -> None:
    story = Training(cell_s=1.0, capture_s=0.8, store_s=0.7)
    story.cell(gap_s=60.0)
    story.cell(gap_s=0.2)
    assert story.pause(PAUSE_MAX_S + 0.8)


def test_while_the_store_is_in_trouble_nothing_more_is_sent_its_way_between_cells() -> None:
    story = Training(cell_s=1.0, capture_s=0.8, store_s=1e9)
    said = [story.cell() for _ in range(100)]
    assert said.count("pressed") == 1
    assert not story.pace.allows(story.now)
    assert story.pace.allows(story.now + 10 * (STORED_MAX_S + 1))


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_the_share_is_the_users(share: float) -> None:
    story = Training(cell_s=1.0, capture_s=2.0, store_s=0.0, share=share)
    for _ in range(200):
        story.cell()
    assert 2.0 * len(story.shipped) <= (share + 0.02) * (story.now - 1000)


EVERY = {"model": 300.0, "opt": 60.0}


def kept(pace: Pace, now: float, *, told: str = "", back: str = "") -> None:
    """Note what a capture told and held back of what is kept."""
    pace.kept(EVERY, told.split(), back.split(), now)


def test_the_first_version_of_what_is_kept_is_captured_at_once() -> None:
    assert Pace().early(EVERY, 1000.0) == frozenset()


def test_a_kept_variable_is_captured_once_in_its_time_at_most() -> None:
    pace = Pace()
    kept(pace, 1000.0, told="model opt")
    assert pace.early(EVERY, 1059.0) == {"model", "opt"}
    assert pace.early(EVERY, 1060.0) == {"model"}
    assert pace.early(EVERY, 1300.0) == frozenset()


def test_an_unchanged_kept_variable_holds_nothing_up() -> None:
    pace = Pace()
    kept(pace, 1000.0, told="model opt")
    assert pace.allows(1001.0)
    assert pace.kept_for_s(1001.0) == 0.0


def test_while_something_kept_is_held_back_nothing_large_is_captured_in_vain() -> None:
    pace = Pace()
    kept(pace, 1000.0, told="model opt")
    pace.cell_ended(1010.0)
    kept(pace, 1010.0, back="model")
    pace.captured(0.01, 1010.0, whole=False)
    assert not pace.allows(1299.0)
    assert not pace.presses(1299.0)
    assert pace.pause_s(1011.0) == 289.0
    assert pace.early(EVERY, 1200.0) == {"model", "opt"}, (
        "what is due waits for what is not: they go together"
    )
    assert pace.presses(1300.0)
    assert pace.early(EVERY, 1300.0) == frozenset()


def test_a_variable_kept_no_more_holds_nothing_up() -> None:
    pace = Pace()
    kept(pace, 1000.0, told="model")
    kept(pace, 1010.0, back="model")
    pace.kept({}, (), (), 1011.0)
    assert pace.allows(1011.0)


def test_a_store_that_was_away_for_long_does_not_stop_captures_for_hours() -> None:
    pace = Pace()
    pace.captured(1.0, 1000.0, whole=True)
    pace.stored(4600.0)
    assert pace.allows(4600.0)
