"""What `import --safe` lets through: values that only are, and nothing that does."""

from __future__ import annotations

import pickle
import struct

import pytest

from replkernel.carrying.outline import outlines
from replkernel.carrying.safe import LEFT_OUT, NotSafe, check_payload, lost
from replkernel.records import ComponentId, ComponentRecord, Delta, Fence, Making, Payload, ReplicaId, Seq
from replkernel.replication.checkpoint import digest_of
from replkernel.state.format.stream import FORMAT_VERSION, Head, join_head
from replkernel.state.tombstone import loss_of
from tests.support.notebook import Notebook, pair

PLAIN = {
    "value": "value = {'a': [1, 2.5, None, True, (1, 2), {3}, b'x', 1 + 2j, range(3), 10**30]}",
    "when": "import datetime; when = [datetime.datetime(2020, 1, 1), datetime.timedelta(1)]",
    "array": "import numpy; array = numpy.arange(10.).reshape(2, 5)",
    "large": "import numpy; large = numpy.zeros((300, 200))",
    "view": "import numpy; view = numpy.arange(12, dtype='i4').reshape(3, 4)[:, ::2]",
    "objects": "import numpy; objects = numpy.array(['a', None], dtype=object)",
    "scalar": "import numpy; scalar = numpy.float64(2.)",
    "text": "text = 'long text ' * 20_000",
    "frame": "import pandas; frame = pandas.DataFrame({'x': [1, 2, 3], 'y': ['a', 'b', 'c']})",
    "series": "import pandas; series = pandas.Series([1], index=pandas.date_range('2020', periods=1))",
    "pointed": "import numpy; pointed = [numpy.zeros(0), numpy.ones((2, 2), order='F'), numpy.array('x')]",
    "counted": "from collections import *; counted = [Counter('aab'), deque([1], 5), OrderedDict(a=1)]",
    "exact": "from fractions import Fraction; exact = [Fraction(1, 3), bytearray(b'ab'), frozenset([1, 2])]",
    "kinds": "import pandas; kinds = pandas.DataFrame({'c': pandas.Categorical(['a', 'b', 'a'])})",
}
ACTIVE = {
    "function": "def function(): pass",
    "instance": "class Thing: pass\ninstance = Thing()",
    "method": "method = [].append",
    "opener": "import functools; opener = functools.partial(print, 1)",
    "module": "import subprocess as module",
    "fields": "import numpy; fields = numpy.zeros(3, dtype=[('a', 'f4'), ('b', 'i8')])",
    "pattern": "import re; pattern = re.compile('a')",
}


def heads(cell: str, name: str) -> tuple[bytes, list[int]]:
    """Return the head of a variable's payload, and the sizes of its buffers."""
    notebook, _ = pair()
    record = next(one for one in notebook.run(cell, 1).components if name in one.names)
    sizes = [len(one) if isinstance(one, bytes) else one.size for one in record.payload.buffers]
    head = record.payload.head
    assert head is not None
    return head, sizes


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_pass(name: str) -> None:
    check_payload(*heads(PLAIN[name], name))


@pytest.mark.parametrize("name", ACTIVE)
def test_a_value_that_could_run_code_does_not_pass(name: str) -> None:
    with pytest.raises(NotSafe):
        check_payload(*heads(ACTIVE[name], name))


def payload(*stream: bytes, head: Head | None = None) -> bytes:
    return join_head(head or Head(FORMAT_VERSION, ("x",)), stream)


def text(value: str) -> bytes:
    return pickle.BINUNICODE + struct.pack("<I", len(value)) + value.encode()


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + pickle.STACK_GLOBAL


RUN = named("os", "system") + text("touch it-ran") + pickle.TUPLE1 + pickle.REDUCE
HOSTILE = {
    "a call": payload(RUN, b"."),
    "a call that is thrown away": payload(RUN, pickle.MEMOIZE, pickle.POP, b"N."),
    "a name as text": payload(b"cos\nsystem\n.", b"."),
    "an instance as text": payload(b"(S'x'\nios\nsystem\n."),
    "an extension": payload(b"\x82\x01."),
    "a stand-in": payload(b"N", pickle.BINPERSID, b"."),
    "a seed that is called": payload(pickle.BINGET + b"\x00", pickle.EMPTY_TUPLE, pickle.REDUCE, b"."),
    "a seed that is filled": payload(pickle.BINGET + b"\x00", text("a"), b"N", pickle.SETITEM, b"."),
    "a seed's state": payload(pickle.BINGET + b"\x00", pickle.EMPTY_DICT, pickle.BUILD, b"."),
    "a class's state": payload(named("pandas", "DataFrame"), pickle.EMPTY_DICT, pickle.BUILD, b"."),
    "a module to import": payload(
        named("replkernel.loaders", "modules:import_module"), text("evil"), pickle.TUPLE1, pickle.REDUCE, b"."
    ),
    "an attribute": payload(
        named("replkernel.loaders", "sentinels:attribute"), text("os"), text("system"), pickle.TUPLE2, b"R."
    ),
    "pointers for objects": payload(
        named("replkernel.loaders", "numpy:make_array"), b"(C\x08AAAAAAAA", text("O"), b"K\x01\x85", b"NNNtR."
    ),
    "a buffer among the opcodes": payload(b"N.", head=Head(FORMAT_VERSION, ("x",), cuts=((0, 0),))),
    "a buffer that is too long": payload(
        pickle.BINBYTES + struct.pack("<I", 70_000), b".", head=Head(FORMAT_VERSION, ("x",), cuts=((5, 0),))
    ),
    "a truth for a buffer's number": payload(
        named("replkernel.loaders", "numpy:make_array"), b"(\x88", text("|u1"), b"K\x01\x85", b"NNNtR."
    ),
    "no end": payload(b"N"),
    "nothing": b"",
    "a deep stack": payload(b"(" * 10_000, b"."),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_stream_does_not_pass(what: str) -> None:
    with pytest.raises(NotSafe):
        check_payload(HOSTILE[what], [80_000])


def test_a_stand_in_names_the_cell_that_made_its_variable() -> None:
    before = ComponentRecord(
        ComponentId("c"), ("gone",), Seq(160), Payload(head=b""), digest_of(b""), 0, cell=9,
        made=(Making("gone", 3),),
    )  # fmt: skip
    stand_in = lost(ComponentId("safe-1"), "gone", before)
    assert set(outlines(stand_in.payload.head or b"")) == {"gone"}
    there = Notebook("r2")
    assert there.take(Delta(Seq(1), Fence(1), ReplicaId("r1"), 1, (stand_in,))).failed == ()
    loss = loss_of(there["gone"])
    assert (loss.cell, loss.reason) == (3, LEFT_OUT)


def test_types_and_shapes_are_told_without_loading() -> None:
    shapes = {
        name: outlines(heads(PLAIN[name], name)[0])[name] for name in ("array", "view", "frame", "series")
    }
    assert {name: (one.type, one.shape) for name, one in shapes.items()} == {
        "array": ("numpy.ndarray", (2, 5)),
        "view": ("numpy.ndarray", (3, 2)),
        "frame": ("pandas.DataFrame", (3, 2)),
        "series": ("pandas.Series", (1,)),
    }
