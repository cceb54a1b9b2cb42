"""What this process knows of its components as of the last capture or rebuild: to tell what is unchanged.

Law: holds digests and small immutable atoms, no other user object.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from replkernel.records import ComponentId
from replkernel.state.capture.dump import Dump, Mode, roots_of
from replkernel.state.capture.shipping import Known as KnownChunks
from replkernel.state.capture.survey_order import ATOMS, NO_ATOM, Known, is_heavy, probe
from replkernel.state.component_table import PROCESS_PREFIX
from replkernel.state.python.kinds import kind_of
from replkernel.state.python.modules import importable

ATOM_BYTES_MAX = 1024
_SMALL_ATOMS = frozenset({str, bytes})


def atom_of(value: Any) -> Any:
    """Return `value` when the same object is the same value, and keeping it keeps nothing else alive."""
    kind = kind_of(value)
    if kind in ATOMS or (kind in _SMALL_ATOMS and len(value) <= ATOM_BYTES_MAX):
        return value
    if kind is types.ModuleType and importable(value) is not None:
        return value
    return NO_ATOM


class Baseline:
    """The components as last seen here, by their roots: variables, and classes as ``class:…``."""

    def __init__(self) -> None:
        self.by_root: dict[str, Known] = {}
        self.cids: dict[str, ComponentId] = {}
        self.chunks: dict[ComponentId, KnownChunks] = {}
        self.heavy: set[str] = set()
        """The first roots of the components that take long to look at."""

    def unchanged(self, dump: Dump) -> ComponentId | None:
        """Return the id of the component that a unit is, when it is as it was."""
        roots = roots_of(dump)
        known = self.by_root.get(roots[0])
        if known is None or known.fingerprint != dump.fingerprint or known.roots != roots:
            return None
        return self.cids[roots[0]]

    def seen(self, dump: Dump, namespace: Mapping[str, Any]) -> None:
        """Note what looking at an unchanged unit took, and its variables' looks from outside."""
        known = self.by_root[roots_of(dump)[0]]
        known.seconds = dump.seconds
        if is_heavy(dump.seconds):
            known.probe = probe(namespace, known.roots)
            self.heavy.add(known.roots[0])
        elif self.heavy:
            self.heavy.discard(known.roots[0])

    def set(self, cid: ComponentId, dump: Dump, namespace: Mapping[str, Any], chunks: KnownChunks) -> None:
        """Remember a unit under its component id."""
        roots = roots_of(dump)
        value = namespace.get(dump.roots[0], NO_ATOM) if dump.roots else None
        atom = atom_of(value) if len(roots) == 1 and not dump.own_classes else NO_ATOM
        mode = Mode(dump.mode.careful and bool(dump.losses), dump.mode.deep)
        looks = 0
        if is_heavy(dump.seconds):
            looks = probe(namespace, roots)
            self.heavy.add(roots[0])
        known = Known(
            roots,
            dump.fingerprint,
            mode,
            tuple(dump.losses),
            atom,
            dump.objects(),
            dump.seconds,
            looks,
        )
        for root in roots:
            self.by_root[root] = known
            self.cids[root] = cid
        self.chunks[cid] = chunks

    def forget_roots(self, roots: Iterable[str]) -> None:
        """Forget roots, and the components they belonged to when these have none left."""
        for root in roots:
            self.by_root.pop(root, None)
            self.cids.pop(root, None)
            self.heavy.discard(root)

    def forget_components(self, cids: Iterable[ComponentId]) -> None:
        """Forget components with all their roots."""
        gone = set(cids)
        if not gone:
            return
        self.forget_roots([root for root, cid in self.cids.items() if cid in gone])
        for cid in gone:
            self.chunks.pop(cid, None)


def name_components(
    units: Sequence[Dump],
    cids: Mapping[str, ComponentId],
    kept: set[ComponentId],
    taken: Iterable[ComponentId],
) -> list[ComponentId]:
    """Return an id for each unit: that of the component most of its roots were in, or a new one by its name.

    `kept` are the ids of unchanged components; `taken` are all ids in use.
    """
    if not units:
        return []
    claims: list[list[ComponentId]] = []
    for unit in units:
        roots = roots_of(unit)
        if len(roots) == 1:
            held = cids.get(roots[0])
            claims.append([held] if held is not None else [])
        else:
            counted = Counter(cids[root] for root in roots if root in cids)
            claims.append([cid for cid, _ in counted.most_common()])
    given: dict[ComponentId, None] = dict.fromkeys(kept)
    chosen: list[ComponentId | None] = []
    for claim in claims:
        cid = next((cid for cid in claim if cid not in given), None)
        if cid is not None:
            given[cid] = None
        chosen.append(cid)
    used = {*taken, *given}
    return [
        cid if cid is not None else _new_id(roots_of(unit)[0], used)
        for unit, cid in zip(units, chosen, strict=True)
    ]


def _new_id(root: str, used: set[ComponentId]) -> ComponentId:
    base = root if not root.startswith(PROCESS_PREFIX) else f"~{root}"
    cid, number = ComponentId(base), 1
    while cid in used:
        number += 1
        cid = ComponentId(f"{base}~{number}")
    used.add(cid)
    return cid
