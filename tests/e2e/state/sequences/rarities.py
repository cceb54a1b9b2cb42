"""Seldom objects of numpy, pandas, torch, scikit-learn, matplotlib, xarray, and mixtures of them."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "numpy rarities",
    """
import numpy as np
cal = np.busdaycalendar(holidays=['2020-01-01']); mat = np.matrix([[1, 2], [3, 4]]); mv = mat[0]; rec = np.rec.array([(1, 'a')], names='n,s'); rv = rec.n; ab = np.lib.NumpyVersion('1.2.3'); bm = np.bmat([[mat, mat]]); mg = np.ma.MaskedArray([[1, 2], [3, 4]], mask=[[0, 1], [0, 0]]); col = mg[:, 1]; tr = mg.T; dt = np.dtype({'names': ['a', 'b'], 'formats': ['i4', 'f8'], 'offsets': [0, 16], 'itemsize': 32}); sa = np.zeros(2, dt); av = sa['b']
""",
    "mv[0, 0] = 9; rv[0] = 5; tr[1, 1] = 40; av[1] = 2.5; col[0] = 7",
    "print(mat, rec, mg, col, tr.mask, sa, sa.dtype.itemsize, np.is_busday('2020-01-01', busdaycal=cal))",
    "mg.mask[1, 0] = True; print(mg, tr, bm.shape, type(mv).__name__, col.mask)",
    "print(av.base is sa, rv, mat * mat, ab)",
    needs=("numpy",),
)
sequence(
    "numpy in dataclass graph",
    """
import numpy as np
from dataclasses import dataclass, field
@dataclass
class Node:
    a: np.ndarray
    kids: list = field(default_factory=list)
base = np.arange(12.).reshape(3, 4); root = Node(base); root.kids = [Node(base[i]) for i in range(3)]; flat = base.ravel(); memo = {id(k): k for k in root.kids}; tot = lambda: sum(k.a.sum() for k in root.kids)
""",
    "root.kids[1].a[:] = 0; print(tot())",
    "flat[0] = 100; print(root.kids[0].a, tot(), base.sum())",
    "base *= 2; print(root.kids[2].a, flat[:2], np.shares_memory(root.a, root.kids[2].a))",
    "print(root.a is base, tot(), all(k.a.base is base for k in root.kids))",
    needs=("numpy",),
)
sequence(
    "pandas rarities",
    """
import pandas as pd, numpy as np
df = pd.DataFrame({'t': pd.date_range('2020', periods=6, freq='h'), 'v': range(6)}).set_flags(allows_duplicate_labels=False); gr = pd.Grouper(key='t', freq='2h'); na = pd.NamedAgg('v', 'sum'); ix = pd.api.indexers.FixedForwardWindowIndexer(window_size=2); r = df.v.rolling(ix); sl = pd.IndexSlice; o = pd.tseries.frequencies.to_offset('3D'); w = pd.io.common.StringIO() if hasattr(pd.io.common,'StringIO') else None; g = df.groupby(gr); s = pd.Series({'a': 1, 'b': [2]}); lst = s['b']; ns = pd.Series([pd.Series([1, 2])]); cat = pd.CategoricalDtype(['x', 'y'], ordered=True); e = pd.Series([], dtype='datetime64[ns]'); m = pd.DataFrame(np.ones((2, 2)), columns=pd.MultiIndex.from_tuples([('a', 1), ('a', 2)])); v = m['a']
""",
    "lst.append(3); m.loc[0, ('a', 1)] = 5; df.loc[0, 'v'] = 10",
    "print(g.v.sum().tolist(), r.sum().tolist(), df.flags.allows_duplicate_labels, s['b'], na, o, v.iloc[0, 0], m.iloc[0].tolist())",
    "print(ns[0].tolist(), cat.ordered, e.dtype, m.loc[:, sl[:, 2]].shape, g.agg(x=na).x.tolist())",
    "df2 = df.T; df.iloc[0, 1] = -1; print(df2.iloc[1, 0], df.v[0], df2.dtypes.unique())",
    "print(df2.iloc[0, 1], df.v[0], s['b'] is lst, df.flags.allows_duplicate_labels)",
    needs=("pandas",),
)
sequence(
    "pandas chained views",
    """
