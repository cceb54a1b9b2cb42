"""Classes that say how they are copied, and count when they do: a move is no copy."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "pickles of ones own over cells, with effects",
    "import pickle, copy, copyreg, io\nclass V:\n    def __init__(self, x): self.x = x\n    def __eq__(self, o): return type(o) is V and o.x == self.x\n    def __reduce_ex__(self, p): made.append(p); return (V, (self.x,), {'seen': True})\nmade = []; v = V([1]); w = [v, v, v.x]; data = pickle.dumps(w)",
    "class Keep:\n    def __getstate__(self): return {'v': self.v}\n    def __setstate__(self, s): self.__dict__.update(s); self.restored = getattr(self, 'restored', 0) + 1\nk = Keep(); k.v = v; k.cache = 'c'; kd = pickle.dumps(k)",
    "got = pickle.loads(data); kk = pickle.loads(kd); kc = copy.deepcopy(k)",
    "class P(pickle.Pickler):\n    def persistent_id(self, o): return 'v!' if o is v else None\nclass U(pickle.Unpickler):\n    def persistent_load(self, i): return v\nb = io.BytesIO(); P(b).dump([v, {'q': v}]); b.seek(0)",
    "pl = U(b).load(); v.x.append(2)",
    "print(got[0] is got[1], got[0].x is got[2], got[0] == v, got[0].x, kk.restored, hasattr(kk, 'cache'), hasattr(k, 'restored'), k.cache, kc.restored, pl[0] is v, pl[1]['q'] is v, k.v is v, len(made), hasattr(v, 'seen'))",
)
sequence(
    "reductions that forget, call factories, renew locks and generators",
    "import threading\npool = {}\ncalls = []\nclass P:\n    def __init__(s, x): s.x = x; s.cache = {}\n    def __reduce__(s): calls.append('P'); return (P, (s.x,))\nclass F:\n    def __init__(s, n): s.n = n; s.k = 0\n    def __reduce__(s): return (intern, (s.n,))\ndef intern(n): return pool.setdefault(n, F(n))\nclass L:\n    __slots__ = 'v', 'lock'\n    def __init__(s, v): s.v = v; s.lock = threading.Lock()\n    def __reduce_ex__(s, p): return (L, (s.v,))\nclass G:\n    def __init__(s, xs): s.xs = xs; s.it = (x for x in xs)\n    def __reduce__(s): return (G, (s.xs,))\np = P([1]); f = intern('f'); l = L(p.x); g = G([1, 2])",
    "p.cache['a'] = p; f.k = 5; l.lock.acquire()",
    "p.x.append(2); g.xs.append(3)",
    "f.k += 1; q = [p, f, l]",
    "print(p.cache['a'] is p, f.k, pool['f'] is f, l.v is p.x, l.lock.locked(), calls, g.xs, q[1] is f)",
)
sequence(
    "a getstate and a setstate that are heard",
    "log = []\nclass S:\n    def __init__(s): s.a = 1; s.tmp = [2]\n    def __getstate__(s): log.append('get'); d = dict(s.__dict__); del d['tmp']; return d\n    def __setstate__(s, d): log.append('set'); s.__dict__.update(d); s.tmp = 'fresh'\ns = S()",
    "s.a += 1",
    "t = [s]; s.tmp.append(3)",
    "import pickle; u = pickle.loads(pickle.dumps(s))",
    "print(log, s.a, s.tmp, u.tmp, t[0] is s)",
)
sequence(
    "arguments for new, states of slots, names for objects",
    "import pickle\nclass G:\n    def __new__(c, a, *, k): o = super().__new__(c); o.a, o.k = a, k; return o\n    def __getnewargs_ex__(s): return (s.a,), {'k': s.k}\nclass S:\n    __slots__ = 'x', 'y'\n    def __getstate__(s): return {'x': s.x}\n    def __setstate__(s, st): s.x = st['x']; s.y = 'restored'\npool = {}\nclass F:\n    def __init__(s, name): s.name = name; s.n = 0\n    def __reduce__(s): return (intern, (s.name,))\ndef intern(name):\n    if name not in pool: pool[name] = F(name)\n    return pool[name]\ng = G(1, k=2); s = S(); s.x, s.y = [1], 'orig'; f = intern('f'); f.n = 5",
    "g.extra = s.x; f2 = pickle.loads(pickle.dumps(f)); s.x.append(2)",
    "h = pickle.loads(pickle.dumps(g)); f.n += 1; t = pickle.loads(pickle.dumps(s))",
    "u = intern('f')",
    "print(g.extra is s.x, s.y, t.y, f2 is f, u is f, f.n, pool['f'] is f, h.a, h.k, s.x, h.extra, len(pool))",
)
sequence(
    "children of containers whose ways of copying lose something",
    "import collections\nclass DQ(collections.deque):\n    def __init__(s,n): super().__init__(range(n)); s.n=n\n    def __reduce__(s): return (DQ,(s.n,))\nclass OD(collections.OrderedDict):\n    def __reduce__(s): return (OD, ())\nclass DD(collections.defaultdict):\n    def __reduce__(s): return (DD, (int, {}))\nclass ST(set):\n    def __reduce__(s): return (ST, ())\nq=DQ(3); q.append(99); od = OD(a=1); od['b'] = q; dd = DD(list); dd['x'].append(od); st = ST([1])",
    "q.append(5); st.add(2)",
    "od['c'] = 1; dd['y']",
    "print(q, od['b'] is q, list(od), dd, st, q.n)",
)
