"""Objects of data libraries that hold others part-way: groupings, windows, stylers, iterators, graphs, hooks, lazy plans."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "structured, record and object arrays that look at each other",
    """
import numpy as np
st = np.zeros(3, dtype=[('id', 'i4'), ('pos', 'f8', (2,)), ('tag', 'U4'), ('o', 'O')]); pos = st['pos']; one = st[1]; rec = st.view(np.recarray) if False else np.rec.fromrecords([(1, 2.0), (3, 4.0)], names='a,b'); col = rec.b; multi = rec[['a', 'b']]; shared = [1]; st['o'] = [shared, st['id'], None]; ob = np.empty((2, 2), object); ob[0, 0] = ob; ob[1, :] = [shared, {'k': ob[0]}]; row = ob[0]; mm = np.memmap('mm.bin', dtype='i2', mode='w+', shape=(4, 2)); mv = mm[1:, ::-1]; ma = np.ma.array([1., 2, 3], mask=[0, 1, 0], fill_value=-9); ma.harden_mask(); mview = ma[1:]
""",
    "one['id'] = 5; pos[2] = [7, 8]; col[:] = 9; shared.append(2); mv[0, 0] = 3; ma[1] = 100",
    "print(st['id'], st['pos'].tolist(), st['o'][0] is shared, st['o'][1], rec, multi['b'], ob[0, 0] is ob, row[0] is ob, mm.tolist(), ma, ma.hardmask, ma.fill_value)",
    "st['tag'][0] = 'abcdefg'; row[1] = row; mm.flush(); ma.soften_mask(); mview[0] = 50; one = st[2].copy(); void = st[0]",
    "void['tag'] = 'zz'; print(st, np.fromfile('mm.bin', 'i2').tolist(), ma, mview.sharedmask, ob[0, 1] is row, type(mv).__name__, mm.mode, one['pos'])",
    "print(ob[1, 1]['k'].base is ob, np.shares_memory(pos, st), rec.dtype.names, mv.base is mm, st.dtype, type(rec[0]).__name__)",
    needs="numpy",
)
sequence(
    "ufuncs from python, vectorized functions and error states",
    """
import numpy as np
calls = []
def f(a, b): calls.append((int(a), int(b))); return a * K + b
K = 2; uf = np.frompyfunc(f, 2, 1); vec = np.vectorize(f, otypes=[float], excluded={1}, cache=True); sig = np.vectorize(lambda r: r.sum(), signature='(n)->()'); old = np.seterr(divide='raise', over='warn'); np.seterrcall(lambda kind, flag: calls.append(kind)); pw = np.piecewise; poly = np.polynomial.Chebyshev([1, 2, 3], domain=[0, 4]); p1 = np.poly1d([1, 2]); np.set_printoptions(precision=3, suppress=True)
class Unit(np.ndarray):
    def __new__(cls, a, unit): o = np.asarray(a, float).view(cls); o.unit = unit; return o
    def __array_finalize__(self, o): self.unit = getattr(o, 'unit', None)
    def __array_ufunc__(self, u, m, *ins, **kw): calls.append(u.__name__); r = getattr(u, m)(*[np.asarray(i) for i in ins], **kw); return Unit(r, self.unit)
x = Unit([1, 2], 'kg'); v = x[:1]
""",
    "a = uf([1, 2], [3, 4]); b = vec([1, 2], 1)",
    "print(a, b, calls, uf.nin, sig([[1, 2], [3, 4]]), np.array([1.23456, 1e-9]))",
    "K = 10; np.seterr(divide='call'); x[0] = 5",
    "r = np.array([1.]) / 0; y = x + 1\nprint(r, uf.reduce([1, 2, 3]), vec(1, 1), calls[-3:], v, v.unit, y.unit, poly(2.), p1.r)",
    "old2 = np.seterr(**old); s = np.geterr()",
    "print(s['divide'], type(y).__name__, v.base is x, np.geterrcall() is not None, np.get_printoptions()['precision'], poly.domain, p1 * p1)",
    needs="numpy",
)
sequence(
    "frames: levels, categories, intervals, attrs and flags together",
    """
