"""The backend of a process that uses CUDA without torch (JAX, CuPy, numba …): by the driver, or not at all.

Nobody here can reach the arrays of such libraries, nor read them while the driver has them. Law: where the
driver cannot take all off, everything stays, with the lease; torch is never imported, CUDA never started.
"""

from __future__ import annotations

import os
import sys
import time

from replkernel.gpu import family, seen
from replkernel.gpu.backend import Kept, Moved, Outcome
from replkernel.gpu.driver import DriverCheckpoint, bare
from replkernel.gpu.who_holds import Holds, Known, needs_nvml, verdict

_UUIDS = ("GPU-", "MIG-")


def held_here(*, orphans: bool = False) -> Holds | None:
    """Return what this process, or one that it has started, holds; None: nothing. Any thread may ask.

    `orphans`: also those whose parents have ended, for which all processes are looked through.
    """
    if not seen.has_driver():
        return None
    return held_by_itself() or _held_by_relatives(orphans=orphans)


def held_by_itself() -> Holds | None:
    """Return what this process alone holds by the system's account."""
    devices = seen.devices_open()
    if not devices and devices is not None:
        return None
    by_nvml = seen.bytes_by_gpu() if needs_nvml(devices) else None
    return verdict(Known(devices, by_nvml, seen.libraries_loaded(list(sys.modules))))


def _held_by_relatives(*, orphans: bool) -> Holds | None:
    found = family.that_hold(orphans=orphans)
    return Holds(str(found[0]), sum(each.bytes for each in found)) if found else None


class DriverBackend:
    """One process's GPUs, while torch has not started CUDA there."""

    name = "driver"

    def __init__(self, driver: DriverCheckpoint) -> None:
        self._driver = driver
        self._gpus = tuple(word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word)
        self._bytes_off = 0

    @property
    def gpus(self) -> tuple[str, ...]:
        """The UUIDs that the devices stand for, as far as a lease, or NVML, has named them."""
        if not self._gpus or not all(word.startswith(_UUIDS) for word in self._gpus):
            self._gpus = tuple(family.bytes_by_gpu(family.that_hold())) or self._gpus
        return self._gpus

    @property
    def suspended(self) -> bool:
        """Whether state is off the devices, or cannot be had."""
        return self._driver.is_off

    @property
    def locked(self) -> bool:
        """Whether the driver has the state, so that any call of CUDA blocks until it is back."""
        return self._driver.is_off

    def bind(self, gpus: tuple[str, ...]) -> str:
        """Take note of the GPUs that CUDA was started with."""
        self._gpus = self.gpus or gpus
        return "" if gpus == self._gpus else self._started_with()

    def bound_to_others(self, gpus: tuple[str, ...]) -> str:
        """Say with which GPUs CUDA was started, if they are others."""
        if self._driver.stuck:
            return self._driver.stuck
        if gpus == self.gpus or (self._driver.is_off and self._driver.mapping(self.gpus, gpus) is not None):
            return ""
        return f"CUDA was started here with {', '.join(self.gpus) or 'all that was visible then'}"

    @property
    def bound(self) -> bool:
        """Nothing is moved without the driver."""
        return True

    def _started_with(self) -> str:
        return f"CUDA keeps {', '.join(self.gpus)}, with which it was started in this process"

    def bytes_held(self) -> int:
        """Return how many bytes the driver tells of, its context among them; 0 where it does not tell."""
        return 0 if self._driver.is_off else sum(family.bytes_by_gpu(family.that_hold()).values())

    def bytes_off(self) -> int:
        """Return how many bytes the driver has taken to host memory."""
        return self._bytes_off if self._driver.is_off else 0

    def suspend(self, busy: str = "", *, settled: bool = False) -> Outcome:
        """Have the driver take all off. `busy` is no hindrance to it: calls in other threads wait."""
        if self._driver.stuck:
            return Kept(self._driver.stuck)
        holds = held_here(orphans=True)
        if self._driver.is_off or holds is None:
            return Moved()
        began, size = time.monotonic(), self.bytes_held()
        why = "not all that cells changed is captured yet"
        if settled:
            own, here = sum((seen.bytes_by_gpu() or {}).values()), held_by_itself() is not None
            why = self._driver.off(own, self.gpus, here=here)
        if why:
            return Kept(f"{holds.who} uses CUDA here, which only the driver could take off the GPU: {why}")
        self._bytes_off = size
        return Moved(size, time.monotonic() - began)

    def resume(self, gpus: tuple[str, ...]) -> Outcome:
        """Have the driver bring all back, to these GPUs if they are of the same model."""
        if not self._driver.is_off:
            return Moved()
        began = time.monotonic()
        mapping = {} if gpus == self.gpus else self._driver.mapping(self.gpus, gpus)
        if mapping is None:
            return Kept(self._started_with())
        why = self._driver.back({bare(old): bare(new) for old, new in mapping.items()})
        if why:
            return Kept(why)
        self._gpus = gpus
        return Moved(self._bytes_off, time.monotonic() - began)
