"""What all messages with the scheduler have in common: their base, the kinds of their fields, limits."""

from __future__ import annotations

from typing import Annotated

import msgspec

from replkernel.records import HostName

AMOUNT_MAX = 1e6
"""No number of GiB or cores is larger; what ends in `_gb` is counted in GiB (2³⁰ bytes), everywhere."""
WHY_MAX = 2000
"""No reason that is told is longer."""
NOTEBOOK_CHARS_MAX = 200
"""No notebook's path is longer as it is told; of a longer one the end is."""
GPUS_OF_HOST_MAX = 64
GPUS_OF_LEASE_MAX = 8
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Text = Annotated[str, msgspec.Meta(max_length=200)]
Amount = Annotated[float, msgspec.Meta(ge=0.0, le=AMOUNT_MAX)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Told = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
"""What a program told of itself: no NaN and nothing infinite, for JSON has neither."""
Host = Annotated[HostName, msgspec.Meta(max_length=200)]
HostNames = Annotated[tuple[Host, ...], msgspec.Meta(max_length=64)]
GpuCount = Annotated[int, msgspec.Meta(ge=0, le=GPUS_OF_LEASE_MAX)]


class LeaseMessage(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The base of all messages; the tag is the class name."""


def told_path(path: str) -> str:
    """Return a notebook's path as it may be told and shown: printable, and of a long one the end."""
    shown = "".join(mark if mark.isprintable() else "\N{REPLACEMENT CHARACTER}" for mark in path)
    return shown if len(shown) <= NOTEBOOK_CHARS_MAX else "…" + shown[1 - NOTEBOOK_CHARS_MAX :]
