"""The router's laws under any order of events: one answer each, no second run, the same history twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.protocol.agent_to_router import AgentWelcome, ReplicaPrepared
from replkernel.records import HostName, ReplicaId
from replkernel.router.core import events
from replkernel.router.core.placement import Policy
from tests.support.examples import examples
from tests.support.router_world import HOST, World

NAMES = ("r1", "r2", "r3")
STEP = st.one_of(
    st.tuples(st.just("execute"), st.booleans()),
    st.tuples(st.just("question"), st.sampled_from(["complete_request", "kernel_info_request"])),
    st.tuples(st.just("ready"), st.sampled_from(NAMES)),
    st.tuples(st.just("lose"), st.sampled_from(NAMES)),
    st.tuples(st.just("leave"), st.sampled_from(NAMES)),
    st.tuples(st.just("begin"), st.none()),
    st.tuples(st.just("finish"), st.sampled_from(["ok", "error"])),
    st.tuples(st.just("commit"), st.none()),
    st.tuples(st.just("interrupt"), st.none()),
    st.tuples(st.just("again"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.floats(0, 40)),
)


class Play:
    """Plays steps against a router, with replicas that run what they are given."""

    def __init__(
        self, policy: Policy, hosts: tuple[HostName, ...] = (HOST,), standby_idle_s: float = 0.0
    ) -> None:
        self.world = World(policy=policy, hosts=hosts, standby_idle_s=standby_idle_s)
        for host in hosts:
            self.world.feed(events.AgentFound(host, "token"))
        if standby_idle_s:
            self.world.say(AgentWelcome(host=HOST, agent_pid=2, dismisses=True))
            for name in NAMES:
                self.world.say(ReplicaPrepared(ReplicaId(name), f"{name}:1"))
        self.cells: list[str] = []
        self.questions: list[str] = []
        self.finished: set[tuple[str, str]] = set()
        self.lives: dict[str, int] = {}
        self.held: list[tuple[str, str, int]] = []

    def step(self, kind: str, value: Any) -> None:
        """Play one step."""
        world = self.world
        if kind == "execute":
            self.cells.append(world.execute(stop_on_error=value))
        elif kind == "question":
            self.questions.append(world.request(value))
        elif kind == "ready" and value not in self.world.fleet.ready():
            world.ready(value)
            self.lives[value] = self.lives.get(value, 0) + 1
        elif kind == "lose" and value in self.world.fleet.ready():
            world.lose(value)
        elif kind == "leave" and self.world.fleet.replicas[ReplicaId(value)].dormant:
            world.dismissed(value)
        elif kind in ("begin", "finish"):
            self.run_cell(kind, value)
        elif kind == "commit" and self.finished:
            seq = max(world.envelope(cell).seq for _, cell in self.finished)
            world.commit(min(self.finished)[0], seq)
        elif kind == "interrupt":
            world.request("interrupt_request", channel="control")
        elif kind == "again" and value < len(self.cells):
            # One that was aborted has never run: asked for again it is another cell, and nobody answers it.
            if "execute_reply:aborted" not in world.seen(self.cells[value]):
                world.execute(msg_id=self.cells[value])
        elif kind == "wait":
            world.wait(value)

    def run_cell(self, kind: str, status: str) -> bool:
        """Have the cell that a living replica was given begin or finish; tell whether there was one."""
        for cell in self.cells:
            for name in self.world.sent_to(cell):
                if (
                    name not in self.world.fleet.ready()
                    or (name, cell) in self.finished
                    or self.answered(cell)
                ):
                    continue
                self.world.begin(name, cell)
                if kind == "finish":
                    self.world.finish(name, cell, status=status)
                    self.finished.add((name, cell))
                return True
        return False

    def answered(self, request: str) -> bool:
        """Tell whether the client has had a reply."""
        return any("_reply" in told for told in self.world.seen(request))

    def settle(self) -> None:
        """Bring every replica up and let everything finish."""
        for name in NAMES:
            self.step("ready", name)
        for _ in range(3 * len(self.cells) + 3):
            self.world.wait(41)
            self.run_cell("finish", "ok")

    def play(self, steps: list[tuple[str, Any]]) -> None:
        """Take the steps and settle: every cell that was sent once is answered once, and ran once at most."""
        for kind, value in steps:
            self.step(kind, value)
        repeated = {self.cells[value] for kind, value in steps if kind == "again" and value < len(self.cells)}
        self.settle()
        for cell in self.cells:
            told = self.world.seen(cell)
            assert len(self.world.sent_to(cell)) <= 1
            if cell in repeated:
                continue
            assert sum("execute_reply" in part for part in told) == 1, told
            assert told.count("idle") == 1, told
            assert 1 <= told.count("busy") <= 1 + sum(kind == "question" for kind, _ in steps), told
            assert "busy" not in told[told.index("idle") :], told
            assert told.count("execute_input") <= 1
            self.check_told(told)

    def check_told(self, told: list[str]) -> None:
        """Assert what else holds of what a client has seen of a cell."""


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEP, max_size=40), st.sampled_from(["sticky", "rotate", "random"]))
def test_every_cell_is_answered_once_and_runs_at_most_once(
    steps: list[tuple[str, Any]], policy: Policy
) -> None:
    Play(policy).play(steps)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(STEP, max_size=40))
def test_so_it_is_where_standbys_go_and_come(steps: list[tuple[str, Any]]) -> None:
    Play("sticky", standby_idle_s=10.0).play(steps)


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(STEP, max_size=40), st.sampled_from(["sticky", "rotate", "random"]))
def test_the_same_events_give_the_same_effects(steps: list[tuple[str, Any]], policy: Policy) -> None:
    first, second = Play(policy), Play(policy)
    for kind, value in steps:
        first.step(kind, value)
        second.step(kind, value)
    assert [type(effect) for effect in first.world.all] == [type(effect) for effect in second.world.all]
    sent = [
        [effect for effect in play.world.all if isinstance(effect, events.ToReplica)]
        for play in (first, second)
    ]
    assert sent[0] == sent[1]
