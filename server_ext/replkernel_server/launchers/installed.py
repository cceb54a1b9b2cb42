"""Finds launchers by name among the installed packages.

A launcher is an entry point of the group replkernel.launchers: a function that makes one from the options
of the command line (`key=value`). Law: only the one that is chosen is imported.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import cast

from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.protocol import Launcher

GROUP = "replkernel.launchers"
BUILT_IN = {
    "kubernetes": "replkernel_server.launchers.kubernetes:make",
    "local": "replkernel_server.launchers.local:make",
    "ray": "replkernel_server.launchers.ray.launcher:make",
    "slurm": "replkernel_server.launchers.slurm:make",
}
OPTIONS_MAX = 64


def names() -> list[str]:
    """Return the names of the launchers that can be chosen."""
    return sorted({*BUILT_IN, *(entry.name for entry in importlib.metadata.entry_points(group=GROUP))})


def read_options(words: Sequence[str]) -> dict[str, str]:
    """Read `key=value` words; raise ServiceSettingError for what is none."""
    wrong = [word for word in words if not word.partition("=")[0] or "=" not in word]
    if wrong or len(words) > OPTIONS_MAX:
        what = f"{wrong[0]!r} is not key=value" if wrong else f"more than {OPTIONS_MAX} are given"
        raise ServiceSettingError(f"--launcher-option: {what}; write --launcher-option address=auto.")
    return dict(word.split("=", 1) for word in words)


def make(name: str, options: Mapping[str, str]) -> Launcher:
    """Return the launcher `name`; raise ServiceSettingError with the names there are."""
    found = [*importlib.metadata.entry_points(group=GROUP, name=name)]
    if name in BUILT_IN:
        found = [importlib.metadata.EntryPoint(name, BUILT_IN[name], GROUP)]
    if not found:
        raise ServiceSettingError(
            f"There is no launcher {name!r}; installed are {', '.join(names())}: choose one with --launcher."
        )
    return cast("Launcher", found[0].load()(dict(options)))


def refuse_unknown(launcher: str, options: Mapping[str, str], known: Sequence[str]) -> None:
    """Raise ServiceSettingError for an option that a launcher does not have."""
    for name in options:
        if name not in known:
            raise ServiceSettingError(
                f"The launcher {launcher} has no option {name!r}; it has {', '.join(sorted(known))}."
            )


def whole(launcher: str, options: Mapping[str, str], name: str, default: int, most: int) -> int:
    """Return an option that is a whole number from 0 to `most`."""
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) <= most):
        raise ServiceSettingError(
            f"The launcher {launcher} wants a whole number from 0 to {most} for {name}, not {text!r}: "
            f"write --launcher-option {name}={default}."
        )
    return int(text)
