"""pandas: what shares what under copy on write, dtypes, indexes, objects that hold frames, options."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "copy on write",
    """
import pandas as pd, numpy as np
df = pd.DataFrame({'a': [1, 2, 3], 'b': [4., 5., 6.], 'c': list('xyz')}); same = df; sub = df[['a', 'b']]; s = df['a']; head = df.head(2); t = df.T; cp = df.copy(); rn = df.rename(columns={'a': 'A'})
""",
    "df.loc[0, 'a'] = 100; s.iloc[1] = -1",
    "print(same is df, df.a.tolist(), sub.a.tolist(), s.tolist(), head.a.tolist(), rn.A.tolist())",
    "head.iloc[0, 1] = 0.5; rn.loc[2, 'A'] = 7",
    "print(df.b.tolist(), head.b.tolist(), rn.A.tolist(), df.a.tolist(), t.iloc[0].tolist())",
    "same['n'] = same.a * 2; del df",
    "print(same.columns.tolist(), cp.shape, np.shares_memory(sub['b'].to_numpy(), same['b'].to_numpy()))",
    "same.b += 1; print(sub.b.tolist(), same.b.tolist(), cp.b.tolist())",
    "print(sub.b.tolist(), same.b.tolist(), cp.b.tolist(), head.shape)",
    needs=("pandas",),
)
sequence(
    "sharing is kept under copy on write",
    """
import pandas as pd, numpy as np
df = pd.DataFrame({'a': np.arange(5), 'b': np.arange(5.)}); s = df['b']; v = df['b'].to_numpy(); w = df.to_numpy(copy=False) if False else None; nw = pd.Series(np.arange(3.)); arr = np.arange(3.); ns = pd.Series(arr, copy=False)
""",
    "print(np.shares_memory(s.to_numpy(), df['b'].to_numpy()), v.flags.writeable, df._is_view if hasattr(df, '_is_view') else None)",
    "s.iloc[0] = 50; print(df.b[0], v[0], np.shares_memory(s.to_numpy(), v))",
    "arr[0] = 9; print(ns.tolist())",
    "ns.iloc[1] = 4; print(arr, ns.tolist(), np.shares_memory(arr, ns.to_numpy()))",
    "df.iloc[1, 1] = 3; print(v, df.b.tolist())",
    needs=("pandas",),
)
sequence(
    "series of a frame",
    """
import pandas as pd
df = pd.DataFrame({'x': range(4), 'g': list('abab')}, index=pd.Index(list('pqrs'), name='id')); row = df.loc['p']; col = df.x; m = df.x > 1; names = df.columns; idx = df.index
""",
    "df.iloc[0, 0] = 9; col.loc['q'] = 5",
    "print(row['x'], col.tolist(), df.x.tolist(), names is df.columns, idx is df.index)",
    "df.index.name = 'key'; print(idx.name, df.index is idx, col.index.name, col.index is idx)",
    "df.columns = ['X', 'G']; print(names.tolist(), df.columns.name)",
    "df.attrs['src'] = {'k': [1]}; d2 = df[['X']]; print(d2.attrs)",
    "df.attrs['src']['k'].append(2); print(d2.attrs, df.attrs)",
    "print(d2.attrs, df.attrs, df.index is idx)",
    needs=("pandas",),
)
sequence(
    "index kinds",
    """
import pandas as pd, numpy as np
mi = pd.MultiIndex.from_tuples([('a', 1), ('a', 2), ('b', 1)], names=['l', 'n']); ci = pd.CategoricalIndex(['x', 'y', 'x'], ordered=True); ri = pd.RangeIndex(2, 10, 3); dti = pd.date_range('2020-01-31', periods=3, freq='ME', tz='Europe/Berlin'); pi = pd.period_range('2020Q1', periods=3, freq='Q'); ii = pd.IntervalIndex.from_breaks([0, 1, 2, 5], closed='left'); ti = pd.timedelta_range('1D', periods=3, freq='12h'); s = pd.Series(range(3), index=mi)
""",
    "s.loc[('a', 2)] = 20",
    "print(s, mi.levels, mi.codes, ri, ii.get_loc(1.5))",
    "print(dti, pi, ti, dti.freq, ti.freqstr, ci)",
    "mi2 = mi.set_levels(['A', 'B'], level=0); s.index = mi2; print(s.loc['A'], mi.is_monotonic_increasing)",
    "print(s.unstack(), pi.to_timestamp(), dti.tz_convert('UTC')[0], ii.closed)",
    "u = s.groupby(level='l'); print(u.sum(), u.ngroups)",
    needs=("pandas",),
)
sequence(
    "categoricals",
    """
