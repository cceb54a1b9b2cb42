"""A way to serve jobs that may be stopped for others: when, and with which numbers.

Law: a way is data; its policy is made anew for each run, for one of them learns.
"""

from __future__ import annotations

import msgspec

from replkernel_scheduler.policies.installed import make, names
from replkernel_scheduler.pool.protocol import Preempting
from replkernel_scheduler.sim.errors import SimulationError

POLICIES = {"sjf": "never", "srtf": "shortest", "periodic": "periodic", "lazer": "deferred", "pool": ""}
"""The preemption policy of each; that of `pool` is named in its options."""
PREDICTORS = ("bayes", "random", "grid")
EVERY_MAX_S = 86_400.0
PATIENCE_MAX_H = 8760.0


class PoolWay(msgspec.Struct, frozen=True):
    """How a trace of jobs is served; the other fields say that there are no kernels."""

    name: str
    policy_name: str
    every: float | None = None
    by: str | None = None
    patience: float | None = None
    kernels: str = "none"
    replicas: int = 0
    reserves: bool = False

    def policy(self) -> Preempting:
        """Make its policy."""
        options = {"every": self.every, "by": self.by, "patience": self.patience}
        made: Preempting = make(
            "preempt",
            self.policy_name,
            **{name: value for name, value in options.items() if value is not None},
        )
        return made


def is_pool_way(text: str) -> bool:
    """Say whether a way's name is one of jobs that may be stopped for others."""
    return text.partition(",")[0] in POLICIES


def pool_way_named(text: str) -> PoolWay:
    """Return the way `NAME[,every=SECONDS][,by=PREDICTOR][,patience=HOURS]`; raise SimulationError.

    `pool,preempt=NAME[,every=SECONDS]` is one with another installed policy.
    """
    base, *pairs = text.split(",")
    policy_name = POLICIES[base]
    every: float | None = None
    by: str | None = None
    patience: float | None = None
    for pair in pairs:
        name, _, value = pair.partition("=")
        if (base, name) == ("pool", "preempt"):
            policy_name = value
        elif base in ("periodic", "pool") and name == "every" and _is_up_to(value, EVERY_MAX_S):
            every = float(value)
        elif (base, name) == ("lazer", "by") and value in PREDICTORS:
            by = value
        elif (
            base not in ("periodic", "pool")
            and name == "patience"
            and (value == "0" or _is_up_to(value, PATIENCE_MAX_H))
        ):
            patience = float(value)
        else:
            raise SimulationError(
                f"--policy {text}: {pair!r} cannot be. There are periodic,every=SECONDS (up to a day), "
                f"lazer,by={'|'.join(PREDICTORS)}, pool,preempt=NAME, patience=HOURS (0: without end) of "
                "lazer, sjf and srtf."
            )
    if policy_name not in names("preempt"):
        raise SimulationError(
            f"--policy {text}: pool,preempt=NAME takes one of {', '.join(names('preempt'))}."
        )
    return PoolWay(text, policy_name, every, by, patience)


def _is_up_to(text: str, most: float) -> bool:
    try:
        return 0 < float(text) <= most
    except ValueError:
        return False
