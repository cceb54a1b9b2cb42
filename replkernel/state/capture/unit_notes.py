"""What the reducers of one unit note for each other: memory that was met, and what already stands for what.

Law: all of it is forgotten with the dump that it was noted in; only covers outlive a dump of the unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from array import array

    from replkernel.state.capture.contexts import UnitContext

Stretch: TypeAlias = tuple[int, int, object]
"""Where memory begins and ends, and what has it."""


class UnitNotes(msgspec.Struct):
    """The notes of one dump of a unit."""

    alone: dict[int, object] = {}
    """By their ids: arrays that travel as copies, though others look at their memory."""
    apart: dict[int, object] = {}
    """By their addresses: buffers of Arrow that join nobody who shares them, and what has them."""
    arrow_buffers: dict[tuple[int, int], Any] = {}
    """By place: the first buffer of Arrow that was met there."""
    memories: dict[tuple[int, int], object] = {}
    """By place: what stands for memory that no known object owns."""
    owners: list[Stretch] = []
    """The arrays that own their memory."""
    looked_at: list[tuple[int, int]] = []
    """Memory that something looks at whose owner was not met yet."""
    foreign: list[Stretch] = []
    """Arrays that do not own their memory, and lend it until its owner is met."""
    lenders: list[tuple[int, bytes | bytearray | array[Any]]] | None = None
    """Bytes that variables are or look at, by address; None until somebody asks."""
    storages: list[Stretch] = []
    """The memory of torch's storages, and their nodes."""
    tensor_storages: dict[int, object] = {}
    """The nodes of torch's storages."""
    module_dicts: dict[int, object] = {}
    """By their ids: what stands for the globals of functions."""
    entries: Mapping[int, tuple[str, tuple[str, ...]]] | None = None
    """Where the unit's classes have functions; None until somebody asks."""
    kept: list[object] = []
    """What must not be freed before the dump is over: its id or its memory is remembered."""
    at_the_end: dict[str, Callable[[UnitContext], None]] = {}
    """What is asked of the pickler once all of the unit was met, by what it is about."""