import pandas as pd
c = pd.Categorical(['lo', 'hi', None, 'lo'], categories=['lo', 'mid', 'hi'], ordered=True); s = pd.Series(c); d = s.dtype; df = pd.DataFrame({'c': s, 'v': range(4)}); acc = s.cat
""",
    "s.iloc[1] = 'mid'",
    "print(c, s.tolist(), s.max(), df.c.tolist(), acc.codes.tolist())",
    "df['c'] = df.c.cat.add_categories('top'); df.loc[2, 'c'] = 'top'",
    "print(df.groupby('c', observed=False).v.sum(), d == s.dtype, df.c.cat.ordered)",
    "c[0] = 'hi'; print(c, s.tolist())",
    "print(s.cat.rename_categories({'lo': 'LOW'}).tolist(), (s < 'hi').tolist())",
    needs=("pandas",),
)
sequence(
    "strings and arrow types",
    """
import pandas as pd, numpy as np
s = pd.Series(['a', None, 'ccc']); o = pd.Series(['a', None, 3], dtype=object); st = s.astype('string'); ap = pd.Series([1, None, 3], dtype='int64[pyarrow]'); al = pd.Series(['x', 'yy'], dtype='string[pyarrow]'); df = pd.DataFrame({'s': s, 'ap': ap}); I = pd.array([1, None], dtype='Int8'); F = pd.array([.5, None], dtype='Float64'); B = pd.array([True, None], dtype='boolean')
""",
    "s[0] = 'changed'; ap[1] = 50; I[1] = 7",
    "print(s.dtype, s.tolist(), o.tolist(), st.tolist(), ap.tolist(), al.str.upper().tolist())",
    "df.loc[2, 's'] = 'new'; B[1] = False",
    "print(df, df.dtypes.tolist(), I, F, B, ap.sum())",
    "o[2] = o; print(type(o[2]).__name__, o[2] is o, I.dtype, st.dtype, al.dtype.storage)",
    "print(s.str.len().tolist(), s.str.cat(sep='-', na_rep='?'), pd.isna(s[1]), s[1])",
    needs=("pandas",),
)
sequence(
    "sparse, interval, period and zones",
    """
import pandas as pd, numpy as np
sp = pd.Series(pd.arrays.SparseArray([0, 0, 5, 0], fill_value=0)); iv = pd.Series(pd.interval_range(0, 3)); pe = pd.Series(pd.period_range('2020-01', periods=3, freq='M')); tz = pd.Series(pd.date_range('2020-03-28', periods=3, tz='Europe/Paris')); td = pd.Series(pd.to_timedelta([1, 2], 'h')); t = pd.Timestamp('2020-01-01 12:00', tz='America/New_York'); off = pd.offsets.BusinessDay(2); r = pd.tseries.offsets.CustomBusinessDay(holidays=['2020-01-03']); na = [pd.NA, pd.NaT, np.nan, None]
""",
    "tz[0] = pd.Timestamp('1999-01-01', tz='Europe/Paris'); td[1] = pd.Timedelta('3D')",
    "print(sp, sp.sparse.density, iv, pe.dt.year.tolist(), tz, td, t + off, t + r)",
    "print([x is y for x, y in zip(na, [pd.NA, pd.NaT, np.nan, None])], t.tz, t.fold, off.n)",
    "print(sp.dtype, iv.array.mid, pe[0] + 1, tz.dt.tz, tz.dt.tz_convert(None)[1], r.holidays)",
    "pe[0] = pd.Period('2021-05', 'M'); print(pe.tolist(), iv[0].closed, pd.Interval(0, 1) in iv.tolist())",
    needs=("pandas",),
)
sequence(
    "grouping objects",
    """