import pandas as pd, numpy as np
mi = pd.MultiIndex.from_product([['a', 'b'], pd.CategoricalIndex(['x', 'y'], ordered=True)], names=['l1', None]); df = pd.DataFrame({'v': [1, 2, 3, 4], 'iv': pd.IntervalIndex.from_breaks([0, 1, 2, 3, 4], closed='left'), 's': pd.array(['p', None, 'q', 'r'], dtype='string'), 'i': pd.array([1, None, 3, 4], dtype='Int8'), 't': pd.date_range('2020-03-29', periods=4, freq='h', tz='Europe/Rome'), 'sp': pd.arrays.SparseArray([0, 0, 1, 0]), 'o': [[1], {'k': 1}, None, 'z']}, index=mi); df.attrs['meta'] = {'src': ['x']}; lev = mi.levels[1]; cell = df.o.iloc[0]; per = pd.period_range('2020Q1', periods=3, freq='Q-NOV'); cat = pd.Series(['lo', 'hi'], dtype=pd.CategoricalDtype(['lo', 'hi', 'mid'], ordered=True)); df.flags.allows_duplicate_labels = False; sub = df.loc['a']
""",
    "cell.append(2); df.attrs['meta']['src'].append('y'); df.loc[('b', 'x'), 'v'] = 30",
    "print(df.v.tolist(), df.o.iloc[0], df.attrs, sub.attrs, df.iv.iloc[1], df.i.sum(), df.index.names, df.index.is_unique, lev.ordered, sub.v.tolist())",
    "df['c'] = df.v.astype('category').cat.set_categories([1, 2, 30, 99]); cat = cat.cat.remove_unused_categories(); df2 = df.unstack(level=0)",
    "print(df.dtypes.astype(str).tolist(), cat.max(), df2.shape, df2.columns.nlevels, df.t.iloc[2], per[1].end_time.date(), df.flags, df.sp.sparse.density)",
    "df = df.swaplevel().sort_index(); df.index.names = ['m', 'n']; idx = df.index",
    "print(df.index.tolist(), idx is df.index, df.attrs['meta']['src'], df.o.iloc[0] is cell or df.o.tolist()[0] is cell, df.index.levels[0].ordered, df.c.cat.categories.tolist())",
    needs="pandas",
)
sequence(
    "groupings, windows, resamplers and a styler, kept and used later",
    """
import pandas as pd, numpy as np
df = pd.DataFrame({'k': list('abab'), 'x': [1., 2, 3, 4], 't': pd.date_range('2020', periods=4, freq='D')}); g = df.groupby('k', sort=False); gx = g['x']; gk = g.get_group('a'); ro = df.x.rolling(2, min_periods=1); ex = df.x.expanding(); ew = df.x.ewm(alpha=.5); rs = df.set_index('t').resample('2D'); gr = g.rolling(2) if False else None; seen = []
def style(v): seen.append(v); return 'color: red' if v > THRESH else ''
THRESH = 2; sty = df[['x']].style.map(style).format(precision=1).set_table_attributes('class=\"z\"').set_uuid('u'); it = iter(g); pv = df.pivot_table(index='k', values='x', aggfunc=[lambda s: s.max() - s.min(), 'sum'])
""",
    "a = gx.sum().to_dict(); b = ro.mean().tolist(); first = [k for k, _ in g]",
    "df.loc[0, 'x'] = 100; print(a, b, first, ro.sum().tolist(), gx.max().to_dict(), sty.to_html().count('red'))",
    "THRESH = 3; c = rs.x.sum().tolist(); g2 = g.filter(lambda d: d.x.sum() > 5); sty2 = sty.hide(axis='index')",
    "print(c, len(g2), sty.to_html().count('red'), ew.mean().round(3).tolist(), ex.max().tolist(), g.ngroups, g.indices['b'].tolist(), gk.x.tolist(), len(seen) > 3, sty2 is sty)",
    "print(g.apply(lambda d: d.x.iloc[0]).to_dict(), gx.transform('mean').tolist(), sty.data.x.tolist(), pv.values.tolist(), gx.nth(0).tolist())",
    needs=("pandas", "jinja2"),
    pinned=True,
)
sequence(
    "accessors, extension arrays and options of the notebook",
    """
import pandas as pd, numpy as np
from pandas.api.extensions import *
@register_dataframe_accessor('mine')
class Mine:
    made = 0
    def __init__(self, o): Mine.made += 1; self.o = o; self.notes = []
    def total(self): return float(self.o.select_dtypes('number').sum().sum())
@register_extension_dtype
class MoneyType(ExtensionDtype):
    name = 'money'; type = float; na_value = np.nan
    @classmethod
    def construct_array_type(cls): return Money
