"""The rows of `%replkernel pins`: what binds the notebook, where it is now, and whether it is lost here.

Only looks. Law: a row names what the user can name now, and one thing that binds has one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from replkernel.records import Pin, ReplicaId
from replkernel.state.capture.whereabouts import UNTOLD, Whereabouts
from replkernel.state.tombstone import HOLDS_STUCK, Loss, has_had_tombstone, is_tombstone
from replkernel.state.wording import root_in_words

LOST_HERE = "lost here, run its cell again: "

FOLDED_MIN = 4
"""So many things that are stuck for what they hold are told together."""


class Doubt(NamedTuple):
    """A variable that `replica` rebuilt otherwise than captured; the pin says who made it."""

    replica: ReplicaId
    pin: Pin


class Row(NamedTuple):
    """One line of the table."""

    variable: str
    type_name: str
    replica: str
    cell: str
    why: str


def pin_rows(
    held: Iterable[Pin],
    doubts: Iterable[Doubt],
    here: ReplicaId,
    namespace: Mapping[str, Any],
    lost: Mapping[int, Loss],
    awaits: Callable[[str], bool],
) -> list[Row]:
    """Return the rows.

    `held` are the pins of the state, `doubts` what replicas rebuilt otherwise, this one first; `namespace` is
    that of the process on replica `here`, `lost` its tombstones by their ids, and `awaits` tells of a name
    whether it is bound to nothing because its value waits to be rebuilt.
    """
    tombstones = _Tombstones(here, namespace, lost, awaits)
    rows: dict[tuple[Any, ...], Row] = {}
    for pin in held:
        gone = tombstones.stand_for(pin)
        if not (gone and tombstones.given_up(pin)):
            why = (LOST_HERE if gone else "") + pin.reason
            rows.setdefault((*_key(pin), pin.reason), _row(pin, tombstones.where(pin), why))
    told = {key[:-1] for key in rows}
    for replica, pin in doubts:
        why = LOST_HERE if replica == here else f"On replica {replica}: "
        if _key(pin) not in told:
            rows.setdefault(_key(pin), _row(pin, tombstones.where(pin), why + pin.reason))
    return _folded(list(dict.fromkeys(rows.values())))


def _folded(rows: list[Row]) -> list[Row]:
    """Return the rows with one in place of many for what holds something that has a row of its own."""
    causes = {row.why.removeprefix(LOST_HERE) for row in rows}
    holding = [
        row for row in rows if _cause(row) != row.why.removeprefix(LOST_HERE) and _cause(row) in causes
    ]
    if len(holding) < FOLDED_MIN:
        return rows
    more = Row(f"and {len(holding)} more", "", "", "", "They hold what is named above.")
    return [*(row for row in rows if row not in holding), more]


def _cause(row: Row) -> str:
    """Return why something binds, or why what it holds does."""
    return row.why.removeprefix(LOST_HERE).removeprefix(HOLDS_STUCK).lstrip()


def pins_now(
    held: Iterable[Pin],
    here: ReplicaId,
    namespace: Mapping[str, Any],
    lost: Mapping[int, Loss],
    awaits: Callable[[str], bool],
) -> list[Pin]:
    """Return the pins of the state by the variables that have their objects now, as `pin_rows` names them."""
    tombstones = _Tombstones(here, namespace, lost, awaits)
    return [
        replace(pin, name=tombstones.variable(pin))
        for pin in held
        if not (tombstones.stand_for(pin) and tombstones.given_up(pin))
    ]


def _key(pin: Pin) -> tuple[Any, ...]:
    return pin.name, pin.path, pin.replica, pin.seq


def _row(pin: Pin, where: str, why: str) -> Row:
    return Row(where, pin.type_name, str(pin.replica), str(pin.shown_cell), why)


class _Tombstones:
    """The tombstones of this process, which is of replica `here`, by the pins that they have."""

    def __init__(
        self,
        here: ReplicaId,
        namespace: Mapping[str, Any],
        lost: Mapping[int, Loss],
        awaits: Callable[[str], bool],
    ) -> None:
        self._here = here
        self._namespace = namespace
        self._awaits = awaits
        self._places = Whereabouts(namespace)
        self._by_pin: dict[tuple[Any, ...], list[int]] = {}
        for number, loss in lost.items():
            self._by_pin.setdefault(_key(loss.pin()), []).append(number)

    def stand_for(self, pin: Pin) -> bool:
        """Tell whether this process has not got the object: another has, or had it before this one."""
        return pin.replica != self._here or _key(pin) in self._by_pin or has_had_tombstone(pin)

    def given_up(self, pin: Pin) -> bool:
        """Tell whether a lost object's variable is gone or has something else, and no other reaches it.

        A name that waits to be rebuilt is bound to nothing: of that the pin is all that is known. What never
        had a tombstone is a part of what its variable has, as a tensor's graph is.
        """
        if not has_had_tombstone(pin) or self._found(pin) is not None:
            return False
        if pin.name not in self._namespace:
            is_variable = pin.name.isidentifier()
            return is_variable and not (self._awaits(pin.name) or _key(pin) in self._by_pin)
        value = self._places.at(pin.name, pin.path)
        return value is not UNTOLD and not is_tombstone(value)

    def where(self, pin: Pin) -> str:
        """Return where the object is: a tombstone may have gone to another place since it was lost."""
        name, path = self._found(pin) or (root_in_words(pin.name), pin.path)
        return path or name

    def variable(self, pin: Pin) -> str:
        """Return the variable that reaches it."""
        found = self._found(pin)
        return found[0] if found is not None else root_in_words(pin.name)

    def _found(self, pin: Pin) -> tuple[str, str] | None:
        """Return variable and path of a tombstone of the pin; None where no variable reaches one."""
        found = map(self._places.of_id, self._by_pin.get(_key(pin), ()))
        return next((place for place in found if place is not None), None)
