"""numpy: views of every kind, memory that others own, subclasses, random generators, options."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "memoryviews of arrays that skip items",
    """
import numpy as np
rec = np.zeros(4, [('id', 'i4'), ('x', 'f4')])
rec['id'] = range(4); mv = memoryview(rec['id']); part = mv[1::2]
base = np.arange(12.); odd = base[1::2]; mo = memoryview(odd)
back = memoryview(odd[::-1]); mr = memoryview(rec)
""",
    "mv[0] = 77; rec['id'][3] = 5",
    "print(rec['id'].tolist(), mv.tolist(), part.tolist(), mv.strides, mv.obj.base is rec)",
    "mo[2] = -1; back[0] = 99; rec['x'][1] = 2.5",
    "print(base.tolist(), odd.tolist(), mo.tolist(), back.tolist(), mo.obj is odd, len(mr), mr.format)",
    needs=("numpy",),
)
sequence(
    "arrays of polynomials, and memoryviews of several dimensions",
    """
import numpy as np
from numpy.polynomial import Polynomial, Chebyshev
x = np.linspace(-2, 2, 9); p = Polynomial.fit(x, x ** 3 - x, 3); c = p.convert(kind=Chebyshev); k = p.coef; d = c.domain
grid = np.arange(6.).reshape(2, 3); mv = memoryview(grid); row = mv[1:]; raw = bytearray(12); cells = memoryview(raw).cast('B', (3, 4)); back = cells[::-2]
""",
    "k[0] = 0.5; mv[0, 0] = 50; cells[0, 1] = 7; q = p.deriv()",
    "row[0, 2] = 9; back[0, 0] = 8; d[1] = 2; print(p.coef is k, k.round(3), grid, cells.tolist(), back.tolist(), row.obj is grid)",
    "k[1] += 1; grid *= 2; print(q(1.).round(6), mv.tolist(), mv.shape, back.strides, raw.hex())",
    "print(p(1.).round(6), p.coef is k, c.domain is d, c.domain, row.tolist(), bytes(cells[2:]), np.shares_memory(np.asarray(mv), grid))",
    needs="numpy",
)
sequence(
    "slices of slices",
    """
import numpy as np
a = np.arange(24).reshape(4, 6)
s = a[1:3]; t = s[:, ::2]; u = t.T; r = a.ravel(); n = a[None, ..., None]
""",
    "t[0, 0] = -1",
    "print(a[1, 0], s[0, 0], u[0, 0], r[6], n[0, 1, 0, 0])",
    "u += 100; del a",
    "print(r.tolist(), s.base is r.base, t.flags.c_contiguous, u.strides)",
    "r[:] = 0; print(s.sum(), t.sum(), n.sum(), np.shares_memory(s, n))",
    needs=("numpy",),
)
sequence(
    "base of views",
    """
import numpy as np
a = np.arange(10); v = a[2:]; w = v[1:]; x = np.arange(4.)[::-1]
b = bytearray(b'abcdefgh'); fb = np.frombuffer(b, 'u1'); h = fb[2:4]
""",
    "print(v.base is a, w.base is a, w.base is v, x.base is None, x.base.tolist())",
    "print(type(fb.base).__name__, h.base is fb, fb.base.obj is b if isinstance(fb.base, memoryview) else fb.base is b)",
    "w[0] = 77; b[2] = 65; print(a, v, h, fb)",
    "print(x.base[0], x.flags.owndata, x); x[0] = 9; print(x.base)",
    "print(x.base.tolist(), h.base is fb, w.base is a, len(b))",
    needs=("numpy",),
)
sequence(
    "stride tricks",
    """
import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
a = np.arange(8); o = as_strided(a, (4, 3), (8, 8)); w = sliding_window_view(a, 4, writeable=True); bc = np.broadcast_to(a[:3], (2, 3)); z = as_strided(np.float64(3.), (3,), (0,))
b1, b2 = np.broadcast_arrays(np.arange(3), np.ones((2, 1)))
""",
    "a[2] = 50",
    "print(o.tolist(), w[0].tolist(), bc.flags.writeable, np.shares_memory(o, a), z)",
    "w[0, 0] = -9",
    "print(a[0], o[0, 0], bc, bc.strides, b1.strides, b2.shape)",
    """\
try:
    bc[0, 0] = 1
except ValueError as e: print(e)
print(o.flags.writeable, w.flags.owndata)
""",
    needs=("numpy",),
)
sequence(
    "complex parts and fields",
    """