class Money(ExtensionArray):
    def __init__(self, v): self.v = np.asarray(v, float)
    @classmethod
    def _from_sequence(cls, s, dtype=None, copy=False): return cls([float(x) for x in s])
    @property
    def dtype(self): return MoneyType()
    @property
    def nbytes(self): return self.v.nbytes
    def __getitem__(self, i): return self.v[i] if isinstance(i, (int, np.integer)) else Money(self.v[i])
    def __setitem__(self, i, x): self.v[i] = x
    def __len__(self): return len(self.v)
    def isna(self): return np.isnan(self.v)
    def take(self, i, allow_fill=False, fill_value=None): return Money(self.v.take(i))
    def copy(self): return Money(self.v.copy())
    @classmethod
    def _concat_same_type(cls, xs): return cls(np.concatenate([x.v for x in xs]))
class Frame(pd.DataFrame):
    _metadata = ['owner']
    @property
    def _constructor(self): return Frame
df = pd.DataFrame({'m': Money([1, 2, 3]), 'n': [1, 2, 3]}); acc = df.mine; acc.notes.append('n'); fr = Frame({'a': [1, 2]}); fr.owner = ['me']; pd.set_option('display.max_rows', 7); ctx = pd.option_context('display.width', 44); arr = df.m.array
""",
    "df.loc[1, 'm'] = 20; fr2 = fr[fr.a > 1]",
    "print(df.m.tolist(), df.mine is acc, acc.notes, Mine.made, fr2.owner, type(fr2).__name__, str(df.m.dtype), df.mine.total(), pd.get_option('display.max_rows'))",
    "ctx.__enter__(); w = pd.get_option('display.width'); ctx.__exit__(None, None, None); fr2.owner.append('you')",
    "print(w, fr.owner, pd.get_option('display.width'), pd.Series([1.5], dtype='money').dtype == MoneyType(), pd.concat([df, df]).m.array.v.tolist(), fr.owner is fr2.owner)",
    "pd.reset_option('display.max_rows'); Mine.total = lambda self: 'patched'; r = df.copy().mine.total()",
    "print(r, df.mine.total(), pd.get_option('display.max_rows'), fr.a.tolist(), isinstance(arr, Money), df.iloc[::-1].m.tolist())",
    needs="pandas",
    pinned=True,
)
sequence(
    "estimators and transformers of the notebook in a pipeline",
    """
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, ClassifierMixin, clone
from sklearn.pipeline import Pipeline, FeatureUnion, make_pipeline
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import GridSearchCV, KFold
LOG = []
class Shift(TransformerMixin, BaseEstimator):
    def __init__(self, by=1.0, fn=None): self.by, self.fn = by, fn
    def fit(self, X, y=None): LOG.append(('fit', self.by)); self.seen_ = X.shape; self.n_features_in_ = X.shape[1]; return self
    def transform(self, X): return (self.fn or (lambda a: a))(X + self.by + OFF)
OFF = 0.0; X = np.array([[0., 1], [1, 0], [2, 3], [3, 2], [4, 5], [5, 4]]); y = np.array([0, 0, 0, 1, 1, 1]); sh = Shift(fn=np.negative); pipe = Pipeline([('s', sh), ('u', FeatureUnion([('a', StandardScaler()), ('b', FunctionTransformer(lambda a: a ** 2))])), ('m', LogisticRegression())], memory=None); pipe.fit(X, y); sgd = SGDClassifier(random_state=np.random.RandomState(4), max_iter=5, tol=None); sgd.partial_fit(X, y, [0, 1]); kf = KFold(3, shuffle=True, random_state=np.random.RandomState(1))
""",
    "p1 = pipe.predict_proba(X)[:, 1]; sgd.partial_fit(X, y);",
    "print(p1.round(4), LOG, pipe['s'] is sh, sh.seen_, sgd.t_, sgd.coef_.round(3), [t.tolist() for _, t in kf.split(X)])",
    "OFF = 1.0; gs = GridSearchCV(clone(pipe), {'s__by': [0, 5]}, cv=2).fit(X, y); sgd.partial_fit(X, y);",
    "print(pipe.predict_proba(X)[:, 1].round(4), gs.best_params_, len(LOG), gs.best_estimator_['s'].fn is np.negative, sgd.coef_.round(3), pipe.named_steps.m.coef_.shape)",
    "class Shift(Shift):\n    def transform(self, X): return super().transform(X) * 2\nnew = Shift(2).fit(X); sh.by = 3",
    "print(new.transform(X)[0], sh.transform(X)[0], clone(sh).by, type(pipe['s']) is Shift, isinstance(new, type(sh)), sgd.random_state is not None, repr(pipe['s']))",
    needs=("sklearn", "numpy"),
)
sequence(
    "modules with parametrizations, buffers, hooks by handle and shared weights",
    """
