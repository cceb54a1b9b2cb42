"""Makes one message of each kind from the types alone, so that the seeds know every message there is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

DEPTH_MAX = 6


def examples(union: Any) -> Iterator[Any]:
    """Yield what each struct of a union is encoded as, each field of it set."""
    info = inspect.type_info(union)
    for kind in info.types if isinstance(info, inspect.UnionType) else (info,):
        yield _example(kind, 0)


def packed(union: Any) -> list[bytes]:
    """Return the same as msgpack."""
    return [msgspec.msgpack.encode(value) for value in examples(union)]


def written(union: Any) -> list[bytes]:
    """Return the same as JSON."""
    return [msgspec.json.encode(value) for value in examples(union)]


def _example(info: Any, depth: int) -> Any:
    match info:
        case inspect.StructType():
            return _struct(info, depth)
        case inspect.UnionType(types):
            some = [kind for kind in types if not isinstance(kind, inspect.NoneType)]
            return _example(some[0], depth)
        case inspect.IntType():
            return max(info.ge or 0, 1)
        case inspect.FloatType():
            return max(info.ge or 0.0, 1.0) if info.le is None else min(1.0, info.le)
        case inspect.StrType():
            return "k".ljust(info.min_length or 1, "k")
        case inspect.BytesType():
            return b"{}"
        case inspect.BoolType():
            return True
        case inspect.LiteralType(values):
            return values[0]
        case inspect.DictType(key, value):
            return {_example(key, depth + 1): _example(value, depth + 1)}
        case inspect.ListType() | inspect.VarTupleType():
            return [_example(info.item_type, depth + 1)]
        case inspect.TupleType(kinds):
            return [_example(kind, depth + 1) for kind in kinds]
    return None


def _struct(info: inspect.StructType, depth: int) -> Any:
    fields = [field for field in info.fields if field.required or depth < DEPTH_MAX]
    values = {field.encode_name: _example(field.type, depth + 1) for field in fields}
    if info.array_like:
        return [*([] if info.tag is None else [info.tag]), *values.values()]
    return values if info.tag is None else {info.tag_field: info.tag, **values}