import pandas as pd
df = pd.DataFrame({'k': list('abab'), 'v': [1, 2, 3, 4], 'd': pd.date_range('2020', periods=4, freq='D')}); g = df.groupby('k'); gv = g['v']; r = df.v.rolling(2, min_periods=1); e = df.v.expanding(); w = df.v.ewm(alpha=.5); rs = df.set_index('d').v.resample('2D'); first = next(iter(g))
""",
    "print(gv.sum().to_dict(), r.sum().tolist(), e.max().tolist(), w.mean().round(3).tolist(), rs.sum().tolist())",
    "df.loc[0, 'v'] = 100",
    "print(gv.sum().to_dict(), r.sum().tolist(), g.obj is df, rs.mean().tolist())",
    "print(first[0], first[1].v.tolist(), [k for k, _ in g])",
    "def f(x): return x.max() - x.min()",
    "print(g.agg({'v': f}).v.tolist(), g.transform('cumsum', ).iloc[:, 0].tolist() if False else gv.cumsum().tolist(), list(g.groups), g.get_group('a').v.tolist())",
    "a = g.agg; print(a(n=('v', 'count')).n.tolist(), g.rolling(2).v.sum().tolist()[1])",
    needs=("pandas",),
)
sequence(
    "styler",
    """
import pandas as pd
df = pd.DataFrame({'a': [1.234, -2]}); st = df.style.format('{:.1f}').map(lambda v: 'color:red' if v < 0 else '').set_caption('C').set_uuid('u')
""",
    "st = st.hide(axis='index'); h = st.to_html()",
    "print('color:red' in st.to_html(), '1.2' in h, st.caption, st.data is df)",
    "st.background_gradient if False else None; df2 = st.data; print(df2 is df, len(st.to_html()) == len(h))",
    needs=("pandas",),
)
sequence(
    "accessors and options",
    """
import pandas as pd
@pd.api.extensions.register_dataframe_accessor('geo')
class Geo:
    def __init__(s, o): s.o = o; s.calls = 0
    def total(s): s.calls += 1; return int(s.o.x.sum()), s.calls
@pd.api.extensions.register_series_accessor('twice')
class Twice:
    def __init__(s, o): s.o = o
    def __call__(s): return (s.o * 2).tolist()
df = pd.DataFrame({'x': [1, 2]}); pd.set_option('display.max_rows', 5, 'display.precision', 2); pd.options.mode.copy_on_write if False else None
""",
    "print(df.geo.total(), df.x.twice())",
    "print(df.geo.total(), pd.get_option('display.max_rows'))",
    "with pd.option_context('display.precision', 1): print(pd.Series([1.23456]))",
    "print(pd.Series([1.23456]), pd.Series([3]).twice()); pd.reset_option('display.precision')",
    "print(pd.Series([1.23456]), df.geo.total(), pd.DataFrame({'x': [5]}).geo.total())",
    "pd.set_option('display.float_format', '{:,.1f}'.format)",
    "print(pd.Series([1234.567]))",
    "print(pd.Series([1234.567])); pd.reset_option('display.float_format'); print(pd.Series([1.5]))",
    "print(pd.Series([1.5]), df.geo.o is df, pd.DataFrame({'x': [5]}).geo.total())",
    needs=("pandas",),
)
sequence(
    "frames in containers",
    """
import pandas as pd
df = pd.DataFrame({'a': [1, 2]}); d = {'df': df, 'rows': [df, df.a]}; alias = d['df']
def add(col, v, t=df): t[col] = v
""",
    "add('b', 3)",
    "print(df.columns.tolist(), d['df'] is df, alias.b.tolist(), d['rows'][0] is df)",
    "alias.drop(columns='a', inplace=True); d['rows'][1].iloc[0] = 9",
    "print(df, d['rows'][1].tolist())",
    "df.insert(0, 'z', [7, 8]); df.loc[5] = [0, 0]; df.sort_index(ascending=False, inplace=True)",
    "print(alias, add.__defaults__[0] is df, len(d['rows'][0]))",
    "df.set_index('z', inplace=True); df.rename(columns={'b': 'B'}, inplace=True); print(d['df'].index.name, alias.columns[0])",
    "print(d['df'] is df, alias is df, df, add.__defaults__[0] is df)",
    needs=("pandas",),
)
sequence(
    "cells of notebook classes",
    """