import torch, torch.nn as nn
import torch.nn.utils.parametrize as P
from torch.nn.utils.parametrizations import weight_norm, orthogonal
torch.manual_seed(0); log = []
class Sym(nn.Module):
    def forward(self, W): return (W + W.T) / 2
    def right_inverse(self, W): return W
class Net(nn.Module):
    def __init__(self): super().__init__(); self.a = nn.Linear(3, 3); self.b = nn.Linear(3, 3); self.b.bias = self.a.bias; self.register_buffer('steps', torch.zeros(()), persistent=False); self.extra = [self.a]
    def forward(self, x): self.steps += 1; return self.b(torch.relu(self.a(x)))
net = Net(); P.register_parametrization(net.a, 'weight', Sym()); weight_norm(net.b); h1 = net.register_forward_hook(lambda m, i, o: log.append('fwd')); h2 = net.a.register_full_backward_hook(lambda m, gi, go: log.append('bwd')); h3 = net.a.bias.register_hook(lambda g: log.append('grad') or g * 2); opt = torch.optim.Adam(net.parameters(), lr=.1); x = torch.ones(2, 3); bias = net.a.bias
""",
    "net(x).sum().backward(); opt.step()",
    "print(log, net.steps, net.b.bias is bias is net.a.bias, torch.equal(net.a.weight, net.a.weight.T), bias.grad.round(decimals=3), P.is_parametrized(net.a), net.extra[0] is net.a)",
    "h1.remove(); opt.zero_grad(); net(x).sum().backward(); opt.step()",
    "print(log, net.steps, net.a.bias.detach().round(decimals=3), sorted(net.state_dict())[:3], len(opt.state), opt.param_groups[0]['params'][0] is next(net.parameters()))",
    "P.remove_parametrizations(net.a, 'weight'); h3.remove(); torch.manual_seed(1); net2 = nn.Sequential(net, orthogonal(nn.Linear(3, 2)))",
    "with torch.no_grad(): print(P.is_parametrized(net.a), net2[1](x).round(decimals=3), net2[0] is net, len(log), h1.id != h2.id, len(net.a._backward_hooks), net2[0].steps)",
    needs="torch",
)
sequence(
    "an iterator of a DataLoader part-way",
    """
import torch
from torch.utils.data import DataLoader, TensorDataset
g = torch.Generator().manual_seed(1); dl = DataLoader(TensorDataset(torch.arange(6)), batch_size=2, shuffle=True, generator=g); it = iter(dl); seen = [next(it)[0].tolist()]
""",
    "seen.append('note')",
    "seen.append(next(it)[0].tolist())",
    "print(seen, it._num_yielded)",
    needs="torch",
)
sequence(
    "figures with callbacks, settings, twins and an animation",
    """
import matplotlib.pyplot as plt, matplotlib as mpl, numpy as np
from matplotlib.animation import FuncAnimation
hits = []
def on(ev): hits.append((ev.name, ev.canvas.figure is fig))
fig, (ax, ax2) = plt.subplots(2, 1, sharex=True); ln, = ax.plot([0, 1], [0, 1], label='l'); tw = ax.twinx(); cid = fig.canvas.mpl_connect('draw_event', on); cid2 = fig.canvas.mpl_connect('button_press_event', lambda e: hits.append(e.x)); ax.callbacks.connect('xlim_changed', lambda a: hits.append(('xlim', a is ax))); mpl.rcParams['lines.linewidth'] = 4; mpl.rcParams['axes.prop_cycle'] = plt.cycler(color=['r', 'g']); leg = ax.legend(); ann = ax.annotate('hi', (0, 0)); sec = ax.secondary_xaxis('top', functions=(lambda v: v * 2, lambda v: v / 2)); plt.close(fig)
""",
    "fig.canvas.draw(); ax.set_xlim(0, 5)",
    "print(hits, ln.axes is ax, tw.get_shared_x_axes().joined(tw, ax), ax2.get_xlim() == (0., 5.), leg.get_texts()[0].get_text(), ln.get_linewidth())",
    "fig.canvas.mpl_disconnect(cid); ln.set_data([0, 2], [1, 3]); n2, = ax2.plot([1, 2]); ann.set_text('moved')",
    "fig.canvas.draw(); print(hits, n2.get_linewidth(), n2.get_color(), ln.get_xydata().tolist(), ax.texts[0] is ann, plt.get_fignums())",
    "with mpl.rc_context({'lines.linewidth': 9}): f2 = plt.figure(); l2, = plt.plot([1, 2])\nax2.set_xlim(1, 2); mpl.rcdefaults()",
    "print(l2.get_linewidth(), mpl.rcParams['lines.linewidth'], hits, ax.get_xlim(), plt.gcf() is f2, plt.get_fignums(), sec.get_xlim() is not None)",
    "plt.close('all')",
    needs="matplotlib",
    pinned=True,
)
sequence(
    "lazy frames, tables and plans",
    """
