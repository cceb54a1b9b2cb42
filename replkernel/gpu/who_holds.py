"""Whether a process holds GPUs, by what is known of it. Pure: who asks the system is `seen.py`.

Law: the devices that it has open come first, for they cannot be hidden from itself; then what NVML has under
its number, which some containers hide; imported libraries only give a name. What is not known is *held*.
"""

from __future__ import annotations

import re

import msgspec

UVM = "nvidia-uvm"
"""Opened by CUDA when it starts; who only asks NVML does not need it."""
_GPU = re.compile(r"nvidia\d+$|nvidia-caps/|nvidia-uvm$")


class Known(msgspec.Struct, frozen=True):
    """What is known of one process."""

    devices: frozenset[str] | None = frozenset()
    """NVIDIA's devices that it has open; None: the system does not tell."""
    by_nvml: dict[str, int] | None = None
    """The bytes that NVML has under it, by GPU; None: it does not tell, or was not asked."""
    libraries: tuple[str, ...] = ()
    """Libraries that may use CUDA, beside torch."""


class Holds(msgspec.Struct, frozen=True):
    """The process holds GPUs: `who` does, for a sentence, and how many bytes, where that is told."""

    who: str
    bytes: int = 0


def needs_nvml(devices: frozenset[str] | None) -> bool:
    """Tell whether the devices alone do not say it."""
    return devices is None or (UVM not in devices and any(_GPU.match(name) for name in devices))


def verdict(known: Known) -> Holds | None:
    """Return what the process holds; None: nothing."""
    opened = None if known.devices is None else sorted(n for n in known.devices if _GPU.match(n))
    if opened == []:
        return None
    told = known.by_nvml
    size = sum((told or {}).values())
    if told or (opened and UVM in opened):
        return Holds(_who(known.libraries), size)
    if opened is None:
        return Holds(_who(known.libraries)) if known.libraries else None
    if told is not None:
        return None  # It has looked at GPUs, as who asks NVML does, and the driver has nothing under it.
    return Holds(f"something that has /dev/{opened[0]} open")


def child_verdict(known: Known, ours: Known) -> Holds | None:
    """Return what a process holds that we have started; None: nothing, or what is not told.

    One that was forked has open what we had then, and holds nothing by that: NVML, if it tells of us, tells.
    """
    opened = {name for name in known.devices or () if _GPU.match(name)}
    size = sum((known.by_nvml or {}).values())
    if known.by_nvml:
        return Holds(_who(known.libraries), size)
    if not opened or (UVM not in opened and known.by_nvml is not None):
        return None
    if opened <= (ours.devices or frozenset()) and known.by_nvml is not None and ours.by_nvml:
        return None
    return Holds(_who(known.libraries))


def _who(libraries: tuple[str, ...]) -> str:
    return ", ".join(libraries) or "a library other than torch"
