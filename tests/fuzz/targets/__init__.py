"""The targets: a module each, with `seeds()` (real messages) and `fuzz(data)` (the real parser).

`fuzz` lets pass what the parser refuses by name. Whatever else is raised is a finding.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Protocol, cast

NAMES = (
    "agent",
    "router",
    "kernel_process",
    "scheduler_channel",
    "scheduler_rest",
    "checkpoint",
    "group_journal",
    "scheduler_journal",
    "router_journal",
    "blobs",
    "raft_listener",
    "command",
    "magics",
)


class Target(Protocol):
    """What a module of a target offers."""

    def seeds(self) -> Iterable[bytes]:
        """Return inputs made from real messages."""
        ...

    def fuzz(self, data: bytes) -> None:
        """Have the real parser read `data`; raise whatever it should not."""
        ...


def target(name: str) -> Target:
    """Return a target by its name."""
    return cast("Target", importlib.import_module(f"tests.fuzz.targets.{name}"))
