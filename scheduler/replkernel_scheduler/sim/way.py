"""A way to serve a trace: a set of policies, and how sessions and cells come before the core under it.

Law: a way is data. What the built-in sets need stands in WAYS; any other set is played as `notebook` is.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from replkernel_scheduler.errors import PolicyUnknown
from replkernel_scheduler.policies.installed import policies
from replkernel_scheduler.settings import Policies
from replkernel_scheduler.sim.errors import SimulationError

Kernels: TypeAlias = Literal["placed", "reported", "none"]
"""placed: the core places the replicas of sessions. reported: they are where they happen to be, as with the
live service. none: sessions have no kernels, each cell gets a process of its own."""


class Way(msgspec.Struct, frozen=True):
    """How a trace is served.

    `reads`: cells read their inputs from the store before they run, and write their outputs before they end.
    `bare`: what the trace says is all that a task takes, as batch systems log their jobs.
    `harvests`: jobs are reshaped into the GPUs that idle sessions leave.
    `lingers`: what a cell leaves on its GPUs stays there until somebody wants them.
    """

    name: str
    policies: Policies
    kernels: Kernels = "placed"
    replicas: int = 3
    reads: bool = False
    lingers: bool = False
    bare: bool = False
    harvests: bool = False
    parts: bool = True
    """Whether those who want a part of a GPU get no more than that; else they get a whole one."""
    jobs: bool = True
    """Whether jobs are played; else sessions are alone."""

    @property
    def reserves(self) -> bool:
        """Say whether sessions hold their GPUs, and are billed for them."""
        return self.policies.reserve


class FixedWay(msgspec.Struct, frozen=True):
    """A way that no core serves; there is nothing to choose."""

    name: str
    kernels: Kernels = "none"
    replicas: int = 0
    reserves: bool = False


ORACLE, RECORDED = FixedWay("oracle"), FixedWay("recorded")
FIXED = {ORACLE: "the oracle", RECORDED: "what happened"}


def fixed_way_named(text: str) -> FixedWay | None:
    """Return the way of this name, if no core serves it; raise SimulationError if it is given options."""
    for way, what in FIXED.items():
        if text == way.name:
            return way
        if text.partition(",")[0] == way.name:
            raise SimulationError(f"--policy {text}: {what} has no options; write --policy {way.name}.")
    return None


WAYS: dict[str, tuple[Kernels, int, bool]] = {
    "notebook": ("placed", 3, False),
    "reservation": ("placed", 1, False),
    "fcfs-batch": ("none", 0, True),
    "large-pool": ("none", 0, True),
    "easy-batch": ("none", 0, False),
}
BARE = frozenset({"easy-batch"})
HARVESTS = frozenset({"harvest"})
AS_ASKED = "as-asked"
"""With `parts=none` behind a set, everybody gets whole GPUs."""


def way_named(text: str) -> Way:
    """Return the way `SET[,KIND=NAME…]`; raise SimulationError if there is none."""
    base, *pairs = text.split(",")
    chosen: dict[str, str] = {}
    for pair in pairs:
        kind, sign, name = pair.partition("=")
        if not sign or not kind or not name:
            raise SimulationError(
                f"--policy {text}: {pair!r} is not KIND=NAME, as in notebook,placement=spread."
            )
        chosen[kind] = name
    parts = chosen.pop("parts", AS_ASKED)
    if parts not in (AS_ASKED, "none"):
        raise SimulationError(f"--policy {text}: parts={parts} is neither parts={AS_ASKED} nor parts=none.")
    beside = chosen.pop("jobs", "") if base in HARVESTS else ""
    if beside not in ("", "none"):
        raise SimulationError(f"--policy {text}: jobs={beside} is not jobs=none.")
    try:
        made = policies(base, **chosen)
    except PolicyUnknown as error:
        raise SimulationError(f"--policy {text}: {error}") from error
    kernels, replicas, reads = WAYS.get(base, WAYS["notebook"])
    shares = parts == AS_ASKED and not (made.reserve or made.keeps)
    return Way(
        text, made, kernels, replicas, reads, bare=base in BARE, harvests=base in HARVESTS, parts=shares,
        jobs=not beside,
    )  # fmt: skip
