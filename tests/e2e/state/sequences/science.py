"""scikit-learn, scipy and others: fitted models, trees, solvers, graphs, symbols, compiled functions."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "sklearn pipelines",
    """
import numpy as np, warnings; warnings.simplefilter('ignore')
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler, OneHotEncoder, FunctionTransformer
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.base import BaseEstimator, TransformerMixin, clone
rng = np.random.RandomState(0); X = rng.randn(40, 3); y = (X[:, 0] > 0).astype(int)
class Cut(BaseEstimator, TransformerMixin):
    def __init__(self, q=.9): self.q = q
    def fit(self, X, y=None): self.lim_ = np.quantile(X, self.q, axis=0); return self
    def transform(self, X): return np.minimum(X, self.lim_)
pipe = Pipeline([('cut', Cut()), ('ct', ColumnTransformer([('s', StandardScaler(), [0, 1])], remainder='passthrough')), ('f', FunctionTransformer(lambda a: a * 2)), ('m', LogisticRegression())]); sgd = SGDClassifier(random_state=rng)
""",
    "p2 = pipe.fit(X, y); m = pipe.named_steps['m']",
    "print(pipe.score(X, y), pipe['cut'].lim_.round(3), m is pipe[-1], p2 is pipe, [type(t).__name__ for _, t in pipe.steps])",
    "pipe.set_params(cut__q=.5).fit(X, y); sgd = sgd.partial_fit(X[:20], y[:20], classes=[0, 1])",
    "print(pipe['cut'].lim_.round(3), sgd.coef_.round(3), sgd.t_)",
    "sgd.partial_fit(X[20:], y[20:]); c = clone(pipe); print(sgd.coef_.round(3), sgd.random_state is rng, c['cut'].q)",
    "print(rng.rand(), type(c['cut']).__name__, isinstance(pipe[0], Cut))",
    "print(type(c['cut']).__name__, isinstance(pipe[0], Cut), sgd.coef_.round(3), rng.get_state()[2])",
    needs=("sklearn",),
)
sequence(
    "symbols made by one call, and an equal one made on another replica",
    """
import sympy as sp
x, y = sp.symbols('x y', positive=True); t = sp.Dummy('t'); e = sp.sin(x) ** 2 + sp.cos(x) ** 2 + t
""",
    "M = sp.Matrix([[x, 1], [1, y]]); alias = M; fast = sp.lambdify((x, y), M.det())",
    "M[0, 0] = x ** 2; s = sp.simplify(e)",
    "ser = sp.series(sp.exp(x), x, 0, 4); x2 = sp.Symbol('x', positive=True); print(x2 == x, fast(2, 3), s - t)",
    "print(M, alias is M, ser, sp.sqrt(x2 ** 2), e.free_symbols == {x, t}, x2 - x, sp.Dummy('t') == t, sp.Symbol('x') == x)",
    needs="sympy",
)
sequence(
    "sklearn models",
    """
import numpy as np, warnings; warnings.simplefilter('ignore')
from sklearn.ensemble import RandomForestClassifier, GradientBoostingRegressor, HistGradientBoostingClassifier
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.model_selection import GridSearchCV, KFold, train_test_split, ShuffleSplit
from sklearn.svm import SVC
from sklearn.neighbors import KNeighborsClassifier, KDTree, BallTree
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.gaussian_process import GaussianProcessRegressor
rs = np.random.RandomState(1); X = rs.randn(60, 4); y = (X.sum(1) > 0).astype(int)
""",
    "rf = RandomForestClassifier(10, random_state=0).fit(X, y); gs = GridSearchCV(SVC(), {'C': [.1, 1]}, cv=3).fit(X, y); km = MiniBatchKMeans(3, random_state=0, n_init=1).partial_fit(X[:30])",
    "print(rf.predict(X[:5]), rf.feature_importances_.round(4), gs.best_params_, km.cluster_centers_.shape)",
    "km.partial_fit(X[30:]); kn = KNeighborsClassifier(algorithm='kd_tree').fit(X, y); kd = KDTree(X); bt = BallTree(X, metric='manhattan'); print(km.labels_[:5])",
    "print(kn.predict(X[:4]), kd.query(X[:1], 2)[1], bt.query(X[:1], 2)[0].round(3), rf.estimators_[0].tree_.node_count)",
    "ip = IncrementalPCA(2).partial_fit(X[:30]); kf = list(KFold(3, shuffle=True, random_state=0).split(X)); tr = kf[0]",
    "ip.partial_fit(X[30:]); print(ip.components_.round(3).shape, len(tr[0]), rf.estimators_[3].predict(X[:3]))",
    "cv = CountVectorizer().fit(['a bb', 'bb cc']); hg = HistGradientBoostingClassifier(max_iter=5).fit(X, y); gp = GaussianProcessRegressor().fit(X[:10], y[:10])",
    "print(cv.vocabulary_, hg.predict(X[:5]), gp.predict(X[:2]).round(3), cv.transform(['bb']).toarray())",
    "rf = rf.set_params(warm_start=True, n_estimators=12); rf2 = rf.fit(X, y); print(len(rf.estimators_), rf.predict_proba(X[:2]))",
    needs=("sklearn",),
)
sequence(
    "joblib memory and dumps",
    """