import pandas as pd
from dataclasses import dataclass
@dataclass
class Pt:
    x: int; tags: list
p = Pt(1, ['t']); df = pd.DataFrame({'p': [p, Pt(2, [])], 'l': [[1], {'k': p}]}); s = df.p; m = {p.x: df}
""",
    "p.x = 10; df.at[0, 'l'].append(2)",
    "print(df, df.p[0] is p, s[0] is p, df.l[1]['k'] is p)",
    "s[1].tags.append('u'); df.at[1, 'p'] = p",
    "print(df.p[1] is p, s.tolist(), df.p.map(lambda q: q.x).tolist())",
    """\
@dataclass
class Pt:
    x: int; y: int = 0
df.loc[2] = [Pt(5), None]
""",
    "print(df.p.tolist(), type(df.p[0]) is Pt, type(df.p[2]) is Pt)",
    needs=("pandas",),
)
sequence(
    "subclass of DataFrame",
    """
import pandas as pd
class SubS(pd.Series):
    @property
    def _constructor(self): return SubS
class Sub(pd.DataFrame):
    _metadata = ['unit', 'log']
    @property
    def _constructor(self): return Sub
    @property
    def _constructor_sliced(self): return SubS
    def bump(self): self.log.append(len(self)); return self
d = Sub({'a': [1, 2, 3]}); d.unit = 'kg'; d.log = []; lg = d.log
""",
    "d.bump(); q = d[d.a > 1]",
    "print(type(q).__name__, q.unit, d.log, lg is d.log, type(d.a).__name__, q.log is d.log)",
    "d.loc[0, 'a'] = 9; q.bump(); d.unit = 'g'",
    "print(d, lg, d.unit, q.unit, type(d[['a']]).__name__, type(d.iloc[0]).__name__)",
    "print(isinstance(d, pd.DataFrame), d.copy().log is d.log, d.a.sum())",
    needs=("pandas",),
)
sequence(
    "readers part-way",
    """
import pandas as pd, tempfile, os
p = os.path.join(tempfile.mkdtemp(), 'a.csv'); pd.DataFrame({'a': range(7)}).to_csv(p, index=False); r = pd.read_csv(p, chunksize=3); c1 = next(r)
other = pd.DataFrame({'z': [1]})
""",
    "print(c1.a.tolist(), other.z.tolist())",
    needs=("pandas",),
)
sequence(
    "iterators of frames",
    """
import pandas as pd
df = pd.DataFrame({'a': [1, 2, 3], 'b': list('xyz')}); it = df.itertuples(); next(it); ic = df.items(); z = zip(df.a, df.b); next(z); r = df.iterrows(); rec = df.to_records(); nt = next(df.itertuples(name='Row'))
""",
    "print(next(z), rec['a'], nt)",
    "print(next(z), nt.a, type(nt).__name__, rec.dtype.names)",
    "rec['a'][0] = 5; print(rec[0], df.a.tolist())",
    needs=("pandas",),
    pinned="generator",
)
sequence(
    "indexers kept as variables",
    """
import pandas as pd
df = pd.DataFrame({'a': [1, 2, 3]}); lo, il, at, ia = df.loc, df.iloc, df.at, df.iat; s = df.a; sl = s.loc; st = s.str if False else None; pl = df.plot; dt = pd.Series(pd.date_range('2020', periods=2)).dt
""",
    "lo[0, 'a'] = 10; at[1, 'a'] = 20",
    "print(df.a.tolist(), il[0].tolist(), ia[1, 0], lo.obj is df, dt.day.tolist())",
    "sl[2] = 7; print(s.tolist(), df.a.tolist())",
    "df['n'] = 1; print(lo[0].tolist(), il[1:, 1].tolist())",
    "m = df.mean; q = df.query; print(m().tolist(), q('a > 5').a.tolist())",
    needs=("pandas",),
)
sequence(
    "in place through another name",
    """
