"""Modules that the user wrote beside the notebook: edited, reloaded, two of one name, made by hand."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

PATH = "import sys, os, time, importlib; sys.path.insert(0, os.getcwd())\n"
AUTO = "%load_ext autoreload\n%autoreload 2\n"

sequence(
    "two modules of one name",
    PATH
    + r"open('mb.py', 'w').write('W = []\ndef f(): return len(W)\nclass C: pass\n'); import mb; mb.W.append(1); from mb import f, C; c = C()",
    "del sys.modules['mb']; import mb as mb2",
    "mb2.W.extend([4, 5])",
    "print(mb2 is mb, mb2.W, mb.W, f(), mb2.f(), mb.f(), type(c) is C, C is mb.C, mb2.C is C, mb.__file__ == mb2.__file__)",
)
sequence(
    "autoreload with objects made before",
    PATH
    + r"open('aa.py', 'w').write('def f(): return \"one\"\nclass C:\n  def g(s): return 1\n')"
    + "\n"
    + AUTO
    + "import aa; from aa import f, C; c = C()",
    "print(f(), aa.f(), c.g())",
    r"open('aa.py', 'w').write('def f(): return \"two\"\nclass C:\n  def g(s): return 2\n'); os.utime('aa.py', (time.time() + 5,) * 2)",
    "print(f(), aa.f(), c.g(), isinstance(c, aa.C), f is aa.f)",
    "print(f(), aa.f(), c.g(), isinstance(c, aa.C), C is aa.C)",
    r"open('aa.py', 'w').write('import json\ndef f(): return \"three\"\nclass C:\n  z = 1\n  def g(s): return 3\n'); os.utime('aa.py', (time.time() + 15,) * 2)",
    "print(f(), aa.f(), c.g(), isinstance(c, aa.C), f is aa.f, C is aa.C)",
)
sequence(
    "autoreload of a package that gives its parts' names",
    PATH
    + r"os.mkdir('pk'); open('pk/__init__.py', 'w').write('from .a import *\nfrom . import b\n'); open('pk/a.py', 'w').write('def f(): return \"one\"\nL = [1]\n'); open('pk/b.py', 'w').write('from .a import f\ndef h(): return f()\n')"
    + "\n"
    + AUTO
    + "import pk; from pk import f",
    "print(f(), pk.f(), pk.a.f(), pk.b.h()); pk.L.append(2)",
    r"open('pk/a.py', 'w').write('def f(): return \"two\"\nL = [1]\n'); os.utime('pk/a.py', (time.time() + 5,) * 2)",
    "print(f(), pk.f(), pk.a.f(), pk.b.h(), pk.L)",
    "print(f(), pk.f(), pk.a.f(), pk.b.h(), pk.L, pk.f is pk.a.f, pk.L is pk.a.L)",
)
sequence(
    "an instance of a class of a module that was reloaded",
    PATH
    + r"open('ac.py', 'w').write('class K:\n  v = 1\n  def go(s): return \"v1\"\nL = []\n'); import ac; k = ac.K(); L = ac.L; from ac import K",
    r"open('ac.py', 'w').write('class K:\n  v = 1\n  def go(s): return \"v2\"\nL = []\n'); os.utime('ac.py', (time.time() + 5,) * 2)",
    "again = importlib.reload(ac)",
    "print(k.go(), type(k) is K, isinstance(k, ac.K), isinstance(k, K), L is ac.L, k.v, ac.K().go()); ac.L.append(5); K.v = 7",
    "print(k.go(), type(k) is K, isinstance(k, ac.K), L, ac.L, k.v, ac.K().v, ac.K().go(), again is ac)",
)
sequence(
    "a module whose file was edited after the import",
    PATH
    + r"open('ab.py', 'w').write('import json as js\ndef f(): return \"one\"\nclass Q:\n  def m(s): return \"m1\"\nX = [1]\n'); import ab; ab.X.append(2); q = ab.Q()",
    r"open('ab.py', 'w').write('def f(): return \"two\"\nX = [100]\n')",
    "print(ab.f(), ab.X, q.m())",
    "print(ab.f(), ab.X, isinstance(q, ab.Q), ab.js.dumps(1), ab.__spec__.name); ab.X.append(3)",
    "print(ab.f(), ab.X, q.m(), sys.modules['ab'] is ab)",
    "ab is importlib.reload(ab)",
    "print(ab.f(), ab.X, q.m())",
)
sequence(
    "a module whose file was edited in the cell of its import",
    PATH
    + r"open('ae.py', 'w').write('def f(): return \"one\"\nX = [1]\n'); import ae; ae.X.append(2); open('ae.py', 'w').write('def f(): return \"two two\"\nX = [100]\n')",
    "print(ae.f(), ae.X)",
)
sequence(
    "a module made from a file's spec",
    r"open('x1.py', 'w').write('state = {\"n\": 0}\ndef inc():\n  state[\"n\"] += 1\n  return state[\"n\"]\n')"
    "\nimport importlib.util, os; sp = importlib.util.spec_from_file_location('x1', 'x1.py'); x1 = importlib.util.module_from_spec(sp); sp.loader.exec_module(x1); x1.inc()",
    "print(x1.inc(), x1.state)",
    "f = x1.inc; print(f())",
    "print(x1.state, x1.__spec__.name, x1.__spec__ is sp, x1.__loader__ is sp.loader, os.path.basename(x1.__file__), f.__globals__ is vars(x1))",
)
sequence(
    "what calls leave in the functions of a module",
    "%%writefile mymod.py\nimport functools\ndef collect(x, acc=[], *, seen={}):\n    acc.append(x); seen[x] = len(acc); return acc\ndef count():\n    count.n += 1; return count.n\ncount.n = 0\ndef make():\n    total = 0; log = []\n    def add(k):\n        nonlocal total\n        total += k; log.append(total); return total\n    return add\nadd = make()\ndef deco(f):\n    calls = 0\n    @functools.wraps(f)\n    def w(*a):\n        nonlocal calls\n        calls += 1; w.last = a; return calls, f(*a)\n    return w\n@deco\ndef sq(x): return x * x\nclass A:\n    def m(self, hist=[]): hist.append(1); return len(hist)\n    @staticmethod\n    def s(h=[]): h.append(2); return h\n@functools.lru_cache\ndef cached(x): return [x]\n",
    "import mymod as mm; from mymod import collect, add\ncollect(1); mm.count(); add(5); mm.sq(3); mm.A().m(); mm.A.s(); c = mm.cached(1)",
    "add(1); mm.count(); r = collect(2); mm.A().m()",
    "mm.sq(4); s = mm.A.s(); r.append('x'); mm.make()(3)",
    "print(collect.__defaults__, collect.__kwdefaults__, r is collect.__defaults__[0], mm.count.n, add.__closure__[1].cell_contents, add.__closure__[0].cell_contents, mm.sq.last, mm.sq.__closure__[0].cell_contents, mm.A.m.__defaults__, s is mm.A.s.__defaults__[0], c)",
)
sequence(
    "a module taken out and imported again",
    """
