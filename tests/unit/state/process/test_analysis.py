"""What a cell names: directly, through the notebook's functions and classes, through magics, and on GPUs."""

from __future__ import annotations

import warnings
from typing import Any

import IPython.core.inputtransformer2  # noqa: F401  (magics are transformed where IPython is loaded)
import pytest

from replkernel.state.analysis.cell import CellNames, analyse

SETUP = """
import functools
limit = 3
data = [1]
device = "cuda:0"
def helper(): return data
def top():
    global counter
    counter = 1
    return helper()
def trained(): return model.to("cuda")
def closed():
    def inner(): return limit
    return inner
closure = closed()
def outer(f):
    @functools.wraps(f)
    def inside(*a): return f(*a)
    return inside
@outer
def decorated(): return limit
@functools.lru_cache
def cached(): return data
bound = functools.partial(helper)
handlers = {"a": top}
class Base:
    def go(self): return limit
class Model(Base):
    @property
    def shown(self): raise RuntimeError("touched")
    @classmethod
    def made(cls): return data
class Holder:
    def __init__(self, f): self.f = f
model = Model()
holder = Holder(trained)
"""


@pytest.fixture
def namespace() -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(SETUP, space)
    return space


def _names(source: str, space: dict[str, Any]) -> CellNames:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return analyse(source, space)


@pytest.mark.parametrize(
    ("source", "reads", "binds", "deletes"),
    [
        ("x = limit", {"limit"}, {"x"}, set()),
        ("x = 1\nprint(x)", set(), {"x"}, set()),
        ("if limit:\n    y = 1\nprint(y)", {"limit", "y"}, {"y"}, set()),
        ("limit += 1", {"limit"}, {"limit"}, set()),
        ("x = x + 1", {"x"}, {"x"}, set()),
        ("a, (*b, c) = data", {"data"}, {"a", "b", "c"}, set()),
        ("for i in data: j = i", {"data", "i"}, {"i", "j"}, set()),
        ("(n := limit)", {"limit"}, {"n"}, set()),
        ("[k for k in data]", {"data"}, set(), set()),
        ("match data:\n    case [p, q]: pass", {"data"}, {"p", "q"}, set()),
        ("import os.path as p, sys", set(), {"p", "sys"}, set()),
        ("class K:\n    a = limit\n    b = a", {"limit"}, {"K"}, set()),
        ("def g(): return data", set(), {"g"}, set()),
        ("def g(): return data\ng()", {"data"}, {"g"}, set()),
        ("@top\ndef g(): return limit", {"top", "limit", "helper", "data"}, {"g", "counter"}, set()),
        ("del data", set(), set(), {"data"}),
        ("f = lambda: data", {"data"}, {"f"}, set()),
        ("await top()", {"top", "helper", "data"}, {"counter"}, set()),
        ("frame.query('a > @limit')", {"frame", "limit"}, set(), set()),
        ("'\\d'", set(), set(), set()),
    ],
)
def test_a_cells_own_names(
    source: str, reads: set[str], binds: set[str], deletes: set[str], namespace: dict[str, Any]
) -> None:
    names = _names(source, namespace)
    assert (names.reads, names.binds, names.deletes, names.anything) == (reads, binds, deletes, False)


@pytest.mark.parametrize(
    ("source", "reached"),
    [
        ("top()", {"helper", "data"}),
        ("closure()", {"limit"}),
        ("decorated()", {"limit"}),
        ("cached()", {"data"}),
        ("bound()", {"data"}),
        ("handlers['a']()", {"helper", "data"}),
        ("model.go()", {"limit"}),
        ("Model.made()", {"data"}),
        ("holder.f()", {"model"}),
    ],
)
def test_names_that_the_notebooks_code_reaches_are_read(
    source: str, reached: set[str], namespace: dict[str, Any]
) -> None:
    assert reached <= _names(source, namespace).reads


@pytest.mark.parametrize(
    "source",
    [
        "exec(limit)",
        "globals()['x'] = 1",
        "vars()['x'] = 1",
        "from os import *",
        "%run other.py",
        "1 2 python",
        "import __main__",
        "get_ipython().user_ns.clear()",
        "%unheard_of x",
        "eval(input())",
        "%reset -f",
    ],
)
def test_code_that_may_touch_every_name_says_so(source: str, namespace: dict[str, Any]) -> None:
    assert _names(source, namespace).anything


