"""A replica's member and machine: what the keeper hears of its own proposals."""

from __future__ import annotations

from typing import Any

from replkernel.agent.core import events as fact
from replkernel.agent.core.effects import DeltaProposal, JoinProposal
from replkernel.agent.io.group import ReplicaGroup
from replkernel.records import HostName, ReplicaId
from replkernel.replication.consensus import StateCallbacks
from tests.unit.agent.transcript import delta


class Alone:
    """A member whose log takes every entry at once."""

    def __init__(self, callbacks: StateCallbacks) -> None:
        self.callbacks = callbacks
        self.index = 0

    def start(self) -> None:
        pass

    def propose(self, entry: bytes, done: object) -> None:
        self.index += 1
        self.callbacks.on_apply(self.index, entry)


class Mail:
    """Posts at once."""

    def post(self, take: Any, items: Any) -> None:
        for item in items:
            take(item)


def test_what_is_proposed_again_though_the_log_has_it_is_told_as_known() -> None:
    told: list[fact.Event] = []
    mail: Any = Mail()

    def make(peers: object, secret: object, callbacks: StateCallbacks, joining: object) -> Any:
        return Alone(callbacks)

    group = ReplicaGroup(ReplicaId("r1"), HostName("a"), make, mail, told.append)
    group.open({ReplicaId("r1"): "a:1"}, "secret")
    for proposal in (JoinProposal("a:1"), DeltaProposal(delta(1))):
        group.propose(proposal)
        assert not any(isinstance(event, fact.EntryKnown) for event in told)
        group.propose(proposal)
        known = told.pop()
        assert isinstance(known, fact.EntryKnown)
        assert (known.key, known.dropped) == (proposal.key, False)
    assert known.state_bytes == 1
