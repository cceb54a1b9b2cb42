"""What is known of a library: one record, `Library`, whichever package it comes from.

`libraries/index` finds the records: the built-in ones, and those that the entry-point group
``replkernel.libraries`` names. Law: importing a record imports neither its library nor its reducers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from replkernel.loaders import loader
from replkernel.state.capture.contexts import ReducerContext
from replkernel.state.capture.outcomes import CannotTravel

if TYPE_CHECKING:
    from replkernel.state.process.part import Part

__all__ = ["CannotTravel", "Counter", "Generator", "Library", "ReducerContext", "Setting", "loader"]

_NONE: Mapping[Any, Any] = MappingProxyType({})


class Setting(NamedTuple):
    """A setting of a library that few notebooks touch.

    It is looked at from the first cell on whose text has one of the `words`. `read` returns a plain value, or
    None while the library is not imported; `put` gets what `read` returned on another replica.
    """

    words: tuple[str, ...]
    read: Callable[[], Any]
    put: Callable[[Any], None]


class Counter(NamedTuple):
    """A number that a library counts up, and that must not come twice.

    It is the attribute `name` of the class `owner` in `module`, or of the module itself.
    """

    module: str
    owner: str
    name: str


class Generator(NamedTuple):
    """A `random.Random` that a library keeps in a module; cells that use it say one of the `words`."""

    module: str
    name: str
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Library:
    """What a capture knows of one library."""

    name: str
    """What people call it."""
    reducers: Mapping[str, str] = field(default_factory=lambda: _NONE)
    """By modules of the library: which module has the reducers for its classes, imported once that one is.

    Such a module has ``EXACT`` (reducers by type), ``FAMILIES`` (pairs of a class and the reducer of all its
    children), ``TESTS`` and ``NATURAL`` (pairs of a test of a class and a reducer). With
    ``TESTED_MODULES`` the tests are asked only of what is, or derives from, a class of one of these modules.
    """
    loaders: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    """By topic (what a loader's id has before its colon): the modules that bring such loaders."""
    parts: tuple[type[Part[Any]], ...] = ()
    """State of the library that is looked at after every cell."""
    random_parts: tuple[type[Part[Any]], ...] = ()
    """The same of random generators, which are set last, because imports may draw from them."""
    settings: Mapping[str, Setting] = field(default_factory=lambda: _NONE)
    """Settings that few notebooks touch, by what they are called: "options of xarray"."""
    counters: tuple[Counter, ...] = ()
    generators: tuple[Generator, ...] = ()