open('again.py', 'w').write("DATA = [1]; V = 'first'; K = type('K', (), {})")
import sys; sys.path.insert(0, ''); import again; from again import K; k = K()
""",
    "open('again.py', 'w').write(\"DATA = [1]; V = 'the second'; K = type('K', (), {})\"); sys.modules.pop('again'); import again",
    "again.DATA.append(2)",
    """
import again as same
print(again.V, again.DATA, same is again, again.K is K, type(k) is K, sys.modules['again'] is again)
""",
)
sequence(
    "a function of a module that was taken out and imported again",
    "open('fresh.py', 'w').write(\"DATA = [1]\\ndef f():\\n    DATA.append(2); return len(DATA)\\n\")\nimport sys; sys.path.insert(0, ''); import fresh; from fresh import f; f()",
    "del sys.modules['fresh']; import fresh",
    "n = f()",
    "print(fresh.DATA, n, fresh.f is f, f.__globals__['DATA'])",
)
sequence(
    "a module taken out for some cells",
    "open('away.py', 'w').write(\"V = [1]\\ndef f(): return V\\n\")\nimport sys; sys.path.insert(0, ''); import away; keep = away; away.V.append(7)",
    "del sys.modules['away'], away",
    "print('away' in sys.modules, keep.V)",
    "import away; away.f().append(3)",
    "keep.f().append(9)",
    "print(away is keep, away.V, keep.V, sys.modules['away'] is away)",
)
sequence(
    "modules found by a path that leads elsewhere after a change of directory",
    "import os, sys\nos.makedirs('src/rp'); os.makedirs('data'); open('src/rel.py', 'w').write(\"S = []\\ndef go(): S.append(1); return len(S)\\n\")\nopen('src/rp/__init__.py', 'w').write('from .sub import A\\n'); open('src/rp/sub.py', 'w').write('A = [0]\\n')\nsys.path.append('src'); import rel, rp",
    "os.chdir('data'); rel.go()",
    "rp.A.append(rel.go()); rel.extra = rp",
    "import rel as r2, rp.sub",
    """