import pandas as pd, numpy as np
a = np.arange(6.).reshape(3, 2); df = pd.DataFrame(a, copy=False); s0 = df[0]; r = df.iloc[1]; d2 = df.set_axis(['x', 'y'], axis=1); d3 = d2.reset_index(drop=True); d4 = df.loc[:, :]; ser = [df[c] for c in df]
""",
    "df.iloc[0, 0] = 100",
    "print(a[0, 0], s0[0], d2.x[0], d3.x[0], d4.iloc[0, 0], r.tolist(), ser[0][0])",
    "d3.loc[1, 'y'] = -5; s0.iloc[2] = 77",
    "print(a, df.values, d3.y.tolist(), d2.y.tolist(), s0.tolist(), ser[0].tolist())",
    "a[2, 1] = 9; print(df.iloc[2, 1], d2.iloc[2, 1], d4.iloc[2, 1])",
    needs=("pandas",),
)
sequence(
    "torch rarities",
    """
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import IterableDataset, Sampler
ps = pack_padded_sequence(torch.ones(2, 3, 1), [3, 2], batch_first=True); fi = torch.finfo(torch.float16); sz = torch.Size([2, 3]); an = torch.autograd.set_detect_anomaly(False); nt = torch.nn.Parameter(torch.arange(3.), requires_grad=False); t0 = torch.tensor(3.); pin = torch.empty(2, 2).fill_(1).T; ch = torch.arange(6).reshape(2, 3).chunk(3, dim=1); un = torch.stack([torch.ones(2)]).unbind(); sp = torch.arange(4.).split(2)
class It(IterableDataset):
    def __init__(s): s.n = 0
    def __iter__(s):
        for i in range(2): s.n += 1; yield i
it = It()
class Sm(Sampler):
    def __init__(s, d): s.d = d
    def __iter__(s): return iter(reversed(range(len(s.d))))
    def __len__(s): return len(s.d)
sm = Sm([1, 2, 3])
""",
    "print(list(torch.utils.data.DataLoader(it)), it.n); sp[0][0] = 50; ch[1][0, 0] = -1",
    "print(ps.data.shape, ps.batch_sizes, fi.max, sz.numel(), nt, t0.item(), pin.is_contiguous(), sp[0]._base is sp[1]._base, ch[0]._base)",
    "print(list(sm), it.n, list(torch.utils.data.DataLoader([5, 6, 7], sampler=sm)), un[0]._base is None)",
    "sp[0]._base[3] = 9; print(sp[1], it.n)",
    needs=("torch",),
)
sequence(
    "gradient accumulation over cells",
    """
import torch
torch.manual_seed(0); m = torch.nn.Linear(3, 1); x = torch.randn(4, 3); o = torch.optim.SGD(m.parameters(), lr=.1); clip = torch.nn.utils.clip_grad_norm_
""",
    "m(x).sum().backward(); print(m.weight.grad)",
    "m(x).mean().backward(); g = m.weight.grad; print(g)",
    "n = clip(m.parameters(), 1.); print(n, g is m.weight.grad)",
    "o.step(); o.zero_grad(set_to_none=False); print(m.weight, g)",
    "m(x).sum().backward(); print(g, m.bias.grad)",
    "o.zero_grad(); print(m.weight.grad, g, o.state_dict()['param_groups'][0]['lr'])",
    needs=("torch",),
)
sequence(
    "ema and freezing",
    """
import torch, copy
torch.manual_seed(0); m = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.BatchNorm1d(2), torch.nn.Flatten(), torch.nn.Linear(4, 1)); ema = copy.deepcopy(m); [p.requires_grad_(False) for p in ema.parameters()]; x = torch.randn(2, 1, 4)
opt = torch.optim.Adam(m.parameters(), lr=.05); crit = torch.nn.MSELoss(); hist = []
def train():
    m.train(); opt.zero_grad(); l = crit(m(x), torch.ones(2, 1)); l.backward(); opt.step(); hist.append(round(l.item(), 5))
    with torch.no_grad():
        for a, b in zip(ema.parameters(), m.parameters()): a.lerp_(b, .5)
""",
    "train(); print(hist)",
    "train(); print(hist, m[1].running_mean)",
    "for p in m[0].parameters(): p.requires_grad = False",
    "train(); print(hist, ema[3].weight, [p.requires_grad for p in m.parameters()])",
    "ema.load_state_dict(m.state_dict()); m.eval(); print(torch.equal(ema[3].weight, m[3].weight), ema[3].weight is m[3].weight, m(x).detach())",
    needs=("torch",),
)
sequence(
    "torch to pandas and back",
    """