import numpy as np
c = np.array([1+2j, 3+4j]); re, im = c.real, c.imag
d = np.zeros(3, dtype=[('x', 'i4'), ('p', [('u', 'f8'), ('v', 'f4', (2,))])], )
x = d['x']; u = d['p']['u']; v = d['p']['v']; row = d[1]; multi = d[['x']]
""",
    "re[0] = 9; im[1] = -4",
    "print(c); x[1] = 5; u[2] = 1.5; v[0] = [1, 2]",
    "print(d, row, row['x'], multi['x'].tolist())",
    "row['x'] = 8; multi['x'][0] = 4",
    "print(d['x'], x, v.tolist(), type(row).__name__, re.base is c)",
    "print(d.dtype, row.dtype == d.dtype, d.dtype['p'])",
    needs=("numpy",),
)
sequence(
    "row of a structured array",
    """
import numpy as np
d = np.zeros(3, dtype=[('x', 'i4'), ('y', 'f8')]); row = d[1]; rr = d.view(np.recarray); r0 = rr[0]
""",
    "row['x'] = 3",
    "print(d['x'], row)",
    "d['y'][1] = 2.5; r0.x = 11",
    "print(row, rr.x, d['x'], type(r0).__name__)",
    "row[1] = 0.25; print(d.tolist(), np.shares_memory(row, d) if hasattr(row,'base') else None)",
    needs=("numpy",),
)
sequence(
    "masked arrays",
    """
import numpy as np
m = np.ma.array([1., 2., 3., 4.], mask=[0, 1, 0, 0], fill_value=-1); v = m[1:]; k = m.mask; d = m.data; h = np.ma.array([1, 2], mask=[1, 0], hard_mask=True)
""",
    "m[0] = np.ma.masked",
    "print(m, v, k, d)",
    "d[2] = 30",
    "print(m, v, m.fill_value)",
    "v[0] = 5; print(m, m.mask, v.sharedmask, m.sharedmask)",
    "h[0] = 9; print(h, h.hardmask, np.ma.masked is m[0], m.filled())",
    "m.soften_mask(); m[2] = np.ma.masked; print(m.count(), v, k)",
    needs=("numpy",),
)
sequence(
    "masked constants and records",
    """
import numpy as np
x = np.ma.masked; e = np.ma.array([(1, 2.), (3, 4.)], mask=[(0, 1), (0, 0)], dtype=[('a', int), ('b', float)]); r = np.rec.fromarrays([[1, 2], ['a', 'b']], names='n,s'); nm = np.ma.nomask
""",
    "print(x is np.ma.masked, nm is np.ma.nomask, e[0], e['b'])",
    "r.n[0] = 10; r.s[1] = 'z'",
    "print(r, r.n, r[1].s, type(r[0]).__name__)",
    "e['a'][1] = 7; print(e, e.mask)",
    needs=("numpy",),
)
sequence(
    "memmap through cells",
    """
import numpy as np, tempfile, os
p = os.path.join(tempfile.mkdtemp(), 'm.dat')
m = np.memmap(p, dtype='i4', mode='w+', shape=(4, 3)); v = m[1]; m[:] = 1
""",
    "v[:] = 5",
    "print(m, type(v).__name__, np.fromfile(p, 'i4')[3:6] if m.flush() is None else 0)",
    "r = np.memmap(p, dtype='i4', mode='r', shape=(4, 3), offset=0); c = np.memmap(p, dtype='i4', mode='c', shape=(12,))",
    "c[0] = 99; m[3, 2] = 8",
    "print(r[3], c[0], c[11], m[0, 0], r.flags.writeable, m.mode, r.mode, c.mode, v[0])",
    "v[0] = 6; print(m[1, 0], np.shares_memory(v, m), r[1, 0])",
    "o = np.lib.format.open_memmap(p + '.npy', mode='w+', dtype=float, shape=(3,)); o[1] = 2; s = o[1:]",
    "s[0] += 1; print(o, np.load(p + '.npy', mmap_mode='r'), os.path.basename(o.filename))",
    "print(o, s, type(s).__name__, m[0, 0], c[0])",
    needs=("numpy",),
)
sequence(
    "arrays of objects",
    """
import numpy as np
class P:
    def __init__(s, n): s.n = n
    def __add__(s, o): return P(s.n + o.n)
    def __repr__(s): return f'P({s.n})'
