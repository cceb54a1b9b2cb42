"""What a notebook changes beside its variables: attributes of libraries, registrations, the process itself."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

# -- attributes of modules and classes ---------------------------------------------------------------

sequence(
    "a child in its parent's place under both of that one's names",
    """
import json, json.encoder
class Own(json.JSONEncoder):
    def default(self, value): return 'own'
json.JSONEncoder = Own; json.encoder.JSONEncoder = Own; e = json.JSONEncoder()
""",
    "print(e.encode({'a': object}), json.dumps([1], cls=json.JSONEncoder))",
    "print(type(e) is json.JSONEncoder is json.encoder.JSONEncoder is Own, Own.__base__.__name__)",
    "json.JSONEncoder = Own.__base__",
    "print(json.JSONEncoder is Own.__base__, json.encoder.JSONEncoder is Own, e.encode(object))",
)
sequence(
    "a path class of the notebook's in place of pathlib's",
    "import pathlib; real = pathlib.Path\nclass Own(type(pathlib.Path())): pass",
    "pathlib.Path = Own; x = [1]",
    "x.append(2)",
    "print(x, pathlib.Path is Own, type(pathlib.Path('a') / 'b').__name__)",
    "pathlib.Path = real; x.append(3)",
    "print(x, pathlib.Path is real)",
)
sequence(
    "an attribute of a module",
    "import json\njson.my = [1]",
    "json.my.append(2)",
    "print(json.my)",
    "del json.my",
    "import json; print(hasattr(json, 'my'))",
)
sequence(
    "a method of a DataFrame, and its deletion",
    "import pandas as pd\ndef my(self): return len(self) * k\npd.DataFrame.my = my\nk = 2",
    "print(pd.DataFrame({'a': [1, 2]}).my())",
    "k = 5\nprint(pd.DataFrame({'a': [1, 2]}).my(), pd.DataFrame.my is my)",
    "del pd.DataFrame.my",
    "print(hasattr(pd.DataFrame, 'my'))",
    needs="pandas",
)
sequence(
    "a function wrapped and given back",
    "import string, functools\norig = string.capwords\n@functools.wraps(orig)\ndef mine(*a, **k): return '<' + orig(*a, **k) + '>'\nstring.capwords = mine",
    "print(string.capwords('a b'), string.capwords.__name__)",
    "print(string.capwords('a b'), orig('c'), string.capwords is mine, mine.__wrapped__ is orig)",
    "string.capwords = orig",
    "print(string.capwords('a b'), string.capwords is orig)",
)
sequence(
    "a function wrapped in the cell that imports it",
    "import statistics as st\norig = st.mean\nst.mean = lambda x: orig(x) + 1",
    "print(st.mean([1, 2, 3]))",
    "st.mean = orig",
    "print(st.mean([1, 2, 3]), st.mean is orig)",
)
sequence(
    "builtins",
    "import builtins\nbuiltins.x5 = 5\nold = print\nbuiltins.print = lambda *a: old('P', *a)",
    "print(x5)",
    "builtins.print = old",
    "print(x5)",
    "del builtins.x5",
    "try: x5\nexcept NameError: print('no')",
)
sequence(
    "what a cell asks with, which the kernel gives back after it",
    "import builtins, getpass\nbuiltins.input = lambda p='': 'typed ' + p\ngetpass.getpass = lambda p='': 'pw'\na = input('x')",
    "g = getpass.getpass\nreal = builtins.input",
    "same = real == builtins.input, g == getpass.getpass",
    "print(a, same, g.__name__, input.__name__)",
)
sequence(
    "a class of a library replaced",
    "import string\nclass T(string.Template):\n  delimiter = '%'\nO = string.Template\nstring.Template = T",
    "print(string.Template is T, string.Template('%a $a').substitute(a=1), T.__base__ is O)",
    "string.Template = O",
    "print(string.Template is O, O, T('%a').substitute(a=2))",
)
sequence(
    "a method of a library replaced",
    "import json\ndef d(self, o): return str(type(o))\njson.JSONEncoder.default = d",
    "print(json.dumps(3j))",
    "print(json.dumps(3j), json.JSONEncoder.default is d)",
)
sequence(
    "setattr in a loop",
    "import numpy as np\nfor n, v in [('pi2', 6.28), ('float', float), ('int0', np.int64)]: setattr(np, n, v)",
    "print(np.pi2, np.float, np.int0)",
    "del np.float",
    "print(hasattr(np, 'float'), np.pi2)",
    needs="numpy",
)
sequence(
    "a loop over classes",
    "import pandas as pd\nfor cls in (pd.DataFrame, pd.Series): cls.twice = lambda self: self * 2",
    "print(pd.Series([1]).twice().tolist())",
    "print(pd.DataFrame({'a': [2]}).twice())",
    needs="pandas",
)
sequence(
    "a function of the notebook that changes libraries",
    "import json\ndef install(mod):\n    mod.extra = lambda: 7\ndef again(mod, name, value): setattr(mod, name, value)",
    "install(json)",
    "print(json.extra())\nagain(json, 'later', [3])",
    "json.later.append(4)\nprint(json.later)",
    "print(json.extra(), json.later)",
)
sequence(
    "a closure that counts",
    "import json\ndef make():\n  n = [0]\n  def count(): n[0] += 1; return n[0]\n  return count\njson.count = make(); mine = json.count",
    "print(json.count())",
    "print(mine())",
    "print(json.count(), mine is json.count)",
    "print(mine is json.count, mine.__closure__[0].cell_contents)",
)
sequence(
    "a property on a class of a library",
    "import fractions\nfractions.Fraction.pct = property(lambda s: float(s) * 100)",
    "print(fractions.Fraction(1, 4).pct)",
    "print(fractions.Fraction(1, 4).pct)",
)
sequence(
    "vars and exec",
    "import math\nvars(math)['tau2'] = 12.5\nmath.__dict__['q'] = [1]\nexec('math.zz = 5')",
    "math.q.append(2)",
    "print(math.tau2, math.q, math.zz)",
)
sequence(
    "a change under a magic",
    "import string",
    "%%capture\nstring.my = [1]\nstring.limit = 5",
    "string.my.append(2); print(string.limit)",
    "print(string.my)",
)
sequence(
    "settings of libraries",
    "import sys, ssl, tempfile, collections, collections.abc\nsys.argv = ['a', 'b']\nssl._create_default_https_context = ssl._create_unverified_context\ntempfile.tempdir = '.'\ncollections.Mapping = collections.abc.Mapping",
    "print(sys.argv, ssl._create_default_https_context.__name__, tempfile.gettempdir(), collections.Mapping)",
    "sys.argv.append('c')",
    "print(sys.argv, tempfile.tempdir)",
)
sequence(
    "a setting to None and back",
    "import decimal, string\nstring.limit = 10",
    "string.limit = None\ndecimal.DefaultContext.prec = 5",
    "print(string.limit, decimal.DefaultContext.prec)",
    "string.limit = 10",
    "print(string.limit)",
)
sequence(
    "a method of a tensor, and a backend's switch",
    "import torch\ntorch.Tensor.dbl = lambda self: self * 2\ntorch.backends.mkldnn.enabled = False",
    "print(torch.tensor([1]).dbl(), torch.backends.mkldnn.enabled)",
    "print(torch.tensor([3]).dbl(), torch.backends.mkldnn.enabled)",
    needs="torch",
)
sequence(
    "mock left started",
    "from unittest import mock\np = mock.patch('string.capwords', lambda *a: 'M')\np.start()\nNone",
    "import string\nprint(string.capwords('a b'))",
    "p.stop()",
    "print(string.capwords('a b'))",
)
sequence(
    "a patcher of one cell, started in a later one",
    "import string\nfrom unittest import mock\np = mock.patch('string.capwords', return_value='mocked')",
    "q = mock.patch.dict('os.environ', {'MOCKED': 'yes'})\nr = mock.patch.object(string, 'digits', 'D')",
    "p.start(); q.start(); r.start(); None",
    "import os, string\nprint(string.capwords('a b'), os.environ.get('MOCKED'), string.digits)",
)
sequence(
    "mock stopped where modules wait to be imported",
    "import statistics\nfrom unittest import mock\np = mock.patch('statistics.mean', return_value=42)\nm = p.start()",
    "import time, xml.dom.minidom\nprint(statistics.mean([1])); time.sleep(1)",
    "p.stop(); print(statistics.mean([1]), m.call_count); time.sleep(1)",
    "print(statistics.mean([1]), m.call_count)",
)
sequence(
    "a stand-in taken back where modules wait to be imported",
    """
