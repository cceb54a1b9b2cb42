"""What a notebook leaves behind in libraries: registered under private names, set as an option, put in a place."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

import sys

from tests.e2e.state.sequence import sequence

sequence(
    "registrations that the standard library keeps behind private names",
    """
import collections.abc, shutil, urllib.request, xml.etree.ElementTree as ET
class Three:
    def __len__(self): return 3
    def __getitem__(self, i): return i
collections.abc.Sequence.register(Three)
ET.register_namespace('zz', 'http://zz')
shutil.register_archive_format('own', lambda base, root, **options: base + END, description='d'); END = '.own'
op = urllib.request.build_opener(); op.addheaders = [('A', 'b')]; urllib.request.install_opener(op)
""",
    "el = ET.Element('{http://zz}a'); same = urllib.request._opener is op",
    "END = '.other'; op.addheaders.append(('C', 'd'))",
    "print(isinstance(Three(), collections.abc.Sequence), ET.tostring(el), shutil.make_archive('x', 'own'), same, urllib.request._opener is op, op.addheaders)",
    pinned=sys.version_info
    >= (3, 12),  # From then on, an opener has a context of TLS, which nobody can copy.
)
sequence(
    "projections and scales of matplotlib",
    """
import matplotlib.pyplot as plt, matplotlib as mpl, matplotlib.scale as ms, matplotlib.projections as mp
class MyAx(mpl.axes.Axes):
    name = 'mine'
    def hi(self): return 'hi'
mp.register_projection(MyAx)
class Sc(ms.LinearScale): name = 'mysc'
ms.register_scale(Sc)
""",
    "fig = plt.figure()",
    "ax = fig.add_subplot(projection='mine')",
    "ax.set_xscale('mysc'); print(ax.hi(), ms.get_scale_names().count('mysc'), type(ax) is MyAx, mp.get_projection_class('mine') is MyAx, ax.get_xscale())",
    needs="matplotlib",
)
sequence(
    "formats as options: functions in pandas, texts in numpy",
    "import numpy as np, pandas as pd\npd.options.display.float_format = lambda x: f'<{x:.{D}f}>'\nnp.set_printoptions(formatter={'float_kind': '{:.2f}'.format})\nD = 1; df = pd.DataFrame({'a': [1.234]}); a = np.array([1.234])",
    "df",
    "D = 2; mine = pd.options.display.float_format",
    "print(df, a, pd.get_option('display.float_format') is mine)",
    needs=("numpy", "pandas"),
)
sequence(
    "switches of science libraries that no option names",
    "import polars as pl, scipy.special, torch\npl.Config.set_float_precision(1); pl.Config.set_thousands_separator(','); scipy.special.seterr(loss='raise'); torch.set_warn_always(True)",
    "df = pl.DataFrame({'a': [1.5, 2345.678]}); scipy.special.seterr(singular='warn')",
    "torch.set_warn_always(False); df",
    "print(df, scipy.special.geterr()['loss'], scipy.special.geterr()['singular'], torch.is_warn_always_enabled())",
    needs=("polars", "scipy", "torch"),
)
sequence(
    "a date of the notebook's own, over the one whose place it has",
    "import datetime\nclass FakeDate(datetime.date):\n    @classmethod\n    def today(cls): return cls(2020, 1, 1)\nreal = datetime.date; datetime.date = FakeDate",
    "x = datetime.date.today()",
    "datetime.date = real; y = FakeDate.today() - x",
    "print(x, y, type(x) is FakeDate, datetime.date is real, isinstance(x, real), FakeDate.__mro__[1] is real)",
)
sequence(
    "methods and modules that were patched, and patched back",
    """
import json, builtins, string, pandas as pd
first = json.dumps
def dumps(o, **k): return first(o, **k).replace('[1]', '[one]')
json.dumps = dumps
pd.DataFrame.cols = property(lambda self: list(self.columns))
@pd.api.extensions.register_dataframe_accessor('geo')
class Geo:
    def __init__(self, df): self.df = df; self.hits = 0
    def mid(self): self.hits += 1; return self.df.mean().tolist()
