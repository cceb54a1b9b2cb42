"""The settings of the scheduler's service: environment variable, default, unit and one full sentence each.

Law: a value that cannot be used is refused with the variable's name and a value that works. A database's
password is never part of what is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from replkernel_scheduler.bounds import UserBounds
from replkernel_scheduler.types import Prices
from replkernel_scheduler.wishes import MULTIPLICITY_MAX

from replkernel.launch.unknown_settings import PREFIX
from replkernel.settings import SettingDoc, data_dir
from replkernel_server.errors import ServiceSettingError
from replkernel_server.scheduling.kernel_desk import MULTIPLICITY
from replkernel_server.scheduling.prices import read_prices
from replkernel_server.scheduling.underuse import Rule, read_rule

DATABASE = "REPLKERNEL_SCHEDULER_DB"
GRACE = "REPLKERNEL_SCHEDULER_GRACE_S"
AWAY = "REPLKERNEL_SCHEDULER_AWAY_S"
HOST_AWAY = "REPLKERNEL_SCHEDULER_HOST_AWAY_S"
POLICIES = "REPLKERNEL_SCHEDULER_POLICIES"
PRICES = "REPLKERNEL_SCHEDULER_PRICES"
JOBS = "REPLKERNEL_SCHEDULER_JOBS"
GPU_SHARING = "REPLKERNEL_SCHEDULER_GPU_SHARING"
IDLE_GPUS = "REPLKERNEL_SCHEDULER_IDLE_GPUS"
PREEMPT = "REPLKERNEL_SCHEDULER_PREEMPT"

USER = f"{PREFIX}SCHEDULER_USER_"
GRACE_S_MAX = 86_400.0
AWAY_S_MIN, AWAY_S_MAX = 1.0, 86_400.0
HOST_AWAY_S = 300.0
TEXT_CHARS_MAX = 2_000

SETTING_DOCS = (
    SettingDoc(
        DATABASE,
        "database",
        "`scheduler/journal.sqlite` in the data directory",
        "Where the journal lies: `sqlite:////path/to/journal.sqlite` or `postgresql://user:password@host/database`.",
    ),
    SettingDoc(
        GRACE,
        "grace_s",
        "30",
        "Seconds that leases last at least after a restart, for their holders to renew them (0 to 86400).",
    ),
    SettingDoc(
        AWAY,
        "away_s",
        "60",
        "Seconds that a router may be away before its kernel's GPUs are given to others (1 to 86400).",
    ),
    SettingDoc(
        HOST_AWAY,
        "host_away_s",
        "300",
        "Seconds that a host's agent may be away before leases there end and it is forgotten (0 to 86400).",
    ),
    SettingDoc(
        POLICIES,
        "policies",
        "notebook",
        "The set of policies and those that replace its own: `notebook placement=spread order=fifo`.",
    ),
    SettingDoc(
        PRICES,
        "prices",
        "none",
        "What an hour of a GPU, by its model, and of a host costs: `H100=4.5 other=1 host=0.4 currency=EUR`.",
    ),
    SettingDoc(
        JOBS,
        "jobs",
        "on",
        "Whether jobs run on what notebooks leave idle (`on`, `off`: those that are there are stopped).",
    ),
    SettingDoc(
        GPU_SHARING,
        "gpu_sharing",
        "4",
        "To so many GPUs the parts of those may come who share one with `--share` (1 to 64).",
    ),
    SettingDoc(
        IDLE_GPUS,
        "idle_gpus",
        "none",
        "When a cell hears that its GPUs idle, as in `below=5 minutes=15` (%); `interrupt=30` ends it later.",
    ),
    SettingDoc(
        PREEMPT,
        "preempt",
        "deferred",
        "When cells that allow it are paused for shorter ones: a policy of the kind `preempt`, as `deferred` "
        "(Lazer: after a wait that is learned), `shortest` (at once), `never`.",
    ),
    SettingDoc(
        USER + "REQUESTS",
        "user_requests",
        "256",
        "Requests of one user that may wait at once, those for no GPUs among them (1 to 100000).",
    ),
    SettingDoc(
        USER + "LEASES",
        "user_leases",
        "256",
        "Leases that one user may hold at once, those for no GPUs among them (1 to 100000).",
    ),
    SettingDoc(
        USER + "CONNECTIONS",
        "user_connections",
        "512",
        "Routers and agents of one user that may be connected at once (1 to 20000).",
    ),
    SettingDoc(
        USER + "CALLS_PER_S",
        "user_calls_per_s",
        "50",
        "Calls of the REST API that one user may make a second, ten seconds' worth at once (1 to 100000).",
    ),
    SettingDoc(
        USER + "MESSAGES_PER_S",
        "user_messages_per_s",
        "1000",
        "Messages a second of all connections of one user, ten seconds' worth at once (1 to 1000000).",
    ),
)


class ServiceSettings(msgspec.Struct, frozen=True):
    """What the service is set up with; `policies` maps kinds to names, with the set's name under `set`."""

    database: str
    grace_s: float = 30.0
    away_s: float = 60.0
    host_away_s: float = HOST_AWAY_S
    policies: dict[str, str] = msgspec.field(default_factory=lambda: {"set": "notebook"})
    prices: Prices | None = None
    jobs: bool = True
    gpu_sharing: int = MULTIPLICITY
    idle_gpus: Rule | None = None
    preempt: str = "deferred"
    user_requests: int = 256
    user_leases: int = 256
    user_connections: int = 512
    user_calls_per_s: float = 50.0
    user_messages_per_s: float = 1_000.0

    @property
    def bounds(self) -> UserBounds:
        """Return what one user may have at once."""
        return UserBounds(
            requests=self.user_requests,
            leases=self.user_leases,
            connections=self.user_connections,
            calls_per_s=self.user_calls_per_s,
            messages_per_s=self.user_messages_per_s,
        )


