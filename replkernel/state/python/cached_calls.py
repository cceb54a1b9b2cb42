"""What a function wrapped by `functools.lru_cache` has cached: seen, and put into another one.

A cache cannot be filled from outside. So the wrapper is called again with the keys it held, while it has, for
that moment, a function that answers from a list of the results. Its statistics are written afterwards.
Law: where this Python does not show where a wrapper keeps these, what it has cached stays behind.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from replkernel.state.python.kinds import is_a
from replkernel.state.python.memory_words import words_of

WRAPPER = type(functools.lru_cache(len))

_CALLS = (1, 1, 1, 2, 3, 3)
_HITS, _MISSES = (0, 0, 1, 2, 2, 2, 3), (0, 1, 1, 1, 2, 3, 3)
"""Calls of a sample that keeps one result; its statistics, before the first one and after each."""

Cached = tuple[list[tuple[tuple[Any, ...], dict[str, Any], Any]] | None, int, int]
"""The cached calls with their results, oldest first (None if they cannot be seen); hits; misses."""


def cached_by(wrapper: functools._lru_cache_wrapper[Any]) -> Cached:
    """Return what a wrapper has cached, and how often that was of use."""
    if _layout() is None:
        return [], 0, 0
    info = wrapper.cache_info()
    return _contents(wrapper, wrapper.cache_parameters()["maxsize"]), info.hits, info.misses


def put_cached(wrapper: Any, cached: Cached) -> None:
    """Give an empty wrapper what another has cached."""
    contents, hits, misses = cached
    layout = _layout()
    if contents is None or layout is None:
        return
    answers = iter([result for _, _, result in contents])
    with _calling(wrapper, layout, lambda *args, **names: next(answers)):
        for args, names, _ in contents:
            wrapper(*args, **names)
    words = words_of(wrapper, WRAPPER)
    words[layout.hits], words[layout.misses] = hits, misses


@contextmanager
def _calling(wrapper: object, layout: _Layout, answer: Callable[..., Any]) -> Iterator[None]:
    """Have a wrapper call another function meanwhile."""
    words = words_of(wrapper, WRAPPER)
    own = words[layout.function]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(answer))
    words[layout.function] = id(answer)
    try:
        yield
    finally:
        words[layout.function] = own
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(answer))


class _Layout(NamedTuple):
    """Where a wrapper keeps its function and its statistics, in words from its begin."""

    function: int
    hits: int
    misses: int


@functools.cache
def _layout() -> _Layout | None:
    """Return where a wrapper keeps things, as a sample shows; None where it does not show that."""
    if sys.implementation.name != "cpython" or WRAPPER.__itemsize__:
        return None

    def function(_value: int) -> None:
        """Do nothing."""

    sample = functools.lru_cache(maxsize=1)(function)
    rows = [tuple(words_of(sample, WRAPPER))]
    for value in _CALLS:
        sample(value)
        rows.append(tuple(words_of(sample, WRAPPER)))
    columns = list(zip(*rows, strict=True))
    places = [
        [at for at, column in enumerate(columns) if column == wanted]
        for wanted in ((id(function),) * len(rows), _HITS, _MISSES)
    ]
    return _Layout(*(found[0] for found in places)) if all(len(found) == 1 for found in places) else None


def wrapped_by(wrapper: Any) -> object:
    """Return the function that the wrapper calls, which `__wrapped__` may no longer be."""
    attributes = vars(wrapper)
    declared = attributes.get("__wrapped__")
    referents = [held for held in gc.get_referents(wrapper) if held is not attributes]
    if any(held is declared for held in referents):
        return declared
    return next(held for held in referents if callable(held) and not is_a(held, type))


def _contents(
    wrapper: functools._lru_cache_wrapper[Any], maxsize: int | None
) -> list[tuple[tuple[Any, ...], dict[str, Any], Any]] | None:
    """Return (positional, keyword, result) of each cached call, oldest first; None if they cannot be seen."""
    held = gc.get_referents(wrapper)
    mark = _keyword_mark()
    attributes = vars(wrapper)
    pairs: list[tuple[Any, Any]]
    if maxsize is None:
        caches = [item for item in held if type(item) is dict and item is not attributes]
        pairs = list(caches[0].items()) if caches else []
    elif maxsize == 0:
        return []
    else:
        pairs = _bounded_pairs(held, wrapper.cache_info().currsize)
    contents = []
    for key, result in pairs:
        call = _call_of(key, mark, wrapper.cache_parameters()["typed"])
        if call is None:
            return None
        contents.append((*call, result))
    return contents


def _bounded_pairs(held: list[Any], size: int) -> list[tuple[Any, Any]]:
    """Read the linked list from the referents: three a link, the order being the traversal's own."""
    if size == 0:
        return []
    link = next((item for item in held if is_a(item, type) and item.__name__ == "_lru_list_elem"), None)
    if link is None:
        return []
    start = 1 if held[0] is WRAPPER else 0
    pairs: list[tuple[Any, Any]] = []
    position = start
    while len(pairs) < size and position + 1 < len(held):
        pairs.append((held[position], held[position + 1]))
        position += 2
        if position < len(held) and held[position] is link:
            position += 1
    return pairs


@functools.lru_cache(maxsize=1)
def _keyword_mark() -> object:
    @functools.cache
    def probe(**_options: object) -> None:
        """Do nothing."""

    probe(x=1)
    cache = next(item for item in gc.get_referents(probe) if type(item) is dict and item is not vars(probe))
    return next(iter(cache))[0]


def _call_of(key: Any, mark: object, typed: bool) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments that a key was made of; behind them, if it is typed, it has the type of each."""
    if type(key) is not tuple and not is_a(key, list):
        return (key,), {}
    parts = list(key)
    at = next((index for index, part in enumerate(parts) if part is mark), len(parts))
    rest = parts[at + 1 :]
    if typed and not rest:
        return tuple(parts[: at // 2]), {}
    if typed:
        rest = rest[: (len(rest) - at) // 3 * 2]
    names = {}
    for index in range(0, len(rest) - 1, 2):
        if type(rest[index]) is not str:
            break
        names[rest[index]] = rest[index + 1]
    return tuple(parts[:at]), names
