"""What a cell is told of the kernel's replicas on other hosts: each host's agent is asked, once, in its time.

Pure. Laws: one round at a time; who asks again begins anew; the cell is answered once, also when a host is
away or does not answer, which its document says then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from replkernel.protocol.agent_to_router import StatusAnswer
from replkernel.protocol.remote_status import (
    ANSWER_TYPE,
    HOSTS_LIMIT_S,
    NO_ANSWER,
    QUESTION_TYPE,
    StatusReply,
)
from replkernel.protocol.router_to_agent import StatusQuery
from replkernel.records import HostName
from replkernel.router.core.events import AnswerReplica, Effect, ReplicaMessage, ToAgent
from replkernel.router.core.fleet import Fleet

__all__ = ["QUESTION_TYPE", "RemoteStatus"]

AWAY = "away"


@dataclass(slots=True)
class Round:
    """One question: which hosts are asked, and the document of each."""

    message: ReplicaMessage
    request: int
    hosts: tuple[HostName, ...]
    deadline: float
    told: dict[HostName, bytes] = field(default_factory=dict)


class RemoteStatus:
    """The questions of one kernel's cells."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._round: Round | None = None
        self._requests = 0

    def asked(self, message: ReplicaMessage, now: float) -> list[Effect]:
        """Take a cell's question."""
        fleet = self._fleet
        replica = fleet.replicas.get(message.replica)
        if replica is None:
            return []
        self._requests += 1
        hosts = tuple(host for host in fleet.homes() if host != replica.host)
        of = self._round = Round(message, self._requests, hosts, now + HOSTS_LIMIT_S)
        effects: list[Effect] = []
        for host in hosts:
            if fleet.hosts[host].welcomed:
                effects.append(ToAgent(host, StatusQuery(of.request, fleet.kernel_id)))
            else:
                of.told[host] = _absent(host, AWAY)
        return effects + self._end_if_all_told(of)

    def answered(self, host: HostName, message: StatusAnswer) -> list[Effect]:
        """Take a host's document."""
        of = self._round
        if of is None or message.request != of.request or host not in of.hosts:
            return []
        of.told[host] = message.document
        return self._end_if_all_told(of)

    def gone(self, host: HostName) -> list[Effect]:
        """Wait no more for a host whose agent went away."""
        of = self._round
        if of is None or host not in of.hosts or host in of.told:
            return []
        of.told[host] = _absent(host, AWAY)
        return self._end_if_all_told(of)

    def advance(self, now: float) -> list[Effect]:
        """Answer without those that have not answered in time."""
        of = self._round
        if of is None or now < of.deadline:
            return []
        for host in of.hosts:
            of.told.setdefault(host, _absent(host, NO_ANSWER))
        return self._end_if_all_told(of)

    def _end_if_all_told(self, of: Round) -> list[Effect]:
        if len(of.told) < len(of.hosts):
            return []
        self._round = None
        reply = StatusReply(tuple(msgspec.Raw(of.told[host]) for host in of.hosts))
        content = msgspec.json.encode(reply)
        return [AnswerReplica(of.message.replica, ANSWER_TYPE, of.message.frames[2], content)]

    def deadline(self) -> float | None:
        """Return when `advance` has something to do that no event announces."""
        return None if self._round is None else self._round.deadline

    def check_invariants(self) -> None:
        """Assert that something is waited for, and that only other hosts are told of."""
        of = self._round
        assert of is None or set(of.told) < set(of.hosts)


def _absent(host: HostName, state: str) -> bytes:
    """Return the document of a host that has told none (importing `protocol.status` takes too long)."""
    return msgspec.json.encode({"hosts": [{"name": host, "state": state}]})
