"""Who is the same object as whom: through attributes of values, proxies, registries, caches, classes and frames."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "children of values with attributes, held by many",
    """
import datetime as dt, fractions, decimal, pathlib, ipaddress, uuid, collections, array, types
class Name(str):
    def __new__(cls, s, owner=None): o = super().__new__(cls, s); o.owner = owner; o.seen = []; return o
class Day(dt.date): pass
class Ratio(fractions.Fraction): pass
class Money(decimal.Decimal):
    __slots__ = ('cur',)
class Point(tuple): pass
class Tally(collections.Counter): pass
class Ns(types.SimpleNamespace): pass
n = Name('n'); d = Day(2024, 2, 29); r = Ratio(1, 3); m = Money('1.50'); m.cur = 'EUR'; p = Point((1, [2])); t = Tally('aab'); t.note = d; ns = Ns(n=n, p=p); ns.me = ns; d.who = n; r.p = p; p.tag = r; table = {n: d, d: [r], p[0]: t}; held = [n, d, r, m, p, t]
""",
    "n.seen.append(d); d.late = held; t['c'] += 1",
    "print(held[0] is n, table[n] is d, d.who is n, n.seen[0] is d, r.p is p, p.tag is r, m.cur, t.note is d, ns.me is ns, ns.p is p)",
    "n.owner = t; m.cur = 'USD'; p[1].append(3); r.x = 1; held[1].own = 'own'; d2 = d.replace(year=2028)",
    "print(held[3].cur, d.own, table[n].own, list(table)[0].owner is t, ns.p[1], hasattr(d2, 'own'), type(d2).__name__, d.late is held, table[d][0].x, t)",
    "del n.seen[:]; held.append(held[0])",
    "print(held[-1] is n, held[0].owner.note is d, d - dt.date(2024, 1, 1), r + 1, m * 2, sorted(vars(d)))\nheld[-1].seen.clear()",
)
sequence(
    "mappings and views of classes, modules and objects",
    """
import types, operator, sys
class C:
    x = [1]
    def f(self): return self.x
c = C(); mp = vars(C); iv = vars(c); gl = globals(); md = vars(types); c.own = mp; items = mp.items(); meth = C.f; bound = c.f; getter = operator.attrgetter('x'); proxy = types.MappingProxyType(iv); keys = iv.keys(); mem = C.__dict__['f']
""",
    "C.y = 'late'; iv['z'] = 3; gl['fresh'] = c",
    "print(mp['y'], c.z, fresh is c, 'y' in dict(items), meth is C.f, bound(), proxy['z'], sorted(keys), md is vars(types), mem is C.f)",
    "C.f = lambda self: 'new'; del iv['z']; gl.pop('fresh')",
    "print(c.f(), bound() is C.x, meth(c), 'fresh' in gl, mp['f'] is C.f, list(proxy), c.own['x'] is C.x, gl is globals(), getter(c) is C.x)",
)
sequence(
    "registries keyed by types, ids of values and weak keys",
    """
import weakref, functools, collections, abc
REG = {}
def register(*types_):
    def deco(f):
        for t in types_: REG[t] = f
        return f
    return deco
@register(int, float)
def num(x): return 'num'
class Base:
    _all = weakref.WeakSet(); _cache = weakref.WeakValueDictionary()
    def __new__(cls, key):
        got = cls._cache.get((cls, key))
        if got is None: got = super().__new__(cls); got.key = key; cls._cache[cls, key] = got; cls._all.add(got)
        return got
class Kid(Base): pass
a = Base(1); b = Kid(1); again = Base(1); extra = weakref.WeakKeyDictionary({a: [b]}); cbs = [weakref.WeakMethod(a.__init__), weakref.ref(b)]
class Interned(type):
    def __call__(cls, *a): return cls.__dict__.get('one') or cls.__dict__.get('one') or (setattr(cls, 'one', super().__call__(*a)) or cls.one)
class Single(metaclass=Interned):
    def __init__(self): self.n = 0
s = Single(); s.n += 1
""",
    "Single().n += 1; REG[bool] = lambda x: 'bool'; Base(2)",
    "print(again is a, Base(1) is a, Kid(1) is b, len(Base._all), sorted(k[1] for k in Base._cache), s.n, s is Single(), REG[type(1)](1), REG[bool](True), extra[a][0] is b)",
    "@register(Kid)\ndef kid(x): return x.key\nb.key = 'changed'; del again",
    "print(REG[type(b)](b), cbs[1]() is b, cbs[0]().__self__ is a, REG[float] is num, Base(1) is a)",
    "del b; extra.clear(); import gc; n = gc.collect()",
    "print(cbs[1](), len(Base._all), (Kid, 1) in Base._cache, Single() is s, s.n)",
)
sequence(
    "caches over methods, properties and instances that change their class",
    """
import functools
class Meta(type):
    @property
    def slow(cls): CALLS.append(cls.__name__); return [cls]
    def __setattr__(cls, k, v): SETS.append(k); super().__setattr__(k, v)
CALLS, SETS = [], []
class A(metaclass=Meta):
    def __init__(self): self.v = 1
    @functools.cached_property
    def big(self): CALLS.append('big'); return [self.v]
    @property
    @functools.lru_cache
    def once(self): CALLS.append('once'); return object()
    @functools.lru_cache(maxsize=1, typed=True)
    def typed(self, x): CALLS.append(x); return x
    def __hash__(self): return 1
    def __eq__(self, o): return self is o
class B(A):
    @functools.cached_property
    def big(self): return ['B', *super().big]