p = P(1); o = np.array([p, p, None, [1]], dtype=object); v = o[::2]; q = o.reshape(2, 2); l = o[3]; f = np.empty((2, 2), object, order='F'); f[:] = [[p, 1], [2, 'x']]
""",
    "p.n = 5; l.append(2)",
    "print(o, v, q, o[0] is p, q[0, 1] is p, f, f.flags.f_contiguous)",
    "q[1, 0] = P(9); f[0, 1] = o",
    "print(o[2], v[1], f[0, 1] is o)",
    "o[3].append(o); print(len(o[3]), o[3][-1] is o, (o[:2] + o[:2]).tolist())",
    "print(len(o[3]), o[3][-1] is o[3][2], o[0] is p, q.base is o)",
    needs=("numpy",),
)
sequence(
    "object arrays in odd shapes",
    """
import numpy as np
e = np.empty((), object); e[()] = [1]; l = e[()]; t = np.empty((2, 3), object); t[:] = 0; t[1, 2] = l; tt = t.T; rev = t[:, ::-1]; d = np.diag(np.array([[1, 2], [3, 4]], object)); ob = np.broadcast_to(np.array(['a'], object), (3,))
st = np.array([(1, [1])], dtype=[('a', int), ('o', object)]); so = st['o']
""",
    "l.append(5); tt[0, 1] = 'k'",
    "print(e, t, rev, d, ob, st)",
    "so[0].append(2); rev[0, 0] = 'R'",
    "print(st, t, so, tt.shape, d.base is not None)",
    "t.flags.writeable = False; print(tt.flags.writeable, t.flags.writeable)",
    "tt[2, 0] = 'W'; print(t[0, 2], np.shares_memory(t, tt))",
    needs=("numpy",),
)
sequence(
    "scalars and zero dimensions",
    """
import numpy as np
z = np.array(5); zz = z[...]; s = [np.float32(1.5), np.int8(3), np.str_('é'), np.bytes_(b'x'), np.datetime64('2020-02-03'), np.timedelta64(3, 'h'), np.bool_(True), np.complex64(1j), np.void(b'abc'), np.longdouble('0.1'), np.float16(.1)]
""",
    "z += 1",
    "print(zz, [type(x).__name__ for x in s], s)",
    "zz[()] = 40",
    "print(z, z.shape, s[9] == np.longdouble('0.1'), s[8].tobytes(), s[6] is np.True_)",
    needs=("numpy",),
)
sequence(
    "orders and byte order",
    """
import numpy as np
f = np.asfortranarray(np.arange(6).reshape(2, 3)); g = np.arange(6, dtype='>i4').reshape(2, 3); p = np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2).copy(order='K'); n = np.arange(3, dtype='>f8').view(); w = g.view('<i4'); un = np.frombuffer(b'\\0' + np.arange(3.).tobytes(), dtype='f8', offset=1) if True else 0
""",
    "f[0, 1] = 9; g[1] = 7",
    "print(f.flags.f_contiguous, f, g.dtype, g, p.strides, p.flags.c_contiguous)",
    "w[0, 0] = 1",
    "print(g[0, 0], n.dtype.byteorder, un, un.flags.aligned, un.flags.writeable)",
    "print(p.sum(), g.byteswap().dtype, f.ravel(order='K'))",
    needs=("numpy",),
)
sequence(
    "times",
    """
import numpy as np
d = np.arange('2020-01-01', '2020-01-05', dtype='M8[D]'); t = d - d[0]; nat = np.array(['NaT', '2020'], 'M8[ns]'); v = d[1:]; iv = d.view('i8')
""",
    "v[0] = '1999-12-31'",
    "print(d, t, nat, np.isnat(nat))",
    "iv[3] = 0",
    "print(d, v, t.dtype, np.busday_count(d[0], d[2]), d.astype('M8[M]'))",
    needs=("numpy",),
)
sequence(
    "subclass of ndarray",
    """
import numpy as np
class Unit(np.ndarray):
    def __new__(cls, v, unit='m'):
        o = np.asarray(v, float).view(cls); o.unit = unit; return o
    def __array_finalize__(self, o):
        self.unit = getattr(o, 'unit', '?'); Unit.made = getattr(Unit, 'made', 0) + 1
    def __array_ufunc__(self, f, m, *i, **k):
        r = getattr(f, m)(*[np.asarray(x) for x in i], **k); r = r.view(Unit) if isinstance(r, np.ndarray) else r
        if isinstance(r, Unit): r.unit = self.unit + '*'
        return r