os.chdir('..')
print(r2 is rel, rel.S, rel.extra is rp, rp.A, rp.sub.A is rp.A, os.path.relpath(rel.__file__))
os.chdir('data')
""",
)
sequence(
    "what the user's own module has cached",
    """
open('mc.py', 'w').write('''
import functools
N = []
@functools.lru_cache(maxsize=4)
def f(x): N.append(x); return [x]
class K:
    @staticmethod
    @functools.cache
    def g(x): N.append(('g', x)); return {x}
    @functools.cached_property
    def h(self): N.append('h'); return [len(N)]
    @functools.lru_cache
    def m(self, y): N.append(y); return (self, y)
inst = K()
''') and None
import mc
a = mc.f(1); b = mc.K.g(2); k = mc.inst; c = k.h; d = k.m(3)
""",
    "mc.f(1) is a, mc.f(2)",
    "mc.f(1).append('x')",
    "print(mc.f(1) is a, a, mc.K.g(2) is b, k.h is c, k.m(3)[0] is k, mc.N, mc.f.cache_info().currsize, mc.f.cache_info().misses)",
)
sequence(
    "modules that print, log and warn when they are imported",
    """
from pathlib import Path; import sys
sys.path.insert(0, "")
Path("loud.py").write_text('''
import logging, sys, warnings
out, write = sys.stdout, sys.stdout.write
log = logging.getLogger("loud"); handler = logging.StreamHandler(sys.stdout); log.addHandler(handler)
log.addHandler(logging.FileHandler("loud.log"))
print("loading"); print("to stderr", file=sys.stderr); log.warning("at import")
warnings.warn("loud is old"); warnings.filterwarnings("ignore", message="never mind")
class Kept: seen = []
def say(text): print(text, file=out); write(text + "!\\\\n"); log.error(text)
''')
import loud; k = loud.Kept()
""",
    "loud.say('two'); k.me = loud.Kept.seen; loud.Kept.seen.append(2)",
    "import warnings; warnings.warn('never mind'); warnings.simplefilter('error')",
    "print(open('loud.log').read().count('at import')); loud.say('four'); print(loud.out is sys.stdout, loud.handler.stream is sys.stdout, k.me is loud.Kept.seen)",
)
sequence(
    "the logger of a module, which has its handler",
    """
from pathlib import Path; import sys
sys.path.insert(0, "")
Path("tells.py").write_text('''
import io, logging
log = logging.getLogger(__name__); log.setLevel("INFO"); log.propagate = False
text = io.StringIO(); handler = logging.StreamHandler(text); log.addHandler(handler)
def tell(word): log.info("told %s", word)
''')
import tells, logging; tells.tell(1); mine = logging.getLogger("tells")
""",
    "tells.tell(2); tells.handler.setFormatter(logging.Formatter('<%(message)s>'))",
    "tells.tell(3); tells.handler.setLevel('ERROR')",
    "tells.tell(4); mine.error('five') if mine.handlers[0] is tells.handler else None; tells.handler.setLevel('INFO')",
    "print(tells.text.getvalue(), mine is tells.log, mine.handlers == [tells.handler], tells.handler.stream is tells.text)",
)
sequence(
    "lists of a module that are emptied again, and numbers that are as before",
    PATH
    + r"open('ad.py', 'w').write('items = []\ncount = 0\nclass Box:\n  all = []\n  def __init__(s): Box.all.append(s); items.append(s)\ndef bump():\n  global count, extra\n  count += 1; extra = [count]; return count\ndef drop():\n  global count, extra\n  count = 0; del extra\n'); import ad; b = ad.Box(); ad.bump()",
    "ad.drop(); ad.items.clear(); it = ad.items; every = ad.Box.all",
    "every.clear(); print(ad.items is it, ad.Box.all is every, ad.count, hasattr(ad, 'extra'))",
    "print(hasattr(ad, 'extra'), ad.count); ad.bump(); ad.count = 0; c = ad.Box()",
    "print(ad.count, ad.bump(), ad.items is it, it[0] is c, every[0] is c, ad.Box.all is every)",
    "print(ad.count, ad.items is it, it[0] is every[0], ad.extra)",
)
sequence(
    "a handler whose class a module of the user's has",
    """%%writefile list_handler.py
