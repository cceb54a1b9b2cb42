"""What goes wrong, from a seed: hosts that go down and come back, replicas and hosts that never come.

Law: each host has dice of its own, so hosts that are there from the beginning fail at the same times under
every policy. Nothing fails unless it is asked for.
"""

from __future__ import annotations

from random import Random

import msgspec


class FaultModel(msgspec.Struct, frozen=True, kw_only=True):
    """How often: a host's mean time between failures (None: never) and to its return, shares that fail."""

    host_mtbf_s: float | None = None
    host_repair_s: float = 1800.0
    replica_failure: float = 0.0
    """The share of moving replicas that do not come."""
    boot_failure: float = 0.0
    """The share of hosts that are asked for and do not come."""


class Faults:
    """A fault model with its dice."""

    def __init__(self, model: FaultModel, seed: int) -> None:
        """Draw from `model`."""
        self._model, self._seed = model, seed
        self._dice = Random(f"faults {seed}")
        self._of_host: dict[str, Random] = {}

    def host_lasts_s(self, host: str) -> float | None:
        """Return how long a host that has just come stays up; None: it does not fail."""
        mtbf_s = self._model.host_mtbf_s
        return None if mtbf_s is None else self._host(host).expovariate(1.0 / mtbf_s)

    def host_away_s(self, host: str) -> float:
        """Return how long a host that failed is away."""
        return self._host(host).expovariate(1.0 / self._model.host_repair_s)

    def replica_fails(self) -> bool:
        """Say whether a replica on its way does not come."""
        return self._happens(self._model.replica_failure)

    def boot_fails(self) -> bool:
        """Say whether a host on its way does not come."""
        return self._happens(self._model.boot_failure)

    def _happens(self, share: float) -> bool:
        return share > 0.0 and self._dice.random() < share

    def _host(self, host: str) -> Random:
        found = self._of_host.get(host)
        if found is None:
            found = self._of_host[host] = Random(f"host {self._seed} {host}")
        return found