u = Unit([1, 2, 3], 'kg'); v = u[1:]; w = u.view(np.ndarray)
""",
    "n = Unit.made; v[0] = 20; u.extra = [1]; x = u.extra",
    "print(u, u.unit, v.unit, (u + 1).unit, type(v).__name__, Unit.made - n)",
    "w[2] = 30; x.append(2)",
    "print(v, u.extra, u.extra is x, v.base is u, hasattr(v, 'extra'))",
    "print(Unit.made - n, u.mean(), np.sqrt(u).unit)",
    "print(u, v, u.unit, u.extra is x, Unit.made > n, v.base is u)",
    needs=("numpy",),
)
sequence(
    "subclass with own reduce",
    """
import numpy as np
class Info(np.ndarray):
    def __new__(cls, a, info=None):
        o = np.asarray(a).view(cls); o.info = info; return o
    def __array_finalize__(self, o): self.info = getattr(o, 'info', None)
    def __reduce__(self):
        r = super().__reduce__(); return (r[0], r[1], r[2] + (self.info,))
    def __setstate__(self, s):
        self.info = s[-1]; super().__setstate__(s[:-1])
i = Info(np.arange(4), {'k': 1}); d = i.info; v = i[:2]
""",
    "d['k'] = 2; i[0] = 9",
    "print(i, i.info, i.info is d)",
    "v[1] = 5",
    "print(i, v, v.info is d)",
    needs=("numpy",),
)
sequence(
    "overlapping names",
    """
import numpy as np
a = np.zeros(6); lo = a[:4]; hi = a[2:]; m = a.reshape(2, 3); del a
""",
    "lo[3] = 1; hi[-1] = 2",
    "print(lo, hi, m)",
    "m *= 10; lo[:] = lo[::-1].copy()",
    "print(lo, hi, m, np.shares_memory(lo, hi))",
    "del m; hi[0] = 5",
    "print(lo, hi, lo.base is hi.base)",
    needs=("numpy",),
)
sequence(
    "base without a name",
    """
import numpy as np
def pieces():
    b = np.arange(100_000.); return b[::1000], b[5:50], b.reshape(100, 1000)[3]
p, q, r = pieces(); z = {'r': r}
""",
    "p[3] = -1; r[5] = -2",
    "print(r[0], p[3], q[:3], z['r'] is r, p.base.shape)",
    "q[0] = 44",
    "print(p.base[5], r.base is p.base, p.nbytes)",
    "del q, z; r[1] = 8",
    "print(p.base[3001], p.base is r.base)",
    needs=("numpy",),
)
sequence(
    "frombuffer",
    """
import numpy as np, array, mmap
by = b'abcdefgh'; a1 = np.frombuffer(by, 'u1'); ba = bytearray(by); a2 = np.frombuffer(ba, 'u2'); ar = array.array('d', [1, 2, 3]); a3 = np.frombuffer(ar); mv = memoryview(ba)[2:6]; a4 = np.frombuffer(mv, 'u1'); a5 = np.asarray(mv); a6 = np.asarray(ar)
""",
    "ba[2] = 0; ar[1] = 7",
    "print(a1, a2, a3, a4, a5, a6)",
    "a4[1] = 1; a3[0] = -1; a6[2] = -3",
    "print(ba, ar, bytes(mv), a2, a1.flags.writeable)",
    """\
try:
    ba.append(1)
except BufferError as e: print(e)
print(len(ba))
""",
    """\
try:
    ar.append(1.)
except BufferError as e: print('no')
print(len(ar))
""",
    needs=("numpy",),
)
sequence(
    "generators of random numbers",
    """
import numpy as np
ss = np.random.SeedSequence(7); kids = ss.spawn(2); g = np.random.default_rng(kids[0]); h = np.random.Generator(np.random.Philox(3)); bg = h.bit_generator; rs = np.random.RandomState(np.random.MT19937(5)); f = g.normal
np.random.seed(4)
""",
    "print(g.random(2), h.standard_normal(3), rs.rand(), np.random.rand(), f())",
    "print(ss.spawn(1)[0].spawn_key, ss.n_children_spawned, h.bit_generator is bg, bg.random_raw())",
    "g2 = g.spawn(2); print([x.integers(1000) for x in g2], rs.normal(), np.random.randn(2))",
    "print(g.bit_generator.seed_seq.n_children_spawned, ss.spawn(1)[0].spawn_key, f(), bg.random_raw(), h.integers(0, 9, 3))",
    "st = np.random.get_state(); print(np.random.rand())",
    "np.random.set_state(st); print(np.random.rand(), np.random.mtrand._rand is np.random.RandomState, g.bit_generator.lock is not None)",
    needs=("numpy",),
)
sequence(
    "random methods as variables",
    """