import pandas as pd, numpy as np
df = pd.DataFrame(np.arange(6.).reshape(3, 2), columns=['a', 'b']); x = df; col = df['a']
""",
    "x += 1; col *= 2",
    "print(df, col.tolist())",
    "x.fillna(0, inplace=True); x.replace({3.: 30.}, inplace=True); x.loc[x.a > 4, 'b'] = np.nan",
    "print(df, x is df)",
    "x['b'] = x['b'].fillna(-1).astype(int); x.index = list('pqr'); df.eval('c = a + b', inplace=True)",
    "print(x, x.dtypes.tolist())",
    "df.pop('c'); x.drop('p', inplace=True); print(df.shape, x.index.tolist(), df.loc['q'].tolist())",
    "x.iloc[:, 0] = [1, 2]; x.update(pd.DataFrame({'a': [9]}, index=['q'])); print(df)",
    needs=("pandas",),
)
sequence(
    "read-only and extension arrays",
    """
import pandas as pd, numpy as np
s = pd.Series([1, 2, 3]); v = s.values; ar = s.array; df = pd.DataFrame({'a': [1., 2.]}); n = df.values; ea = pd.array(['a', 'b']); e2 = pd.Series(ea, copy=False)
""",
    "print(v.flags.writeable, n.flags.writeable, type(ar).__name__)",
    "s[0] = 9; print(v, s.tolist(), ar[0])",
    """\
try:
    n[0, 0] = 3
except ValueError as e: print(e)
""",
    "ea[0] = 'Z'; print(e2.tolist(), ea)",
    "v2 = s.to_numpy(copy=True); v2[0] = 0; print(s[0], v2)",
    needs=("pandas",),
)
sequence(
    "many dtypes in one frame",
    """
import pandas as pd, numpy as np
df = pd.DataFrame({'i': pd.array([1, None], 'Int64'), 'f': [1.5, np.nan], 'b': [True, False], 's': ['a', 'b'], 'o': [[1], None], 'c': pd.Categorical(['u', 'v']), 'd': pd.to_datetime(['2020', None]), 'z': pd.date_range('2020', periods=2, tz='UTC'), 't': pd.to_timedelta(['1h', '2h']), 'p': pd.period_range('2020', periods=2, freq='D'), 'x': [1+2j, 0], 'u': np.array([1, 2], 'u1')}); l = df.o[0]
""",
    "l.append(7); df.loc[0, 'i'] = 5; df.loc[1, 'd'] = pd.Timestamp('2021')",
    "print(df.to_string()); print(df.dtypes.astype(str).tolist())",
    "print(df.o[0] is l, df.select_dtypes('number').columns.tolist(), df.memory_usage().sum() > 0)",
    "df2 = df.convert_dtypes(); df.iloc[0, 3] = 'zz'; print(df2.s.tolist(), df.s.tolist())",
    "print(df.isna().sum().sum(), df2.dtypes.astype(str).tolist(), df2.shape)",
    needs=("pandas",),
)
sequence(
    "interval cut and pivot",
    """
import pandas as pd, numpy as np
df = pd.DataFrame({'v': [1, 5, 9, 12], 'k': list('aabb'), 'm': list('xyxy')}); c, bins = pd.cut(df.v, 3, retbins=True); q = pd.qcut(df.v, 2, labels=['lo', 'hi']); pv = df.pivot_table(index='k', columns='m', values='v', aggfunc='sum'); st = pv.stack(); du = pd.get_dummies(df.k); codes, uq = pd.factorize(df.k)
""",
    "pv.loc['a', 'x'] = 100",
    "print(c.cat.categories, bins.round(2), q.tolist(), pv, st.loc['a', 'x'], du.dtypes.tolist())",
    "uq2 = uq; codes[0] = 1; print(codes, uq2, df.groupby(c, observed=True).v.count().tolist())",
    "print(pv.columns.name, pd.merge(df, pv.reset_index(), on='k').shape, pd.concat({'p': df, 'q': df}).loc['q'].shape)",
    needs=("pandas",),
)
sequence(
    "large frame small changes",
    """