import polars as pl, pyarrow as pa, pyarrow.compute as pc
df = pl.DataFrame({'k': ['a', 'b', 'a'], 'v': [1, 2, 3], 'l': [[1], [2, 3], []], 's': [{'q': 1}, {'q': 2}, None]}); lf = df.lazy().filter(pl.col('v') > 1).with_columns(w=pl.col('v') * 2); gb = df.group_by('k', maintain_order=True); ex = (pl.col('v').sum().over('k') + 1).alias('z'); en = pl.Enum(['a', 'b']); udf = pl.col('v').map_elements(lambda x: x * FACT, return_dtype=pl.Int64); FACT = 10; t = pa.table({'x': [1, 2, None], 'd': pa.array(['u', 'v', 'u']).dictionary_encode()}); sl = t.slice(1); ch = t['x']; sch = pa.schema([('a', pa.int8())], metadata={'m': 'x'}); sc = pa.scalar([1, None]); b = pa.RecordBatch.from_pydict({'i': [1]}); opt = pc.CountOptions(mode='all')
""",
    "r = lf.collect(); lf2 = lf.group_by('k').agg(pl.len())",
    "print(r.rows(), gb.agg(pl.col('v').sum()).rows(), df.select(ex).to_series().to_list(), lf2.collect().sort('k').rows(), sl.num_rows, ch.null_count, sch.metadata)",
    "FACT = 100; df[0, 'v'] = 50; df2 = df.with_columns(pl.col('k').cast(en))",
    "print(df.select(udf).to_series().to_list(), lf.collect()['w'].to_list(), df2.schema['k'], df2['k'].to_list(), pc.count(ch, options=opt), sc.as_py(), sl['d'].chunk(0).dictionary.to_pylist(), df.select('s').rows())",
    "ctx = pl.SQLContext(frame=df) if False else None; t2 = t.append_column('y', ch); pl.Config.set_tbl_rows(3)",
    "print(t2.column('y').equals(ch), t2.schema.names, df.lazy().select(pl.len()).collect().item(), df.sum().rows() if False else df['l'].list.len().to_list(), pl.Config.state(if_set=True).get('POLARS_FMT_MAX_ROWS'))",
    needs=("polars", "pyarrow"),
)
sequence(
    "graphs with views and symbols with assumptions",
    """
import networkx as nx, sympy as sp
G = nx.DiGraph(name='g'); G.add_edge('a', 'b', w=[1]); G.add_node(1, obj=G); V = G.subgraph(['a', 'b']); adj = G.adj; ed = G.edges; R = G.reverse(copy=False); U = G.to_undirected(as_view=True); F = nx.subgraph_view(G, filter_node=lambda n: n != HIDE); HIDE = 1
x = sp.Symbol('x', positive=True); y = sp.Symbol('x'); d = sp.Dummy('d'); f = sp.Function('f'); e = sp.Eq(f(x).diff(x), d + y); w = sp.Wild('w'); M = sp.MutableDenseMatrix([[x, 1], [0, y]]); lam = sp.lambdify(x, sp.sin(x) * 2, 'math'); i, = sp.symbols('i,', integer=True)
class op(sp.Function):
    @classmethod
    def eval(cls, a): return a + SH if a.is_Number else None
