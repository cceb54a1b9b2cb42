"""The launchers of an agent: which are ended, and when."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from typing import cast

from replkernel.ranks.starting import Launchers


class Process:
    """A launcher that says when it is told to end."""

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.told = asyncio.Event()

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        self.told.set()


def with_launchers(*gangs: str) -> tuple[Launchers, dict[str, Process]]:
    launchers, made = Launchers("a", {}, lambda: None), {gang: Process() for gang in gangs}
    for number, (gang, process) in enumerate(made.items()):
        launchers._live[number] = (gang, cast("subprocess.Popen[bytes]", process))
    return launchers, made


async def test_the_launcher_of_one_cell_is_ended_and_no_other() -> None:
    launchers, made = with_launchers("g", "h")
    assert launchers.gangs() == ("g", "h")
    launchers.stop("g")
    assert (made["g"].signals, made["h"].signals) == ([signal.SIGTERM], [])


async def test_one_that_its_cell_is_to_end_has_a_while_for_that() -> None:
    launchers, made = with_launchers("g")
    launchers.stop("g", 0.01)
    assert made["g"].signals == []
    await made["g"].told.wait()
    gone, ended = with_launchers("g")
    gone.stop("g", 0.01)
    gone._live.clear()
    launchers.stop("g", 0.02)
    made["g"].told.clear()
    await made["g"].told.wait()
    assert ended["g"].signals == []
