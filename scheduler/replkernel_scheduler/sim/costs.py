"""What things cost that the core only orders: the answers to its effects, as drawn times.

Law: all dice of the costs come from one seed; a time is never below 0. What the papers do not say is
ours, and marked so.
"""

from __future__ import annotations

from math import exp, log
from random import Random
from typing import TypeAlias

import msgspec

Z99 = 2.3263478740408408
"""The 99th percentile of the standard normal distribution."""


class Normal(msgspec.Struct, frozen=True):
    """A time that is normally distributed, cut off at 0."""

    mean_s: float
    sigma_s: float = 0.0

    def draw(self, dice: Random) -> float:
        """Return one."""
        return max(0.0, dice.gauss(self.mean_s, self.sigma_s)) if self.sigma_s else self.mean_s


class LogNormal(msgspec.Struct, frozen=True):
    """A time that is log-normally distributed, told by its median and its 99th percentile."""

    p50_s: float
    p99_s: float

    def draw(self, dice: Random) -> float:
        """Return one."""
        return exp(dice.gauss(log(self.p50_s), log(self.p99_s / self.p50_s) / Z99))


class Uniform(msgspec.Struct, frozen=True):
    """A time between two."""

    low_s: float
    high_s: float

    def draw(self, dice: Random) -> float:
        """Return one."""
        return self.low_s + (self.high_s - self.low_s) * dice.random()


class Measured(msgspec.Struct, frozen=True):
    """A time as it was seen: `quantiles` are evenly spaced, from the shortest to the longest."""

    quantiles: tuple[float, ...]

    def draw(self, dice: Random) -> float:
        """Return one, in proportion between two quantiles."""
        place = dice.random() * (len(self.quantiles) - 1)
        low = int(place)
        high = min(low + 1, len(self.quantiles) - 1)
        return self.quantiles[low] + (self.quantiles[high] - self.quantiles[low]) * (place - low)


Time: TypeAlias = Normal | LogNormal | Uniform | Measured


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Where each number comes from stands behind it; P: the paper, C: its code, O: ours."""

    start_cold: Time = Normal(15.0, 3.0)
    """A container or kernel process without a pre-warmed one (O)."""
    session_start: Time | None = None
    """Until the first replicas of a session run; None: as a process without a pre-warmed one."""
    job_load: Time = Uniform(15.0, 60.0)
    """Loading a job that may be stopped onto its GPUs (O)."""
    job_pause: Time = Uniform(2.0, 10.0)
    """Saving it (O)."""
    start_warm: Time = Uniform(0.5, 1.0)
    """The same from a pre-warmed one (spec 1.5)."""
    prewarm: Time = Normal(15.0, 3.0)
    """Until a pre-warmed process is ready (O)."""
    state_write: Time = LogNormal(1.0, 7.07)
    """A large object into the store (p99: P, p50: O)."""
    state_read: Time = LogNormal(0.7, 3.95)
    """A large object out of the store (p99: P, p50: O)."""
    elect: Time = Uniform(0.02, 0.06)
    """Choosing the executor (P: tens of milliseconds)."""
    load: Time = Uniform(0.05, 0.3)
    """Parameters to the GPUs (P: up to a few 100 ms)."""
    unload: Time = Uniform(0.05, 0.3)
    """Parameters back before the reply (P)."""
    give_back: Time = Uniform(0.05, 0.3)
    """State that lingers off the GPUs, once somebody wants them (O)."""
    boot: Time = Normal(15.0, 2.0)
    """A host that is provisioned (C: warm virtual machines; real ones take 60 to 180 s)."""
    release: Time = Normal(10.0, 1.0)
    """A host that is given back (C)."""


FREE = Costs(
    start_cold=Normal(0.0),
    start_warm=Uniform(0.0, 0.0),
    prewarm=Normal(0.0),
    state_write=LogNormal(1e-9, 1e-9),
    state_read=LogNormal(1e-9, 1e-9),
    elect=Uniform(0.0, 0.0),
    load=Uniform(0.0, 0.0),
    unload=Uniform(0.0, 0.0),
    give_back=Uniform(0.0, 0.0),
    boot=Normal(0.0),
    release=Normal(0.0),
)
"""Nothing takes any time (or a nanosecond): what is left is waiting for GPUs."""


class CostDice:
    """A cost model with its dice."""

    def __init__(self, model: Costs, seed: int) -> None:
        """Draw from `model`."""
        self._model, self._dice = model, Random(f"costs {seed}")

    def start(self, *, warm: bool) -> float:
        """Return how long a process takes to start."""
        model = self._model
        return (model.start_warm if warm else model.start_cold).draw(self._dice)

    def session_start(self) -> float:
        """Return how long the first replicas of a session take to run."""
        model = self._model
        return (model.start_cold if model.session_start is None else model.session_start).draw(self._dice)

    def prewarm(self) -> float:
        """Return how long a process takes to be pre-warmed."""
        return self._model.prewarm.draw(self._dice)

    def read(self) -> float:
        """Return how long inputs take to come from the store."""
        return self._model.state_read.draw(self._dice)

    def write(self) -> float:
        """Return how long outputs take to go into the store."""
        return self._model.state_write.draw(self._dice)

    def move(self, *, warm: bool) -> float:
        """Return how long a replica takes to move: written, started, read (spec 1.5)."""
        return self.write() + self.start(warm=warm) + self.read()

    def load(self) -> float:
        """Return how long it takes from having GPUs to running code: election, parameters to the GPUs."""
        return self._model.elect.draw(self._dice) + self._model.load.draw(self._dice)

    def unload(self) -> float:
        """Return how long the parameters take back."""
        return self._model.unload.draw(self._dice)

    def give_back(self) -> float:
        """Return how long lingering state takes to leave its GPUs."""
        return self._model.give_back.draw(self._dice)

    def boot(self) -> float:
        """Return how long a host takes to come."""
        return self._model.boot.draw(self._dice)

    def release(self) -> float:
        """Return how long a host takes to go."""
        return self._model.release.draw(self._dice)
