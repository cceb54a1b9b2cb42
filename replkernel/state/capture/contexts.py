"""What reducers may use of the capture that asks them: `ReducerContext`, and more of it for our own.

Law: shapes alone. Reducers know of no pickler, so that what a library needs is looked for in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from array import array

    from replkernel.state.capture.losses import LossBook
    from replkernel.state.tombstone import Loss
    from replkernel.state.world import World

Stretch: TypeAlias = tuple[int, int, object]
"""Where memory begins and ends, and what has it."""


class ReducerContext(Protocol):
    """What a reducer may use of the capture that asks it to reduce an object.

    A reducer takes this and the object. It returns what ``__reduce__`` would, `NotImplemented` to leave the
    object to its own way of being pickled, or raises `CannotTravel` with one sentence for the user.
    """

    unlinked: set[int]
    """The ids of objects that do not tie together the variables that hold them, such as a library's own."""
    touched: bool
    """Set it to True where anything of this context was changed."""

    @property
    def namespace(self) -> Mapping[str, Any]:
        """The notebook's variables."""
        ...

    @property
    def careful(self) -> bool:
        """Whether what cannot be dumped is to be found, after a first try has failed."""
        ...

    def module_needed(self, name: str | None) -> None:
        """Have that module imported before the object is rebuilt."""
        ...

    def probe(self, obj: object) -> None:
        """Raise `CannotTravel` where an object cannot be dumped whole."""
        ...

    def emit(self, view: object, key: tuple[int, int] | None) -> bytes | int:
        """Have a buffer of bytes travel beside the payload, where it is large; return what the loader gets.

        `key` is the buffer's address and length where nobody writes to it without the capture's knowing.
        """
        ...


class UnitContext(ReducerContext, Protocol):
    """What reducers of Python's own objects, and of those that share memory, use of a unit's dump besides."""

    deep: bool
    """Whether what is nested deeply is dumped piece by piece."""
    modules: set[str]
    """The modules that are imported before the unit is rebuilt."""
    own_classes: dict[str, None]
    """The ids of the notebook's classes whose bodies the unit brings."""
    classes: set[str]
    """The ids of the notebook's classes that it needs."""
    roots: dict[str, Any]
    """Its variables."""
    links: list[Any]
    """What ties it to other units that have the same."""
    ranges: list[tuple[int, int]]
    """The memory that its buffers have."""
    covers: list[tuple[int, int, Any]]
    """Memory that earlier dumps of the unit found to be in something larger, and that."""
    codes: list[CodeType | None]
    endless: set[str]
    """The dumps that users wrote of which one has returned what holds the very object."""
    dumped_by_hooks: dict[int, tuple[int, ...]]
    gpus: int
    """On so many devices its tensors lie."""

    @property
    def world(self) -> World:
        """What all captures of the process share."""
        ...

    @property
    def notes(self) -> UnitNotes:
        """What reducers of the unit note for each other."""
        ...

    @property
    def root_dicts(self) -> frozenset[int]:
        """The ids of the dictionaries that are variables of the unit."""
        ...

    @property
    def memo(self) -> Any:
        """What was pickled already."""
        ...

    @property
    def book(self) -> LossBook:
        """The book in which its losses are entered."""
        ...

    def checked(self, obj: object, reduced: object) -> str | tuple[Any, ...]:
        """Return a reduction that will load; raise `CannotTravel` for one that would not."""
        ...

    def leads_back(self, obj: object, state: object) -> bool:
        """Tell whether what the dump of a user's returned for an object holds that object."""
        ...

    def bury(self, obj: object, reason: str) -> str | tuple[Any, ...]:
        """Return the reduction of a tombstone for an object, and note the loss."""
        ...

    def note_loss(self, obj: object, reason: str, type_name: str) -> Loss:
        """Note that a part of an object is lost, which itself travels."""
        ...


class UnitNotes(msgspec.Struct):
    """What the reducers of one unit note for each other; all of it is forgotten with the dump."""

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
    searches: dict[tuple[int, int, int, int], Any] = {}
    """By the ids of pattern and text, and its bounds: a search that finds matches again."""
    kept: list[object] = []
    """What must not be freed before the dump is over: its id or its memory is remembered."""
    at_the_end: dict[str, Callable[[UnitContext], None]] = {}
    """What is asked of the pickler once all of the unit was met, by what it is about."""
