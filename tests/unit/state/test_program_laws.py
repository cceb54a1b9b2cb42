"""Random programs: run on one replica, and on three by turns with a move after every statement, they agree.

Compared after each statement are values, which variables are the same object, and which memory is shared.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.state.capture import bundles
from tests.support.examples import examples
from tests.support.notebook import Notebook

SETUP = """
import numpy as np
class Thing:
    made = 0
    def __init__(self, part=None):
        Thing.made += 1
        self.part, self.log = part, []
    def add(self, x): self.log.append(x); return self
class Items(list):
    note = None
    def append(self, x): seen.append('append'); super().append(x)
class Slots:
    __slots__ = ('left', 'right')
def counter(start):
    held = [start]
    def up(by=1):
        nonlocal start
        start += by
        held.append(start)
        return start
    def peek(): return start, held
    up.peek = peek
    return up
seen = []
v0 = [1]; v1 = {'k': v0}; v2 = Thing(v0); v3 = counter(3); v4 = np.arange(6.0); v5 = v4[1:4]
"""
NAMES = [f"v{number}" for number in range(8)]

TEMPLATES = (
    "{a} = {b}",
    "{a} = [{b}, {c}]",
    "{a} = {{'x': {b}, 'y': [{c}]}}",
    "{a} = ({b}, [{c}])",
    "{a} = Thing({b})",
    "{a} = Items([{b}]); {a}.note = {c}",
    "{a} = Slots(); {a}.left = {b}; {a}.right = {c}",
    "{a} = counter({n})",
    "{a} = np.arange({n}.0, 9.0).copy()",
    "{a} = {b}[1:]",
    "{a} = {b}[::-1]",
    "{a} = {b}.reshape(2, -1).T",
    "{a} = bytearray(b'abc' * 4); {b} = memoryview({a})[2:]",
    "{a} = {{{n}, 'one', ({n}, 2)}}",
    "{a} = (lambda kept: lambda: kept)({b})",
    "{a} = {b}.add",
    "{a} = vars({b})",
    "{a} = {b}.keys()",
    "{a} = iter({b}) if type({b}) in (list, dict) else {b}",
    "{a} = reversed({b}.items())",
    "{a} = next({b})",
    "{a}.append({b})",
    "{a}.pop()",
    "{a}['x'] = {b}",
    "{a}['new{n}'] = {b}",
    "{a}[0] = {n}",
    "{a}.part = {b}",
    "{a}.left = {b}",
    "{a}.add({b})",
    "{a} += {b}",
    "{a}({n})",
    "{a}.peek()[1].append({b})",
    "{a}.clear()",
    "del {a}",
    "del {a}[0]",
    "Thing.shared = {a}",
    "{a} = Thing.shared",
    "class Thing(Thing): later = {n}",
    "{a}.log.append({b}); raise ValueError({n})",
    "for {a} in {b}: pass",
    "seen.append({a})",
    "globals()['{a}'] = {b}",
    "{a}, {b} = {b}, {a}",
    "def f{n}(x={a}): global {b}; {b} = x; return x",
    "f{n}()",
)


@st.composite
def statements(draw: st.DrawFn) -> str:
    name = st.sampled_from(NAMES)
    template = draw(st.sampled_from(TEMPLATES))
    return template.format(a=draw(name), b=draw(name), c=draw(name), n=draw(st.integers(0, 3)))


def without_addresses(text: str) -> str:
    """Return what is printed of objects as it is in every process."""
    return re.sub("0x[0-9a-f]+", "0x…", text)


def what_is_left(iterator: Any) -> str:
    """Tell what an iterator would still give, without taking it."""
    try:
        return without_addresses(repr(iterator.__reduce__()[1:]))
    except RuntimeError as error:
        return str(error)


class Picture:
    """Describes variables so that equal descriptions mean equal values, identities and shared memory."""

    def __init__(self, space: dict[str, Any]) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []
        self._arrays: list[Any] = []
        self.rows: list[Any] = []
        names = sorted(name for name in space if name[0] in "vf" and name[1:].isdigit())
        self.names = [(name, self._see(space[name])) for name in names]
        self.names.append(("seen", self._see(space["seen"])))
        self.names.append(("Thing", self._see(space["Thing"])))
        self.shared = [
            (one, other)
            for one, first in enumerate(self._arrays)
            for other, second in enumerate(self._arrays[:one])
            if np.shares_memory(first, second)
        ]

    def told(self) -> Any:
        """Return the description."""
        return self.names, self.rows, self.shared

    def _see(self, value: Any) -> Any:
        if value is None or type(value) in (int, float, str, bool, bytes):
            return value
        if isinstance(value, np.generic):
            return str(value.dtype), value.item()
        if type(value) is tuple:
            return ("tuple", *[self._see(item) for item in value])
        if id(value) in self._numbers:
            return "ref", self._numbers[id(value)]
        number = self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        self.rows.append(None)
        self.rows[number] = (type(value).__name__, *self._parts(value))
        return "ref", number

    def _parts(self, value: Any) -> list[Any]:
        if isinstance(value, np.ndarray):
            self._arrays.append(value)
            return [value.shape, value.strides, value.flags.writeable, value.tolist()]
        if isinstance(value, list):
            return [*[self._see(item) for item in list.__iter__(value)], self._see(getattr(value, "note", 0))]
        if isinstance(value, (dict, type({}.keys()))):
            mapping = value if isinstance(value, dict) else value.mapping
            return [(self._see(key), self._see(mapping[key])) for key in mapping]
        if isinstance(value, set):
            return sorted(without_addresses(str(item)) for item in value)
        if isinstance(value, bytearray):
            return [bytes(value)]
        if isinstance(value, memoryview):
            return [value.tolist(), self._see(value.obj)]
        if isinstance(value, type):
            return [value.__name__, [self._see(base) for base in value.__bases__ if base is not object],
                    [(key, self._see(held)) for key, held in vars(value).items()
                     if key in ("made", "shared", "later")]]  # fmt: skip
        if hasattr(value, "__func__"):
            return [self._see(value.__self__), value.__name__]
        if hasattr(value, "__code__"):
            cells = [self._see(cell.cell_contents) for cell in value.__closure__ or ()]
            return [value.__name__, cells, self._see(value.__defaults__), self._see(vars(value))]
        if hasattr(type(value), "__slots__"):
            return [self._see(getattr(value, name, 0)) for name in ("left", "right")]
        if hasattr(value, "__dict__"):
            return [self._see(type(value)), self._see(vars(value))]
        return [what_is_left(value) if "iterator" in type(value).__name__ else "opaque"]


def run(source: str, space: dict[str, Any]) -> str:
    """Run one statement as a cell is run; return the error that it ended with."""
    with contextlib.suppress(RecursionError):
        try:
            exec(source, space)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(statements(), min_size=1, max_size=12))
def test_a_program_moved_after_every_statement_does_what_it_does_at_rest(program: list[str]) -> None:
    play(program)


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(statements(), min_size=1, max_size=12))
def test_a_program_moves_alike_when_most_variables_are_looked_at_together(program: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "CALM_CAPTURES", 0)
        patch.setattr(bundles, "MEMBERS_MIN", 1)
        patch.setattr(bundles, "MEMBERS_MAX", 2)
        play(program)


def play(program: list[str]) -> None:
    """Play a program on one replica and on three by turns; fail where they differ."""
    chunks: dict[str, bytes] = {}
    replicas = [Notebook(f"r{number}", chunks) for number in (1, 2, 3)]
    alone = Notebook("r4")
    for seq, source in enumerate([SETUP, *program], start=1):
        executor = replicas[seq % 3]
        report = executor.take()
        assert report.failed == ()
        assert run(source, executor.namespace) == run(source, alone.namespace)
        delta = executor.capture(seq)
        if any(component.pins for component in delta.components):
            return  # what cannot be copied is named, and the program stays where it is
        for other in replicas:
            if other is not executor:
                assert other.take(delta).failed == ()
        for notebook in replicas:
            assert Picture(notebook.namespace).told() == Picture(alone.namespace).told()


def test_the_same_cell_run_twice_makes_two_codes() -> None:
    play(["v0 = (lambda kept: lambda: kept)(v0)", "v0 = (lambda kept: lambda: kept)(v0)", "v1 = v0"])


def test_a_set_may_hold_an_object() -> None:
    play(["v0 = {0, 'one', (0, 2)}", "v0.add(v2)", "v0.add(3)"])
