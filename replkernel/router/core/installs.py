"""What a cell installs is installed on the hosts of the other replicas, too, and the cell is told.

Pure. Laws: one at a time; a host that finds the same as the executor's (they share it, or had it) repeats
nothing; the cell is answered once, also when a host is away or does not end.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

import msgspec

from replkernel.errors import UNREADABLE
from replkernel.leasing.notebook import GpuAnswer
from replkernel.protocol.agent_to_router import GroundDescribed, InstallEnded
from replkernel.protocol.host_environment import differences
from replkernel.protocol.installing import ANSWER_TYPE, HOST_LIMIT_S, QUESTION_TYPE, InstallQuestion
from replkernel.protocol.router_to_agent import InstallHere
from replkernel.records import HostName
from replkernel.router.core.events import AnswerReplica, Effect, ReplicaMessage, ToAgent
from replkernel.router.core.fleet import Fleet
from replkernel.router.core.host_environments import HostEnvironments

__all__ = ["QUESTION_TYPE", "Installs"]


@dataclass(slots=True)
class Round:
    """One installation: what each host has, whom it was asked of, and what is to be told of each."""

    message: ReplicaMessage
    question: InstallQuestion
    request: int
    own: HostName
    deadline: float
    host_environments: dict[HostName, GroundDescribed] = field(default_factory=dict)
    repeating: set[HostName] = field(default_factory=set)
    repeated: dict[HostName, InstallEnded] = field(default_factory=dict)
    told: dict[HostName, str] = field(default_factory=dict)
    others: tuple[HostName, ...] = ()


class Installs:
    """The installations of one kernel's cells."""

    def __init__(self, fleet: Fleet, host_environments: HostEnvironments) -> None:
        self._fleet = fleet
        self._host_environments = host_environments
        self._round: Round | None = None
        self._requests = 0

    def asked(self, message: ReplicaMessage, now: float) -> list[Effect]:
        """Take a cell's word that it has installed something."""
        try:
            question = msgspec.json.decode(message.content, type=InstallQuestion)
        except UNREADABLE as error:
            return [_answer(message, GpuAnswer(error=f"The router cannot read the question: {error}."))]
        replica = self._fleet.replicas.get(message.replica)
        if replica is None:
            return []
        others = tuple(host for host in self._fleet.homes() if host != replica.host)
        if not others:
            return [_answer(message, GpuAnswer())]
        if self._round is not None:
            return [
                _answer(message, GpuAnswer(error="Another installation is being repeated; run it again."))
            ]
        self._requests += 1
        deadline = now + HOST_LIMIT_S
        self._round = Round(message, question, self._requests, replica.host, deadline, others=others)
        effects: list[Effect] = []
        for host in (replica.host, *others):
            if self._fleet.hosts[host].welcomed:
                effects.append(self._host_environments.ask(host, self._requests))
            elif host != replica.host:
                self._round.told[host] = self._away(self._round, host)
        return effects + self._end_if_all_told(self._round)

    @staticmethod
    def _away(of: Round, host: HostName) -> str:
        line = f"{of.question.tool} {shlex.join(of.question.arguments)}"
        return f"NOT repeated on host {host}, which is away: run `{line}` there."

    def described(self, host: HostName, told: GroundDescribed) -> list[Effect]:
        """Take what a host has: before anything was repeated there, or after."""
        of = self._round
        if of is None or told.request != of.request:
            return []
        of.host_environments[host] = told
        own = of.host_environments.get(of.own)
        if own is None:
            return []
        effects: list[Effect] = []
        for other in of.others:
            environment = of.host_environments.get(other)
            if environment is None or other in of.told:
                continue
            if other in of.repeated:
                of.told[other] = _repeated(other, of.repeated[other], own, environment)
            elif _same(own, environment):
                of.told[other] = ""
            elif other not in of.repeating:
                of.repeating.add(other)
                effects.append(ToAgent(other, self._wish(of)))
        return effects + self._end_if_all_told(of)

    def _wish(self, of: Round) -> InstallHere:
        fleet, question = self._fleet, of.question
        return InstallHere(fleet.kernel_id, fleet.spec, of.request, question.tool, question.arguments)

    def ended(self, host: HostName, message: InstallEnded) -> list[Effect]:
        """Take how it ended on a host."""
        of = self._round
        if of is None or message.request != of.request or host not in of.repeating:
            return []
        if not message.well:
            of.told[host] = f"NOT repeated on host {host}, where it failed:\n{message.said}"
            return self._end_if_all_told(of)
        of.repeated[host] = message
        of.host_environments.pop(host, None)
        return [self._host_environments.ask(host, of.request)]

    def gone(self, host: HostName) -> list[Effect]:
        """Wait no more for a host whose agent went away."""
        of = self._round
        if of is None or host not in of.others or host in of.told:
            return []
        of.told[host] = self._away(of, host)
        return self._end_if_all_told(of)

    def advance(self, now: float) -> list[Effect]:
        """Answer without those that have not ended in time."""
        of = self._round
        if of is None or now < of.deadline:
            return []
        for host in of.others:
            of.told.setdefault(
                host, f"NOT repeated on host {host} as far as is known: it has not ended in time."
            )
        return self._end_if_all_told(of)

    def _end_if_all_told(self, of: Round) -> list[Effect]:
        if set(of.told) < set(of.others):
            return []
        self._round = None
        return [
            _answer(of.message, GpuAnswer("\n".join(of.told[host] for host in of.others if of.told[host])))
        ]

    def deadline(self) -> float | None:
        """Return when `advance` has something to do that no event announces."""
        return None if self._round is None else self._round.deadline

    def check_invariants(self) -> None:
        """Assert that only other hosts are told of, and that something is waited for."""
        of = self._round
        assert of is None or (set(of.told) < set(of.others) and of.own not in of.others)


def _same(own: GroundDescribed, other: GroundDescribed) -> bool:
    return not own.why and (own.python, own.packages) == (other.python, other.packages)


def _repeated(host: HostName, ended: InstallEnded, own: GroundDescribed, environment: GroundDescribed) -> str:
    last = next((line for line in reversed(ended.said.splitlines()) if line.strip()), "it said nothing")
    left = differences(own.python, own.packages, environment.python, environment.packages)
    still = f" It still has {left}." if left and not (own.why or environment.why) else ""
    return f"Repeated on host {host}: {last.strip()}{still}"


def _answer(message: ReplicaMessage, answer: GpuAnswer) -> Effect:
    return AnswerReplica(message.replica, ANSWER_TYPE, message.frames[2], msgspec.json.encode(answer))
