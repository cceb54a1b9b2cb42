"""The stand-in for an object that could not travel: whoever touches it gets StateLostError.

Law: a tombstone answers `repr` (debuggers list variables) and nothing else; it never passes for a value.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import msgspec

from replkernel.errors import StateLostError
from replkernel.loaders import loader
from replkernel.records import Pin, ReplicaId, Seq

REASON_CHARS_MAX = 300

HOLDS_STUCK = "It holds something that cannot be copied."
"""How the reason of an object begins that is lost for what it holds; that one's own reason follows."""


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """What a tombstone knows: its pin's fields, and `cell`, the number the user saw when it was captured.

    `rebuilt`: the object was copied, but what other replicas made of it was not as it was. `transient`: its
    user did not want it copied.
    """

    name: str
    type_name: str
    replica: str
    seq: int
    cell: int
    path: str = ""
    reason: str = ""
    rebuilt: bool = False
    transient: bool = False

    def pin(self) -> Pin:
        """Return the pin that says who holds the real object."""
        replica, seq = ReplicaId(self.replica), Seq(self.seq)
        return Pin(self.name, self.type_name, replica, seq, self.path, self.reason, self.cell)

    def error(self) -> StateLostError:
        """Return the error for whoever touches the tombstone."""
        name = self.path or self.name
        error = StateLostError(name, self.type_name, self.replica, self.cell, self.rebuilt, self.transient)
        if self.reason:
            error.add_note(self.reason)
        return error


def shorten(reason: str) -> str:
    """Return `reason` on one line and of bounded length."""
    line = " ".join(reason.split())
    return line if len(line) <= REASON_CHARS_MAX else line[: REASON_CHARS_MAX - 1] + "…"


_LOSSES: dict[int, Loss] = {}
"""What each living tombstone stands for, by its id: an attribute could not be read without touching it."""

STOOD_MAX = 10_000
_STOOD: dict[tuple[str, str, str, int], None] = {}
"""What tombstones of this process have stood for, those that are gone as well: the last ones."""

_hashing_allowed = 0


class hashable_tombstones:  # noqa: N801
    """Let tombstones be hashed by identity while a payload is rebuilt: they may be members of sets."""

    def __enter__(self) -> None:
        """Begin."""
        global _hashing_allowed
        _hashing_allowed += 1

    def __exit__(self, *_: object) -> None:
        """End."""
        global _hashing_allowed
        _hashing_allowed -= 1


def loss_of(tombstone: object) -> Loss:
    """Return what `tombstone` stands for."""
    return _LOSSES[id(tombstone)]


def entitle(tombstone: object, loss: Loss) -> None:
    """Have a tombstone stand for `loss` from now on."""
    _LOSSES[id(tombstone)] = loss
    _remember(loss)


def _remember(loss: Loss) -> None:
    _STOOD[loss.name, loss.path, loss.replica, loss.seq] = None
    if len(_STOOD) > STOOD_MAX:
        _STOOD.pop(next(iter(_STOOD)), None)


def has_had_tombstone(pin: Pin) -> bool:
    """Tell whether a tombstone stands or has stood here for what a pin is of; of too many, nobody knows."""
    return (pin.name, pin.path, pin.replica, pin.seq) in _STOOD


def losses() -> dict[int, Loss]:
    """Return what all living tombstones stand for, by their ids."""
    return dict(_LOSSES)


def is_tombstone(value: object) -> bool:
    """Tell whether `value` is a tombstone, without touching it."""
    return type(value) is Tombstone


@loader("lost:lost")
def lost(*fields: Any) -> Tombstone:
    """Return a tombstone for the fields of a `Loss`."""
    tombstone = object.__new__(Tombstone)
    entitle(tombstone, Loss(*fields))
    return tombstone


_SHELL_PARTS = ("IPython.core.prefilter", "IPython.core.formatters", "IPython.utils.dir2")


def _asked_by_shell() -> bool:
    """Tell whether IPython asks: before a cell's code runs, or to choose how to display its value.

    It looks at the kind of object that a line begins with; a line that gives the name a new value must run. A
    value is displayed by its `repr`, once, instead of by a traceback for each format that the shell tries.
    """
    frame = sys._getframe(2)
    if frame.f_globals.get("__name__") == "inspect" and frame.f_back is not None:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).startswith(_SHELL_PARTS)


class Tombstone:
    """Stands where an object was that could not travel."""

    __slots__ = ("__weakref__",)

    def __repr__(self) -> str:
        return f"<lost: {_LOSSES[id(self)].error()}>"

    def __hash__(self) -> int:
        if _hashing_allowed:
            return id(self) >> 4
        raise _LOSSES[id(self)].error()

    def __getattribute__(self, name: str) -> type[Tombstone]:
        if _asked_by_shell():
            if name == "__class__":
                return Tombstone
            raise AttributeError(name)
        raise _LOSSES[id(self)].error()

    def __del__(self) -> None:
        _LOSSES.pop(id(self), None)


def _raiser(method: str) -> Any:
    def touched(self: object, *_args: object, **_kwargs: object) -> NoReturn:
        raise _LOSSES[id(self)].error()

    touched.__name__ = method
    touched.__qualname__ = f"Tombstone.{method}"
    return touched


_BINARY = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split()
_TOUCHING = (
    *(f"__{name}__" for name in _BINARY),
    *(f"__r{name}__" for name in _BINARY),
    *(f"__i{name}__" for name in _BINARY if name != "divmod"),
    *(f"__{name}__" for name in "lt le eq ne gt ge neg pos abs invert complex int float index round".split()),
    *(
        f"__{name}__"
        for name in "trunc floor ceil str bytes format bool len length_hint call iter next".split()
    ),
    *(f"__{name}__" for name in "reversed contains getitem setitem delitem setattr delattr dir".split()),
    *(f"__{name}__" for name in "enter exit await aiter anext aenter aexit get set delete fspath".split()),
    *(f"__{name}__" for name in "reduce reduce_ex getstate copy deepcopy array instancecheck".split()),
)
for _method in _TOUCHING:
    setattr(Tombstone, _method, _raiser(_method))