def scheduler_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of the scheduler's token and journal."""
    return data_dir(env) / "scheduler"


def read_service_settings(env: Mapping[str, str]) -> ServiceSettings:
    """Read the settings from `env`; raise ServiceSettingError for one that cannot be used."""
    for name in (DATABASE, GRACE, AWAY, HOST_AWAY, POLICIES, PRICES, IDLE_GPUS, PREEMPT):
        if len(env.get(name, "")) > TEXT_CHARS_MAX:
            raise ServiceSettingError(
                f"{name} is longer than {TEXT_CHARS_MAX} characters: correct or unset it."
            )
    database = env.get(DATABASE, "").strip() or f"sqlite:///{scheduler_dir(env) / 'journal.sqlite'}"
    grace_s = _seconds(env, GRACE, 30.0, 0.0, GRACE_S_MAX)
    away_s = _seconds(env, AWAY, 60.0, AWAY_S_MIN, AWAY_S_MAX)
    return ServiceSettings(
        database,
        grace_s,
        away_s,
        _seconds(env, HOST_AWAY, HOST_AWAY_S, 0.0, AWAY_S_MAX),
        _policies(env.get(POLICIES, "")),
        user_requests=_count(env, USER + "REQUESTS", 256, 100_000),
        user_leases=_count(env, USER + "LEASES", 256, 100_000),
        user_connections=_count(env, USER + "CONNECTIONS", 512, 20_000),
        user_calls_per_s=_count(env, USER + "CALLS_PER_S", 50, 100_000),
        user_messages_per_s=_count(env, USER + "MESSAGES_PER_S", 1_000, 1_000_000),
        prices=read_prices(PRICES, env.get(PRICES, "")),
        jobs=_is_on(env, JOBS),
        gpu_sharing=_count(env, GPU_SHARING, MULTIPLICITY, MULTIPLICITY_MAX),
        idle_gpus=read_rule(IDLE_GPUS, env.get(IDLE_GPUS, "")),
        preempt=env.get(PREEMPT, "").strip() or "deferred",
    )


def _is_on(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "").strip().lower() or "on"
    if text not in ("on", "off"):
        raise ServiceSettingError(f"{name}={text[:40]!r} is neither on nor off: set {name}=on.")
    return text == "on"


def _count(env: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = env.get(name, "").strip() or str(default)
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
        raise ServiceSettingError(
            f"{name}={text[:40]!r} is not a whole number from 1 to {most}: set {name}={default}."
        )
    return int(text)


def _seconds(env: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    text = env.get(name, "").strip() or f"{default:g}"
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not low <= value <= high:
        raise ServiceSettingError(
            f"{name}={text!r} is not a number of seconds from {low:g} to {high:.0f}: set {name}={default:g}."
        )
    return value


def _policies(text: str) -> dict[str, str]:
    words = text.split() or ["notebook"]
    chosen = dict(word.split("=", 1) for word in words if "=" in word)
    base = [word for word in words if "=" not in word]
    if len(base) > 1 or "set" in chosen:
        raise ServiceSettingError(
            f"{POLICIES}={text!r} names more than one set: set {POLICIES}='notebook placement=spread'."
        )
    return {"set": base[0] if base else "notebook", **dict(sorted(chosen.items()))}
