"""What the properties of a user's groups give him: his quota.

Law: pure; of several groups the best counts, property by property: the most GPUs, the most hours, the highest
priority; a property that no group states is no limit, and null states that there is none. A budget of the
group itself counts for all of its members, whatever other groups they are in. `preemptible` lets all cells of
its members be paused for shorter ones, if one group says so. `idle_gpus` is what holds for members' cells
that leave their GPUs idle, instead of what holds for all. A property that makes no sense is refused by name:
it neither lifts a limit nor sets one.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from msgspec import UNSET, UnsetType
from replkernel_scheduler.types import UserQuota

from replkernel_server.errors import ServiceSettingError
from replkernel_server.scheduling.identity import IdentityUnknown
from replkernel_server.scheduling.underuse import EXAMPLE, OFF, Rule, mildest, read_rule, written

PROPERTIES: dict[str, tuple[float, float, bool]] = {
    "gpu_quota": (0, 1_000_000, True),
    "gpu_hours_month": (0, 1e9, False),
    "priority": (-1_000, 1_000, True),
    "budget_month": (0, 1e9, False),
    "group_budget_month": (0, 1e9, False),
}
"""The properties of a group that count: the least, the most, and whether it is a whole number."""


def quota_of(groups: Mapping[str, Mapping[str, object]]) -> UserQuota:
    """Return the best that the groups' properties give; raises IdentityUnknown for one without sense."""
    gpus, hours = _stated(groups, "gpu_quota"), _stated(groups, "gpu_hours_month")
    priority, budget = _stated(groups, "priority"), _stated(groups, "budget_month")
    shared = [(name, _stated({name: found}, "group_budget_month")) for name, found in sorted(groups.items())]
    pauses: bool | UnsetType = UNSET
    if sum(_allows(name, found) for name, found in sorted(groups.items())):
        pauses = True
    limits = tuple((name, limit) for name, stated in shared for limit in stated if limit < inf)
    return UserQuota(
        gpu_quota=int(max(gpus)) if gpus and inf not in gpus else None,
        gpu_hours_month=max(hours) if hours and inf not in hours else None,
        priority=int(max(priority, default=0)),
        budget_month=max(budget) if budget and inf not in budget else UNSET,
        group_budgets=limits or UNSET,
        preemptible=pauses,
        idle_gpus=_idle_gpus(groups),
    )


def owned_by(user: str, groups: Mapping[str, Mapping[str, object]]) -> tuple[str, ...]:
    """Return the groups whose property `owners` lists a user: he may book GPUs for them."""
    listed = ((name, found.get("owners")) for name, found in groups.items())
    return tuple(name for name, owners in listed if isinstance(owners, list) and user in owners)


def _allows(group: str, found: Mapping[str, object]) -> bool:
    """Say whether a group lets its members' cells be paused for shorter ones."""
    value = found.get("preemptible", False)
    if isinstance(value, bool):
        return value
    raise IdentityUnknown(
        f"The property preemptible of the Hub's group {group} is {str(value)[:60]!r}: the Hub's "
        "administrator must make it true or false."
    )


def _idle_gpus(groups: Mapping[str, Mapping[str, object]]) -> str | UnsetType:
    """Return what the groups say of cells that leave their GPUs idle: of several rules, the mildest."""
    stated = [
        _rule(group, found["idle_gpus"]) for group, found in sorted(groups.items()) if "idle_gpus" in found
    ]
    return written(mildest(stated)) if stated else UNSET


def _rule(group: str, value: object) -> Rule | None:
    """Return the rule that a group states; None: its members' cells may leave GPUs idle."""
    try:
        if value is None or (isinstance(value, str) and value.strip()):
            return None if value is None else read_rule("idle_gpus", value)
    except ServiceSettingError:
        pass
    raise IdentityUnknown(
        f"The property idle_gpus of the Hub's group {group} is {str(value)[:60]!r}: the Hub's administrator "
        f"must write it like '{EXAMPLE}', or '{OFF}'."
    )


def _stated(groups: Mapping[str, Mapping[str, object]], name: str) -> list[float]:
    return [_number(group, name, found[name]) for group, found in sorted(groups.items()) if name in found]


def _number(group: str, name: str, value: object) -> float:
    """Return a property's value if it is one that can be used; no limit is endless."""
    low, high, whole = PROPERTIES[name]
    if value is None and name != "priority":
        return inf
    number = isinstance(value, int) or (isinstance(value, float) and not whole)
    if number and not isinstance(value, bool) and isinstance(value, int | float) and low <= value <= high:
        return value
    raise IdentityUnknown(
        f"The property {name} of the Hub's group {group} is {str(value)[:60]!r}: the Hub's administrator "
        f"must make it a {'whole number' if whole else 'number'} from {low:.0f} to {high:.0f}."
    )
