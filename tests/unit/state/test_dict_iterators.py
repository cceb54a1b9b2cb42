"""Iterators of dicts, sets and deques go on in another process over the real container, or say why not."""

from __future__ import annotations

from typing import Any

import pytest

from replkernel.state.python.dict_iterators import readable
from tests.support.notebook import Notebook, pair

CASES = (
    ("d = dict(a=1, b=2, c=3); it = iter(d); next(it)", "d['b'] = 5"),
    ("d = dict(a=1, b=2, c=3); it = iter(d.items()); next(it)", "d['b'] = [5]"),
    ("d = dict(a=1, b=2, c=3); it = reversed(d.values()); next(it)", "d['a'] = [5]"),
    ("d = dict(a=1, b=2); it = iter(d); next(it); d['c'] = 3", "del d['c']"),
    ("d = dict(a=1, b=2); it = iter(d); next(it)", "d['c'] = 3"),
    ("d = dict(a=1, b=2, c=3); it = iter(d); next(it); next(it); del d['a']; d['z'] = 1", "pass"),
    ("d = dict(a=1, b=2, c=3); it = reversed(d); next(it); del d['c']; d['z'] = 1", "pass"),
    ("d = dict(a=1)\nit = iter(d); d['b'] = 1\ntry: next(it)\nexcept RuntimeError: pass\ndel d['b']", "pass"),
    ("d = [1, 2]; it = iter(d); d += [it, 9]; next(it)", "d.remove(it)"),
    ("d = [1, 2, 3]; d[0] = it = reversed(d); next(it)", "d.remove(it)"),
    ("d = [1, 2, 3]; d[1] = it = reversed(d); next(it); next(it)", "d.remove(it)"),
    ("d = {}; it = d['it'] = iter(d.keys()); d['x'] = 1", "del d['x']"),
    ("d = dict(a=1); it = iter(d); list(it)", "d['n'] = 1"),
    ("class A: pass\nd = A(); d.x, d.y = 1, 2; it = iter(vars(d).items()); next(it)", "d.y = [3]"),
    ("from collections import OrderedDict as O\nd = O(a=1, b=2, c=3); it = reversed(d.items()); next(it)",
     "d['a'] = 9"),
    ("from collections import OrderedDict as O\nd = O(a=1, b=2, c=3); it = iter(d); next(it)", "d['n'] = 9"),
    ("d = {1, 2, 'x', (3, 4)}; it = iter(d); next(it)", "pass"),
    ("d = {1, 2, 'x', (3, 4)}; it = iter(d); next(it)", "d.add(7)"),
    ("d = {1, 2}; it = iter(d); next(it); d.add(3)\ntry: next(it)\nexcept RuntimeError: pass", "d.remove(3)"),
    ("d = frozenset('ab'); it = iter(d); next(it)", "pass"),
    ("d = bytearray(b'abcd'); it = iter(memoryview(d)); next(it)", "d[2] = 9"),
    ("d = memoryview(b'abcdef').cast('H')[::2]; it = iter(d); next(it)", "pass"),
    ("d = b'ab'; it = iter(memoryview(d)); list(it)", "pass"),
    ("from collections import deque\nd = deque('abc'); it = iter(d); next(it)", "d[1] = 'z'"),
    ("from collections import deque\nd = deque('abc'); it = reversed(d); next(it); d.append('d')", "pass"),
)  # fmt: skip


def _rest(space: dict[str, Any]) -> list[Any]:
    rest: list[Any] = []
    for _ in range(6):
        try:
            rest.append(next(space["it"], "end"))
        except RuntimeError as error:
            rest.append(str(error))
    return [repr(item) for item in rest]


@pytest.mark.parametrize(("begin", "then"), CASES)
def test_an_iterator_goes_on_as_at_rest(begin: str, then: str) -> None:
    one, two = pair()
    alone = Notebook("r3")
    exec(begin, alone.namespace)
    exec(then, alone.namespace)
    delta = one.run(begin, 1)
    assert not any(component.pins for component in delta.components)
    assert two.take(delta).failed == ()
    assert two.run("pass", 2).components == ()
    exec(then, two.namespace)
    assert _rest(two.namespace) == _rest(alone.namespace)


def test_a_capture_moves_no_iterator() -> None:
    one, _ = pair()
    one.run("d = dict.fromkeys(range(9)); it = iter(d); next(it); s = set('abc'); j = iter(s)", 1)
    one.capture(2)
    assert next(one["it"]) == 1
    assert len(list(one["j"])) == 3


@pytest.mark.parametrize(
    "cell",
    [
        "it = iter(globals())",
        "class A: x = 1\nit = iter(vars(A))",
        "class O: pass\ns = {O(), O(), O()}; it = iter(s); next(it)",
        "s = {1, 2}; it = iter(s); next(it); s.add(3)",
        "from collections import OrderedDict\no = OrderedDict(a=1); it = iter(o); o['b'] = 2",
        "d = dict.fromkeys(range(5)); it = iter(d); next(it); del d[0]",
    ],
)
def test_an_iterator_that_cannot_go_on_alike_is_named(cell: str) -> None:
    one, _ = pair()
    delta = one.run(cell, 1)
    assert {pin.name for component in delta.components for pin in component.pins} == {"it"}


def test_this_python_is_understood() -> None:
    assert readable()
