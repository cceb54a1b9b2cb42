"""The vocabulary of jobs that share processors: what is asked for, what happened, what follows.

Law: plain frozen structs; times are seconds of the driver's clock.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec


class JobWanted(msgspec.Struct, frozen=True, gc=False):
    """A job of `width` processes that its user thinks will run for `requested_s` alone.

    `memory_gb` is what each process needs. `interactive` jobs have idle phases, in which they slow nobody.
    """

    job: str
    width: int
    requested_s: float
    memory_gb: float = 0.0
    interactive: bool = False


class JobOver(msgspec.Struct, frozen=True, gc=False):
    """A started job has ended, well or not."""

    job: str


JobEvent: TypeAlias = JobWanted | JobOver


class Place(NamedTuple):
    """The cores of one node that a job's processes are assigned to, one process each."""

    node: int
    cores: tuple[int, ...]


class StartJob(msgspec.Struct, frozen=True, gc=False):
    """Start a job's processes on these cores of this part now."""

    job: str
    part: int
    places: tuple[Place, ...]


class RefuseJob(msgspec.Struct, frozen=True, gc=False):
    """A job that these nodes could never run, even empty."""

    job: str
    why: str


JobEffect: TypeAlias = StartJob | RefuseJob


class Part(msgspec.Struct, frozen=True):
    """Nodes that have a queue of their own; a core of theirs takes at most `multiplicity` processes."""

    name: str
    nodes: int
    multiplicity: int


class NodeShape(msgspec.Struct, frozen=True):
    """What every node has; memory 0: as much as is wanted."""

    cores: int = 12
    memory_gb: float = 0.0
