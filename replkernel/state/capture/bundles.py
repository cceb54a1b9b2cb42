"""Bundles: small variables that have not changed for a while, looked at together with one dump.

As long as the stream of a bundle is the same, so is each of its members, and so is what they have in common.
What a bundle shares with other units is seen in its memo, as with any unit; whoever finds that it shares
something that counts has the members dumped one by one.
Law: members are builtin containers of builtin values, and share nothing but text with each other; in doubt
a variable is no member.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from xxhash import xxh3_128_digest

from replkernel.state.capture.dump import FAST, Dump
from replkernel.state.capture.pickling import PROTOCOL
from replkernel.state.capture.rechecks import may_have
from replkernel.state.capture.survey_order import Bundle, Known
from replkernel.state.python.kinds import kind_of
from replkernel.state.seeds import SEED_TOKENS, Seeds

CALM_CAPTURES = 2
"""So many captures must have found a variable as it was."""

MEMBERS_MIN, MEMBERS_MAX = 16, 64
STREAM_BYTES_MAX = 512
"""A member's stream is no longer: the bundle's then comes in one piece."""

BOUND_MAX = 4
"""So many bundles are bound in one capture, each a millisecond."""

_KINDS = frozenset({list, dict, set})
_TEXTS = frozenset({str, bytes})
_UNFIT = -1
"""The calm of a variable that cannot be a member as long as it is as it is."""

_NO_SEEDS = b"\x80\x05" + (pickle.NONE + pickle.MEMOIZE + pickle.POP) * len(SEED_TOKENS)
"""What goes in front of a stream so that it can be read without seeds: a member that has one is unfit."""

Memo = dict[int, tuple[int, Any]]


class Seen(NamedTuple):
    """A bundle that is as it was, with what its members hold."""

    bundle: Bundle
    memo: Memo

    def as_unit(self) -> Dump:
        """Return what stands for the bundle where units are compared by what they share."""
        return Dump((), False, FAST, [], b"", self.memo)


class _Other(Exception):
    """There is something that only a reducer could dump."""


class _Sink:
    write: Callable[[bytes], Any]


class PlainPickler(pickle.Pickler):
    """Dumps builtin values as a capture does, and nothing else."""

    def __init__(self, seeds: Seeds) -> None:
        self._parts: list[bytes] = []
        sink = _Sink()
        sink.write = self._parts.append
        super().__init__(sink, PROTOCOL)
        self._holder = pickle.Pickler(sink, PROTOCOL)
        self._holder.memo = seeds.memo()
        self._seed_memo = self._holder.memo

    def reducer_override(self, obj: object, /) -> Any:
        """Refuse: no code of a class is run for a bundle."""
        raise _Other

    def stream_of(self, value: object) -> bytes:
        """Return the stream of a value; empty when there is more to it than builtin values."""
        self._parts.clear()
        self.memo = self._seed_memo
        try:
            self.dump(value)
        except Exception:  # whatever it is, the dump of the variable alone meets it as well
            return b""
        return self._parts[0] if len(self._parts) == 1 else b""

    def met(self) -> dict[int, tuple[int, Any]]:
        """Return what the last dump has met, by id, seeds included."""
        return self.memo.copy()

    def linked(self) -> set[int]:
        """Return the ids of what the last dump has met that another dump must not meet: all but text."""
        first = len(SEED_TOKENS)
        return {
            key
            for key, (place, value) in self.memo.copy().items()
            if place >= first and kind_of(value) not in _TEXTS
        }

    def release(self) -> None:
        """Let go of everything that was dumped."""
        self.memo = {}
        self._holder.clear_memo()
        self._parts.clear()


def complete(light: Iterable[tuple[str, Known | None]]) -> list[Bundle]:
    """Return the bundles of which every member is at hand, as it was known."""
    found: dict[int, list[Any]] = {}
    for _, before in light:
        if before is not None and (bundle := before.bundle) is not None and bundle.whole:
            found.setdefault(id(bundle), [bundle, 0])[1] += 1
    whole = []
    for bundle, count in found.values():
        bundle.whole = count == len(bundle.names)
        if bundle.whole:
            whole.append(bundle)
    return whole


def look(bundle: Bundle, values: Mapping[str, Any], pickler: PlainPickler) -> Seen | None:
    """Return what a bundle holds; None when it is not as it was."""
    stream = pickler.stream_of([values[name] for name in bundle.names])
    bundle.whole = bool(stream) and xxh3_128_digest(stream) == bundle.fingerprint
    return Seen(bundle, pickler.met()) if bundle.whole else None


def bind(
    units: Iterable[Dump],
    known: Mapping[str, Known],
    values: Mapping[str, Any],
    pickler: Callable[[], PlainPickler],
) -> None:
    """Make bundles of the units that were as they had been, a few at a time."""
    members: list[str] = []
    for unit in units:
        if not _may_be_member(unit):
            continue
        before = known.get(unit.roots[0])
        if before is None or before.calm == _UNFIT or before.fingerprint != unit.fingerprint:
            continue
        before.calm += 1
        if before.calm > CALM_CAPTURES and (before.bundle is None or not before.bundle.whole):
            members.append(unit.roots[0])
    for start in range(0, min(len(members), BOUND_MAX * MEMBERS_MAX), MEMBERS_MAX):
        _bind(members[start : start + MEMBERS_MAX], known, values, pickler())


def _may_be_member(unit: Dump) -> bool:
    return (
        unit.single
        and unit.table is None
        and not unit.buffers
        and not unit.losses
        and unit.mode == FAST
        and len(unit.parts) == 1
        and len(unit.parts[0]) <= STREAM_BYTES_MAX
    )


def _bind(
    names: Sequence[str], known: Mapping[str, Known], values: Mapping[str, Any], pickler: PlainPickler
) -> None:
    """Make one bundle of those of the names that are fit."""
    fit: dict[str, bytes] = {}
    for name in names:
        value = values.get(name)
        stream = pickler.stream_of(value) if _is_plain_root(value) else b""
        if not stream or may_have(stream) or xxh3_128_digest(stream) != known[name].fingerprint:
            known[name].calm = _UNFIT
        else:
            fit[name] = stream
    if len(fit) < MEMBERS_MIN:
        return
    together = pickler.stream_of([values[name] for name in fit])
    if not together:
        return
    # Another thread may have changed a member by now: what counts is what the common stream says.
    copies = pickle.loads(_NO_SEEDS + together)
    met: set[int] = set()
    unfit = []
    for name, copy in zip(fit, copies, strict=True):
        same = pickler.stream_of(copy) == fit[name]
        mine = pickler.linked()
        if not same or not met.isdisjoint(mine):
            unfit.append(name)
        met |= mine
    if unfit:
        for name in unfit:
            known[name].calm = _UNFIT
        return
    bundle = Bundle(tuple(fit), xxh3_128_digest(together))
    for name in fit:
        known[name].bundle = bundle


def _is_plain_root(value: object) -> bool:
    """Tell whether a variable's value is a container that is dumped as what it looks like."""
    return kind_of(value) in _KINDS and not (type(value) is dict and "__spec__" in value)