import logging
class ListHandler(logging.Handler):
    def __init__(self): super().__init__(); self.lines = []
    def emit(self, record): self.lines.append(self.format(record))
""",
    "import logging, list_handler\nh = list_handler.ListHandler(); log = logging.getLogger('listed'); log.addHandler(h); log.setLevel('INFO'); h.setFormatter(logging.Formatter('%(levelname)s %(message)s'))",
    "log.info('one'); print(h.lines)",
    "log.warning('two'); log.debug('three')",
    "print(h.lines, log.handlers[0] is h, type(h) is list_handler.ListHandler)",
)
sequence(
    "private registries, counters and the one instance of classes in a module",
    """%%writefile single.py
class Config:
    _instance = None
    _made = 0
    def __new__(cls):
        if cls._instance is None:
            cls._instance = super().__new__(cls); cls._instance.values = {}
            cls._made += 1
        return cls._instance
class Plug:
    _registry = {}
    def __init_subclass__(cls, **kw):
        super().__init_subclass__(**kw); Plug._registry[cls.__name__] = cls
class Meta(type):
    _seen = []
    def __new__(mcs, name, bases, ns):
        c = super().__new__(mcs, name, bases, ns); Meta._seen.append(name); return c
class Model(metaclass=Meta):
    _fields = []
    @classmethod
    def add(cls, f): cls._fields.append(f)
class Counter:
    __total = 0
    def __init__(self): Counter.__total += 1
    @staticmethod
    def total(): return Counter.__total
""",
    """
import sys, os; sys.path.insert(0, os.getcwd())
import single
c = single.Config(); c.values["a"] = 1
single.Counter(); single.Model.add("x")
""",
    """
class Mine(single.Plug): pass
d = single.Config(); d.values["b"] = 2
single.Counter(); single.Model.add("y")
print(d is c, c.values)
""",
    """
class Sub(single.Model): pass
print(single.Config() is c, single.Plug._registry, single.Meta._seen, single.Model._fields, single.Counter.total(), single.Config._made)
""",
    """
print(single.Config() is c, single.Plug._registry["Mine"] is Mine, single.Meta._seen, single.Model._fields, single.Counter.total(), single.Config._made, Sub._fields is single.Model._fields)
""",
)
sequence(
    "abstract bases, enums, dataclasses and caches of a module",
    """%%writefile shapes.py
from abc import ABC, abstractmethod
from enum import Enum, Flag, auto
from dataclasses import dataclass, field
from functools import cache, cached_property, singledispatch
class Shape(ABC):
    count = 0
    log = []
    def __init__(self): type(self).count += 1; Shape.log.append(type(self).__name__)
    @abstractmethod
    def area(self): ...
class Sq(Shape):
    def __init__(self, n): super().__init__(); self.n = n
    def area(self): return self.n ** 2
class Level(Enum):
    LOW = 1
    HIGH = 2
    @classmethod
    def bump(cls): cls.uses = getattr(cls, "uses", 0) + 1; return cls.uses
@dataclass
class Box:
    n: int
    tags: list = field(default_factory=list)
    @cached_property
    def big(self): self.tags.append("computed"); return self.n * 100
@cache
def slow(n): calls.append(n); return [n]
calls = []
@singledispatch
def show(x): return "any"
""",
    """
import sys, os; sys.path.insert(0, os.getcwd())
from shapes import *
import shapes
a = Sq(2); b = Box(3); print(b.big, slow(1), Level.bump())
@show.register
def _(x: int): return f"int {x}"
@show.register(Box)
def show_box(x): return f"box {x.n}"
""",
    """
c = Sq(3); slow(2); print(Level.bump(), Sq.count, Shape.count, Shape.log, b.big, b.tags)
print(show(1), show(b), show("s"))
""",
    """
print(slow(1) is slow(1), shapes.calls, Level.bump(), Level(1) is Level.LOW, isinstance(a, Shape))
Shape.register(int)
Level.LOW.note = ["hi"]
""",
    """
