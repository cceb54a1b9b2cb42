"""What goes wrong in a run, and when: made of a seed alone, so that a run that failed can be had again.

Pure. Law: the same seed gives the same plan; every fault ends by itself before the run is judged.
"""

from __future__ import annotations

import random
from typing import Literal

import msgspec

HOSTS = ("h1", "h2", "h3")

Kind = Literal[
    "kill executor",
    "kill kernel",
    "kill agent",
    "kill router",
    "kill host",
    "stop kernel",
    "stop agent",
    "stop router",
    "partition",
    "one-way",
    "delay",
    "loss",
    "slow store",
    "failing store",
    "full store",
    "full disk",
    "clock",
]

ALWAYS: tuple[Kind, ...] = (
    "kill executor",
    "kill kernel",
    "kill agent",
    "kill router",
    "kill host",
    "stop kernel",
    "stop agent",
    "stop router",
    "slow store",
    "failing store",
    "clock",
)
"""Faults that need no more than processes and a directory."""

NETWORK: tuple[Kind, ...] = ("partition", "one-way", "delay", "loss")
"""Faults that need network namespaces."""

DISK: tuple[Kind, ...] = ("full store", "full disk")
"""Faults that need a file system of our own."""

UNDOING_SEEDS = 1000
"""From this seed on a third of the cells that would append go back by one change instead."""

DORMANT_SEEDS = 2000
"""From this seed on standbys go without processes as soon as no cell comes for a moment."""

FAULTS_MIN, FAULTS_MAX = 3, 7
LONGEST_S = 4.0
AGENT_AWAY_S = 2.0


class Fault(msgspec.Struct, frozen=True):
    """One fault: from `at_s` after the first cell on, `for_s` long, at `host`, towards `other`."""

    at_s: float
    kind: Kind
    host: str
    other: str = ""
    for_s: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        """Return it as one line of a transcript."""
        towards = f" to {self.other}" if self.other else ""
        long = f" for {self.for_s:.2f} s" if self.for_s else ""
        amount = f" by {self.amount:g}" if self.amount else ""
        return f"{self.at_s:5.2f} s: {self.kind} {self.host}{towards}{amount}{long}"


class Step(msgspec.Struct, frozen=True):
    """One cell of a client: after `pause_s`, it takes `takes_s`."""

    name: str
    kind: Literal["append", "read", "undo"]
    pause_s: float
    takes_s: float = 0.0
    large: bool = False
    fails: bool = False


class Plan(msgspec.Struct, frozen=True):
    """One run: how the kernel is set, what its clients do, what goes wrong."""

    seed: int
    executor: str
    durable: str
    clients: dict[str, tuple[Step, ...]]
    faults: tuple[Fault, ...]

    @property
    def standby_idle_s(self) -> float:
        """After how many seconds without a cell standbys go without processes; 0: never."""
        return 0.3 if self.seed >= DORMANT_SEEDS else 0.0


def make_plan(seed: int, cells: int, possible: tuple[Kind, ...] = ALWAYS) -> Plan:
    """Make the plan of a seed: `cells` cells by two clients, and faults that are possible here."""
    chance = random.Random(f"replkernel/{seed}")
    clients = {
        client: tuple(_step(chance, f"{client}{number}") for number in range(1, share + 1))
        for client, share in (("a", cells - cells // 2), ("b", cells // 2))
    }
    if seed >= UNDOING_SEEDS:
        clients = {
            client: tuple(_undoing(chance, step) for step in steps) for client, steps in clients.items()
        }
    length_s = max(sum(step.pause_s + step.takes_s for step in steps) for steps in clients.values())
    faults = [_fault(chance, length_s, possible) for _ in range(chance.randint(FAULTS_MIN, FAULTS_MAX))]
    executor = chance.choice(("sticky", "sticky", "rotate", "random"))
    return Plan(
        seed,
        executor if seed < DORMANT_SEEDS else "sticky",
        chance.choice(("before_reply", "before_reply", "async")),
        clients,
        tuple(sorted(faults, key=lambda fault: fault.at_s)),
    )


def _step(chance: random.Random, name: str) -> Step:
    takes_s = round(chance.uniform(0.1, 1.2), 2) if chance.random() < 0.35 else 0.0
    return Step(
        name,
        "read" if chance.random() < 0.2 else "append",
        round(chance.expovariate(3.0), 2),
        takes_s,
        large=chance.random() < 0.25,
        fails=chance.random() < 0.05,
    )


def _undoing(chance: random.Random, step: Step) -> Step:
    undoes = step.kind == "append" and chance.random() < 1 / 3
    return msgspec.structs.replace(step, kind="undo", large=False, fails=False) if undoes else step


def _fault(chance: random.Random, length_s: float, possible: tuple[Kind, ...]) -> Fault:
    kind = chance.choice(possible)
    host, other = chance.sample(HOSTS, 2)
    at_s = round(chance.uniform(0.1, max(0.2, length_s)), 2)
    for_s = round(chance.uniform(0.2, LONGEST_S), 2)
    match kind:
        case "kill executor" | "kill kernel" | "kill router":
            return Fault(at_s, kind, host)
        case "kill agent" | "kill host":
            return Fault(at_s, kind, host, for_s=round(chance.uniform(0.0, AGENT_AWAY_S), 2))
        case "one-way":
            return Fault(at_s, kind, host, other, for_s)
        case "delay":
            return Fault(at_s, kind, host, "", for_s, round(chance.uniform(0.01, 0.3), 3))
        case "loss":
            return Fault(at_s, kind, host, "", for_s, round(chance.uniform(0.05, 0.5), 2))
        case "slow store":
            return Fault(at_s, kind, host, "", for_s, round(chance.uniform(0.05, 0.8), 2))
        case "clock":
            return Fault(at_s, kind, host, "", 0.0, chance.choice((-3600.0, -5.0, 5.0, 3600.0)))
        case _:
            return Fault(at_s, kind, host, for_s=for_s)
