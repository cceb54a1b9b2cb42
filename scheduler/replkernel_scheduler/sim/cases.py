"""What is to be played: each policy with each combination of the values that are swept.

Law: a case is data, and says all that its run hangs on beside the trace; the order of cases is that of the
options. A swept key is either a number of the plan or an option of the policies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import product

import msgspec

from replkernel_scheduler.sim.errors import SimulationError
from replkernel_scheduler.sim.plan import Plan
from replkernel_scheduler.sim.playing import any_way_named

CASES_MAX = 1000


class Sweep(msgspec.Struct, frozen=True):
    """A key and the values that it takes."""

    key: str
    values: tuple[str, ...]


class Case(msgspec.Struct, frozen=True):
    """One run; `setting` has the swept numbers of its plan (a policy's options are in its name)."""

    policy: str
    plan: Plan
    setting: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        """Return what tells it from the others of a command."""
        return " ".join([self.policy, *(f"{key}={value}" for key, value in self.setting)])

    @property
    def stem(self) -> str:
        """Return the name of its files, without their endings."""
        return re.sub("[^a-z0-9.=-]+", "-", self.title)


def _faults(plan: Plan, **changes: float) -> Plan:
    return msgspec.structs.replace(plan, faults=msgspec.structs.replace(plan.faults, **changes))


def _prices(plan: Plan, price: float) -> Plan:
    return msgspec.structs.replace(plan, prices=msgspec.structs.replace(plan.prices, host_hour=price))


PLAN_KEYS: dict[str, Callable[[Plan, str], Plan]] = {
    "hosts": lambda plan, value: msgspec.structs.replace(plan, hosts=int(value)),
    "hosts-max": lambda plan, value: msgspec.structs.replace(plan, hosts_max=int(value)),
    "gpus": lambda plan, value: msgspec.structs.replace(plan, gpus_per_host=int(value)),
    "seed": lambda plan, value: msgspec.structs.replace(plan, seed=int(value)),
    "memory-gb": lambda plan, value: msgspec.structs.replace(plan, memory_gb=float(value)),
    "host-hour": lambda plan, value: _prices(plan, float(value)),
    "host-mtbf-days": lambda plan, value: _faults(plan, host_mtbf_s=float(value) * 86_400.0),
    "replica-failure": lambda plan, value: _faults(plan, replica_failure=float(value)),
}
"""The swept keys that are numbers of the plan; every other one is an option of the policies."""


def cases(policies: Sequence[str], plan: Plan, sweeps: Sequence[Sweep]) -> list[Case]:
    """Return all cases; raise SimulationError if there are too many, or one cannot be."""
    keys = [sweep.key for sweep in sweeps]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise SimulationError(f"--sweep {twice[0]} is there twice: give all its values at once.")
    count = len(policies)
    for sweep in sweeps:
        count *= len(sweep.values)
    if count > CASES_MAX:
        raise SimulationError(f"These are {count:,} runs, more than {CASES_MAX:,}: sweep fewer values.")
    made = [
        _case(policy, plan, list(zip(keys, values, strict=True)))
        for policy in dict.fromkeys(policies)
        for values in product(*[sweep.values for sweep in sweeps])
    ]
    stems = [case.stem for case in made]
    for case, stem in zip(made, stems, strict=True):
        if stems.count(stem) > 1:
            raise SimulationError(f"Two runs would be called {stem}: leave out one of them ({case.title}).")
    return made


def _case(policy: str, plan: Plan, pairs: list[tuple[str, str]]) -> Case:
    setting = []
    for key, value in pairs:
        if key in PLAN_KEYS:
            if plan.nodes and key in ("hosts", "gpus", "hosts-max"):
                raise SimulationError(f"--sweep {key}: the hosts are those of --nodes.")
            plan = PLAN_KEYS[key](plan, value)
            setting.append((key, value))
            continue
        if f",{key}=" in policy:
            raise SimulationError(f"--policy {policy} has {key} already: leave it to --sweep {key}.")
        policy = f"{policy},{key}={value}"
    if plan.hosts_max is not None and plan.hosts_max < plan.hosts:
        raise SimulationError(f"--hosts-max {plan.hosts_max} is less than the {plan.hosts} hosts of --hosts.")
    any_way_named(policy)
    return Case(policy, plan, tuple(setting))