import joblib, tempfile, os, io, pickle, cloudpickle
mem = joblib.Memory(tempfile.mkdtemp(), verbose=0); calls = []
@mem.cache
def sq(x): calls.append(x); return x * x
class P:
    def __init__(s, v): s.v = v
    def __eq__(s, o): return s.v == o.v
""",
    "print(sq(3), calls)",
    "print(sq(3), calls, sq(4))",
    "p = P([1]); d = cloudpickle.dumps(p); e = pickle.dumps(p); b = io.BytesIO(); joblib.dump(p, b); b.seek(0)",
    "q = pickle.loads(d); r = pickle.loads(e); t = joblib.load(b); print(q == p, type(r) is P, t == p, sq(4), calls)",
    "fd = cloudpickle.dumps(lambda x: x + len(calls)); print(pickle.loads(fd)(1))",
    "print(pickle.loads(fd)(1), joblib.hash([1, 2]) == joblib.hash([1, 2]), joblib.Parallel(1)(joblib.delayed(abs)(i) for i in [-1]))",
    needs=("joblib", "cloudpickle"),
)
sequence(
    "scipy objects",
    """
import numpy as np, scipy.sparse as sp, scipy.spatial as ss, scipy.interpolate as si, scipy.optimize as so, scipy.stats as st, scipy.sparse.linalg as sl
A = sp.csr_matrix(np.diag([1., 2, 3])); dat = A.data; L = sp.lil_array((3, 3)); D = sp.dok_array((2, 2)); kd = ss.cKDTree(np.arange(10.).reshape(5, 2)); f = si.interp1d([0, 1, 2], [0, 1, 4]); cs = si.CubicSpline([0, 1, 2], [0, 1, 4]); nrm = st.norm(0, 1); res = so.minimize(lambda v: (v[0] - 2) ** 2, [0.]); hull = ss.ConvexHull(np.array([[0, 0], [1, 0], [0, 1.]])); bs = si.make_interp_spline([0, 1, 2, 3], [0, 1, 4, 9]); lu = sl.splu(A.tocsc()); lo = sl.aslinearoperator(A); kde = st.gaussian_kde([1., 2, 3])
""",
    "dat[0] = 10; L[0, 1] = 5; D[1, 1] = 2",
    "print(A.toarray(), L.toarray(), D.toarray(), kd.query([1, 1]), f(.5), cs(1.5), nrm.cdf(0), round(res.x[0], 3), A.data is dat)",
    "print(hull.vertices, bs(1.5), lo.matvec(np.ones(3)), kde(2.).round(4), res.success)",
    "A.data *= 2; print(dat, A.sum()); nrm.random_state = 3",
    "print(nrm.rvs(2, random_state=1), lu.solve(np.ones(3)))",
    needs=("scipy",),
    pinned="SuperLU",
)
sequence(
    "scipy rigid and signal",
    """
import numpy as np
from scipy.spatial.transform import Rotation as R
from scipy.spatial import Delaunay
from scipy.interpolate import RegularGridInterpolator, RBFInterpolator, UnivariateSpline, PchipInterpolator
from scipy.signal import dlti, butter, sosfilt
from scipy.stats import qmc, multivariate_normal, rv_discrete, rv_continuous
from scipy.integrate import solve_ivp, RK45
r = R.from_euler('z', 90, degrees=True); de = Delaunay(np.array([[0, 0], [1, 0], [0, 1.], [1, 1]])); rg = RegularGridInterpolator(([0, 1], [0, 1]), np.eye(2)); so = qmc.Sobol(2, seed=1); so.random(2); u = UnivariateSpline([0, 1, 2, 3], [0, 1, 4, 9]); rk = RK45(lambda t, y: -y, 0, [1.], 1); rk.step(); rd = rv_discrete(values=([1, 2], [.5, .5])); mv = multivariate_normal([0, 0])
class Mine(rv_continuous):
    def _pdf(self, x): return 1.0