import numpy as np
normal = np.random.normal; rng = np.random.default_rng(0); pick = rng.choice; shuffle = np.random.shuffle; gl = np.random.mtrand._rand; np.random.seed(1)
""",
    "print(normal(), pick(5))",
    "l = [1, 2, 3, 4, 5]; shuffle(l); print(l, rng.random())",
    "print(gl.rand(), np.random.rand(), pick.__self__ is rng)",
    "np.random.seed(1); print(normal() , gl.normal())",
    "print(np.random.default_rng(rng) is rng, rng.permutation(4))",
    "print(pick.__self__ is rng, rng.bit_generator.state['state']['state'], np.random.get_state()[1][:3])",
    needs=("numpy",),
)
sequence(
    "ufuncs made at run time",
    """
import numpy as np
def add3(a, b, c): return a + b + c + OFF
OFF = 0; uf = np.frompyfunc(add3, 3, 1); vec = np.vectorize(add3, otypes=[float]); vec2 = np.vectorize(lambda x, k=2: x * k, excluded=['k'], signature=None)
""",
    "OFF = 10; print(uf([1, 2], 3, 4))",
    "print(vec([1, 2], 0, 0), vec2([1, 2], k=3))",
    "OFF = 100; print(uf(1, 1, [1]), vec(1, 1, 1), uf.nin, uf.nout)",
    "print(np.add.reduce([1, 2]), uf.__name__, np.add.accumulate([1, 2, 3]))",
    needs=("numpy",),
)
sequence(
    "polynomials and others",
    """
import numpy as np
from numpy.polynomial import Polynomial, Chebyshev
p = np.poly1d([1, 2, 3]); P = Polynomial([1, 2, 3], domain=[-2, 2]); c = Chebyshev([0, 1]); fi = np.finfo('f4'); ii = np.iinfo('i2'); ix = np.s_[1:3, ::2]; grid = np.mgrid; ogr = np.ogrid[:2, :3]; nd = np.ndindex(2, 2); en = np.ndenumerate(np.arange(3)); fl = np.arange(6).reshape(2, 3).flat; di = np.dtype([('a', 'i4')], align=True)
""",
    "p[0] = 9; P.coef[0] = 5",
    "print(p, P, c(0.5), fi.eps, ii.max, ix, p.c)",
    "print([next(nd), next(en)], next(fl))",
    "print(next(nd), next(en), next(fl), fl.index, ogr[1], grid[:2], di.alignment)",
    "print(p.c, P.coef, fl.index, fi.dtype, di)",
    needs=("numpy",),
)
sequence(
    "flat iterators",
    """
import numpy as np
a = np.arange(6).reshape(2, 3); f = a.flat; next(f); next(f); b = np.broadcast(np.arange(3), np.ones((2, 1))); next(b)
""",
    "print(next(f), f.index, f.base is a)",
    "f[5] = 50; print(a, f.coords)",
    "print(list(f), b.index, next(b))",
    "print(a, f.index, f.base is a)",
    needs=("numpy",),
)
sequence(
    "printing and errors",
    """
import numpy as np
np.set_printoptions(precision=2, suppress=True, threshold=5, edgeitems=1, linewidth=40, formatter=None, sign='+'); np.seterr(all='ignore', over='raise')
log = []
""",
    "print(np.array([1.23456, 1e-9]), np.arange(10)); print(np.geterr())",
    "np.seterrcall(log.append); np.seterr(divide='print')",
    """
try: np.exp(np.array([1000.]))
except FloatingPointError as e: print(e)
with np.errstate(over='ignore'): print(np.exp(np.array([1000.])))
""",
    "po = np.printoptions(precision=1); print(np.array([1.25]))",
    """\
with po: print(np.array([1.25]))
print(np.array([1.256]), np.get_printoptions()['sign'], np.getbufsize())
""",
    "np.set_printoptions(legacy='1.13'); np.setbufsize(16 * 1024)",
    "print(np.float64(1.5), repr(np.float64(2.5)), np.array([1.5]), np.getbufsize())",
    needs=("numpy",),
    pinned=True,
)
sequence(
    "formatter and callback",
    """
import numpy as np
class Log:
    def __init__(s): s.n = 0
    def write(s, m): s.n += 1
