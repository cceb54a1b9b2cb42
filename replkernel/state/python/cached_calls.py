"""What a function wrapped by `functools.lru_cache` has cached: seen, and put into another one.

A cache cannot be filled from outside. So the wrapper is called again with the keys it held, while the
wrapped function for that moment answers from a list of the results.
"""

from __future__ import annotations

import functools
import gc
import types
from typing import Any

from replkernel.state.python.kinds import is_a

HITS_MAX = 100_000
"""Statistics are restored up to so many calls."""

WRAPPINGS_MAX = 20
"""So many partials and the like around a function are looked through."""

WRAPPER = type(functools.lru_cache(len))

Cached = tuple[list[tuple[tuple[Any, ...], dict[str, Any], Any]] | None, int, int]
"""The cached calls with their results, oldest first (None if they cannot be seen); hits; misses."""


def cached_by(wrapper: functools._lru_cache_wrapper[Any]) -> Cached:
    """Return what a wrapper has cached, and how often that was of use."""
    info = wrapper.cache_info()
    return _contents(wrapper, wrapper.cache_parameters()["maxsize"]), info.hits, info.misses


def put_cached(wrapper: object, cached: Cached) -> None:
    """Give an empty wrapper what another has cached."""
    contents, hits, misses = cached
    function = _function_behind(wrapped_by(wrapper))
    if contents is not None and function is not None:
        _refill(wrapper, function, contents, min(hits, HITS_MAX), min(misses, HITS_MAX))


def wrapped_by(wrapper: Any) -> object:
    """Return the function that the wrapper calls, which `__wrapped__` may no longer be."""
    attributes = vars(wrapper)
    declared = attributes.get("__wrapped__")
    referents = [held for held in gc.get_referents(wrapper) if held is not attributes]
    if any(held is declared for held in referents):
        return declared
    return next(held for held in referents if callable(held) and not is_a(held, type))


def _function_behind(called: object) -> types.FunctionType | None:
    """Return the Python function that a call of `called` ends in; None where there is none."""
    for _ in range(WRAPPINGS_MAX):
        if is_a(called, types.FunctionType):
            return called
        if is_a(called, staticmethod) or is_a(called, types.MethodType):
            called = called.__func__
        elif type(called) is functools.partial:
            called = called.func
        else:
            return None
    return None


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


class _Missed(Exception):
    """Ends a call whose result is not to be cached."""


def _refill(wrapper: Any, function: types.FunctionType, contents: list[Any], hits: int, misses: int) -> None:
    answers = iter([result for _, _, result in contents])
    lost = max(misses - len(contents), 0)

    def answer() -> Any:
        nonlocal lost
        if lost:
            lost -= 1
            raise _Missed
        return next(answers)

    code, kwdefaults, defaults = function.__code__, function.__kwdefaults__, function.__defaults__
    function.__code__ = _answering_code(code.co_freevars)
    function.__kwdefaults__ = {"_replkernel_answer": answer}
    function.__defaults__ = None
    try:
        while lost:
            try:
                wrapper(_Missed)
            except _Missed:
                continue
        for args, names, _ in contents:
            wrapper(*args, **names)
        if contents:
            args, names, _ = contents[-1]
            for _ in range(hits):
                wrapper(*args, **names)
    finally:
        function.__code__, function.__kwdefaults__, function.__defaults__ = code, kwdefaults, defaults


def _answering_code(names: tuple[str, ...]) -> types.CodeType:
    """Return code with these free variables that answers from `_replkernel_answer`."""
    if not names:
        source = "def f(*args, _replkernel_answer, **options):\n return _replkernel_answer()\n"
        scope: dict[str, Any] = {}
        exec(source, scope)  # noqa: S102
        return scope["f"].__code__  # type: ignore[no-any-return]
    free = [f"v{index}" for index in range(len(names))]
    source = (
        f"def outer({', '.join(free)}):\n"
        " def f(*args, _replkernel_answer, **options):\n"
        "  return _replkernel_answer()\n"
        f"  {'; '.join(free)}\n"
        " return f\n"
    )
    scope = {}
    exec(source, scope)  # noqa: S102
    made: types.FunctionType = scope["outer"](*free)
    return made.__code__.replace(co_freevars=names)
