"""In which order, and in which groups, the units of a namespace are surveyed; what is left to an audit.

What is light comes first, so that a capture that gives way has as much as possible; within that, what the
cell mentions. Law: decides order and delay only; whatever is left out is said to be left out.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from replkernel.objects.cutting import CHUNK_BYTES
from replkernel.state.capture.budget import Terms
from replkernel.state.capture.dump import DIGEST_BYTES, SHARED_BYTES, Dump, Mode
from replkernel.state.python.kinds import kind_of
from replkernel.state.python.modules import importable
from replkernel.state.tombstone import Loss

if TYPE_CHECKING:
    from replkernel.state.format.shared_values import Value

HEAVY_S = 0.02
"""A unit whose last dump took longer is heavy."""

SMALL_OBJECTS = 2_000
SMALL_BYTES = 256 * 1024
"""A unit with less is not expected to take long."""

BULKY_ITEMS = 20_000
"""A new container with so many items, in itself or in its first few items, is taken for heavy."""

BULKY_DIGESTS = (SHARED_BYTES // CHUNK_BYTES + 1) * DIGEST_BYTES
"""A unit whose fingerprint is so long has buffers that are worth a second thread."""

TOGETHER_BYTES = 512 << 20
"""Some 20 ms of hashing."""

_LOOKED_AT = 32
ATOMS = frozenset({int, float, bool, complex, type(None)})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset})


class Bundle:
    """The members of one bundle, and the fingerprint of their common stream; `whole` as long as it held."""

    __slots__ = ("fingerprint", "names", "whole")

    def __init__(self, names: tuple[str, ...], fingerprint: bytes) -> None:
        self.names = names
        self.fingerprint = fingerprint
        self.whole = True


class Known(msgspec.Struct):
    """What the survey must know of a component as it was.

    `objects` is how many it had, `seconds` what its dump took, `probe` what its variables looked like from
    outside. `calm` is how often it was found as it was, as far as that is counted; `bundle`: which it is in.
    """

    roots: tuple[str, ...]
    fingerprint: bytes
    mode: Mode
    losses: tuple[Loss, ...]
    atom: Any
    objects: int = 0
    seconds: float = 0.0
    probe: int = 0
    calm: int = 0
    bundle: Bundle | None = None


NO_ATOM: Any = object()


class Begun(NamedTuple):
    """A variable that was dumped, and whose buffers are being hashed; `held` is what others hold as well."""

    dump: Dump
    held: tuple[Value, ...]
    values: dict[str, Any]
    before: Known


class Job(NamedTuple):
    """Names that are dumped together, and what is known of their component."""

    names: tuple[str, ...]
    before: Known | None


class SurveyOrder(NamedTuple):
    """What stayed without a look, light variables, what else to dump in order, the names left out.

    `bulky` are light ones that are few objects with large buffers; `heavy` comes last.
    """

    untouched: list[str]
    light: list[tuple[str, Known | None]]
    bulky: list[tuple[str, Known]]
    jobs: list[Job]
    heavy: list[Job]
    left: list[str]


def survey_order(
    names: Iterable[str],
    namespace: Mapping[str, Any],
    known: Mapping[str, Known],
    terms: Terms,
    unfinished: Collection[str],
) -> SurveyOrder:
    """Return the order in which one survey looks; `unfinished` are names whose first dump had to give way."""
    untouched: list[str] = []
    atoms: list[tuple[str, Known | None]] = []
    light: list[tuple[str, Known | None]] = []
    bulky: list[tuple[str, Known]] = []
    whole: list[Job] = []
    fresh: list[Job] = []
    heavy: list[Job] = []
    wholes: dict[int, tuple[Known, list[str]]] = {}
    heavy_s = HEAVY_S
    for name in names:
        before, value = known.get(name), namespace[name]
        if before is None:
            if kind_of(value) in ATOMS:
                atoms.append((name, None))
            else:
                job = Job((name,), None)
                (heavy if name in unfinished or is_bulky(value) else fresh).append(job)
        elif before.atom is value and (type(value) is not types.ModuleType or importable(value) is not None):
            untouched.append(name)  # A module only as long as no other one has taken its name.
        elif len(before.roots) > 1:
            wholes.setdefault(id(before), (before, []))[1].append(name)
        elif before.seconds > heavy_s:
            heavy.append(Job((name,), before))
        elif len(before.fingerprint) >= BULKY_DIGESTS and before.objects < SMALL_OBJECTS:
            bulky.append((name, before))
        else:
            light.append((name, before))
    for before, together in wholes.values():
        (heavy if before.seconds > heavy_s else whole).append(Job(tuple(together), before))
    if terms.settled:
        untouched += [name for name, _ in bulky]
        bulky, costly, heavy = [], heavy, []
        for job in costly:
            if _is_settled(job, namespace):
                untouched.append(job.names[0])
            else:
                heavy.append(job)
    first = terms.first
    if first:
        light.sort(key=lambda item: item[0] not in first)
        bulky.sort(key=lambda item: item[0] not in first)
        whole.sort(key=lambda job: first.isdisjoint(job.names))
        fresh.sort(key=lambda job: first.isdisjoint(job.names))
    light = [*atoms, *light] if atoms else light
    if not heavy and terms.costly_s is None:
        return SurveyOrder(untouched, light, bulky, [*whole, *fresh], [], [])
    bulky, left, spent_s = _afforded(bulky, terms.costly_s)
    taken, more = _share(heavy, namespace, terms, spent_s)
    return SurveyOrder(untouched, light, bulky, [*whole, *fresh], taken, [*left, *more])


def is_heavy(seconds: float) -> bool:
    """Tell whether a unit whose dump took so long is heavy."""
    return seconds > HEAVY_S


def measured(seconds: float, dump: Dump, before: Known | None) -> float:
    """Return what a dump took, as far as it is to be believed: a small unit is heavy at the second time only.

    Whatever else the machine does may have held it up.
    """
    if seconds <= HEAVY_S or (before is not None and before.seconds >= HEAVY_S):
        return seconds
    small = dump.objects() < SMALL_OBJECTS and dump.size() < SMALL_BYTES
    return HEAVY_S if small else seconds


def _afforded(
    bulky: list[tuple[str, Known]], costly_s: float | None
) -> tuple[list[tuple[str, Known]], list[str], float]:
    """Return the bulky variables that are looked at now, the others' names, and what the former take."""
    taken: list[tuple[str, Known]] = []
    left: list[str] = []
    spent_s = 0.0
    for name, before in bulky:
        if costly_s is not None and spent_s + before.seconds > costly_s:
            left.append(name)
        else:
            taken.append((name, before))
            spent_s += before.seconds
    return taken, left, spent_s


