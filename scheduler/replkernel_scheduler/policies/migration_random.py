"""When no replica's host has the GPUs, one replica, drawn at random, moves to where they are (spec 1.5)."""

from __future__ import annotations

from collections.abc import Sequence

from replkernel_scheduler.policies.protocol import Dice


class RandomVictim:
    """The paper's way; a request whose migration failed keeps waiting for its own hosts."""

    enabled = True
    gives_up = False
    defer_s = 0.0

    def victim(self, hosts: Sequence[str], dice: Dice) -> str:
        """Draw one."""
        return hosts[int(dice.random() * len(hosts))]


class RandomVictimOrError(RandomVictim):
    """The paper's way to the end: a request whose migration failed is refused."""

    gives_up = True
