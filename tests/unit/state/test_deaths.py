"""No destructor of the notebook's runs on a replica that only takes a change over, whatever holds its object.

Law: after each cell, as many have run on all replicas together as in a process of its own.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.support.notebook import Notebook

SETUP = """
import collections, functools, gc, types, weakref, colorsys
log = []
class F:
    def __init__(self, n): self.n = n
    def __del__(self): log.append(self.n); colorsys.died(self.n)
class Obs:
    def __init__(self, v): self.v = v
    def __hash__(self): return hash(self.v)
    def __eq__(self, other): return self.v == other.v
    def __del__(self): log.append(self.v); colorsys.died(self.v)
class H: pass
def mk(f): return lambda: f
def gen(f): yield f
"""

PROGRAMS = {
    "dict key": ['D={Obs(1):"k"}', "1", "del D", "1"],
    "class attr del": [
        'class Own: pass\nOwn.shared=F("cls")',
        "1",
        "del Own; gc.collect()",
        "gc.collect()",
        "gc.collect()",
        "1",
    ],
    "class attr set": ['class Own: pass\nOwn.shared=F("a")', "1", 'Own.shared=F("b")', "1"],
    "class attr delattr": ['class Own: pass\nOwn.shared=F("a")', "1", "del Own.shared", "1"],
    "closure": ['f=mk(F("c"))', "1", "del f", "1"],
    "default": ['def g(x=F("d")): pass', "1", "del g", "1"],
    "func attr set": ['def g(): pass\ng.a=F("d")', "1", "g.a=1", "1"],
    "partial": ['p=functools.partial(F, F("p"))', "1", "del p", "1"],
    "method": ['p=F("m").__init__', "1", "del p", "1"],
    "deque sub": ['class DQ(collections.deque): pass\np=DQ([F("m")])', "1", "del p", "1"],
    "list sub": ['class DQ(list): pass\np=DQ([F("m")])', "1", "del p", "1"],
    "tuple sub": ['P=collections.namedtuple("P","a")\np=P(F("m"))', "1", "del p", "1"],
    "dict sub key": ['class DQ(dict): pass\np=DQ({Obs(5):F("m")})', "1", "del p", "1"],
    "frozenset": ["p=frozenset([Obs(5)])", "1", "del p", "1"],
    "lru": ['@functools.lru_cache\ndef fn(x): return F("l")\nfn(1);', "1", "fn.cache_clear()", "1"],
    "lru del": [
        '@functools.lru_cache\ndef fn(x): return F("l")\nfn(1);',
        "1",
        "del fn; gc.collect()",
        "gc.collect()",
        "1",
    ],
    "exc": [
        'try:\n  raise ValueError(F("e"))\nexcept ValueError as e: x=e',
        "1",
        "del x; gc.collect()",
        "gc.collect()",
        "1",
    ],
    "iter": ['it=iter([F("i")])', "1", "del it", "1"],
    "iter next": ['it=iter([F("i"), F("j")])', "next(it); 1", "2", "del it", "1"],
    "unstarted gen": ['it=gen(F("i"))', "1", "del it", "1"],
    "mappingproxy": ['h=types.MappingProxyType({"a":F("a")})', "1", "del h", "1"],
    "dict view": ['h={"a":F("a")}.values()', "1", "del h", "1"],
    "object array": ['import numpy as np; h=np.array([F("a"),None],dtype=object)', "1", "del h", "1"],
    "series": ['import pandas as pd; h=pd.Series([F("a"),None])', "1", "del h", "1"],
    "zip": ['h=zip([F("a")],[1])', "1", "del h", "1"],
    "property": ['class C:\n  p=property(mk(F("a")))', "1", "del C; gc.collect()", "gc.collect()", "1"],
    "redefine class": [
        'class C:\n  p=F("a")',
        'class C:\n  p=F("b")\ngc.collect()',
        "gc.collect()",
        "del C; gc.collect()",
        "gc.collect()",
        "1",
    ],
    "function redefine": ['def g(x=F("d")): pass', 'def g(x=F("e")): pass', "1", "del g", "1"],
    "closure cell set": [
        'def outer():\n  v=F("a")\n  def set(x):\n    nonlocal v\n    v=x\n  return set\ns=outer()',
        "1",
        's(F("b"))',
        "1",
        "del s",
        "1",
    ],
    "del twice": ['x=[F("a")]; y=x', "del x", "1", "del y", "1"],
    "slots": ['class S: __slots__="f",\ns=S(); s.f=F("a")', "1", 's.f=F("b")', "1", "del s", "1"],
    "defaultdict": ['d=collections.defaultdict(list); d[Obs(1)].append(F("q"))', "1", "del d", "1"],
    "cycle alive": ['h=H(); h.me=h; h.f=F("cy")', "1", "del h; gc.collect()", "gc.collect()", "1"],
    "method defaults": [
        'class C:\n  def m(self,x=F("d")): pass',
        "1",
        'C.m.__defaults__=(F("e"),)',
        "1",
        "C.m.__defaults__=None",
        "1",
    ],
    "method attr": [
        'class C:\n  def m(self): pass\nC.m.a=F("d")',
        "1",
        'C.m.a=F("e")',
        "1",
        "del C.m.a",
        "1",
    ],
    "class closure": [
        (
            "def mkc(v):\n  class K:\n    def get(self): return v\n"
            '    def put(self,x):\n      nonlocal v\n      v=x\n  return K\nK=mkc(F("a"))'
        ),
        "1",
        'K().put(F("b"))',
        "1",
        "K().put(1)",
        "1",
    ],
    "lru method": [
        'class C:\n  @functools.lru_cache\n  def m(self,x): return F("l%d"%x)\nc=C(); c.m(1);',
        "c.m(2); 1",
        "C.m.cache_clear()",
        "1",
    ],
    "staticmethod default": ['class C:\n  @staticmethod\n  def m(x=F("d")): pass', "1", "del C.m", "1"],
    "contextvar": [
        'import contextvars\ncv=contextvars.ContextVar("cv")\ncv.set(F("a"));',
        "1",
        'cv.set(F("b"));',
        "1",
        "cv.set(1);",
        "1",
    ],
    "local": [
        'import threading\ntl=threading.local(); tl.x=F("a")',
        "1",
        'tl.x=F("b")',
        "1",
        "del tl.x",
        "1",
        'tl.x=F("c")',
        "del tl",
        "1",
    ],
    "enum attr": [
        'import enum\nclass E(enum.Enum):\n  A=1\nE.A.extra=F("x")',
        "1",
        'E.A.extra=F("y")',
        "1",
        "del E.A.extra",
        "1",
    ],
    "nested class": ['class O:\n  class I: f=F("i")', "1", "del O.I; gc.collect()", "gc.collect()", "1"],
    "base attr": [
        'class B: f=F("b")\nclass D(B): pass',
        "1",
        "del B",
        "gc.collect()",
        "B=D.__mro__[1]; del B.f",
        "1",
        "del D; gc.collect()",
        "gc.collect()",
        "1",
    ],
    "instance keeps class": [
        'class K: f=F("k")\nk=K()',
        "del K",
        "gc.collect()",
        "1",
        "type(k).f=1",
        "del k; gc.collect()",
        "gc.collect()",
        "1",
    ],
    "tensor attr": [
        'import torch\nm=torch.ones(1); m.f=F("t")',
        "1",
        'm.f=F("u")',
        "1",
        "del m; gc.collect()",
        "gc.collect()",
        "1",
    ],
    "df attrs": [
        'import pandas as pd\nd=pd.DataFrame({"a":[1]}); d.attrs["f"]=F("a")',
        "1",
        "d.attrs.clear()",
        "1",
    ],
    "df object": [
        'import pandas as pd\nd=pd.DataFrame({"a":[F("a"),F("b")]})',
        "1",
        "d=d.iloc[:1]",
        "1",
        "d=d.copy()",
        "del d; gc.collect()",
        "1",
    ],
    "finalize": ['x=H(); fz=weakref.finalize(x, lambda: colorsys.died("fz"))', "1", "del x", "1"],
    "finalize in key": [
        'x=H(); d={x:1}; fz=weakref.finalize(x, lambda: colorsys.died("fz")); del x',
        "1",
        "del d",
        "1",
    ],
    "finalize in closure": [
        'x=H(); d=mk(x); fz=weakref.finalize(x, lambda: colorsys.died("fz")); del x',
        "1",
        "del d",
        "1",
    ],
    "finalize in class": [
        'x=H()\nclass C: pass\nC.x=x; fz=weakref.finalize(x, lambda: colorsys.died("fz")); del x',
        "1",
        "C.x=1",
        "1",
    ],
    "ref callback key": [
        'x=H(); d={x:1}; r=weakref.ref(x, lambda r: log.append("cb")); del x',
        "1",
        "del d",
        "1",
    ],
    "ref callback closure": [
        'x=H(); d=mk(x); r=weakref.ref(x, lambda r: log.append("cb")); del x',
        "1",
        "del d",
        "1",
    ],
    "ref callback class": [
        'x=H()\nclass C: pass\nC.x=x; r=weakref.ref(x, lambda r: log.append("cb")); del x',
        "1",
        "C.x=1",
        "1",
    ],
    "callback of a tuple": [
        'x=H(); T=collections.namedtuple("T","a"); d=T(x)\nr=weakref.ref(x, lambda r: log.append(1)); del x',
        "1",
        "d=None",
        "1",
    ],
    "del in meta": [
        'class M(type):\n  pass\nclass C(metaclass=M):\n  def __del__(self): log.append("c")\nx=(C(),)',
        "1",
        "x=None",
        "1",
    ],
    "generator fn default": ['def g(x=F("g")):\n  yield x\nit=g()', "1", "del g", "1", "del it", "1"],
    "exception cause": [
        'x=ValueError(F("a")); x.__cause__=KeyError(F("b"))',
        "1",
        "x.__cause__=None",
        "1",
        "del x",
        "1",
    ],
    "method bound dict": ['p=[F("m").__init__]', "1", "p.clear()", "1"],
    "queue": ['import queue\nq=queue.Queue(); q.put(F("q"))', "1", "q.get(); 1", "1"],
    "heap": ['import heapq\nh=[]; heapq.heappush(h,(1,F("q")))', "1", "heapq.heappop(h); 1", "1"],
    "partialmethod": ['class C:\n  p=functools.partialmethod(print, F("a"))', "1", "del C.p", "1"],
    "singledispatch": [
        '@functools.singledispatch\ndef sd(x): pass\nsd.register(int)(mk(F("s")));',
        "1",
        "sd.register(int)(print);",
        "1",
        "del sd; gc.collect()",
        "1",
    ],
}


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Return a list of what has died, whichever replica it was on."""
    gc.collect()
    died: list[object] = []
    monkeypatch.setattr("colorsys.died", died.append, raising=False)
    yield died
    gc.collect()


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_an_object_dies_once_on_all_replicas_together(program: list[str], dead: list[object]) -> None:
    if "import torch" in program[0]:
        pytest.importorskip("torch", reason="the notebook has a tensor")
    chunks: dict[str, bytes] = {}
    replicas = [Notebook(f"r{number}", chunks) for number in (1, 2, 3)]
    alone = Notebook("r4")
    for seq, source in enumerate([SETUP, *program], start=1):
        dead.clear()
        exec(source, alone.namespace)
        expected = dead[:]
        dead.clear()
        executor = replicas[seq % 3]
        executor.take()
        delta = executor.run(source, seq)
        for other in replicas:
            assert other is executor or other.take(delta).failed == ()
        assert dead == expected, source
        for replica in replicas:
            assert replica["log"] == alone["log"], source