a = A(); b = B(); o = a.once; a.typed(1); b.big
""",
    "a.typed(1.0); A.slow.append('x'); same = a.once is o",
    "print(same, a.once is o, CALLS, SETS, A.slow[0] is A, b.big, A.typed.cache_info(), vars(b))",
    "a.__class__ = B; A.late = 1; b.v = 9; del b.big",
    "print(a.big, b.big, a.once is o, CALLS, SETS[-1], type(a).slow[0].__name__, A.typed.cache_info().currsize)",
    "a.big.append('own'); k = a.typed(1.0)",
    "print(vars(a), a.big is vars(a)['big'], k, B.__dict__.get('slow'), isinstance(vars(A)['once'], property), A.typed.cache_parameters())",
)
sequence(
    "errors that hold objects, notes, groups and themselves",
    """
import traceback, sys
class Bad(ValueError):
    def __init__(self, obj, *, code=5): super().__init__(f'bad {obj!r}'); self.obj = obj; self.code = code
class Two(KeyError, AttributeError): pass
data = [1]; kept = []
def fail(x):
    local = data
    try: {}['k']
    except KeyError as e: raise Bad(x) from e
try: fail(data)
except Bad as e: err = e; e.add_note('note'); e.self = e
eg = ExceptionGroup('g', [err, Two('t')]); te = traceback.TracebackException.from_exception(err); sup = RuntimeError('s'); sup.__suppress_context__ = True; sup.__context__ = err; oe = OSError(2, 'gone', 'f.txt'); ue = UnicodeDecodeError('utf8', b'\\xff', 0, 1, 'why'); st = StopIteration([data]); se = SyntaxError('bad', ('f', 1, 2, 'text', 1, 3)); im = ImportError('no', name='m', path='p'); na = NameError('q', name='q')
""",
    "data.append(err); err.obj.append(2)",
    "print(err.obj is data, err.code, err.__notes__, type(err.__cause__).__name__, err.self is err, eg.exceptions[0] is err, te.exc_type.__name__ if hasattr(te, 'exc_type') else '', sup.__context__ is err, oe.filename, oe.errno, ue.object, st.value[0] is data)",
    "m, r = eg.split(Bad); eg.extra = m; sup.__cause__ = oe",
    "print(m.exceptions[0] is err, r.exceptions[0].args, eg.extra is m, se.text, se.end_offset, im.name, na.name, len(traceback.extract_tb(err.__traceback__)), sup.__suppress_context__)",
    "raise sup",
    "print(''.join(traceback.format_exception(err)).count('Bad'), data[1] is err, sys.last_value is sup)",
)
sequence(
    "numbers, arrays and frames that are the same memory by many ways",
    """
import numpy as np, pandas as pd, array, struct
buf = bytearray(48); mv = memoryview(buf); a = np.frombuffer(buf, 'f8'); s = pd.Series(a, copy=False); ch = mv.cast('d'); half = mv[8:24].cast('l'); arr = array.array('i', range(6)); av = np.asarray(arr); grid = a.reshape(2, 3); diag = grid[[0, 1], [0, 1]]; tri = np.lib.stride_tricks.sliding_window_view(a, 3); ro = a[:]; ro.flags.writeable = False; obj = np.array([buf, a, None], object); rec = np.zeros(2, [('k', 'U2'), ('v', 'O'), ('w', 'f4', 2)]); rw = rec['w']; rec['v'][0] = a; sc = rec[1]; idx = pd.Index(np.arange(3)); z = np.zeros(()); zv = z[()]; zr = z.reshape(1)
""",
    "ch[0] = 1.5; half[0] = 7; av[2] = 99; rw[1] = [3, 4]; zr[0] = 8; sc['k'] = 'yy'",
    "print(a, s.tolist()[:1], arr[2], tri[0], ro[0], obj[0] is buf, obj[1] is a, rec, z, zv, grid.base is a or grid.base is not None)",
    "grid[1, 2] = -1; struct.pack_into('<d', buf, 8, 2.5); rec['v'][1] = rec; tri2 = tri[1:]",
    "print(a.tolist(), ch[1], tri2[-1], diag, rec['v'][0] is a, rec['v'][1] is rec, ro.flags.writeable, len(mv), np.shares_memory(tri2, buf))",
    "try: ro[0] = 1\nexcept ValueError as e: print(e)\ntry: buf.append(1)\nexcept BufferError as e: print('export')\nprint(sc['w'], rw.base is rec, av.base is not None, a[1], s[1], half[0] != 7)",
    needs=("numpy", "pandas"),
)
sequence(
    "many small variables at rest for some cells, then a few change",
    """
for i in range(200): globals()[f'r{i}'] = {'id': i, 'tags': ['a', str(i)], 'at': (i, i + 1)}
del i; rows = [globals()[f'r{i}'] for i in range(0, 200, 50)]
""",
    "x = 1",
    "y = 2",
    "z = 3",
    "w = 4",
    "x = 5; y = 6",
    "z = 7",
    "r7['tags'].append('new'); r8['at'] = r9['at']; r10['tags'] = r11['tags']",
    "w = 8",
    "print(r7, r8['at'] is r9['at'], r10['tags'] is r11['tags'], rows[1] is r50)",
    "r11['tags'].append('both'); del r12; r13 = [r14]; rows[2]['x'] = 1",
    "print(r10['tags'], 'r12' in globals(), r13[0] is r14, r50['tags'] is rows[1]['tags'], r100)",
)