def test_a_text_that_exec_is_certain_to_run_is_read_instead(namespace: dict[str, Any]) -> None:
    names = _names("code = 'z = limit'\nexec(code)", namespace)
    assert not names.anything
    assert "z" in names.binds
    assert "limit" in names.reads


@pytest.mark.parametrize(
    ("source", "reads", "binds"),
    [
        ("%time top()", {"top", "helper", "data"}, {"counter"}),
        ("%timeit -n 10 -r 3 limit + 1", {"limit"}, set()),
        ("%%time\ny = limit", {"limit"}, {"y"}),
        ("%%capture out\ny = limit", {"limit"}, {"y", "out"}),
        ("!ls $limit {data[0]}", {"limit", "data"}, set()),
        ("files = !ls", set(), {"files"}),
        ("%matplotlib inline\nz = limit", {"limit"}, {"z"}),
        ("%%bash\nrm -rf x", set(), set()),
        ("data?", {"data"}, set()),
    ],
)
def test_magics_are_read_as_what_they_do(
    source: str, reads: set[str], binds: set[str], namespace: dict[str, Any]
) -> None:
    names = _names(source, namespace)
    assert (names.reads, names.binds, names.anything) == (reads, binds, False)


@pytest.mark.parametrize(
    ("source", "needs"),
    [
        ("x.cuda()", True),
        ("x.to('cuda:1')", True),
        ("torch.zeros(3, device='cuda')", True),
        ("d = 'cuda' if torch.cuda.is_available() else 'cpu'", True),
        ("x.to(device)", True),
        ("trained()", True),
        ("holder.f()", True),
        ("def later(): x.cuda()", False),
        ("def now(): x.cuda()\nnow()", True),
        ("class Net:\n    def fit(self): self.x.cuda()", False),
        ("class Net:\n    def fit(self): self.x.cuda()\nNet().fit()", True),
        ("%time trained()", True),
        ("import cupy", True),
        ("%gpu status", False),
        ("%gpu off", False),
        ("%%gpu 0\nprint(1)", False),
        ("%%gpu 1\nx.to('gpu')", True),
        ("print('cuda is a word here')", False),
        ("top()", False),
    ],
)
def test_a_cell_wants_a_gpu_when_it_or_what_it_reaches_names_one(
    source: str, needs: bool, namespace: dict[str, Any]
) -> None:
    assert _names(source, namespace).needs_gpu is needs


def test_no_users_attribute_is_read(namespace: dict[str, Any]) -> None:
    exec(
        "class Trap:\n"
        "    def __getattribute__(self, name): raise RuntimeError(name)\n"
        "    def __eq__(self, other): raise RuntimeError('eq')\n"
        "    def __hash__(self): raise RuntimeError('hash')\n"
        "    def __bool__(self): raise RuntimeError('bool')\n"
        "    @property\n"
        "    def __class__(self): raise RuntimeError('class')\n"
        "class Meta(type):\n"
        "    def __getattribute__(cls, name): raise RuntimeError(name)\n"
        "class Strange(metaclass=Meta): pass\n"
        "class Shadowed:\n"
        "    @property\n"
        "    def __dict__(self): raise RuntimeError('dict')\n"
        "trap, strange, shadowed, box = Trap(), Strange(), Shadowed(), [Trap()]\n",
        namespace,
    )
    names = _names("trap; strange; Strange; shadowed; box", namespace)
    assert {"trap", "strange", "shadowed", "box"} <= names.reads


def test_recursion_and_cycles_end(namespace: dict[str, Any]) -> None:
    exec("def ping(): return pong()\ndef pong(): return ping()\nring = []\nring.append(ring)", namespace)
    assert {"ping", "pong"} <= _names("ping(); ring", namespace).reads


def test_an_enormous_or_deep_source_is_open_ended_and_not_an_error(namespace: dict[str, Any]) -> None:
    assert _names("(" * 500 + ")" * 500, namespace).anything
    assert _names("x" * 2_000_000, namespace).anything
