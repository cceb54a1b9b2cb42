"""Settings that are likely misspelt: names in the environment that come close to one of ours and are none.

Pure. Law: a name that resembles nothing of ours is somebody else's, and nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from replkernel.settings import SETTING_DOCS

PREFIX = "REPLKERNEL_"
ALIKE = 0.75
"""How much of a name, from 0 to 1, must be that of a setting (difflib's ratio, without the prefix)."""

_OTHERS = (
    "AGENTS_TOKEN",
    "CGROUP",
    "CHOSEN_GPUS",
    "CONFIG_FAULT",
    "CUDA_ASKS",
    "CUDA_HIDDEN",
    "DEVICE_HOOK",
    "GIVEN_PORTS",
    "HOSTS_SECRET_FILE",
    "HOST_NAME",
    "HUB_PLAIN_HTTP",
    "JOB",
    "JOB_AT",
    "JOB_CHECKPOINT",
    "JOB_CPUS",
    "JOB_DIR",
    "JOB_GPUS",
    "JOB_HOSTS",
    "LAUNCHER_PID",
    "LAUNCHER_RETURNS",
    "MCP_KERNELS",
    "MCP_TOKEN",
    "MCP_URL",
    "RANKS_DIR",
    "SCHEDULER_AWAY_S",
    "SCHEDULER_DB",
    "SCHEDULER_GPU_SHARING",
    "SCHEDULER_GRACE_S",
    "SCHEDULER_HOST_AWAY_S",
    "SCHEDULER_IDLE_GPUS",
    "SCHEDULER_JOBS",
    "SCHEDULER_POLICIES",
    "SCHEDULER_PREEMPT",
    "SCHEDULER_PRICES",
    "SCHEDULER_TOKEN",
    "SCHEDULER_USER_CALLS_PER_S",
    "SCHEDULER_USER_CONNECTIONS",
    "SCHEDULER_USER_LEASES",
    "SCHEDULER_USER_MESSAGES_PER_S",
    "SCHEDULER_USER_REQUESTS",
    "SOCKET_DIR",
    "UNSIGNED_CHECKPOINTS",
)
KNOWN = frozenset({*(f"{PREFIX}{name}" for name in _OTHERS), *(doc.variable for doc in SETTING_DOCS)})


def unknown_settings(names: Iterable[str]) -> list[str]:
    """Return those of `names` that begin as settings of ours do, and are none; sorted."""
    return sorted(name for name in names if name.startswith(PREFIX) and name not in KNOWN)


def misspelt(names: Iterable[str]) -> str:
    """Return a sentence on each of `names` that is likely meant to be a setting; empty if there is none."""
    from difflib import get_close_matches  # Of no use where all is spelt right.

    settings = [doc.variable.removeprefix(PREFIX) for doc in SETTING_DOCS]
    told: list[str] = []
    for name in unknown_settings(names):
        bare = name.removeprefix(PREFIX)
        near = [known for known in settings if _is_longer_form(known, bare) or _is_longer_form(bare, known)]
        near = near or get_close_matches(bare, settings, 1, ALIKE)
        if near:
            told.append(f"{name} is not a setting and does nothing: did you mean {PREFIX}{near[0]}?")
    return " ".join(told)


def _is_longer_form(name: str, of: str) -> bool:
    return name.startswith(f"{of}_")
