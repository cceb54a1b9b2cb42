"""SIGINT while replkernel works: nothing breaks, and a cell that waited behind it is interrupted."""

from __future__ import annotations

import signal

import pytest

from replkernel.kernel import interrupts
from replkernel.kernel.interrupts import PutOffInterrupts


def test_block_is_not_broken_and_the_interrupt_is_remembered_once() -> None:
    put_off = PutOffInterrupts()
    reached = []
    with put_off.put_off():
        signal.raise_signal(signal.SIGINT)
        reached.append("the end")
    assert reached == ["the end"]
    assert put_off.take()
    assert not put_off.take()


def test_handler_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    put_off = PutOffInterrupts()
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="mine"), put_off.put_off():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_that_the_block_set_stays() -> None:
    put_off = PutOffInterrupts()
    before = signal.getsignal(signal.SIGINT)
    try:
        with put_off.put_off():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_old_interrupt_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    put_off = PutOffInterrupts()
    now = 100.0
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now)
    with put_off.put_off():
        signal.raise_signal(signal.SIGINT)
    now += interrupts.REMEMBERED_S * 2
    assert not put_off.take()


def test_waiting_inside_is_broken_at_once() -> None:
    put_off = PutOffInterrupts()
    with put_off.put_off():
        with pytest.raises(KeyboardInterrupt), put_off.delivered():
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), put_off.delivered():
            raise AssertionError("the interrupt had arrived before")
    assert not put_off.take()


def test_no_interrupt_is_taken_where_none_arrived() -> None:
    put_off = PutOffInterrupts()
    with put_off.put_off():
        pass
    assert not put_off.take()


def test_after_a_cell_an_interrupt_counts_only_for_a_cell_that_waits_already() -> None:
    put_off = PutOffInterrupts()
    with put_off.put_off(after_cell=True):
        signal.raise_signal(signal.SIGINT)
    assert not put_off.take()
    put_off.next_waits = lambda: True
    with put_off.put_off(after_cell=True):
        signal.raise_signal(signal.SIGINT)
    assert put_off.take()


def test_an_interrupt_in_a_postponing_block_breaks_what_comes_after_it() -> None:
    # A shell has what it starts in the background ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    reached = []

    def interrupted() -> None:
        with PutOffInterrupts().postponed():
            signal.raise_signal(signal.SIGINT)
            reached.append("the end")

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert reached == ["the end"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_postponed_interrupt_reaches_the_handler_that_the_user_set() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with PutOffInterrupts().postponed():
            signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)