import statistics
class Fake:
    n = 0
    def __call__(self, *a):
        self.n += 1
        return self.n
orig = statistics.mean
m = statistics.mean = Fake()
""",
    "import time, xml.dom.minidom\nprint(statistics.mean([1])); time.sleep(1)",
    "statistics.mean = orig; time.sleep(1)",
    "print(statistics.mean([1]), m.n, orig is statistics.mean)",
)
sequence(
    "mock within a cell leaves nothing",
    "from unittest import mock\nimport string\nwith mock.patch('string.capwords', return_value='M'): print(string.capwords('a b'))",
    "print(string.capwords('a b'))",
    "print(string.capwords('a b'))",
)
sequence(
    "what cannot travel is refused by name",
    "import json\njson.gen = (i for i in range(3))\njson.ok = [1]",
    "print(next(json.gen), json.ok)",
    "print(json.ok)\nnext(json.gen)",
    refuses="library json:gen",
)

# -- registrations ---------------------------------------------------------------------------------------

sequence(
    "a module that the notebook made",
    "import sys, types\nm = types.ModuleType('m'); m.a = 1\nsys.modules['m'] = m\nsys.modules['mm'] = types.SimpleNamespace(f=3)",
    "import m as q, mm\nprint(q.a, q is m, mm.f)",
    "del sys.modules['m']",
    "try:\n  import m as z; print('there')\nexcept ImportError: print('none')\nimport mm; print(mm.f)",
)
sequence(
    "an accessor for DataFrames",
    "import pandas as pd\n@pd.api.extensions.register_dataframe_accessor('geo')\nclass Geo:\n  def __init__(self, d): self.d = d\n  def n(self): return len(self.d)",
    "print(pd.DataFrame({'a': [1, 2, 3]}).geo.n(), 'geo' in dir(pd.DataFrame()))",
    "print(pd.DataFrame({'a': [1, 2, 3]}).geo.n(), pd.DataFrame.geo is Geo)",
    needs="pandas",
)
sequence(
    "a namespace for polars expressions",
    "import polars as pl\n@pl.api.register_expr_namespace('pow2')\nclass P:\n  def __init__(self, e): self.e = e\n  def sq(self): return self.e ** 2",
    "print(pl.DataFrame({'a': [3]}).select(pl.col('a').pow2.sq()).rows())",
    "print(pl.DataFrame({'a': [4]}).select(pl.col('a').pow2.sq()).rows())",
    needs="polars",
)
sequence(
    "a virtual subclass",
    "import collections.abc as c, numbers\nclass S: pass\nc.Sequence.register(S)\n@numbers.Real.register\nclass N: pass",
    "print(isinstance(S(), c.Sequence), issubclass(N, numbers.Number))",
    "s = S()",
    "print(isinstance(s, c.Sequence), issubclass(S, c.Sized), issubclass(S, numbers.Number), isinstance(N(), numbers.Real))",
)
sequence(
    "a function for a type",
    "import pkgutil\nclass K: pass\n@pkgutil.iter_importer_modules.register(K)\ndef _k(x, prefix=''): return iter([(prefix + 'k', False)])",
    "print(list(pkgutil.iter_importer_modules(K(), 'p')))",
    "k = K(); print(list(pkgutil.iter_importer_modules(k, 'p')))",
    "print(list(pkgutil.iter_importer_modules(k, 'q')))",
)
sequence(
    "copyreg",
    "import copyreg, pickle\nclass P:\n  def __init__(s, x): s.x = x\ncopyreg.pickle(P, lambda p: (P, (p.x,)))",
    "print(P in copyreg.dispatch_table, pickle.loads(pickle.dumps(P(3))).x)",
    "p = P(4)",
    "print(p.x, P in copyreg.dispatch_table)",
)
sequence(
    "a colour map",
    "import matplotlib as mpl\nfrom matplotlib.colors import ListedColormap\nmpl.colormaps.register(ListedColormap(['r', 'g'], name='mine'))",
    "print(mpl.colormaps['mine'].N)",
    "mpl.colormaps.unregister('mine')",
    "print('mine' in mpl.colormaps)",
    needs="matplotlib",
)
sequence(
    "progress bars for pandas",
    "import pandas as pd, io\nfrom tqdm import tqdm\ntqdm.pandas(file=io.StringIO())",
    "print(pd.Series([1, 2]).progress_apply(lambda x: x + 1).tolist())",
    "print(pd.Series([1, 2]).progress_apply(lambda x: x + 1).tolist())",
    needs=("pandas", "tqdm"),
)

# -- the order of sets ----------------------------------------------------------------------------------

sequence(
    "the order of sets",
    "import random\nr = random.Random(3)\nw = [r.randint(0, 10 ** 6) for _ in range(60)]\na = set(w); b = set(w[:25]); c = a & b; d = a | {1, 2, 3}; e = b.copy(); t = {(x, 1) for x in w[:9]}",
    "print(list(a), list(b), list(c), list(d), list(e), list(t))",
    "for x in w[:20]: a.discard(x)\nb.add(77); c.clear(); print(a, b)",
    "a |= b; print(list(a), list(c))",
    "print(a, b, c, d, e, t)",
)

# -- settings that few notebooks touch ------------------------------------------------------------------

sequence(
    "garbage collection",
    "import gc\ngc.disable(); gc.set_threshold(900, 11, 12)",
    "print(gc.isenabled(), gc.get_threshold())",
    "gc.enable()",
    "print(gc.isenabled(), gc.get_threshold())",
)
sequence(
    "threads, sockets, masks and limits",
    "import socket, threading, os, resource\nsocket.setdefaulttimeout(7.5); threading.stack_size(1 << 20); os.umask(0o027)\nsoft, hard = resource.getrlimit(resource.RLIMIT_CORE); resource.setrlimit(resource.RLIMIT_CORE, (0, hard))",
    "print(socket.getdefaulttimeout(), threading.stack_size(), oct(os.umask(0o027)), resource.getrlimit(resource.RLIMIT_CORE)[0])",
    "socket.setdefaulttimeout(None); threading.stack_size(0)",
    "m = os.umask(0o027); print(socket.getdefaulttimeout(), threading.stack_size(), oct(m), resource.getrlimit(resource.RLIMIT_CORE)[0])",
)
sequence(
    "a setting made by a function of an earlier cell",
    "import socket\ndef calm(seconds): socket.setdefaulttimeout(seconds)",
    "calm(3)",
    "print(socket.getdefaulttimeout())",
    "calm(None)",
    "print(socket.getdefaulttimeout())",
)
sequence(
    "start method and types of files",
    "import multiprocessing as mp, mimetypes\nmp.set_start_method('spawn', force=True); mimetypes.add_type('text/x-mine', '.mine')",
    "print(mp.get_start_method(), mimetypes.guess_type('a.mine'))",
    "print(mimetypes.guess_extension('text/x-mine'))",
    "print(mp.get_start_method(), mimetypes.guess_type('a.mine'))",
)
sequence(
    "plotting that does not draw at once",
    "import matplotlib.pyplot as plt\nplt.ioff()\nNone",
    "print(plt.isinteractive())",
    "fig, ax = plt.subplots(); plt.close('all'); print(plt.isinteractive())",
    "plt.ion()\nNone",
    "print(plt.isinteractive())",
    needs="matplotlib",
)
sequence(
    "a function for the exit stays",
    "import atexit\ndef bye(): pass\natexit.register(bye)\nNone",
    "print(bye())",
    "print(bye())",
    pinned="atexit",
)

# -- hooks in the shell ---------------------------------------------------------------------------------

sequence(
    "a formatter, and a handler of exceptions",
    "ip = get_ipython()\nclass V:\n  def __init__(self, x): self.x = x\nip.display_formatter.formatters['text/html'].for_type(V, lambda v: f'<b>{v.x}</b>')\nip.display_formatter.formatters['text/plain'].for_type(V, lambda v, p, c: p.text(f'V={v.x}'))\nip.set_custom_exc((ZeroDivisionError,), lambda self, t, v, tb, tb_offset=None: print('caught', v))",
    "V(3)",
    "1 / 0",
    "V(4)",
)
sequence(
    "transformers of the input",
    "import ast\nclass Twice(ast.NodeTransformer):\n  def visit_Constant(self, n):\n    return ast.copy_location(ast.Constant(n.value * 2), n) if type(n.value) is int else n\ndef shout(lines): return [line.replace('LOUD', 'print') for line in lines]\nip = get_ipython(); ip.input_transformers_cleanup.append(shout); ip.ast_transformers.append(Twice())",
    "LOUD(21)",
    "ip.ast_transformers.clear()\nLOUD(5)",
    "LOUD(7)",
)
sequence(
    "a callback that no variable holds",
    "n = [0]\ndef make():\n  def before(*_): n[0] += 1\n  return before\nget_ipython().events.register('pre_run_cell', make())",
    "print(n)",
    "print(n); get_ipython().events.callbacks['pre_run_cell'].clear()",
    "print(n)",
)

# -- warnings -------------------------------------------------------------------------------------------

sequence(
    "a warning is shown once",
    "open('wmod.py', 'w').write('import warnings\\ndef f(): warnings.warn(\"careful\", UserWarning)\\ndef g(): warnings.warn(\"old\", FutureWarning)\\n'); import wmod",
    "wmod.f()",
    "wmod.f(); wmod.g(); print(1)",
    "wmod.f(); wmod.g(); print(2)",
    "import warnings; warnings.simplefilter('default')",
    "wmod.f()",
    "wmod.f(); print(3)",
)

# -- values that are known by identity --------------------------------------------------------------------

sequence(
    "numpy's NaN is found in containers",
    "import numpy as np\nx = np.nan; l = [1.0, x, (x, 2)]; d = {x: 1, 'k': [np.nan]}; s = {x, 2.0}\nclass A: pass\na = A(); a.v = np.nan",
    "print(x is np.nan, x in l, l.index(x), d[x], np.nan in s, a.v is np.nan, d['k'][0] is x)",
    "l.append(np.nan); print(l.count(x))",
    "print(x in l, l.count(np.nan), np.nan in d, a.v is np.nan)",
    needs="numpy",
)
sequence(
    "a mock counts only the notebook's calls of os.getcwd",
    "import os\ncalls = []\nreal = os.getcwd\ndef counted():\n    calls.append(1); return '/made/up'\nos.getcwd = counted",
    "print(os.getcwd(), calls)",
    "os.getcwd = real",
    "print(calls)",
)
sequence(
    "tags and representers given to YAML",
    """
