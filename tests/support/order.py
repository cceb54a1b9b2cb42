"""Runs cells after rebuilding only what they reach, as a replica with much waiting state does.

Nothing travels inline here and any amount is worth waiting for, so that every component may be left behind.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.kernel import restorer as subject
from replkernel.kernel.restorer import Restorer
from replkernel.records import Delta
from tests.support.notebook import Notebook


def restorer_of(state: Any, namespace: dict[str, Any], fetch: Any = lambda refs: None) -> Restorer:
    """Return a restorer whose shell is little more than a namespace."""
    shell = SimpleNamespace(
        user_ns=namespace,
        ast_node_interactivity="last_expr",
        magics_manager=SimpleNamespace(magics={"line": {"who": None, "hist": None}}),
    )
    return Restorer(
        state,
        shell,
        lambda wanted: state.rebuild(everything=False, fetch=fetch, wanted=wanted),
        lambda refs: None,
        lambda: None,
    )


@pytest.fixture
def any_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make any amount of waiting state worth leaving behind."""
    monkeypatch.setattr(subject, "WORTH_BYTES", 0)


class OrderedNotebook(Notebook):
    """A replica that rebuilds before a cell what the cell reaches, and counts when that was everything."""

    def __init__(self, replica: str, chunks: dict[str, bytes], inline: int = 0) -> None:
        super().__init__(replica, chunks, inline=inline)
        self.restorer = restorer_of(self.state, self.namespace)
        self.wholes = 0

    def prepare(self, source: str) -> set[str]:
        """Rebuild what a cell reaches; return what is left behind."""
        self.restorer.take_net_down()
        if not self.restorer.prepare([source]):
            self.wholes += 1
            self.state.rebuild(everything=True, fetch=lambda refs: None)
        return set(self.state.left_behind)

    def play(self, source: str, seq: int) -> Delta:
        """Prepare a cell, run it and capture what it changed; an exception of the cell's is printed."""
        self.prepare(source)
        try:
            exec(source, self.namespace)
        except Exception as error:
            print(f"!{type(error).__name__}: {error}")
            del error
        self.restorer.take_net_down()
        return self.capture(seq)


def three() -> tuple[OrderedNotebook, ...]:
    """Return three replicas that share their chunks."""
    chunks: dict[str, bytes] = {}
    return tuple(OrderedNotebook(f"r{number}", chunks) for number in (1, 2, 3))
