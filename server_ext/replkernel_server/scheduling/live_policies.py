"""Which policies a live service can follow: those that want nothing done which nobody does.

Kernels place themselves, hosts come and go by their agents. Law: what would provision, pre-warm, run cells
away from their kernel or drive jobs is refused by name and with the reason, before a journal is begun with
it; the simulator knows no such limit.

| set | live |
|---|---|
| `notebook` | yes |
| `reservation` | yes: a kernel keeps what it was leased to its end, from its first cell with GPUs on |
| `fcfs-batch`, `easy-batch`, `large-pool` | no: cells run where their kernel's variables are |
| `harvest` | no: it names a simulation; live, jobs run beside notebooks with each set |

`queues=sq,m=2` beside a set says how jobs on cores alone are served; `mq,r=10,mb=1` keeps a tenth of the
hosts free of them.
"""

from __future__ import annotations

import msgspec
from replkernel_scheduler.errors import PolicyUnknown
from replkernel_scheduler.jobs.protocol import Discipline, Queues
from replkernel_scheduler.policies import installed
from replkernel_scheduler.policies.prewarm_none import NoPrewarming
from replkernel_scheduler.settings import Policies

from replkernel_server.errors import ServiceSettingError
from replkernel_server.scheduling.settings import POLICIES

QUEUES = "queues"
QUEUES_DEFAULT = "sq,m=2"
"""Two processes share a core at most: jobs get what notebooks leave of it (spec 4.4)."""


def policies_of(names: dict[str, str]) -> Policies:
    """Return the set that `names` describes, as a live core follows it.

    Raise ServiceSettingError for one that is not installed.
    """
    chosen = {kind: name for kind, name in names.items() if kind != QUEUES}
    try:
        found = installed.policies(chosen.pop("set"), **chosen)
    except PolicyUnknown as error:
        raise ServiceSettingError(f"{error} Correct {POLICIES}, or install what has it.") from error
    if found.reserve:  # Nothing is reserved by a core that places no kernel: they keep what they are leased.
        return msgspec.structs.replace(found, reserve=False, keeps=True)
    return found


def queues_of(names: dict[str, str]) -> tuple[Queues, Discipline]:
    """Return how jobs on cores are served; raise ServiceSettingError for what is not installed."""
    try:
        return installed.queues_named(names.get(QUEUES, QUEUES_DEFAULT))
    except PolicyUnknown as error:
        raise ServiceSettingError(f"{error} Correct {POLICIES}, or install what has it.") from error


def check_live(names: dict[str, str], *, scales: bool = False) -> None:
    """Raise ServiceSettingError if a live service cannot follow these policies."""
    policies = policies_of(names)
    queues_of(names)
    if policies.jobs:
        raise _not_live(names, "reshapes batch jobs, and nobody submits or drives jobs here", "notebook")
    if policies.executor.anywhere:
        why = (
            "runs each cell in a process of its own on any host, and live ones run where their variables are"
        )
        raise _not_live(names, why, "'notebook order=fifo migration=never executor=last-then-idle'")
    if policies.scaling.enabled and not scales:
        why = "provisions hosts, which wants a launcher that has more hosts come"
        raise _not_live(names, why, "scaling=none")
    if not isinstance(policies.prewarm, NoPrewarming):
        why = "pre-warms processes, and agents do so by themselves, as many as their kernels need"
        raise _not_live(names, why, "prewarm=none")


def _not_live(names: dict[str, str], what: str, fix: str) -> ServiceSettingError:
    others = (f"{kind}={name}" for kind, name in names.items() if kind != "set")
    asked = " ".join([names["set"], *others])
    return ServiceSettingError(
        f"REPLKERNEL_SCHEDULER_POLICIES='{asked}' cannot be followed by a live scheduler: "
        f"it {what}. Compare it with `replkernel simulate`; here set {POLICIES} with {fix}, or unset it."
    )
