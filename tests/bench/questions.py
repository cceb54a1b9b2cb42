"""The first completion and inspection in a long cell, by a standby, beside an idle stock kernel's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.bench.kernels import Kernel, kernel, place
from tests.bench.report import Result
from tests.support.stock import OURS, STOCK

KERNELS = 3
UP_S = 3.0
LONG_S = 5.0
"""So long the cell has run when the first question comes."""
SETTING = "import pandas\nframe = pandas.DataFrame({'alpha': [1.0]})\ntable = {'first': 1}\nlast_name = 1"
QUESTIONS = {
    "frame.al": "alpha",
    "frame['": "alpha",
    "table['": "first",
    "last_n": "last_name",
}


def _first_answers(name: str) -> Iterator[tuple[str, float]]:
    """Start a kernel; yield each question with the seconds until its answer."""
    with place() as where, kernel(name, where) as asked:
        asked.run(SETTING)
        time.sleep(UP_S)
        if name == OURS:
            asked.client.execute("import time; time.sleep(600)")
        time.sleep(LONG_S)
        for code, found in QUESTIONS.items():
            seconds, content = _ask(asked, asked.client.complete, code)
            if not any(found in match for match in content["matches"]):
                raise RuntimeError(f"{code!r} was completed with {content['matches']}")
            yield code, seconds
        seconds, content = _ask(asked, asked.client.inspect, "frame")
        if not content["found"]:
            raise RuntimeError("`frame` was not found")
        yield "frame?", seconds
        asked.manager.interrupt_kernel()


def _ask(asked: Kernel, how: Callable[[str, int], str], code: str) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    content = asked.answer(how(code, len(code)))
    return time.perf_counter() - began, content


def measure() -> Result:
    """Alternate between new kernels of both kinds; the very first answers are the samples."""
    first: dict[str, list[float]] = {OURS: [], STOCK: []}
    each: dict[str, dict[str, list[float]]] = {OURS: {}, STOCK: {}}
    for _ in range(KERNELS):
        for name in first:
            answers = list(_first_answers(name))
            first[name].append(answers[0][1])
            for code, seconds in answers:
                each[name].setdefault(code, []).append(round(seconds, 4))
    return Result("questions", "s", first[OURS], first[STOCK], "at most 0.5 s", {"each": each})
