"""The pace of a restore: what a cell reaches at once, the rest one by one while nobody waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.kernel import restorer as subject
from replkernel.kernel.restorer import Restorer
from replkernel.records import (
    BlobRef,
    ChunkRef,
    ComponentId,
    ComponentRecord,
    Digest,
    Payload,
    Seq,
)
from replkernel.state.restore.leaving import Reached


def record(name: str, size: int = 1, head: int = 1) -> ComponentRecord:
    """Return a component with one variable, whose stream is a blob of `head` bytes."""
    ref = BlobRef(head, (ChunkRef(Digest(name.ljust(64, "0")), head),))
    return ComponentRecord(ComponentId(name), (name,), Seq(1), Payload(head_blob=ref), Digest(""), size)


class StandInAhead:
    """Reads at once when told to."""

    def __init__(self) -> None:
        self.cid: ComponentId | None = None
        self.busy = False
        self.done: Callable[[], None] = lambda: None

    def begin(self, record: ComponentRecord, bring: Callable[[], None], done: Callable[[], None]) -> None:
        bring()
        self.cid, self.busy, self.done = record.cid, True, done

    def finish(self) -> None:
        self.busy = False
        self.done()

    def forget(self) -> None:
        self.cid = None


class StandInState:
    """Components that wait."""

    def __init__(self, *records: ComponentRecord) -> None:
        self.waiting = {record.cid: record for record in records}
        self.ahead = StandInAhead()
        self.pending_bytes = subject.WORTH_BYTES
        self.stuck: set[ComponentId] = set()

    @property
    def left_behind(self) -> set[str]:
        return {name for record in self.waiting.values() for name in record.names}

    def waiting_names(self) -> Collection[str]:
        return self.left_behind

    def awaits(self, name: str) -> bool:
        return name in self.left_behind

    def reach(self, reads: Collection[str], binds: Collection[str] = ()) -> Reached:
        names = frozenset(reads)
        return Reached(frozenset(ComponentId(name) for name in names), names)

    def pending_of(self, cids: AbstractSet[ComponentId]) -> list[ComponentId]:
        return [cid for cid in self.waiting if cid in cids]

    def withheld(self) -> Sequence[ComponentRecord]:
        return [record for record in self.waiting.values() if record.gpus]

    def behind(self) -> Sequence[ComponentRecord]:
        return sorted(self.waiting.values(), key=lambda record: record.state_bytes)


class Stage:
    """A restorer with its stand-ins."""

    def __init__(self, *records: ComponentRecord) -> None:
        self.state = StandInState(*records)
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.rebuilt: list[str] = []
        self.brought = threading.Event()
        self.wakes = 0
        shell = SimpleNamespace(
            user_ns=self.namespace,
            ast_node_interactivity="last_expr",
            magics_manager=SimpleNamespace(magics={"line": {"hist": None, "time": None}}),
        )
        state: Any = self.state
        self.restorer = Restorer(state, shell, self._rebuild, lambda refs: self.brought.set(), self._wake)

    def _rebuild(self, wanted: AbstractSet[ComponentId]) -> None:
        for cid in sorted(wanted):
            if cid in self.state.waiting and cid not in self.state.stuck:
                del self.state.waiting[cid]
                self.rebuilt.append(cid)
                self.namespace[cid] = cid

    def _wake(self) -> None:
        self.wakes += 1


def test_little_is_not_worth_leaving_behind() -> None:
    stage = Stage(record("a"))
    stage.state.pending_bytes = subject.WORTH_BYTES - 1
    assert not stage.restorer.prepare(["x = 1"])
    assert stage.rebuilt == []


def test_variables_that_a_cell_reaches_are_rebuilt_and_the_rest_is_brought_meanwhile() -> None:
    stage = Stage(record("a"), record("b"))
    assert stage.restorer.prepare(["a + 1", "'x'"])
    assert stage.rebuilt == ["a"]
    assert stage.brought.wait(5)


def test_nothing_is_rebuilt_for_a_cell_that_needs_nothing_new() -> None:
    stage = Stage(record("a"), record("b"))
    calls: list[AbstractSet[ComponentId]] = []
    stage.restorer._rebuild = calls.append
    assert stage.restorer.prepare(["x = 1"])
    assert stage.restorer.prepare(["x = 2"], received=False)
    assert len(calls) == 1


def test_a_text_among_the_values_leads_to_further_variables() -> None:
    stage = Stage(record("big"), record("other"))
    stage.namespace["question"] = "select * from big"
    assert stage.restorer.prepare(["ask(question)"])
    assert stage.rebuilt == ["big"]


def test_a_component_that_cannot_be_rebuilt_alone_is_rebuilt_with_everything() -> None:
    stage = Stage(record("a"), record("b"))
    stage.state.stuck = {ComponentId("a")}
    assert not stage.restorer.prepare(["a"])


@pytest.mark.parametrize(
    ("cell", "certain"),
    [("hist", False), ("hist -n", False), ("time f()", False), ("hist = 3", True), ("time.sleep(1)", True),
     ("hist, b = 1, 2", True), ("hist[0]", True), ("x = hist", True), ("hist\nx", True), ("%hist", False)],
)  # fmt: skip
def test_a_line_that_ipython_takes_for_a_magic_needs_everything(cell: str, certain: bool) -> None:
    assert Stage(record("a")).restorer.prepare([cell]) is certain


def test_a_debugger_that_looks_at_variables_needs_everything() -> None:
    stage = Stage(record("a"))
    stage.restorer.in_order = False
    assert not stage.restorer.prepare(["x = 1"])


def test_the_rest_follows_the_small_first_one_at_a_time() -> None:
    stage = Stage(record("large", 3), record("small", 1), record("middle", 2))
    for name in ("small", "middle", "large"):
        stage.restorer.advance()
        assert stage.state.ahead.cid == name
        stage.restorer.advance()
        assert name not in stage.rebuilt
        stage.state.ahead.finish()
        stage.restorer.advance()
        assert stage.rebuilt[-1] == name
    stage.restorer.advance()
    assert stage.state.ahead.cid is None


def test_a_component_that_fails_in_idle_time_is_left_to_the_cell_that_needs_it() -> None:
    stage = Stage(record("bad", 1), record("good", 2))
    stage.state.stuck = {ComponentId("bad")}
    for _ in range(2):
        stage.restorer.advance()
        stage.state.ahead.finish()
        stage.restorer.advance()
    assert stage.rebuilt == ["good"]
    assert stage.state.left_behind == {"bad"}


def test_a_component_that_takes_long_waits_until_the_notebook_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "REST_S", 0.05)
    stage = Stage(record("heavy", head=subject.HEAVY_HEAD_BYTES))
    woken = threading.Event()
    stage.restorer._wake = woken.set
    stage.restorer.rest()
    woken.clear()
    stage.restorer.advance()
    assert stage.state.ahead.cid is None
    assert woken.wait(5)
    stage.restorer.advance()
    assert stage.state.ahead.cid == "heavy"


def test_a_question_gets_what_it_names_and_no_more_than_it_may() -> None:
    stage = Stage(record("big", 100), record("other", 1))
    stage.restorer.fetch_named("big.", 10)
    assert stage.rebuilt == []
    stage.restorer.fetch_named("big.", None)
    assert stage.rebuilt == ["big"]


def test_nothing_of_the_net_stays_in_the_namespace() -> None:
    stage = Stage(record("a"), record("b"))
    stage.restorer.prepare(["x = 1"])
    assert stage.namespace["__getattr__"]("a") == "a"
    stage.restorer.take_net_down()
    assert "__getattr__" not in stage.namespace
    stage.namespace["__getattr__"] = mine = object()
    stage.restorer.prepare(["x = 2"])
    stage.restorer.take_net_down()
    assert stage.namespace["__getattr__"] is mine