mine = Mine(a=0, b=1, name='mine')
""",
    "print(r.apply([1, 0, 0]).round(3), de.find_simplex([.2, .2]), rg([[.5, .5]]), float(u(1.5)), rd.pmf(1), mv.pdf([0, 0]).round(3))",
    "print(so.random(1), round(rk.t, 4), mine.cdf(.5))",
    "rk.step(); print(round(rk.t, 4), rk.y.round(4), so.num_generated)",
    "print(so.random(1), rd.rvs(size=2, random_state=0), r.as_quat().round(3), mine.mean())",
    "print(round(rk.t, 4), mine.mean(), so.num_generated)",
    needs=("scipy",),
)
sequence(
    "graphs",
    """
import networkx as nx
G = nx.Graph(); G.add_edge('a', 'b', w=[1]); V = G.nodes; E = G.edges; adj = G['a']; H = G.subgraph(['a', 'b']); D = nx.DiGraph(G); C = nx.freeze(G.copy()); dv = G.degree
""",
    "G.add_edge('b', 'c', w=[2]); adj['b']['w'].append(9)",
    "print(list(V), E(data=True), H.edges['a', 'b'], D.number_of_edges(), dict(dv))",
    "V['a']['x'] = 1; G.add_node('z'); print(G.nodes(data=True), 'z' in V, list(H), adj)",
    "G.remove_node('b'); print(list(E), list(V), dict(adj), nx.is_frozen(C))",
    "nx.set_node_attributes(G, 5, 'q'); print(V['c'], G.adj, list(H.nodes))",
    needs=("networkx",),
)
sequence(
    "symbols",
    """
import sympy as sp
x, y = sp.symbols('x y', positive=True); z = sp.Symbol('z'); n = sp.Dummy('n'); f = sp.Function('f'); e = x ** 2 + sp.sqrt(x ** 2) + n; M = sp.Matrix([[x, 1], [0, y]]); lf = sp.lambdify(x, x ** 2 + 1); w = sp.Wild('w'); eq = sp.Eq(f(x).diff(x), f(x)); i = sp.Integral(x, x); r = sp.Rational(1, 3); class_ = sp.symbols('k', cls=sp.Function)
""",
    "M[0, 1] = z; print(e, sp.sqrt(x ** 2), x == sp.Symbol('x'), x is sp.Symbol('x', positive=True), lf(3))",
    "print(e.subs(x, 2), e.has(n), n == sp.Dummy('n'), M.det(), i.doit(), r + sp.pi, eq)",
    "print(sp.solve(x ** 2 - 4, x), e.free_symbols == {x, n}, sp.S.One is sp.Integer(1), sp.dsolve(eq), class_(x))",
    "M = M.subs(z, 3); print(M, sp.simplify(sp.sin(z) ** 2 + sp.cos(z) ** 2), x.is_positive, (x * y).is_positive)",
    needs=("sympy",),
)
sequence(
    "numba functions that use functions",
    """
import numba as nb, numpy as np
@nb.njit
def f(x): return x * 3 + 1
@nb.vectorize([nb.float64(nb.float64)])
def vf(x): return x + 1
@nb.njit(fastmath=True)
def g(n):
    s = 0
    for i in range(n): s += f(i)
    return s
""",
    "print(f(2), g(3))",
    "print(f(2.5), vf(np.ones(2)), len(f.signatures))",
    "print(g(4), f.py_func(1), f.targetoptions, g.signatures)",
    "print(f.signatures, g(3), vf(np.zeros(1)))",
    needs=("numba",),
)
sequence(
    "numba functions that froze a value",
    """
import numba as nb
K = 3
@nb.njit
def f(x): return x * K
""",
    "K = 4; print(f(2))",
    "K = 10; print(f(2), f.py_func(2))",
    "print(f(2), f.py_func(2), K)",
    needs=("numba",),
    pinned="numba",
)
sequence(
    "numba classes",
    """
import numba as nb, numpy as np
from numba.experimental import jitclass
from numba.typed import Dict, List
@jitclass([('n', nb.int64), ('a', nb.float64[:])])
class Acc:
    def __init__(s, n): s.n = n; s.a = np.zeros(n)
    def add(s, v): s.a[0] += v; return s.a[0]
d = Dict.empty(nb.types.int64, nb.types.float64); d[1] = 2.; l = List([1, 2]); x = Acc(2)
""",
    "print(x.add(2.), x.n)",
    "print(x.add(1.), d[1], list(l)); d[2] = 5.; l.append(9)",
    "print(len(d), list(l))",
    needs=("numba",),
    pinned=True,
)
sequence(
    "statistics",
    """