import yaml
class Point(yaml.YAMLObject):
    yaml_tag = "!Point"
    def __init__(self, x): self.x = x
yaml.add_representer(complex, lambda dumper, value: dumper.represent_scalar("!c", str(value)))
""",
    "print(yaml.dump({'p': Point(3), 'c': 1j}))",
    "yaml.add_constructor('!c', lambda loader, node: complex(node.value))",
    "print(yaml.load('[!Point {x: 5}, !c 2j]', yaml.Loader)[0].x, yaml.dump(1j))",
    needs=("yaml",),
)
sequence(
    "a translation put where all modules find it",
    "import builtins; builtins._ = lambda text: 'tr:' + text",
    "print(_('x'))",
    "5",
    "print(_('y'), Out[3]); del builtins._",
    "6",
    "print(_)",
)
sequence(
    "an entry of a library's registry that is a dictionary of its own kind",
    """
import matplotlib.units as mu, matplotlib.pyplot as plt
class Conv(mu.ConversionInterface):
    @staticmethod
    def convert(v, u, a): return v.v if hasattr(v, 'v') else [i.v for i in v]
class Q:
    def __init__(s, v): s.v = v
mu.registry[Q] = Conv()
""",
    "print(Q in mu.registry, type(mu.registry[Q]) is Conv)",
    "mu.registry[complex] = mu.registry[Q]",
    "del mu.registry[complex]",
    "fig, ax = plt.subplots(); ln, = ax.plot([Q(1), Q(2)]); print(ln.get_ydata(orig=False).tolist(), complex in mu.registry); plt.close(fig)",
    needs=("matplotlib",),
)
sequence(
    "what a cell binds on sys",
    "import sys\nsys.ps1 = 'P> '; sys.ps2 = '.. '; sys.mine = [1]",
    "sys.mine.append(2)",
    "print(repr(sys.ps1), repr(sys.ps2), repr(getattr(sys, 'ps3', None)), sys.mine)",
)
sequence(
    "methods that are kept stay those of their class while it gets more",
    "class View:\n    def __init__(self): self.got = []\n    def update(self, x): self.got.append(x)\n    @classmethod\n    def make(cls): return cls.__name__\nclass Sub(View):\n    def update(self, x): super().update(x * 2)\nv, s = View(), Sub(); watchers = [v.update, s.update]; make = Sub.make; table = {s.update: 'sub'}",
    "View.extra = 1",
    "print(v.update in watchers, make == Sub.make, table.get(s.update)); [w(1) for w in watchers]",
    "Sub.more = 2; View.again = View.update",
    "watchers.remove(v.update); watchers.append(v.again); [w(5) for w in watchers]",
    "old = s.update; Sub.update = lambda self, x: None",
    "print(old in watchers, s.update in watchers, v.got, s.got, table.get(old), make(), watchers[1] == v.update)",
)