builtins.shout = lambda s: s.upper() + '!'
df = pd.DataFrame({'a': [1, 2], 'b': [3, 4]})
""",
    "m1 = df.geo.mid(); s = shout('hi'); t = json.dumps([1])",
    "json.dumps = first; string.ascii_lowercase = 'abc'",
    "m2 = df.geo.mid()",
    "print(json.dumps([1]), t, df.cols, m1, m2, s, shout('x'), string.ascii_lowercase, dumps([1]), first is json.dumps)",
    needs="pandas",
)
sequence(
    "subclasses in the order in which they were defined",
    "class Base: pass\nclass P3(Base): pass\nclass P1(Base): pass\nclass P2(P1): pass\nclass E2(ValueError): pass\nclass E1(ValueError): pass",
    "P3.n = 1; x = P1()",
    "print([c.__name__ for c in Base.__subclasses__()], [c.__name__ for c in ValueError.__subclasses__() if c.__module__ == '__main__'])",
    "class P0(Base): pass\nclass E0(ValueError): pass\nP1.n = 3",
    "print([c.__name__ for c in Base.__subclasses__()], [c.__name__ for c in ValueError.__subclasses__() if c.__module__ == '__main__'])",
)
sequence(
    "overloads are found again",
    "from typing import overload, get_overloads\n@overload\ndef f(x: int) -> int: ...\n@overload\ndef f(x: str) -> str: ...\ndef f(x): return x\nclass C:\n    @overload\n    def m(self, a: int): ...\n    @overload\n    def m(self, a: str): ...\n    def m(self, a): return a",
    "print(len(get_overloads(f)), len(get_overloads(C.m)))",
    "@overload\ndef g(x: float): ...\ndef g(x): return x",
    "print([o.__annotations__ for o in get_overloads(f)], len(get_overloads(C.m)), len(get_overloads(g)))",
)
sequence(
    "classes that torch may load",
    """
import torch, io
class Cfg:
    def __init__(self, n): self.n = n
torch.serialization.add_safe_globals([Cfg])
b = io.BytesIO(); torch.save({'c': Cfg(3)}, b); data = b.getvalue()
""",
    "print(torch.load(io.BytesIO(data), weights_only=True)['c'].n)",
    "r = torch.load(io.BytesIO(data), weights_only=True)['c']; print(type(r) is Cfg, Cfg in torch.serialization.get_safe_globals())",
    "torch.serialization.clear_safe_globals()",
    "try: torch.load(io.BytesIO(data), weights_only=True)\nexcept Exception as e: print(type(e).__name__, Cfg in torch.serialization.get_safe_globals())",
    needs=("torch",),
)
sequence(
    "what makes records of logging",
    """
import logging
old = logging.getLogRecordFactory(); made = []
logging.setLogRecordFactory(lambda *a, **k: (made.append(a[0]), old(*a, **k))[1])
log = logging.getLogger('own.records'); log.setLevel(10); log.propagate = False; log.addHandler(logging.NullHandler())
""",
    "log.info('x'); print(made.count('own.records')); logging.setLogRecordFactory(old)",
    "log.info('x'); print(made.count('own.records'), logging.getLogRecordFactory() is logging.LogRecord)",
)
sequence(
    "callbacks of dask for every computation",
    """
import dask.bag as db
from dask.callbacks import Callback
from dask.diagnostics import ProgressBar
import dask; dask.config.set(scheduler='sync')
seen = []
class CB(Callback):
    def _start(self, dsk): seen.append('s')
cb = CB(); cb.register()
""",
    "db.from_sequence([1]).compute(); print(len(seen)); pb = ProgressBar(minimum=99); pb.register()",
    "db.from_sequence([1]).compute(); print(len(seen), len(Callback.active)); cb.unregister()",
    "n = len(seen); db.from_sequence([1]).compute(); print(len(seen) - n, len(Callback.active))",
    needs=("dask",),
)
