"""The rows of `%replkernel state`: one a component, the largest first."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from replkernel.records import ComponentId, ComponentRecord, Seq, Unaudited
from replkernel.state.capture.survey_order import Known
from replkernel.state.component_table import PROCESS_PREFIX, ComponentTable
from replkernel.state.python.class_registry import ROOT_PREFIX
from replkernel.state.python.kinds import type_name
from replkernel.state.tombstone import is_tombstone, loss_of
from replkernel.state.wording import CELLS, part_in_words, root_in_words


class TableRow(msgspec.Struct, frozen=True):
    """One component, or the sources of cells, which are in many; `pins` are paths.

    `names` are its variables, or say in words what else it is.

    `kind` is the type of its value (of one that is lost here, what it was), or what it is made of.

    `seconds` is what looking at it took; `unaudited` tells that it has not been looked at since `cell`,
    `held` that the store has had no room since then for what it has become.
    """

    cid: ComponentId
    names: tuple[str, ...]
    kind: str
    state_bytes: int
    seq: Seq
    pending: bool
    pins: tuple[str, ...]
    seconds: float = 0.0
    cell: int = 0
    unaudited: bool = False
    held: bool = False


def rows_of(
    table: ComponentTable,
    namespace: Mapping[str, Any],
    known: Mapping[str, Known] = MappingProxyType({}),
    owed: Mapping[str, Unaudited] = MappingProxyType({}),
) -> list[TableRow]:
    """Return the rows of all components: `known` is what was seen of them, `owed` what is not checked."""
    rows = [_row(record, table, namespace, known, owed) for record in table.records.values()]
    return sorted(_folded(rows), key=lambda row: (-row.state_bytes, row.cid))


def _folded(rows: list[TableRow]) -> list[TableRow]:
    """Return the rows with one in place of those that say the same: a part in many components."""
    parts: dict[tuple[str, ...], list[TableRow]] = {}
    for row in rows:
        if row.cid.startswith(CELLS):
            parts.setdefault(row.names, []).append(row)
    folded = [
        msgspec.structs.replace(
            max(alike, key=lambda row: row.seq),
            state_bytes=sum(row.state_bytes for row in alike),
            pending=any(row.pending for row in alike),
        )
        for alike in parts.values()
    ]
    return [*(row for row in rows if not row.cid.startswith(CELLS)), *folded]


def _row(
    record: ComponentRecord,
    table: ComponentTable,
    namespace: Mapping[str, Any],
    known: Mapping[str, Known],
    owed: Mapping[str, Unaudited],
) -> TableRow:
    names, kind = _described(record, namespace)
    pins = tuple(pin.path or pin.name for pin in record.pins)
    pending = record.cid in table.pending
    seen = next((known[root] for root in record.names if root in known), None)
    left = [owed[root] for root in record.names if root in owed]
    return TableRow(
        record.cid,
        names,
        kind,
        record.state_bytes,
        record.seq,
        pending,
        pins,
        0.0 if seen is None else seen.seconds,
        max((one.cell for one in left), default=0),
        bool(left),
        bool(left) and all(one.held for one in left),
    )


def _described(record: ComponentRecord, namespace: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    """Return what a component is called, and what it is."""
    if record.cid.startswith(PROCESS_PREFIX):
        return (part_in_words(record.cid),), "process state"
    names = tuple(name for name in record.names if not name.startswith(ROOT_PREFIX))
    if not names:
        return tuple(map(root_in_words, record.names)), "class" if record.names else "component"
    if len(names) > 1 or names[0] not in namespace:
        return tuple(map(root_in_words, names)), "component"
    value = namespace[names[0]]
    if is_tombstone(value):
        return names, f"{loss_of(value).type_name}, lost"
    return names, type_name(value)