lg = Log(); np.seterrcall(lg); np.seterr(divide='log'); np.set_printoptions(formatter={'float': lambda x: f'<{x:.1f}>'})
""",
    "np.ones(2) / np.zeros(2); print(lg.n, np.array([1.23]))",
    "np.ones(2) / np.zeros(2); print(lg.n, np.array([1.23]))",
    "np.ones(2) / np.zeros(2); print(lg.n, np.geterrcall() is lg)",
    "print(np.geterrcall() is lg, np.array([2.25]))",
    needs=("numpy",),
)
sequence(
    "read-only kinds",
    """
import numpy as np
a = np.arange(5); v = a[1:3]; a.flags.writeable = False; w = a.view(); b = np.arange(5); r = b.view(); r.setflags(write=False); bt = np.frombuffer(b'1234', 'u1')
""",
    "print(v.flags.writeable, w.flags.writeable, r.flags.writeable, b.flags.writeable)",
    "v[0] = 50; b[0] = 9",
    "print(a, w, r)",
    "a.flags.writeable = True; w2 = a[:]; print(w.flags.writeable)",
    "w.flags.writeable = True; w[0] = 7; print(a[0])",
    """\
try:
    bt.flags.writeable = True
except ValueError as e: print(e)
""",
    needs=("numpy",),
)
sequence(
    "big arrays and small changes",
    """
import numpy as np
big = np.zeros((1000, 400)); half = big[:500]; col = big[:, 7]; d = {'big': big, 'col': col}
""",
    "col[3] = 1.5; half[0] += 1",
    "print(big.sum(), d['big'] is big, d['col'] is col)",
    "big = np.concatenate([big, big[:1]]); print(big.shape, half.base is d['big'])",
    "d['big'][0, 7] = 100; print(col[0], half[0, 7], big[0, 7])",
    "del d; col *= 2; print(half[0, 7], col[:4])",
    "print(half[0, 7], col[:4], big.shape, np.shares_memory(half, col))",
    needs=("numpy",),
)
sequence(
    "resize in place",
    """
import numpy as np
a = np.arange(4); b = a; c = [a]
""",
    "a.resize(6, refcheck=False); print(b, c[0] is a)",
    "b[5] = 5",
    "a.resize((2, 3), refcheck=False); print(c[0])",
    "print(a.flags.owndata, b is a, a.shape); a.shape = (3, 2)",
    "print(b); b.dtype = 'u8'; print(c[0].dtype)",
    "print(a.dtype, a.shape)",
    needs=("numpy",),
)
sequence(
    "resize with reference check",
    """
import numpy as np
a = np.arange(4)
""",
    "a.resize(6); print(a)",
    "a.resize(2); print(a)",
    "a.resize(8); print(a)",
    needs=("numpy",),
)
sequence(
    "string arrays",
    """
import numpy as np
s = np.array(['a', 'bcd', 'é']); b = np.array([b'x', b'yz']); v = np.array(['aa', 'a much longer string than the inline size', None], dtype=np.dtypes.StringDType(na_object=None)); ch = np.char.array(['a', 'b']); sv = s[1:]; vv = v[:2]
""",
    "sv[0] = 'QQ'; vv[0] = 'changed by a view'",
    "print(s, v, ch + 'z', b)",
    "v[1] = 'short'",
    "print(vv, v.dtype, s.dtype, type(ch).__name__, np.strings.upper(s))",
    needs=("numpy",),
)
sequence(
    "functions of the library",
    """
import numpy as np
fs = [np.sin, np.add.reduce, np.linalg.norm, np.random.default_rng, np.ndarray.sum, np.arange(3).sum, np.mean, np.float64, np.r_, np.c_, np.newaxis, np.nan, np.inf, np.pi, np.dtype('i4'), np.lib.stride_tricks.as_strided, np.add.at]
a = np.arange(4); bound = a.cumsum; it = a.item; fill = a.fill
""",
    "a[0] = 10; print(bound(), it(0), fs[5](), fs[0](0.), fs[1]([1, 2]), fs[4](a))",
    "fill(3); print(a, bound.__self__ is a)",
    "print(a, fs[8][1:3], fs[9][[1], [2]], fs[11] is np.nan, fs[7] is np.float64, fs[14])",
    "x = np.zeros(2); fs[16](x, [0, 0], 1); print(x, fs[10] is None)",
    needs=("numpy",),
)
sequence(
    "nan in containers",
    """