import torch, numpy as np, pandas as pd
df = pd.DataFrame(np.zeros((3, 2)), columns=['a', 'b']); t = torch.from_numpy(df.to_numpy().copy()); v = t[:, 0]; res = {'t': t, 'rows': list(t)}; l = t.tolist()
""",
    "v.fill_(2); df['a'] = t[:, 0].numpy()",
    "print(df, res['rows'][1], l)",
    "t += 1; print(df.a.tolist(), v)",
    "df.loc[0, 'a'] = 99; print(t[0, 0].item(), df.a.tolist(), res['rows'][0])",
    "print(res['t'] is t, v._base is t, df.dtypes.tolist())",
    needs=("torch", "pandas"),
)
sequence(
    "sklearn partial models",
    """
import numpy as np, warnings; warnings.simplefilter('ignore')
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC
from sklearn.mixture import GaussianMixture
from sklearn.ensemble import IsolationForest, VotingClassifier
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import LabelEncoder, KBinsDiscretizer
import sklearn
rng = np.random.default_rng(0); X = rng.normal(size=(30, 3)); y = (X[:, 0] > 0).astype(int); sklearn.set_config(assume_finite=True, transform_output='default')
mlp = MLPClassifier((4,), random_state=0); mlp = mlp.partial_fit(X, y, classes=[0, 1]); sv = SVC(probability=False).fit(X, y); gm = GaussianMixture(2, warm_start=True, random_state=0, max_iter=1).fit(X); nb = GaussianNB().partial_fit(X[:15], y[:15], classes=[0, 1]); le = LabelEncoder().fit(['b', 'a'])
""",
    "mlp = mlp.partial_fit(X, y); print(mlp.coefs_[0].round(4), mlp.t_)",
    "mlp = mlp.partial_fit(X, y); gm = gm.fit(X); nb = nb.partial_fit(X[15:], y[15:]); print(mlp.loss_curve_[-1].round(5), gm.means_.round(3))",
    "print(sv.decision_function(X[:3]).round(4), sv.support_[:4], nb.theta_.round(3), le.transform(['a']), sklearn.get_config()['assume_finite'])",
    "tf = TfidfVectorizer().fit(['a bb', 'bb cc dd']); iso = IsolationForest(n_estimators=5, random_state=0).fit(X); print(iso.score_samples(X[:2]).round(4))",
    "print(tf.idf_.round(3), tf.transform(['bb cc']).toarray().round(3), iso.predict(X[:4]), mlp.predict(X[:4]))",
    needs=("sklearn",),
)
sequence(
    "figures of all sorts",
    """
import matplotlib.pyplot as plt, numpy as np, io
from matplotlib.widgets import Slider
fig, d = plt.subplot_mosaic('AB;CC', layout='constrained'); a = d['A']; tw = a.twinx(); h = a.hist([1, 2, 2, 3]); q = d['B'].contourf(np.eye(4)); ins = d['C'].inset_axes([.5, .5, .4, .4]); pol = plt.figure().add_subplot(projection='polar'); sub = plt.figure().subfigures(1, 2)
""",
    "tw.plot([1, 2], label='t'); tw.legend(); ins.plot([3]); fig.suptitle('S'); a.axhline(2); a.set_xscale('log')",
    "print(len(a.patches), tw.get_legend() is not None, fig._suptitle.get_text(), ins in d['C'].child_axes, d['A'] is a, plt.get_fignums(), a.get_xscale())",
    "fig.canvas.draw(); b = io.BytesIO(); fig.savefig(b, format='png', metadata={'Software': None}); print(len(b.getvalue()) > 1000, tw.get_shared_x_axes().joined(a, tw))",
    "b2 = io.BytesIO(); fig.savefig(b2, format='png', metadata={'Software': None}); print(b.getvalue() == b2.getvalue(), type(fig.get_layout_engine()).__name__)",
    "sub[0].suptitle('L'); pol.plot([0, 1], [0, 1]); print(pol.name, len(pol.lines), sub[0]._suptitle.get_text(), sub[0].figure.number)",
    "plt.close(pol.figure); ax = sub[1].subplots(); ax.bar(['x', 'y'], [1, 2]); print([t.get_text() for t in ax.get_xticklabels()], plt.get_fignums())",
    "print(ax.containers[0].patches[1].get_height(), ax.xaxis.units is not None, plt.gcf().number, len(plt.gcf().subfigs))",
    needs=("matplotlib",),
)
sequence(
    "widgets of figures",
    """
