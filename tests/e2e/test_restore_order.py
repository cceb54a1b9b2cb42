"""Cells on replicas that have most of a large namespace still to restore: nobody notices but by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ending import lose
from tests.support.live import Live, Ran, eventually, kernel
from tests.support.shared_place import _kernel_in_reach, _own_directories, place, shared_scope, tidy

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

SETUP = """
import functools, threading, numpy as np, pandas as pd
big0, big1, big2, big3 = (np.full(10_000_000, float(n)) for n in range(4))
alias = big0
small = [1]
def direct(): return big0[0]
def nested():
    def inner(): return direct() + big1[0]
    return inner
class Model:
    def total(self): return big2[0]
    def __repr__(self): return f"<{big3[0]}>"
    @property
    def scaled(self): return big1[1] * 10
made = nested(); model = Model(); models = {"a": [Model()]}; bound = model.total
acts = [lambda: big3[2]]; part = functools.partial(direct); kept = functools.lru_cache(direct)
frame = pd.DataFrame({"a": [0.5, 1.5, 2.5]})
ask = "big2[3]"; word = "big3"
"""

SNEAKY = {
    "print(big0[0])": "0.0",
    "print(direct())": "0.0",
    "print(made())": "1.0",
    "print(model.total())": "2.0",
    "print(models['a'][0].scaled)": "10.0",
    "print(bound())": "2.0",
    "print(acts[0]())": "3.0",
    "print(part(), kept())": "0.0 0.0",
    "print(list(map(lambda f: f(), [direct, acts[0]])))": "[np.float64(0.0), np.float64(3.0)]",
    "print(eval('bi' + 'g1[0]'))": "1.0",
    "print(eval(ask))": "2.0",
    "print(globals()[word][0])": "3.0",
    "print(getattr(__import__('__main__'), word)[0])": "3.0",
    "import sys; print(sys.modules['__main__'].big1[0])": "1.0",
    "import sys; print(sys._getframe().f_globals['big' + '1'][0])": "1.0",
    "exec(compile('print(big' + '2[0])', 'x', 'exec'))": "2.0",
    "print(len(frame.query('a > @big1[0]')))": "2",
    "print('big' + '3' in dir(), 'big3' in globals())": "True True",
    "%time found = big3[0]\nprint(found)": "3.0",
    "t = threading.Thread(target=lambda: print(direct())); t.start(); t.join()": "0.0",
    "async def ask_later(): return big1[0]\nprint(await ask_later())": "1.0",
    "print(repr(model), f'{big3[0]}')": "<3.0> 3.0",
    "from lookup import by_name\nprint(by_name('big' + '2')[0])": "2.0",
    "import pickle\nprint(repr(pickle.loads(pickle.dumps(model))))": "<3.0>",
    "try:\n    big1\nexcept NameError:\n    print('lost')\nelse:\n    print(big1[0])": "1.0",
}

SMALL_RSS = "print(int(open('/proc/self/statm').read().split()[1]) * 4096 < 290_000_000)"
"""Whether the process holds less than the 320 MB of arrays that the notebook has."""


@pytest.fixture(scope=shared_scope)
def rotating(place: Path) -> Iterator[Live]:
    """Start a kernel whose cells take turns."""
    (place / "lookup.py").write_text(
        "import __main__\n\ndef by_name(name):\n    return getattr(__main__, name)\n"
    )
    with kernel(place, REPLKERNEL_EXECUTOR="rotate") as running:
        eventually(lambda: len({running.run("pass").replica for _ in range(3)}) == 3, "three replicas")
        yield running


@pytest.fixture
def live(rotating: Live) -> Live:
    """Return a kernel with a notebook that has 320 MB, made by one process a moment ago."""
    tidy(rotating)
    assert rotating.run(SETUP).status == "ok"
    return rotating


def value(ran: Ran) -> str:
    """Return what a cell that must succeed printed, but for times."""
    assert ran.status == "ok", ran.error
    return ran.out.strip().splitlines()[-1]


def test_cells_find_what_waits_in_whatever_way_they_look_for_it(live: Live) -> None:
    assert value(live.run(f"small.append(2); {SMALL_RSS}")) == "True"
    replicas = set()
    for cell, printed in SNEAKY.items():
        for again in ("", "small.append(3); "):
            if again and "\n" not in cell and not cell.startswith(("%", "async")):
                cell = again + cell
            ran = live.run(cell)
            replicas.add(ran.replica)
            assert value(ran) == printed, cell
    assert len(replicas) == 3


def test_a_name_bound_anew_or_deleted_over_one_that_waits_is_so_everywhere(live: Live) -> None:
    assert value(live.run(f"big0 = 'mine'; {SMALL_RSS}")) == "True"
    assert value(live.run("print(big0, alias[0])")) == "mine 0.0"
    live.run("del big1")
    for _ in range(3):
        ran = live.run("try:\n    big1\nexcept NameError:\n    print('gone', big0, big3[0])")
        assert value(ran) == "gone mine 3.0"


def test_questions_find_what_waits(live: Live) -> None:
    live.run("small.append(2)")
    ran = live.run("x = 1", user_expressions={"asked": "big2[0] + 1"})
    assert "3.0" in ran.reply["content"]["user_expressions"]["asked"]["data"]["text/plain"]

    def inspected() -> bool:
        reply = live.client.inspect("big3", reply=True, timeout=30)
        return "ndarray" in reply["content"]["data"].get("text/plain", "")

    eventually(inspected, "inspection of a variable that waits", 10)


@pytest.mark.slow
def test_results_that_wait_come_back_to_out(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_EXECUTOR="rotate") as live:
        assert live.run(SETUP).status == "ok"
        live.run("big2[:3]")
        live.run("small")
        live.run("small.append(1)")
        assert value(live.run("print(_2, Out[2][0], sorted(Out))")) == "[2. 2. 2.] 2.0 [2, 3]"
        live.run("7")
        assert value(live.run("print(_, __, Out[2][1])")) == "7 [1, 1] 2.0"


def test_a_process_that_takes_over_runs_the_next_cell_and_restores_the_rest_behind_it(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_DURABLE="before_reply") as running:
        pid = int(value(running.run(SETUP + "import os; print(os.getpid())")))
        lose(pid)
        ran = running.run(f"small.append(2); {SMALL_RSS}")
        assert value(ran) == "True"
        assert value(running.run("print(len(small), model.total(), alias is big0)")) == "2 2.0 True"

        def restored() -> bool:
            return value(running.run(SMALL_RSS)) == "False"

        eventually(restored, "the restore of the rest in idle time")
        assert value(running.run("print(big1[5], big3[5])")) == "1.0 3.0"
