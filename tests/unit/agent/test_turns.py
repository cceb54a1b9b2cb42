"""While a kernel starts, its first process goes ahead; nobody waits for ever, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from replkernel.agent.io import turns
from replkernel.agent.io.turns import Turns

Script = Callable[[Turns, list[str]], None]


def played(script: Script, seconds: float = 0.0) -> list[str]:
    """Return what was started and refused when `script` is played and so much time has passed."""
    heard: list[str] = []

    async def play() -> None:
        script(Turns(), heard)
        await asyncio.sleep(seconds)

    asyncio.run(play())
    return heard


def ask(order: Turns, heard: list[str], *names: str) -> None:
    for name in names:
        order.ask(lambda name=name: heard.append(name), lambda name=name: heard.append(f"no {name}"))


@pytest.fixture(autouse=True)
def _short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SETTLE_S", 0.0)
    monkeypatch.setattr(turns, "LIMIT_S", 0.001)


def test_the_first_starts_at_once_and_the_others_wait() -> None:
    assert played(lambda order, heard: ask(order, heard, "r1", "r2", "r3"), 0.01) == ["r1"]


@pytest.mark.parametrize("news", [Turns.born, Turns.greeted, Turns.failed])
def test_the_others_start_after_news_of_the_first(news: Callable[[Turns], None]) -> None:
    def script(order: Turns, heard: list[str]) -> None:
        ask(order, heard, "r1", "r2", "r3")
        news(order)

    assert played(script, 0.02) == ["r1", "r2", "r3"]


def test_once_the_start_is_over_nobody_waits() -> None:
    def script(order: Turns, heard: list[str]) -> None:
        order.close()
        ask(order, heard, "r1", "r2")

    assert played(script) == ["r1", "r2"]


def test_the_end_of_the_kernel_refuses_those_who_wait() -> None:
    def script(order: Turns, heard: list[str]) -> None:
        ask(order, heard, "r1", "r2")
        order.born()
        order.refuse()

    assert played(script, 0.01) == ["r1", "no r2"]


def test_an_agent_that_goes_starts_nobody_and_refuses_nobody() -> None:
    def script(order: Turns, heard: list[str]) -> None:
        ask(order, heard, "r1", "r2")
        order.born()
        order.close()

    assert played(script, 0.01) == ["r1"]


def test_others_wait_for_the_first_process_only_if_there_is_one() -> None:
    async def play() -> list[bool]:
        restored, fresh = Turns(), Turns()
        fresh.ask(lambda: None, lambda: None)
        tasks = [asyncio.create_task(order.others()) for order in (restored, fresh)]
        await asyncio.sleep(0)
        done = [task.done() for task in tasks]
        fresh.greeted()
        await asyncio.wait_for(tasks[1], 5.0)
        return done

    assert asyncio.run(play()) == [True, False]