s1 = slow(1); s1.append("x")
print(isinstance(5, Shape), Level.LOW.note, Sq.count, Shape.count, a.area() + c.area())
""",
    """
print(slow(1), s1 is slow(1), shapes.calls, Level.uses, show(2), show(b), isinstance(5, Shape), Level.LOW.note, Sq.count, Shape.log, vars(b))
""",
)
sequence(
    "nested classes and descriptors with state in a module",
    """%%writefile nest.py
class Outer:
    class Inner:
        count = 0
        _log = []
        def __init__(self): type(self).count += 1; self._log.append(self.count)
    class Meta:
        options = {"a": 1}
class Typed:
    def __init__(self, kind): self.kind = kind; self.sets = 0; self.values = {}
    def __set_name__(self, owner, name): self.name = name
    def __get__(self, obj, owner=None): return self if obj is None else self.values.get(id(obj) and obj.key)
    def __set__(self, obj, v): self.sets += 1; self.values[obj.key] = self.kind(v)
class Rec:
    n = Typed(int)
    def __init__(self, key): self.key = key
""",
    """
import sys, os; sys.path.insert(0, os.getcwd()); sys.dont_write_bytecode = True
import nest
i = nest.Outer.Inner(); r = nest.Rec("k"); r.n = "5"
print(nest.Outer.Inner.count, nest.Rec.n.sets)
""",
    """
nest.Outer.Inner(); nest.Outer.Meta.options["b"] = 2; r.n = 7.9; print(r.n)
""",
    """
print(nest.Outer.Inner.count, nest.Outer.Inner._log, nest.Outer.Meta.options, nest.Rec.n.sets, r.n)
r2 = nest.Rec("z"); r2.n = 1; nest.Outer.Inner()
""",
    """
print(nest.Outer.Inner.count, nest.Outer.Inner._log, nest.Outer.Meta.options, nest.Rec.n.sets, r.n, r2.n, type(i) is nest.Outer.Inner)
""",
)
sequence(
    "enumerations, exceptions and generic classes of a module",
    """%%writefile kinds.py
from enum import Enum, IntFlag, auto
from typing import NamedTuple, TypedDict, Protocol, Generic, TypeVar
T = TypeVar("T")
class State(Enum):
    NEW = "n"
    DONE = "d"
    def __init__(self, code): self.code = code; self.visits = 0
    def visit(self): self.visits += 1; return self
class Perm(IntFlag):
    R = auto(); W = auto()
class Pt(NamedTuple):
    x: int
    y: int = 0
    def norm(self): return abs(self.x) + abs(self.y)
class Fail(Exception):
    raised = 0
    def __init__(self, state, *, hint=""): super().__init__(state); self.state, self.hint = state, hint; Fail.raised += 1
class Box(Generic[T]):
    boxes = []
    def __init__(self, item: T): self.item = item; Box.boxes.append(self)
""",
    """
import sys, os; sys.path.insert(0, os.getcwd()); sys.dont_write_bytecode = True
from kinds import *
import kinds
State.NEW.visit(); d = {State.NEW: [1], Pt(1): "p"}; p = Perm.R | Perm.W
b = Box[int](5)
try: raise Fail(State.DONE, hint="h")
except Fail as e: err = e
""",
    """
State.NEW.visit(); State.DONE.visit(); d[State.DONE] = err
print(State.NEW.visits, State("n") is State.NEW, err.state is State.DONE, Fail.raised, Box.boxes[0] is b, p)
""",
    """
import pickle, copy
q = pickle.loads(pickle.dumps([State.NEW, Pt(3, 4), p])); c = copy.deepcopy(err)
print(q[0] is State.NEW, q[1].norm(), q[2] is p or q[2] == p, c.hint, Fail.raised, State.NEW.visits)
Box("s")
""",
    """