import numpy as np, math
n = np.nan; l = [n, 1, math.nan]; d = {np.nan: 'x'}; s = {n}
""",
    "print(n in l, np.nan in l, np.nan in d, n in s, l.index(n), math.nan in l)",
    "print(d[np.nan], l.count(np.nan), n is np.nan)",
    "d[np.nan] = 'y'; s.add(np.nan); print(len(d), len(s), np.nan is l[0], math.nan is l[2])",
    needs=("numpy",),
)
sequence(
    "nditer is lost by name",
    """
import numpy as np
a = np.arange(4); it = np.nditer(a, op_flags=['readwrite']); b = [a]
""",
    "print(a.sum(), b[0] is a)",
    "a += 1; print(a)",
    "print(a, b[0] is a)",
    needs=("numpy",),
    pinned="nditer",
)
sequence(
    "arrays in classes and closures",
    """
import numpy as np
class Grid:
    SIZE = np.array([2, 2])
    def __init__(s): s.data = np.zeros(Grid.SIZE); s.rows = [s.data[i] for i in range(2)]; s.T = s.data.T
    def set(s, i, j, v): s.rows[i][j] = v
g = Grid()
def counter():
    c = np.zeros(1, int)
    def tick(): c[0] += 1; return int(c[0])
    return tick, c
tick, c = counter()
""",
    "g.set(0, 1, 5); tick(); Grid.SIZE[0] = 3",
    "print(g.data, g.T[1], tick(), c, Grid().data.shape)",
    "g.data[1] = 7; c[0] = 40",
    "print(g.rows, tick(), g.T, g.rows[1].base is g.data)",
    "h = Grid(); h.set(2 - 1, 0, 1); print(h.data.tolist(), g.rows[0].base is g.data)",
    needs=("numpy",),
)
sequence(
    "array interface objects",
    """
import numpy as np
class Buf:
    def __init__(s): s.a = np.arange(4.)
    @property
    def __array_interface__(s): return s.a.__array_interface__
    def __array__(s, dtype=None, copy=None): return s.a
b = Buf(); v = np.asarray(b); w = b.a[1:]
class Own:
    def __init__(s): s.mem = bytearray(32); s.__array_interface__ = {'shape': (4,), 'typestr': '<f8', 'data': (np.frombuffer(s.mem).__array_interface__['data'][0], False), 'version': 3}
""",
    "v[1] = 9",
    "print(b.a, w, v is b.a)",
    "w[0] = 3; print(v)",
    needs=("numpy",),
)
sequence(
    "save and load objects",
    """
import numpy as np, io
a = np.arange(3); bio = io.BytesIO(); np.savez(bio, a=a, b=np.array([{'k': a}], object)); bio.seek(0); z = np.load(bio, allow_pickle=True)
""",
    "print(z.files, z['a'])",
    "print(z['b'][0]['k'])",
    needs=("numpy",),
)
sequence(
    "subclass with slots",
    "import numpy as np\nclass S(np.ndarray):\n    __slots__ = 'unit', 'log'\n    def __array_finalize__(s, o): s.unit = getattr(o, 'unit', None)\na = np.arange(6.).view(S); a.unit = 'm'; a.log = [1]; v = a[1:4]; base = np.asarray(a)\nclass T(np.ndarray):\n    __slots__ = 'k', '__dict__'\nt = np.ones((2, 2)).view(T); t.k = a; t.extra = a.log; w = t.T",
    "v[0] = 99; a.log.append(2)",
    "base[5] = -1; v.unit = 'km'",
    "w[0, 1] = 7; t.extra.append(3)",
    "print(a, v, base, a.unit, v.unit, a.log, t.k is a, t.extra is a.log, t, np.shares_memory(a, v), type(v).__name__, v.base is a or v.base is not None)",
    needs="numpy",
)
sequence(
    "arrays over the memory of ctypes",
    "import ctypes, numpy as np\nc = (ctypes.c_int * 4)(1, 2, 3, 4); v = np.ctypeslib.as_array(c); f = np.frombuffer(c, dtype='i4'); s = v[1:3]; m = memoryview(c); d = (ctypes.c_double * 2 * 2)(); g = np.ctypeslib.as_array(d)",
    "v[0] = 42; d[1][0] = 7.5",
    "c[1] = 99; s[1] = -1",
    "g[0, 1] = 2; m2 = m[1:]",
    "print(list(c), v, f, s, m.tolist(), m2.tolist(), m.format, g, d[0][1], np.shares_memory(v, f))",
    needs="numpy",
)
sequence(
    "an archive of arrays that stays open",
    "import numpy as np\nnp.savez('d.npz', a=np.arange(4), b=np.eye(2)); d = np.load('d.npz'); held = {'d': d}; bag = d.f; done = np.load('d.npz'); done.close()",
    "x = d['a']",
    "x[0] = 9; print(held['d'].f.b[0], 'b' in d)",
    "print(d.files, d['a'], x, bag.a, held['d'] is d, bag is d.f, len(d), sorted(d.keys()), d.zip.fp is d.fid, done.zip, done.f)",
    needs="numpy",
)
sequence(
    "functions that numpy calls for printing and on errors",
    "import numpy as np\ndigits = 1; calls = []; table = {'float': lambda x: f'{x:.{digits}f}m'}\nnp.set_printoptions(formatter=table); np.seterrcall(lambda kind, flag: calls.append(kind)); np.seterr(invalid='call')",
    "print(np.array([1.25])); digits = 3; x = np.sqrt(np.array([-1.]))",
    "print(np.array([1.25]), calls, np.get_printoptions()['formatter'] is table); table['int'] = lambda x: f'#{x}'",
    "print(np.array([1.25]), np.array([2])); np.set_printoptions(formatter=None); np.seterrcall(None)",
    "print(np.array([1.25, 2]), calls, np.geterrcall(), np.get_printoptions()['formatter'])",
    needs="numpy",
)
sequence(
    "arrays gone through together",
    """
