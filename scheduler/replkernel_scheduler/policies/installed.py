"""Finds policies by name among the installed packages: the one module here that reads the disk.

A policy is an entry point `<kind>.<name>` of the group replkernel_scheduler.policies; it names a class (or a
function) that makes the policy from the options it is given. Law: the core never imports this file; a driver
asks once, at its start.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any, get_args

import msgspec

from replkernel_scheduler.errors import PolicyUnknown
from replkernel_scheduler.jobs.protocol import Discipline, Queues
from replkernel_scheduler.policies.built_in import JOBS, KINDS, Kind
from replkernel_scheduler.settings import Policies

GROUP = "replkernel_scheduler.policies"
OWN: dict[tuple[str, str], Callable[..., Any]] = {}
"""What this process alone has been given, by kind and name; it goes before what is installed."""
DISCIPLINE = "easy"
QUEUE_NUMBERS = {"m": (1, 64), "mi": (1, 64), "mb": (1, 64), "r": (0.0, 99.0)}
"""The numbers that queues may be given: most processes a core; percent of nodes."""


def names(kind: Kind) -> list[str]:
    """Return the names of the installed policies of a kind."""
    found = importlib.metadata.entry_points(group=GROUP)
    others = {entry.name.partition(".")[2] for entry in found if entry.name.startswith(f"{kind}.")}
    return sorted(others | {name for own, name in [*JOBS, *OWN] if own == kind})


def register(full_name: str, maker: Callable[..., Any]) -> None:
    """Have `<kind>.<name>` be found in this process, as if it were installed; raise PolicyUnknown."""
    kind, _, name = full_name.partition(".")
    if kind not in get_args(Kind) or not name or set(name) & {",", "="}:
        raise PolicyUnknown(
            f"{full_name!r} is not KIND.NAME, as in placement.mine; there are {', '.join(get_args(Kind))}."
        )
    OWN[kind, name] = maker


def make(kind: Kind, name: str, **options: object) -> Any:
    """Return the policy; raise PolicyUnknown with the names there are."""
    if (kind, name) in OWN:
        return OWN[kind, name](**options)
    if (kind, name) in JOBS:
        return JOBS[kind, name](**options)
    for entry in importlib.metadata.entry_points(group=GROUP, name=f"{kind}.{name}"):
        return entry.load()(**options)
    raise PolicyUnknown(
        f"There is no {kind} policy {name!r}; installed are {', '.join(names(kind)) or 'none'}."
    )


def policies(base: str = "notebook", **chosen: str) -> Policies:
    """Return the set `base` with the policies named in `chosen` in place of its own (placement="spread")."""
    made: Policies = make("set", base)
    unknown = sorted(set(chosen) - set(KINDS[:-1]))
    if unknown:
        raise PolicyUnknown(f"There is no kind of policy {unknown[0]!r}; there are {', '.join(KINDS[:-1])}.")
    return msgspec.structs.replace(made, **{kind: make(kind, name) for kind, name in chosen.items()})  # type: ignore[arg-type]


def queues_named(text: str) -> tuple[Queues, Discipline]:
    """Return what `QUEUES[,NAME=NUMBER…][,discipline=NAME]` says, as `mq,r=2,mi=4`; raise PolicyUnknown."""
    base, *pairs = text.split(",")
    numbers: dict[str, float] = {}
    discipline = DISCIPLINE
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if name == "discipline" and sign:
            discipline = value
        else:
            numbers[name] = _queue_number(pair, name, value)
    try:
        return make("queues", base, **numbers), make("discipline", discipline)
    except TypeError:
        raise PolicyUnknown(f"{base} takes other numbers: sq,m=4 or mq,r=2,mi=4,mb=1.") from None


def _queue_number(pair: str, name: str, value: str) -> float:
    low, high = QUEUE_NUMBERS.get(name, (0, -1))
    try:
        number: float = type(low)(value)
    except ValueError:
        number = -1.0
    if not low <= number <= high:
        known = ", ".join(f"{key} from {low} to {high}" for key, (low, high) in QUEUE_NUMBERS.items())
        raise PolicyUnknown(f"{pair!r} cannot be. There are {known}, and discipline.")
    return number
