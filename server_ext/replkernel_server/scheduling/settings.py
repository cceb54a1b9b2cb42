"""The settings of the scheduler's service: environment variable, default, unit and one full sentence each.

Law: a value that cannot be used is refused with the variable's name and a value that works. A database's
password is never part of what is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from replkernel.settings import SettingDoc, data_dir
from replkernel_server.errors import ServiceSettingError

DATABASE = "REPLKERNEL_SCHEDULER_DB"
GRACE = "REPLKERNEL_SCHEDULER_GRACE_S"
AWAY = "REPLKERNEL_SCHEDULER_AWAY_S"
POLICIES = "REPLKERNEL_SCHEDULER_POLICIES"
GRACE_S_MAX = 86_400.0
AWAY_S_MIN, AWAY_S_MAX = 1.0, 86_400.0
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
        POLICIES,
        "policies",
        "notebook",
        "The set of policies and those that replace its own: `notebook placement=spread order=fifo`.",
    ),
)


class ServiceSettings(msgspec.Struct, frozen=True):
    """What the service is set up with; `policies` maps kinds to names, with the set's name under `set`."""

    database: str
    grace_s: float = 30.0
    away_s: float = 60.0
    policies: dict[str, str] = msgspec.field(default_factory=lambda: {"set": "notebook"})


def scheduler_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of the scheduler's token and journal."""
    return data_dir(env) / "scheduler"


def read_service_settings(env: Mapping[str, str]) -> ServiceSettings:
    """Read the settings from `env`; raise ServiceSettingError for one that cannot be used."""
    for name in (DATABASE, GRACE, AWAY, POLICIES):
        if len(env.get(name, "")) > TEXT_CHARS_MAX:
            raise ServiceSettingError(
                f"{name} is longer than {TEXT_CHARS_MAX} characters: correct or unset it."
            )
    database = env.get(DATABASE, "").strip() or f"sqlite:///{scheduler_dir(env) / 'journal.sqlite'}"
    grace_s = _seconds(env, GRACE, 30.0, 0.0, GRACE_S_MAX)
    away_s = _seconds(env, AWAY, 60.0, AWAY_S_MIN, AWAY_S_MAX)
    return ServiceSettings(database, grace_s, away_s, _policies(env.get(POLICIES, "")))


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
