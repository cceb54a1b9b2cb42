"""Which policies a live service can follow: those that want nothing done which nobody does.

Kernels place themselves, hosts come and go by their agents. Law: what would provision, pre-warm or reserve is
refused by name, before a journal is begun with it; the simulator knows no such limit.
"""

from __future__ import annotations

from replkernel_scheduler.errors import PolicyUnknown
from replkernel_scheduler.policies import installed
from replkernel_scheduler.policies.prewarm_none import NoPrewarming
from replkernel_scheduler.settings import Policies

from replkernel_server.errors import ServiceSettingError
from replkernel_server.scheduling.settings import POLICIES


def policies_of(names: dict[str, str]) -> Policies:
    """Return the set that `names` describes; raise ServiceSettingError for one that is not installed."""
    chosen = dict(names)
    try:
        return installed.policies(chosen.pop("set"), **chosen)
    except PolicyUnknown as error:
        raise ServiceSettingError(f"{error} Correct {POLICIES}, or install what has it.") from error


def check_live(names: dict[str, str], *, scales: bool = False) -> None:
    """Raise ServiceSettingError if a live service cannot follow these policies."""
    policies = policies_of(names)
    if policies.scaling.enabled and not scales:
        raise _not_live("provisions hosts, which wants a launcher that has more hosts come", "scaling=none")
    if not isinstance(policies.prewarm, NoPrewarming):
        raise _not_live("pre-warms processes, and agents do so by themselves", "prewarm=none")
    if policies.reserve:
        raise _not_live("holds GPUs for a kernel's whole life, which is for the simulator", "notebook")
    if policies.executor.anywhere:
        raise _not_live("runs cells where their kernel is not", "executor=last-then-idle")


def _not_live(what: str, fix: str) -> ServiceSettingError:
    return ServiceSettingError(f"{POLICIES} {what}: set {POLICIES} with {fix}, or unset it.")
