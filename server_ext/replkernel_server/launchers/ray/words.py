"""What the scheduler's service and its Ray process say to each other: a line of JSON each.

Law: structs alone; a secret is in none of them.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from replkernel_server.launchers.protocol import GpusElsewhere, GpusHeld, HostJoined, HostLost, JobsWaiting

LINE_BYTES_MAX = 1024 * 1024


class RayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to use the cluster."""

    address: str = "auto"
    labels: dict[str, str] = {}
    """Only nodes with these labels have agents."""
    pretend: bool = False
    """Agents offer as many pretended GPUs as their nodes say they have."""
    bind: bool = True
    """Agents listen at their nodes' addresses for other machines."""
    scale: bool = False
    """The cluster has an autoscaler: it is asked for the nodes that have agents, and for more."""
    gpus: int = 8
    """What a node that is asked for has."""
    settings: dict[str, str] = {}
    """Settings of agents, no secrets."""


class StartAgent(msgspec.Struct, frozen=True, tag=True):
    """Have an agent run."""

    number: int
    host: str


class StopAgent(msgspec.Struct, frozen=True, tag=True):
    """End one."""

    number: int
    host: str


class WantHosts(msgspec.Struct, frozen=True, tag=True):
    """Want so many nodes more."""

    number: int
    more: int


class GiveBack(msgspec.Struct, frozen=True, tag=True):
    """Want a node no longer."""

    number: int
    host: str


class TakeOne(msgspec.Struct, frozen=True, tag=True):
    """Have a GPU counted."""

    number: int
    host: str
    gpu: str


class LeaveOne(msgspec.Struct, frozen=True, tag=True):
    """Have it counted no longer."""

    number: int
    host: str
    gpu: str


Order: TypeAlias = StartAgent | StopAgent | WantHosts | GiveBack | TakeOne | LeaveOne


class Done(msgspec.Struct, frozen=True, tag=True):
    """An order was carried out, or could not be (`why`)."""

    number: int
    value: str | None = None
    why: str = ""


class Connected(msgspec.Struct, frozen=True, tag=True):
    """The cluster is there, and its hosts were told; orders are taken from now on."""


FromProcess: TypeAlias = Done | Connected | HostJoined | HostLost | GpusElsewhere | GpusHeld | JobsWaiting
