"""An object that is rebuilt otherwise than captured is named, and its notebook stays where it is true."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.client.inquiry import ask_agents
from replkernel.protocol.status import ReplicaStatus
from tests.support.live import AGENT_S, Live, Ran, eventually, kernel

pytestmark = pytest.mark.timeout(120)

LYING = """
class Drops:
    def __init__(self, a, b): self.a, self.b = a, b
    def __replkernel_dump__(self): return dict(vars(self))
    @classmethod
    def __replkernel_load__(cls, state):
        made = cls.__new__(cls)
        made.a = state['a']
        return made
count = 0
x = Drops(1, 2); other = [1]
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with kernel(tmp_path, REPLKERNEL_EXECUTOR="rotate") as running:
        eventually(_all_live, "three replicas")
        yield running


def _replicas() -> dict[str, ReplicaStatus]:
    kernels = ask_agents(os.environ, AGENT_S).kernels
    return {replica.replica: replica for known in kernels for replica in known.replicas}


def _all_live() -> bool:
    replicas = _replicas().values()
    return len(replicas) == 3 and all(replica.role in ("executor", "standby") for replica in replicas)


def _pins(live: Live) -> list[list[str]]:
    return [line.split()[:3] for line in live.value("%replkernel pins").splitlines()]


def _told(cells: list[Ran]) -> list[str]:
    return [line for ran in cells for line in ran.err.splitlines() if "`x` (Drops" in line]


def test_the_notebook_stays_with_the_true_object_and_no_cell_runs_twice(live: Live) -> None:
    assert len({live.run("seen = 0").replica for _ in range(4)}) > 1
    holder = live.run(LYING).replica
    cells = [live.run("count += 1; print(x.b, count)") for _ in range(4)]
    assert [ran.out for ran in cells] == [f"2 {number}\n" for number in range(1, 5)]
    assert {ran.replica for ran in cells} == {holder}
    assert all(ran.kinds[0] == "busy" and ran.kinds[-1] == "idle" for ran in cells)
    assert all(ran.kinds.count(kind) == 1 for ran in cells for kind in ("busy", "execute_input", "idle"))
    (line,) = _told(cells)
    assert "x[1] differs" in line and f"stays on {holder}" in line


@pytest.mark.slow
def test_a_pin_of_the_notebook_is_listed_until_its_variable_is_gone(live: Live) -> None:
    holder = live.run(LYING).replica
    eventually(lambda: any(replica.unfaithful for replica in _replicas().values()), "the news of x")
    eventually(lambda: ["x", "Drops", holder] in _pins(live), "the router's news of x")
    live.run("del x")
    eventually(lambda: not any(replica.unfaithful for replica in _replicas().values()), "the end of x")
    eventually(lambda: "Nothing binds" in live.value("%replkernel pins"), "the router's news of that")
    assert len({live.run("count += 1").replica for _ in range(4)}) > 1
    assert live.value("print(count, other)") == "4 [1]"


def test_when_the_true_object_is_gone_the_rest_goes_on(live: Live) -> None:
    holder = live.run(LYING).replica
    eventually(lambda: any(replica.unfaithful for replica in _replicas().values()), "the news of x")
    pid = _replicas()[holder].kernel_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    ran = live.run("other.append(2); print(other, count)")
    assert (ran.status, ran.out) == ("ok", "[1, 2] 0\n")
    failed = live.run("x.b")
    assert failed.reply["content"]["ename"] == "StateLostError"
    assert "'x'" in failed.error and holder in failed.error
    assert live.value("x = 5; print(x)") == "5"
    assert live.value("print(x)") == "5"


NEIGHBOURS = """
class Fails(Drops):
    @classmethod
    def __replkernel_load__(cls, state): raise ValueError('boom')
near = [5]; held = {'x': x, 'near': near}; fails = [Fails(1, 2)]
def gen(): yield from 'ab'
g = gen(); next(g)
class C: __slots__ = ('g',)
c = C(); c.g = gen(); next(c.g)
"""


@pytest.mark.slow
def test_variables_joined_with_a_lost_one_stay_and_each_loss_is_told_once(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_DURABLE="before_reply") as live:
        eventually(_all_live, "three replicas")
        _lose_what_cannot_be_copied(live)


def _lose_what_cannot_be_copied(live: Live) -> None:
    live.run(LYING)
    holder = live.run(NEIGHBOURS).replica
    live.run("del g; kept = [1, c.g]; kept.reverse(); again = x; x")
    eventually(lambda: any(replica.unfaithful for replica in _replicas().values()), "the news of x")
    pid = _replicas()[holder].kernel_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    assert live.value("near.append(6); print(held['near'])") == "[5, 6]"
    assert live.run("held['x'].b").reply["content"]["ename"] == "StateLostError"
    lines = live.value("%replkernel pins").splitlines()[1:]
    told = {tuple(line.split()[:4]): line for line in lines}
    assert sorted(told) == [
        ("c.g", "generator", holder, "2"),
        ("fails[0]", "Fails", holder, "2"),
        ("x", "Drops", holder, "1"),
    ]
    assert len(lines) == len(told)
    assert all("lost here, run its cell again" in line for line in lines)
    failed = told["fails[0]", "Fails", holder, "2"]
    assert "ValueError: boom" in failed
    live.run("%reset -f")
    eventually(lambda: "Nothing binds" in live.value("%replkernel pins"), "the end of all that")


@pytest.mark.slow
def test_losses_that_replicas_on_other_hosts_found_are_listed_too(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_EXECUTOR="rotate", REPLKERNEL_HOSTS="h1,h2,h3") as live:
        eventually(_all_live, "three replicas")
        shown = live.value("%replkernel status")
        assert all(f"host {host}: up" in shown and f" on {host}," in shown for host in ("h1", "h2", "h3"))
        holder = live.run(LYING).replica
        eventually(lambda: ["x", "Drops", holder] in _pins(live), "what binds the notebook")