import numpy as np
a = np.arange(6).reshape(2,3)
it = iter(a)
fl = a.flat
next(fl)
nd = np.ndenumerate(a)
next(nd)
b = np.broadcast(a, np.array([[1],[2]]))
ix = np.ndindex(2,2); next(ix)
""",
    """
print(next(it), next(fl), next(nd), next(ix), fl.index)
a[1,1] = 50
""",
    """
print(fl.base is a, fl[4], a.sum())
""",
    needs=("numpy",),
)
sequence(
    "functions by which numpy prints and that it calls",
    """
import numpy as np
np.set_string_function(lambda a: "X") if hasattr(np, "set_string_function") else np.set_printoptions(override_repr=lambda a: f"<{a.size}>")
calls = []
class Log:
    def write(self, m): calls.append(m.strip())
np.seterrcall(Log()); np.seterr(divide="log")
""",
    """
np.array([1.])/0
print(repr(np.arange(5)), calls)
""",
    """
np.set_printoptions(override_repr=None); print(repr(np.arange(2)), len(calls))
""",
    needs=("numpy",),
)
sequence(
    "plain views of fields of a record array and of a matrix",
    """
import numpy as np
z = np.zeros(3, [('x', 'i4'), ('y', 'f8', (2,))]); r = z.view(np.recarray); y = r.y; m = np.asmatrix(q := np.arange(6.).reshape(2, 3)); row = np.asarray(m)[0]; mm = np.matrix([[1, 2], [3, 4]]); p = np.asarray(mm)[:, 0]; rr = np.rec.array([(1, 2.5), (3, 4.5)], names='a,b'); f = rr.b; ra = np.asarray(rr)['a']
""",
    "y[0] = 3; row[1] = 50; p[1] = 9; f[0] = 7; ra[1] = 8; print(z['y'].tolist(), r.y.base is not None, q, mm, rr)",
    "r.x[1] = 4; m[0, 0] = -1; rr.a[0] = 77; print(z, y.tolist(), np.shares_memory(y, z), row, p, f, ra)",
    "print(type(rr[0]).__name__, np.shares_memory(ra, rr), np.shares_memory(row, q))",
    needs=("numpy",),
)
sequence(
    "arrays over what has an array interface stay in the memory that it tells of",
    """
import numpy as np, array
class Told:
    def __init__(self, values): self.values = values
    @property
    def __array_interface__(self): return self.values.__array_interface__
raw = bytearray(32); n = np.frombuffer(raw); w = np.asarray(Told(n))
typed = array.array('d', [1, 2, 3]); t = np.asarray(Told(np.asarray(typed)))[1:]; own = np.zeros(4); o = np.asarray(Told(own))
""",
    "w[3] = 3; t[1] = 9; o[2] = 4",
    "n[0] = 1; print(n, w, typed, t, own, o)",
    "print(np.shares_memory(n, w), np.shares_memory(own, o)); typed[1] = 8; raw[:8] = bytes(8)",
    "print(n, w, typed, t, own, o)",
)