import statsmodels.api as sm, statsmodels.formula.api as smf, numpy as np, pandas as pd
X = np.arange(10.); y = 2 * X + 1; df = pd.DataFrame({'x': X, 'y': y + (-1.) ** np.arange(10)}); m = sm.OLS(df.y, sm.add_constant(X)); r = m.fit(); fr = smf.ols('y ~ x', df).fit()
""",
    "print(r.params.round(3).tolist(), fr.params.round(3).to_dict())",
    "print(fr.predict(pd.DataFrame({'x': [20.]})).round(3).tolist(), r.model is m, round(r.rsquared, 4))",
    "print(fr.summary().tables[1].as_text().split()[0], fr.resid.round(2).tolist()[:2])",
    needs=("statsmodels",),
)
sequence(
    "expressions as they were written",
    """
import sympy as sp
x, y = sp.symbols("x y")
with sp.evaluate(False): a = sp.Add(1, 1); b = x + x; c = sp.sqrt(8); d = sp.sin(0)
m = sp.Mul(2, 3, evaluate=False); e = sp.Eq(1, 1, evaluate=False); u = sp.UnevaluatedExpr(x) + 1; p = sp.Pow(2, 3, evaluate=False); I = sp.Integral(x**2, (x, 0, 1)); D = sp.Derivative(x**2, x); L = sp.Limit(x, x, 0)
f = sp.Function("f"); pw = sp.Piecewise((x, x > 0), (0, True)); S = sp.Sum(x, (x, 1, 3)); fs = sp.FiniteSet(1, x); lg = sp.And(x > 0, y > 1); M = sp.ImmutableMatrix([[x, 1]]); ms = sp.MatrixSymbol("A", 2, 2); half = sp.Rational(1, 2); inter = sp.Interval(0, 1)
""",
    """
print(a, b, c, d, m, e, u, p, I, D, L, f(x).diff(x), pw, S, fs, lg, M, ms.T*ms, half, inter)
print(b.doit(), p.doit(), I.doit(), (a + 1), b.args, sp.srepr(u), sp.pi + half)
""",
    """
print(a, b, c, d, m, e, u, p, hash(a) == hash(m), a.is_number, b.is_commutative, sp.simplify(b), {a: 1}[a], pw.subs(x, 2), fs.contains(1))
""",
    needs=("sympy",),
)
sequence(
    "models by formulas",
    """
import numpy as np, pandas as pd, statsmodels.api as sm, statsmodels.formula.api as smf, patsy
rng = np.random.default_rng(0)
df = pd.DataFrame({"x": rng.normal(size=50), "g": rng.choice(list("ab"), 50)}); df["y"] = 2*df.x + rng.normal(size=50)*.1
def half(v): return v/2
r = smf.ols("y ~ x + C(g) + half(x):g", df).fit(); lg = smf.logit("z ~ x", df.assign(z=(df.y>0).astype(int))).fit(disp=0); mm = smf.mixedlm("y ~ x", df, groups=df.g).fit()
dm = patsy.dmatrix("center(x) + bs(x, df=4)", df); di = dm.design_info
""",
    """
def half(v): return v/4
print(r.params.round(4).to_dict(), r.model.formula, lg.params.round(3).tolist(), dm[:1].round(3), di.column_names, type(dm).__name__)
""",
    """
pred = r.predict(pd.DataFrame({"x":[1.],"g":["a"]})); print(pred.round(4).tolist(), r.model.data.design_info if hasattr(r.model.data,"design_info") and False else 1, sm.stats.anova_lm(r).round(3).shape)
print(patsy.build_design_matrices([di], df.head(2))[0].round(3), r.summary().tables[0].as_text()[:50])
""",
    needs=(
        "numpy",
        "pandas",
        "statsmodels",
    ),
)
sequence(
    "trees of points that look at the array they were made from",
    """
import numpy as np
from scipy.spatial import KDTree, cKDTree
pts = np.random.RandomState(0).rand(30, 2); kt = KDTree(pts); ck = cKDTree(pts, leafsize=3); d = kt.data; own = KDTree([[1., 2], [3, 4]])
""",
    "print(d is kt.data, np.shares_memory(d, pts), kt.data is pts, own.query([1, 2]))",
    "pts[0] = 5; print(kt.data[0], ck.data[0], ck.query([.5, .5]), own.data.tolist(), kt.data is pts)",
    needs=(
        "scipy",
        "numpy",
    ),
)
