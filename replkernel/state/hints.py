"""What users say of a variable beforehand: that it is not worth a copy, or worth one only every so often.

Law: a hint is about a name, whatever it is bound to later, and travels with the notebook. One book a process,
as a process runs one notebook. Pure but for that book.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.capture.survey_order import ATOMS
from replkernel.state.format.roots import Spared
from replkernel.state.process.part import Part
from replkernel.state.process.plain import decode_plain, encode_plain
from replkernel.state.python.kinds import kind_of, type_name
from replkernel.state.tombstone import Loss, is_tombstone, loss_of
from replkernel.state.world import World

NAMES_MAX = 10_000
"""No notebook marks more names than this."""

EVERY_MIN_S, EVERY_MAX_S = 1.0, 86_400.0
"""A variable is kept once a second at most, and once a day at least."""

transient: dict[str, None] = {}
"""The names whose values are not captured, in the order in which they were marked."""

kept: dict[str, float] = {}
"""The names whose changes are captured once in so many seconds at most."""

_UNITS = {"h": 3600, "min": 60, "s": 1}
_TEXT_MAX = 40


def mark_transient(namespace: Mapping[str, Any], values: tuple[Any, ...], *, on: bool = True) -> None:
    """Have the variables that hold `values` left out of captures, or (`on=False`) captured again.

    Raises TypeError for a value that costs nothing to copy, ValueError for one that no variable holds and
    where too many names are marked.
    """
    names = dict.fromkeys(name for value in values for name in _names_of(namespace, value, "transient"))
    if on:
        _check_room(transient.keys() | names.keys(), "are transient")
        transient.update(names)
        return
    for name in names:
        transient.pop(name, None)


def mark_kept(namespace: Mapping[str, Any], values: tuple[Any, ...], every: float | str | None) -> None:
    """Have the variables that hold `values`, or that text among these names, captured once `every` at most.

    None withdraws that. Raises TypeError and ValueError for what is no variable and for what is no time; then
    nothing has changed.
    """
    names: list[str] = []
    for value in values:
        if type(value) is not str:
            names += _names_of(namespace, value, "keep")
        elif value in kept or (value in namespace and not value.startswith("_")):
            names.append(value)
        else:
            raise ValueError(f"keep takes variables: there is none that is called {value[:100]!r}.")
    if every == "":
        raise ValueError("keep needs to know how often: say `replkernel.keep(model, every='5 min')`.")
    seconds = None if every is None else every_s(every)
    if seconds is not None:
        _check_room(kept.keys() | set(names), "are kept")
        kept.update(dict.fromkeys(names, seconds))
        return
    for name in names:
        kept.pop(name, None)


def every_s(every: float | str) -> float:
    """Return a time in seconds: a number of them, or text such as ``30 s``, ``5 min``, ``1 h``.

    Raises TypeError for anything else, ValueError for other text and what is too short or too long.
    """
    if type(every) is str:
        found = re.fullmatch(r"(\d+(?:\.\d+)?) *(s|min|h)?", every.strip(), re.ASCII)
        if found is None or len(every) > _TEXT_MAX:
            raise ValueError(f"every={every[:_TEXT_MAX]!r}: write seconds, or '30 s', '5 min', '1 h'.")
        seconds = float(found[1]) * _UNITS[found[2] or "s"]
    elif type(every) in (int, float):
        seconds = float(every)
    else:
        raise TypeError(f"every takes seconds, or text such as '5 min', and no {type_name(every)}.")
    if not EVERY_MIN_S <= seconds <= EVERY_MAX_S:
        raise ValueError(f"every={every!r}: from 1 s to 24 h.")
    return seconds


def every_in_words(seconds: float) -> str:
    """Return a time as `every_s` reads it."""
    unit = next((unit for unit, length_s in _UNITS.items() if not seconds % length_s), "s")
    return f"{seconds / _UNITS[unit]:g} {unit}"


def _check_room(names: Collection[str], are: str) -> None:
    if len(names) > NAMES_MAX:
        raise ValueError(f"More than {NAMES_MAX:,} variables {are}: put them into one dictionary.")


def _names_of(namespace: Mapping[str, Any], value: object, function: str) -> list[str]:
    if kind_of(value) in ATOMS:
        raise TypeError(f"{function} takes what a variable holds: a dict, an array …, and no plain number.")
    names = [name for name, held in namespace.items() if held is value and not name.startswith("_")]
    if not names:
        raise ValueError(
            f"{function} takes what a variable holds: give it a name, then say `replkernel.{function}(name)`."
        )
    return names


def spared(world: World, values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` as a capture is to see them: with stand-ins for what transient variables hold.

    Numbers and None are left: a variable that is reset is reset everywhere.
    """
    marked = [name for name in transient if name in values and kind_of(values[name]) not in ATOMS]
    if not marked:
        return values
    return {**values, **{name: Spared(_loss(world, name, values[name])) for name in marked}}


def _loss(world: World, name: str, value: object) -> Loss:
    """Return what is said of a transient variable elsewhere; the same until it is bound anew."""
    if is_tombstone(value):
        return loss_of(value)
    cell = world.bound_in(name, world.cell)
    return Loss(name, type_name(value), world.replica, 0, cell, transient=True)


# How the hints travel.


class HintsPart(Part[dict[str, Any]]):
    """The names of transient variables, and how often others are kept."""

    cid = ComponentId("@hints")

    def look(self) -> dict[str, Any]:
        """Return the names."""
        return {"transient": list(transient), "kept": dict(kept)}

    def pack(self, seen: dict[str, Any]) -> bytes | None:
        """Write the names."""
        return encode_plain(seen)

    def apply(self, data: bytes) -> None:
        """Replace the names by those of another replica; at first there was a list of transient ones."""
        told = decode_plain(data)
        told = told if type(told) is dict else {"transient": told}
        transient.clear()
        transient.update(dict.fromkeys(told["transient"]))
        kept.clear()
        kept.update(told.get("kept", {}))