import matplotlib.pyplot as plt
from matplotlib.widgets import Slider, Button
fig, ax = plt.subplots(); vals = []; s = Slider(ax, 's', 0, 10, valinit=2); s.on_changed(vals.append); b = Button(fig.add_axes([0, 0, .1, .1]), 'ok')
""",
    "s.set_val(4); print(vals, s.val)",
    "s.set_val(5); print(vals, s.val)",
    "s.reset(); print(vals, s.ax is ax, b.label.get_text())",
    "print(s.val, vals)",
    needs=("matplotlib",),
)
sequence(
    "figure to array",
    """
import matplotlib.pyplot as plt, numpy as np
fig = plt.figure(figsize=(1, 1), dpi=20); ax = fig.add_axes([0, 0, 1, 1]); ax.imshow([[0, 1], [2, 3]]); fig.canvas.draw(); im = np.array(fig.canvas.buffer_rgba())
""",
    "print(im.shape, im.sum(), type(fig.canvas).__name__)",
    "fig.canvas.draw(); im2 = np.asarray(fig.canvas.buffer_rgba()); print((im == im2).all(), plt.get_fignums())",
    "ax.images[0].set_data([[3, 2], [1, 0]]); fig.canvas.draw(); print((np.asarray(fig.canvas.buffer_rgba()) == im).all())",
    "print(im.flags.writeable, im.sum(), ax.images[0].get_array().tolist())",
    needs=("matplotlib",),
)
sequence(
    "sparse matrices and linear operators",
    """
import numpy as np, scipy.sparse as sp
A = sp.coo_matrix(([1., 2.], ([0, 1], [1, 0])), shape=(2, 2)); B = A.tocsr(); d = B.data; C = B.copy(); r = B[0]; L = [A, B]; D = sp.diags([1, 2]); blk = sp.block_diag([A, B]); v = B.indices
""",
    "d[:] = 5; A.data[0] = 9",
    "print(A.toarray(), B.toarray(), C.toarray(), r.toarray(), L[1] is B, D.toarray(), blk.toarray()[2])",
    "B[0, 0] = 3; print(B.nnz, d, B.data)",
    "B.eliminate_zeros(); B.sort_indices(); print(B.has_sorted_indices, v, (B @ np.ones(2)), B.format)",
    needs=("scipy",),
)
sequence(
    "arrays with labels",
    """
import xarray as xr, numpy as np, pandas as pd
ds = xr.Dataset({'t': (('time', 'x'), np.arange(6.).reshape(3, 2))}, coords={'time': pd.date_range('2020', periods=3)}); t = ds.t; v = t.variable; st = ds.t.isel(time=0); acc = ds.t.dt if False else None; enc = ds.t.encoding; enc['dtype'] = 'f4'; g = ds.resample(time='2D')
""",
    "ds['t'][0, 0] = 99; ds.t.attrs['u'] = 'K'",
    "print(t.values[0, 0], v.values[0, 0], st.values, ds.t.attrs, ds.t.encoding, g.mean().t.values)",
    "ds = ds.assign(z=lambda d: d.t * 2).rename(x='y'); print(list(ds.dims), ds.z.values[0], t.dims)",
    "t += 1; print(t.values, st.values, ds.indexes['time'][0])",
    "print(t.values, st.values, t.attrs, v is t.variable)",
    needs=("xarray",),
)
sequence(
    "closures over frames",
    """
import pandas as pd, functools
df = pd.DataFrame({'a': [1, 2]})
def make(d):
    def add(n): d.loc[len(d)] = [n]; return len(d)
    def total(): return int(d.a.sum())
    return add, total
add, total = make(df); p = functools.partial(add, 10); hist = []
@functools.lru_cache(None)
def stat(k): hist.append(k); return getattr(df.a, k)()
""",
    "print(add(5), total(), df.a.tolist())",
    "print(p(), total(), stat('sum'))",
    "df.loc[0, 'a'] = 100; print(total(), stat('sum'), stat('max'), hist)",
    "print(stat.cache_info(), len(df), total(), hist)",
    needs=("pandas",),
)
sequence(
    "an array over shared memory is bound with it",
    """
from multiprocessing import shared_memory
import numpy as np
sm = shared_memory.SharedMemory(create=True, size=64); a = np.ndarray((8,), 'i8', buffer=sm.buf); a[:] = range(8); near = [a]
""",
    "a[0] = 77; near.append(sm.size)",
    "print(sm.buf[0], a[:3], near[0] is a, np.frombuffer(sm.buf, 'i8')[0])",
    "sm.buf[8] = 9",
    "print(a[1], near[0][0])",
    needs=("numpy",),
    pinned="Shared memory belongs to the host",
)
