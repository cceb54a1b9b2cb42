"""What one code object mentions: globals loaded, stored and deleted, attributes, text constants, inner code.

Works on compiled code, so Python's own scoping decides what is global. Reading code runs nothing.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections import OrderedDict
from types import CodeType

import msgspec

CACHED_MAX = 4_096

_EXTENDED = dis.opmap["EXTENDED_ARG"]
_LOADS = frozenset(
    dis.opmap[name] for name in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS") if name in dis.opmap
)
_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_GLOBAL_SHIFT = 1
"""The lowest bit of LOAD_GLOBAL's argument is not the name's place but a flag."""
_STORES = frozenset({dis.opmap["STORE_NAME"], dis.opmap["STORE_GLOBAL"]})
_DELETES = frozenset({dis.opmap["DELETE_NAME"], dis.opmap["DELETE_GLOBAL"]})
_STAR = dis.opmap.get("IMPORT_STAR")
_INTRINSIC = dis.opmap.get("CALL_INTRINSIC_1")
_INTRINSIC_STAR = 2
_WATCHED = _LOADS | _STORES | _DELETES | {op for op in (_STAR, _INTRINSIC) if op is not None}


class CodeFacts(msgspec.Struct, frozen=True):
    """The facts of one code object; those of inner functions are theirs, inner expressions are merged in."""

    loads: frozenset[str]
    stores: frozenset[str]
    deletes: frozenset[str]
    attributes: frozenset[str]
    gpu: bool
    star: bool
    functions: tuple[CodeType, ...]


_cache: OrderedDict[int, tuple[CodeType, CodeFacts]] = OrderedDict()


def code_facts(code: CodeType) -> CodeFacts:
    """Return the facts of `code`, from the cache where it was read before."""
    known = _cache.get(id(code))
    if known is not None:
        _cache.move_to_end(id(code))
        return known[1]
    facts = _read(code)
    _cache[id(code)] = (code, facts)
    if len(_cache) > CACHED_MAX:
        _cache.popitem(last=False)
    return facts


def _read(code: CodeType) -> CodeFacts:
    loads, stores, deletes, star = global_names(code)
    if _is_class_body(code):
        loads, stores, deletes = loads - stores - {"__name__"}, set(), set()
    attributes = set(code.co_names)
    gpu = not GPU_NAMES.isdisjoint(code.co_names)
    functions: list[CodeType] = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if _is_function(constant):
                functions.append(constant)
                continue
            inner = code_facts(constant)
            loads |= inner.loads
            stores |= inner.stores
            deletes |= inner.deletes
            attributes |= inner.attributes
            functions.extend(inner.functions)
            gpu, star = gpu or inner.gpu, star or inner.star
        elif not gpu:
            gpu = _mentions_gpu(constant)
    return CodeFacts(
        frozenset(loads),
        frozenset(stores),
        frozenset(deletes),
        frozenset(attributes),
        gpu,
        star,
        tuple(functions),
    )


def _is_class_body(code: CodeType) -> bool:
    return not code.co_flags & inspect.CO_NEWLOCALS and "__qualname__" in code.co_names


def _is_function(code: CodeType) -> bool:
    """Tell whether inner code waits to be called by its name, as no lambda or class body does."""
    return bool(code.co_flags & inspect.CO_NEWLOCALS) and not code.co_name.startswith("<")


def _mentions_gpu(constant: object) -> bool:
    if isinstance(constant, str):
        return is_gpu_text(constant)
    if isinstance(constant, (tuple, frozenset)):
        return any(_mentions_gpu(item) for item in constant)
    return False


def global_names(code: CodeType) -> tuple[set[str], set[str], set[str], bool]:
    """Return the globals that `code` itself loads, stores and deletes, and whether it imports a star."""
    loads: set[str] = set()
    stores: set[str] = set()
    deletes: set[str] = set()
    star = False
    raw, names = code.co_code, code.co_names
    high = 0
    for place in range(0, len(raw), 2):
        operation = raw[place]
        if operation == _EXTENDED:
            high = (high | raw[place + 1]) << 8
            continue
        if operation in _WATCHED:
            argument = high | raw[place + 1]
            if operation in _LOADS:
                loads.add(names[argument >> _GLOBAL_SHIFT if operation == _LOAD_GLOBAL else argument])
            elif operation in _STORES:
                stores.add(names[argument])
            elif operation in _DELETES:
                deletes.add(names[argument])
            else:
                star = star or operation == _STAR or argument == _INTRINSIC_STAR
        high = 0
    return loads, stores, deletes, star


# The marks of GPU use in names and text constants.


GPU_NAMES = frozenset({
    "cuda", "cupy", "cudf", "cuml", "cugraph", "pycuda", "DataParallel", "DistributedDataParallel",
})  # fmt: skip
"""Attributes, modules and variables whose mention means that a GPU is wanted."""

_DEVICE_TEXT = re.compile(r"/?(?:device:)?(?:cuda|gpu)(?::\d+)?", re.IGNORECASE)
DEVICE_TEXT_MAX = 24


def is_gpu_text(text: str) -> bool:
    """Tell whether a text constant names a GPU: ``cuda``, ``cuda:1``, ``/GPU:0``, ``gpu``."""
    return len(text) <= DEVICE_TEXT_MAX and _DEVICE_TEXT.fullmatch(text) is not None