import pandas as pd, numpy as np
df = pd.DataFrame(np.zeros((20000, 4)), columns=list('abcd')); df['t'] = [f'r{i}' for i in range(20000)]; v = df[['a', 'b']]; s = df.t
""",
    "df.iat[7, 0] = 1; df.loc[9, 't'] = 'CH'",
    "print(df.a.sum(), v.a.sum(), s[9], df.t[9])",
    "v.iloc[0, 1] = 3; df = df[df.index < 15000]",
    "print(len(df), len(v), v.b.sum(), df.b.sum())",
    "s.iloc[0] = None; print(s.isna().sum(), df.t.isna().sum())",
    needs=("pandas",),
)
sequence(
    "timestamps, offsets and calendars",
    """
import pandas as pd, datetime as dt, zoneinfo
z = zoneinfo.ZoneInfo('Asia/Tokyo'); a = pd.Timestamp('2020-01-01', tz=z); b = pd.Timestamp('2020-01-01', unit='s') if False else pd.Timestamp(1e9, unit='s'); h = pd.tseries.holiday.USFederalHolidayCalendar() if hasattr(pd.tseries, 'holiday') else None; d = pd.DateOffset(months=1); td = pd.Timedelta('1D 2h'); p = pd.Period('2020-02', 'M'); s = pd.Series(range(3), index=pd.date_range('2020', periods=3, tz=z))
""",
    "print(a + d, b.unit, td.components, p.end_time)",
    "s.index = s.index.tz_convert('UTC'); print(s)",
    "print(a.tz is z, type(a.tzinfo).__name__, s.index.freq, s.shift(1, freq='D').index[0], p.freqstr)",
    needs=("pandas",),
)
sequence(
    "attributes that a notebook gave to frames, and classes of frames with their own",
    """
import pandas as pd
class MyS(pd.Series):
    _metadata = ['unit']
    @property
    def _constructor(self): return MyS
class MyDF(pd.DataFrame):
    _metadata = ['owner']
    @property
    def _constructor(self): return MyDF
    @property
    def _constructor_sliced(self): return MyS
df = pd.DataFrame({'a': [1, 2]}); df.name = 'train'; d = MyDF({'a': [1, 2]}); d.owner = ['me']; s = d['a']; s.unit = 'kg'; s.note = df
""",
    "df.name += '!'; d['b'] = s * 2; d.owner.append('you')",
    "d.flags.allows_duplicate_labels = False",
    "print(df.name, list(vars(df)), s.note is df, (s * 3).unit, d.head(1).owner is d.owner, d.values.tolist(), d.flags.allows_duplicate_labels, type(d.b).__name__, s.name)",
    needs=("pandas",),
)
sequence(
    "levels of an index that variables hold",
    """
import pandas as pd
mi = pd.MultiIndex.from_product([["a","b"],[1,2,3]], names=["k","n"])
df = pd.DataFrame({"v": range(6)}, index=mi)
lv = mi.levels[0]; levels = mi.levels
ii = pd.interval_range(0, 3); left = ii.left
cols = pd.MultiIndex.from_tuples([("x","p"),("x","q")]); keep = {"lv": cols.levels[1]}
wide = pd.DataFrame([[1,2]], columns=cols)
plain = pd.MultiIndex.from_arrays([[1,2],[3,4]])
""",
    """
print(lv is mi.levels[0], levels is mi.levels, left is ii.left, keep["lv"] is cols.levels[1], wide.columns is cols, keep["lv"] is wide.columns.levels[1])
try: lv.name = "x"
except RuntimeError as e: print(e)
print(plain.levels)
""",
    """
mi.names = ["K", "n"]
print(lv is mi.levels[0], lv.name, mi.levels[0].name, df.index.names, levels[0] is lv, mi.levels[1].tolist())
lv = mi.levels[0]
""",
    "print(lv.name, lv is mi.levels[0], levels is mi.levels, left is ii.left)",
    needs=("pandas",),
)
