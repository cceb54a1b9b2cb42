"""Maps and sets of rpds, as `jsonschema` keeps what it validates by in: told in an order of their keys.

Each is iterated in an order of its own, which no other one with the same contents has.
Law: imported only when rpds is; only plain text decides the order, so no code of the notebook runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from replkernel.state.library import ReducerContext

_rpds = importlib.import_module("rpds")


def reduce_map(context: ReducerContext, held: Mapping[Any, Any]) -> object:
    """Reduce a map to its items."""
    context.module_needed("rpds")
    return _rpds.HashTrieMap, (_in_order(list(held.items()), lambda item: item[0]),)


def reduce_set(context: ReducerContext, held: Iterable[Any]) -> object:
    """Reduce a set to its members."""
    context.module_needed("rpds")
    return _rpds.HashTrieSet, (_in_order(list(held), lambda member: member),)


def _in_order(members: list[Any], key: Any) -> list[Any]:
    keys = list(map(key, members))
    texts = all(type(one) is str for one in keys) or all(map(_is_of_texts, keys))
    return sorted(members, key=key) if texts else members


def _is_of_texts(key: Any) -> bool:
    return type(key) is tuple and all(type(part) is str for part in key)


EXACT: dict[type, Any] = {_rpds.HashTrieMap: reduce_map, _rpds.HashTrieSet: reduce_set}