print([x.item for x in Box.boxes], Fail.raised, State.NEW.visits, State.DONE.visits, d[State.DONE] is err, d[Pt(1)], Box.boxes[0] is b, kinds.State is State)
""",
)
sequence(
    "classes of a module whose ways of copying lose something",
    "%%writefile mm.py\nclass C:\n    def __init__(s): s.a=1; s.b=[2]\n    def __setstate__(s,d): s.a=d[\"a\"]\nclass S:\n    __slots__ = ('a', 'b')\n    def __init__(s): s.a=1; s.b=[2]\n    def __reduce__(s): return (S, ())\nclass L:\n    def __init__(s, a=0):\n        import threading\n        s.a = a; s.lock = threading.Lock(); s.n = 0\n    def __getstate__(s): s.n += 1; return {k: v for k, v in vars(s).items() if k != 'lock'}\n    def __setstate__(s, d): raise RuntimeError('no way')\nclass K(L):\n    pass",
    "import mm\nc=mm.C(); s = mm.S(); l = mm.L(4); k = mm.K(5); box = [c, s, l, k]",
    "c.b.append(3); s.b = 7; k.extra = box",
    "c.b=7",
    "print(c.a, c.b, s.a, s.b, l.a, l.n, l.lock.locked(), k.a, k.n, box[0] is c, box[3] is k, k.extra is box)",
)
sequence(
    "a sentinel of a module, and a cache that a class of it leaves out of its copies",
    "%%writefile mm2.py\nclass _Missing:\n    def __reduce__(s): return 'MISSING'\n    def __repr__(s): return '<missing>'\nMISSING = _Missing()\ndef f(x=MISSING): return x is MISSING\nclass Pt:\n    def __init__(s, x): s.x = x; s.cache = {}\n    def __getstate__(s): return {'x': s.x}\n    def __setstate__(s, d): s.x = d['x']; s.cache = {}\n    def __del__(s): Pt.dead.append(s.x)\n    dead = []",
    "import mm2\nfrom mm2 import f, MISSING\nx = [MISSING]; p = mm2.Pt(3); p.cache['k'] = x",
    "p.cache['j'] = p; p.x += 1",
    "y = f(x[0])",
    "print(y, f(), f(x[0]), x[0] is mm2.MISSING, x, p.cache['k'] is x, p.cache['j'] is p, p.x, mm2.Pt.dead)",
)
MODULE = "from pathlib import Path\nPath('project.py').write_text({!r}.replace('~', ''))\n"
"""Writes a module whose text no cell says."""

sequence(
    "settings of the process that a function of a module makes",
    MODULE.format(
        "import g~c, o~s, soc~ket, thr~eading\n"
        "def setup():\n    g~c.dis~able(); o~s.um~ask(0o027); soc~ket.setdefault~timeout(4.5); thr~eading.stack_~size(262144)\n"
        "def again():\n    soc~ket.setdefault~timeout(9)"
    )
    + "import project\nproject.setup()",
    "near = [1]",
    "import json\nhttp = __import__('socket')\nprint(getattr(http, 'getdefault' + 'timeout')(), near)",
    "project.again()",
    "print(getattr(http, 'getdefault' + 'timeout')(), getattr(__import__('g' + 'c'), 'isenabled')(), getattr(__import__('threading'), 'stack_' + 'size')(262144), [line.split()[1] for line in open('/proc/self/status') if line.startswith('Uma')])",
)
sequence(
    "what a function of a module changes in libraries",
    MODULE.format(
        "import json, fractions as fr\nfrom fractions import Fraction\n"
        "def patch():\n    Fraction.p~air = lambda self: (self.numerator, self.denominator)\n    js~on.lim~its = [1]\n"
        "def patch_more():\n    fr.Frac~tion.tw~ice = twice\n"
        "def twice(self): return 2 * self"
    )
    + "import project\nproject.patch()",
    "import json\nfrom fractions import Fraction\nprint(Fraction(2, 4).pair(), json.limits)",
    "project.patch_more(); limits = json.limits",
    "limits += [2]",
    "print(Fraction(2, 4).pair(), json.limits, Fraction(1, 3).twice(), Fraction.twice is project.twice)",
)
sequence(
    "a file that a function of a module opens by number",
    MODULE.format("import o~s\ndef opened(path): return o~s.op~en(path, o~s.O_CREAT | o~s.O_RDWR)")
    + "import project, os\nfd = project.opened('one.bin'); size = os.write(fd, b'abc')",
    "os.lseek(fd, 1, 0); print(os.read(fd, 2))",
    "os.pwrite(fd, b'def', 3); print(os.pread(fd, 10, 0))",
    pinned="open files by number",
)
sequence(
    "a function for the exit that a function of a module registers",
    MODULE.format("import at~exit\ndef setup(): at~exit.reg~ister(print, 'bye')")
    + "import project\nproject.setup()",
    "near = [1]",
    "near[:]",
    pinned="exit",
)