SH = 1; o = op(x); o2 = op(sp.Integer(2))
""",
    "G['a']['b']['w'].append(2); G.add_edge('b', 'c'); M[0, 1] = d",
    "print(V.edges(data=True), list(adj), len(ed), list(R.edges), U.has_edge('b', 'a'), list(F), G.nodes[1]['obj'] is G, nx.shortest_path(G, 'a', 'c'))",
    "HIDE = 'a'; SH = 10; k = {x: 'pos', y: 'any', d: 'dummy'}; s2 = M.subs(d, 5)",
    "print(list(F), x == y, k[sp.Symbol('x', positive=True)], x.is_positive, y.is_positive, e.rhs.coeff(d), s2, lam(0), (x * d).match(w * d)[w], M.shape)",
    "G.remove_node('c'); M.row_del(1)",
    "print(sorted(map(str, U)), R.name, M, o2, o.subs(x, 3), type(o).__name__, i.is_integer, sp.sqrt(x**2), d in e.free_symbols, list(V))",
    needs=("networkx", "sympy"),
)
sequence(
    "pictures, sessions and openers with what they remember",
    """
import requests, io, http.cookiejar, urllib.request
from PIL import Image, ImageFilter, ImageDraw
class Auth(requests.auth.AuthBase):
    def __init__(self, u): self.u = u; self.n = 0
    def __call__(self, r): self.n += 1; r.headers['X-U'] = f'{self.u}{self.n}'; return r
s = requests.Session(); s.auth = Auth('me'); s.cookies.set('k', 'v', domain='h', path='/p'); s.hooks['response'].append(lambda r, **k: None); s.verify = False; ad = requests.adapters.HTTPAdapter(max_retries=3); s.mount('http://h/', ad)
jar = http.cookiejar.CookieJar(); op = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar)); resp = requests.Response(); resp.status_code = 404; resp._content = b'{\"a\": 1}'; resp.url = 'http://h/x'
im = Image.new('RGBA', (3, 2), (1, 2, 3, 4)); im.info['dpi'] = (72, 72); crop = im.crop((0, 0, 1, 1)); gif = io.BytesIO(); Image.new('RGB', (2, 2), 'red').save(gif, 'GIF', save_all=True, append_images=[Image.new('RGB', (2, 2), 'blue')]); an = Image.open(gif); flt = ImageFilter.Kernel((3, 3), [0] * 4 + [1] + [0] * 4, 1)
""",
    "p = s.prepare_request(requests.Request('GET', 'http://h/p/q')); im.putpixel((0, 0), (9, 9, 9, 9))",
    "print(p.headers['X-U'], p.headers['Cookie'], s.auth.n, s.get_adapter('http://h/z') is ad, ad.max_retries.total, crop.getpixel((0, 0)), an.n_frames, len(s.hooks['response']))",
    "an.seek(1); s.cookies.clear(domain='h'); im2 = im.filter(flt) if False else im.rotate(90, expand=True)",
    "print(an.tell(), an.getpixel((0, 0)), len(s.cookies), resp.json(), resp.ok, im2.size, im.info, op.handlers[-1].__class__.__name__, [h.cookiejar is jar for h in op.handlers if hasattr(h, 'cookiejar')])",
    "r2 = s.prepare_request(requests.Request('POST', 'http://h/p', json={'b': 2})); im.paste(crop, (1, 1))",
    "print(r2.headers['X-U'], r2.body, s.auth.n, im.getpixel((1, 1)), im.tobytes()[:4], repr(resp), s.verify, list(s.adapters))",
    needs=("requests", "PIL"),
    pinned=True,
)
sequence(
    "frames of dask whose plans are known by name",
    """
import dask.dataframe as dd, pandas as pd, dask; dask.config.set(scheduler='sync'); ran = []
pdf = pd.DataFrame({'a': range(6), 'g': list('xyxyxy')}); d = dd.from_pandas(pdf, npartitions=2); k = 1
def f(v): ran.append(k); return v + k
m = d.a.map(f, meta=('a', 'i8')); e = d[d.a > 1]; same = d._expr
""",
    "print(d.a.sum().compute(), same is d._expr, d.g.compute().tolist()); p = d.persist(); k = 10",
    """
pdf.loc[0, 'a'] = 99; print(d.a.sum().compute(), m.compute().tolist(), len(ran), e.g.compute().tolist(), d.groupby('g').a.sum().compute().to_dict())
d['new'] = d.a * 2
""",
    "d2 = dd.from_pandas(pdf, npartitions=2); print(d2.a.sum().compute(), d.new.sum().compute(), p.a.max().compute(), d.columns.tolist(), same.columns, (d.a + m).compute().tolist())",
    "print(e.a.mean().compute(), d2.npartitions, dd.from_pandas(pdf, npartitions=2)._expr is d2._expr, same is d._expr)",
    needs=(
        "dask",
        "pandas",
    ),
)