def _share(
    heavy: list[Job], namespace: Mapping[str, Any], terms: Terms, spent_s: float
) -> tuple[list[Job], list[str]]:
    """Return the heavy jobs that are done now, the quickest first, and the names of those that are left.

    Costly ones take `spent_s` already. What a new one takes is not known: it is begun while anything is left.
    """
    wanted = {id(job): _is_wanted(job, namespace, terms.first) for job in heavy}
    heavy.sort(key=lambda job: (not wanted[id(job)], job.before is None, _seconds(job)))
    if terms.budget_s is None and terms.costly_s is None:
        return heavy, []
    budget_s = float("inf") if terms.budget_s is None else terms.budget_s
    costly_s = float("inf") if terms.costly_s is None else terms.costly_s
    taken: list[Job] = []
    left: list[str] = []
    heavy_s = 0.0
    for job in heavy:
        known = job.before is not None
        allowed = spent_s + heavy_s + _seconds(job) <= costly_s and (known or costly_s > HEAVY_S)
        if not wanted[id(job)] or (terms.sparing and known):
            allowed = allowed and known and heavy_s + _seconds(job) <= budget_s
        if not allowed:
            left.extend(job.names)
            continue
        taken.append(job)
        heavy_s += _seconds(job)
    return taken, left


def _is_settled(job: Job, namespace: Mapping[str, Any]) -> bool:
    """Tell whether a heavy component is a variable of its own that is known, and looks so from outside."""
    before = job.before
    return before is not None and len(before.roots) == 1 and probe(namespace, before.roots) == before.probe


def _seconds(job: Job) -> float:
    return 0.0 if job.before is None else job.before.seconds


def _is_wanted(job: Job, namespace: Mapping[str, Any], first: frozenset[str]) -> bool:
    """Tell whether the cell mentions the component, or it looks different from outside."""
    if not first.isdisjoint(job.names):
        return True
    return job.before is not None and probe(namespace, job.before.roots) != job.before.probe


def probe(namespace: Mapping[str, Any], roots: Iterable[str]) -> int:
    """Return what the variables among `roots` look like from outside: their identities and lengths."""
    looks = []
    for root in roots:
        value: Any = namespace.get(root)
        looks.append((id(value), len(value) if kind_of(value) in _CONTAINERS else -1))
    return hash(tuple(looks))


def is_bulky(value: Any) -> bool:
    """Tell whether a new value is a large container, by a glance that runs no user code."""
    if kind_of(value) not in _CONTAINERS:
        return False
    if len(value) >= BULKY_ITEMS:
        return True
    try:
        items = list(islice(value.values() if type(value) is dict else value, _LOOKED_AT))
    except RuntimeError:  # Another thread changes it just now.
        return False
    return sum(len(item) for item in items if kind_of(item) in _CONTAINERS) >= BULKY_ITEMS


def grouped(bulky: Iterable[tuple[str, Known]]) -> Iterator[list[tuple[str, Known]]]:
    """Yield variables, with what is known of each, in groups that are hashed together.

    A group is told as a whole, or not at all when the capture gives way; what came before it stays.
    """
    group: list[tuple[str, Known]] = []
    size = 0
    for one in bulky:
        group.append(one)
        size += len(one[1].fingerprint) // DIGEST_BYTES * CHUNK_BYTES
        if size >= TOGETHER_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
