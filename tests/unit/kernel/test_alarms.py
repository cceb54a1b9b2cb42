"""The deadlines of a polling thread."""

from __future__ import annotations

from replkernel.kernel.alarms import Alarms


def test_nothing_is_due_at_first() -> None:
    alarms = Alarms()
    assert alarms.patience_s(1.0) is None
    assert not alarms.take("claim", 1.0)


def test_the_next_deadline_decides_how_long_to_block() -> None:
    alarms = Alarms()
    alarms.set("status", 5.0)
    alarms.set("claim", 3.0)
    assert alarms.patience_s(1.0) == 2.0
    assert alarms.patience_s(4.0) == 0.0
    alarms.cancel("claim")
    assert alarms.patience_s(1.0) == 4.0


def test_a_deadline_is_taken_once() -> None:
    alarms = Alarms()
    alarms.set("claim", 3.0)
    assert not alarms.take("claim", 2.9)
    assert alarms.take("claim", 3.0)
    assert not alarms.take("claim", 3.0)
    assert "claim" not in alarms


def test_a_deadline_that_was_set_once_is_not_put_off() -> None:
    alarms = Alarms()
    alarms.set_once("status", 2.0)
    alarms.set_once("status", 9.0)
    assert alarms.patience_s(1.0) == 1.0
    alarms.set("status", 9.0)
    assert alarms.patience_s(1.0) == 8.0
