"""The process beside the namespace: loggers, context variables, random generators, filters, modules, paths."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "loggers with handlers, levels and filters",
    "import logging, sys, io\nstream = io.StringIO(); log = logging.getLogger('mine.sub'); log.setLevel(logging.DEBUG); log.propagate = False; h = logging.StreamHandler(stream); h.setFormatter(logging.Formatter('%(name)s|%(levelname)s|%(message)s')); log.addHandler(h)\nclass NoB(logging.Filter):\n    dropped = 0\n    def filter(self, r):\n        if 'b' in r.getMessage(): NoB.dropped += 1; return False\n        return True\nlog.addFilter(NoB())",
    "log.info('one'); log.debug('b two')",
    "log.warning('three %d', 3)",
    "print(stream.getvalue(), NoB.dropped)",
    "h.setLevel(logging.ERROR); logging.getLogger('mine').addHandler(logging.NullHandler())",
    "log.info('hidden'); log.error('shown')",
    "print(stream.getvalue(), log.handlers[0] is h, h.stream is stream, len(logging.getLogger('mine').handlers))",
)
sequence(
    "handlers, formatters and filters are the same objects in loggers and variables",
    "import logging, sys, io\nclass Keeps(logging.Handler):\n    def __init__(self): super().__init__(); self.kept = []\n    def emit(self, record): self.kept.append(self.format(record))\nlog = logging.getLogger('audit'); keeps = Keeps(); log.addHandler(keeps); log.propagate = False",
    "form = logging.Formatter('%(levelname)s %(message)s'); keeps.setFormatter(form); log.error('one')",
    "seen = []\nonly = lambda record: seen.append(record.getMessage()) or 'no' not in record.getMessage()\nlog.addFilter(only)\nfile = logging.FileHandler('audit.log'); log.addHandler(file); log.error('two')",
    "log.error('no'); log.error('three')",
    "keeps.setLevel(logging.CRITICAL); log.error('four'); log.critical('five')",
    "print(keeps.kept, seen, log.handlers == [keeps, file], keeps.formatter is form, log.filters[0] is only)",
    "log.removeHandler(file); file.close(); log.removeFilter(only)",
    "log.critical('no longer')",
    "print(open('audit.log').read(), keeps.kept, seen, len(log.handlers), log.filters)",
)
sequence(
    "what is set for all loggers",
    "import logging, sys, warnings\nlogging.addLevelName(25, 'NOTE'); logging.addLevelName(logging.INFO, 'info'); logging.basicConfig(level=10, format='%(levelname)s:%(message)s', stream=sys.stdout, force=True)",
    "logging.log(25, 'noted'); logging.info('small')",
    "logging.captureWarnings(True)",
    "warnings.showwarning('told', UserWarning, 'a_file', 1)",
    "logging.captureWarnings(False); logging.getLogger('quiet').disabled = True; logging.getLogger('alone').propagate = False",
    "logging.getLogger('quiet').error('no'); logging.addLevelName(logging.INFO, 'INFO'); last = logging.lastResort",
    "print(logging.getLevelName(25), logging.getLevelName('NOTE'), logging.getLevelName(20), logging.getLogger('quiet').disabled, logging.getLogger('alone').propagate, last is logging.lastResort)",
)
sequence(
    "root logging configured",
    "import logging, sys\nlogging.basicConfig(level=logging.INFO, format='%(levelname)s:%(message)s', stream=sys.stdout, force=True)",
    "logging.info('hello')",
    "logging.getLogger('x').debug('no'); logging.getLogger('x').warning('yes')",
    "logging.getLogger().setLevel('DEBUG'); a = logging.LoggerAdapter(logging.getLogger('x'), {'k': 1})",
    "logging.debug('now'); a.info('adapted')",
    "logging.disable(logging.INFO)",
    "logging.info('off'); logging.warning('on')\nprint(logging.getLogger('x').getEffectiveLevel(), logging.root.handlers[0].stream is sys.stdout)",
)
sequence(
    "context variables and decimal contexts",
    "import contextvars\nv = contextvars.ContextVar('v', default=[0]); w = contextvars.ContextVar('w'); tok = v.set([1]); box = {'v': v}",
    "v.get().append(2); w.set('w1')",
    "print(v.get(), w.get(), box['v'] is v)",
    "w.set('w2'); x = contextvars.ContextVar('x')",
    "try: x.get()\nexcept LookupError: print('none')",
    "print(v.get(), w.get(), x.get('d'))",
    pinned=True,
)
sequence(
    "random generators, global and own",
    "import random\nrandom.seed(7); r = random.Random(3); same = r; first = random.random()",
    "a = [random.random(), r.random()]",
    "random.shuffle(a); b = random.gauss(0, 1)",
    "state = random.getstate(); c = [random.randint(0, 99) for _ in range(3)]",
    "random.setstate(state); d = [random.randint(0, 99) for _ in range(3)]; r.gauss(0, 1)",
    "print(first, a, b, c == d, same.random(), r is same)",
    "e = (random.choice('abc'), r.sample(range(50), 3), r.getstate() == same.getstate())",
    "print(e)",
)
sequence(
    "warnings filters and once-only warnings",
    "import warnings\nwarnings.simplefilter('always', UserWarning); warnings.filterwarnings('ignore', message='hush')",
    "warnings.warn('hush now'); warnings.warn('loud')",
    "warnings.filterwarnings('error', category=DeprecationWarning)",
    "try: warnings.warn('old', DeprecationWarning)\nexcept DeprecationWarning as e: print('raised', e)",
    "with warnings.catch_warnings(record=True) as got:\n    warnings.simplefilter('always'); warnings.warn('seen')",
    "print([str(w.message) for w in got])",
    "warnings.resetwarnings()",
    "print(len(warnings.filters))",
)
sequence(
    "environment, path, recursion limit and friends",
    "import os, sys, locale\nos.environ['A_VAR'] = '1'; sys.path.append('/nowhere/x'); sys.setrecursionlimit(2500); sys.ps1_mine = 5",
    "os.environ['A_VAR'] += '2'; os.putenv('B', '1')",
    "print(os.environ['A_VAR'], sys.path[-1], sys.getrecursionlimit())",
    "sys.path.remove('/nowhere/x'); del os.environ['A_VAR']; sys.setrecursionlimit(3000)",
    "print('A_VAR' in os.environ, '/nowhere/x' in sys.path, sys.getrecursionlimit())",
    "os.environ.update(C='c', D='d'); got = !echo $C$D",
    "print(got)",
)
sequence(
    "modules written by cells, imported, edited, reloaded",
    "from pathlib import Path\nPath('mine.py').write_text('count = 0\\nitems = []\\ndef bump():\\n    global count\\n    count += 1\\n    return count\\nclass Thing:\\n    kind = \"v1\"\\n')\nimport mine",
    "print(mine.bump(), mine.bump())",
    "from mine import Thing, bump\nt = Thing(); t.x = [1]; mine.items.append(t)",
    "print(mine.count, bump(), mine.items[0] is t)",
    "import importlib, time, os\nPath('mine.py').write_text('count = 100\\ndef bump(): return -1\\nclass Thing:\\n    kind = \"v2\"\\n'); os.utime('mine.py', (time.time() + 5,) * 2)\nimportlib.reload(mine)",
    "print(mine.bump(), mine.Thing.kind, mine.count)",
    "t2 = mine.Thing()",
    "print(t2.kind, mine.count, mine.Thing().kind, type(t2) is mine.Thing)",
)
sequence(
    "packages, star imports and relative modules",
    "from pathlib import Path\nPath('pkg').mkdir(); Path('pkg/__init__.py').write_text('__all__ = [\"a\", \"VALUE\"]\\nVALUE = 3\\n'); Path('pkg/a.py').write_text('from . import b\\ndef f(): return b.K\\n'); Path('pkg/b.py').write_text('K = 1\\n')\nfrom pkg import *",
    "print(a.f(), VALUE)",
    "from math import *; from os.path import *\nimport pkg.b as pb",
    "print(sqrt(16), basename('/x/y'), pb.K)",
    "import xml.etree.ElementTree as ET; root = ET.fromstring('<r><c k=\"1\">t</c></r>')",
    "root[0].set('k', '2'); c = root.find('c')",
    "print(ET.tostring(root), c is root[0], a.f(), pi > 3)",
)
sequence(
    "future imports and annotations",
    "from __future__ import annotations",
    "class A:\n    x: Undefined\n    def f(self, y: AlsoUndefined) -> A: ...",
    "print(A.__annotations__, A.f.__annotations__)",
    "import __future__, typing\nX: int = 1",
    "print(__annotations__)",
    "Alias = typing.Union[int, 'A']; ns: Alias = 5",
    "print(Alias, typing.get_type_hints(lambda: 0), A.f.__annotations__['return'], annotations.compiler_flag > 0)",
)
sequence(
    "the notebook imports itself",
    "import __main__, sys\nvalue = [1]",
    "__main__.value.append(2); from __main__ import value as again",
    "print(value, again is value, sys.modules['__main__'] is __main__, __name__)",
    "__main__.fresh = {'k': again}; m = sys.modules[__name__]",
    "m.fresh['n'] = m",
    "print(fresh['k'] is value, m is __main__, fresh['n'] is m, vars(m) is globals())",
)
sequence(
    "argparse, string formatters, textwrap and pprint objects",
    "import argparse, pprint, textwrap, string, shlex\nap = argparse.ArgumentParser(prog='p'); ap.add_argument('--n', type=int, default=3); sub = ap.add_subparsers(dest='cmd'); s1 = sub.add_parser('go'); s1.set_defaults(fn=lambda a: a.n * 2)",
    "ns = ap.parse_args(['--n', '4', 'go'])",
    "print(ns.n, ns.fn(ns), ns.cmd)",
    "class F(string.Formatter):\n    def format_field(self, v, s): return super().format_field(v, s).upper()\nf = F(); tw = textwrap.TextWrapper(width=20, initial_indent='* ')",
    "ap.add_argument('--late', action='store_true')",
    "print(f.format('{0:>5}|{x}', 'a', x='b'), tw.fill('one two three four five six'), ap.parse_args(['--late', 'go']).late)",
)
sequence(
    "loggers of a class of the notebook",
    "import logging\nclass Loud(logging.Logger):\n    def shout(self, text): print(text.upper(), self.name, getattr(self, 'times', 0))\nbefore = logging.getLoggerClass(); logging.setLoggerClass(Loud); a = logging.getLogger('loud.a')",
    "b = logging.getLogger('loud.b'); a.shout('one'); b.shout('two')",
    "print(logging.getLoggerClass() is Loud, type(a) is Loud, a is logging.getLogger('loud.a'))",
    "logging.setLoggerClass(logging.Logger); c = logging.getLogger('plain.c'); print(type(c).__name__)",
    "print(logging.getLoggerClass().__name__, type(a).__name__, type(logging.getLogger('plain.d')).__name__)",
)
sequence(
    "warnings that an entered catch_warnings records",
    "import warnings\ncw = warnings.catch_warnings(record=True); heard = cw.__enter__(); warnings.simplefilter('always')",
    "warnings.warn('one'); print(len(heard))",
    "warnings.warn('two', FutureWarning); print(len(heard), heard[0].message, heard[1].category)",
    "heard.pop(); cw.__exit__(None, None, None)",
    "print(len(heard), warnings._showwarnmsg_impl.__name__); warnings.simplefilter('error')",
    "try: warnings.warn('three')\nexcept UserWarning as e: print('raised', e, len(heard))",
)
sequence(
    "warnings that logging captures",
    """
import warnings, logging, io
warnings.simplefilter('error', DeprecationWarning); warnings.filterwarnings('ignore', message='noisy.*')
buf = io.StringIO(); h = logging.StreamHandler(buf); h.setFormatter(logging.Formatter('%(levelname)s:%(name)s:%(message)s'))
lg = logging.getLogger('app.db'); lg.addHandler(h); lg.setLevel('DEBUG'); lg.propagate = False
class Flt(logging.Filter):
    n = 0
    def filter(self, r): Flt.n += 1; return 'secret' not in r.getMessage()
flt = Flt(); h.addFilter(flt); ad = logging.LoggerAdapter(lg, {'u': 1})
""",
    """
lg.info('one'); ad.warning('two'); lg.info('secret'); print(buf.getvalue(), Flt.n)
try: warnings.warn('x', DeprecationWarning)
except DeprecationWarning as e: print('raised', e)
""",
    """
print(logging.getLogger('app.db') is lg, lg.handlers[0] is h, h.stream is buf, ad.logger is lg, logging.getLogger('app').getChild('db') is lg)
logging.addLevelName(25, 'NOTE'); lg.log(25, 'three'); warnings.warn('noisy bit'); logging.captureWarnings(True)
""",
    "root = logging.getLogger(); root.addHandler(h); warnings.warn('captured', UserWarning); print(buf.getvalue().count('captured'))",
    """
logging.captureWarnings(False); root.removeHandler(h); logging.disable(logging.INFO); lg.info('no'); lg.warning('yes')
rec = logging.LogRecord('n', 25, 'p', 1, 'm %s', ('a',), None)
""",
    "print(buf.getvalue().splitlines()[-1], rec.getMessage(), rec.levelname, lg.isEnabledFor(20), Flt.n)",
)
sequence(
    "copied contexts, in which functions, a thread and a task run",
    """
import contextvars, asyncio, threading, decimal
who = contextvars.ContextVar("who", default="none"); seen = contextvars.ContextVar("seen"); seen.set([])
ctx = contextvars.copy_context(); ctx.run(who.set, "a"); empty = contextvars.Context()
ctx.run(decimal.setcontext, decimal.Context(prec=4))
def act(name):
    who.set(name); seen.get().append(name); return who.get()
""",
    """
ctx.run(print, "printed in ctx", who.get())
print("after", ctx.run(lambda: decimal.Decimal(1) / 3), decimal.getcontext().prec)
""",
    """
res = []
t = threading.Thread(target=ctx.run, args=(lambda: res.append(who.get()),)); t.start(); t.join()
async def job(): return who.get()
task = asyncio.get_running_loop().create_task(job(), context=ctx)
print(await task, res, ctx.run(act, "inner"), empty.run(who.get))
""",
    """
empty.run(who.set, "in empty"); again = ctx.copy(); again.run(act, "again")
print(who.get(), ctx[who], again[who], empty[who], ctx[seen] is seen.get())
""",
    """
print(who.get(), ctx[who], again[who], empty[who], len(empty), seen.get(), again[seen] is ctx[seen], res, ctx.run(lambda: decimal.Decimal(1) / 3))
""",
)
sequence(
    "a copied context with settings of numpy's own",
    "import contextvars, numpy as np\nctx = contextvars.copy_context(); ctx.run(np.seterr, divide='raise'); near = [1]",
    "near.append(2)",
    """
try: ctx.run(lambda: np.ones(1) / 0)
except FloatingPointError as e: print(e, near)
""",
    needs="numpy",
    pinned="A library keeps other settings in it",
)
sequence(
    "loggers that no variable has",
    "import logging\nfor name in ('q.a', 'q.b'): logging.getLogger(name)\nlogging.getLogger('w.deep.er').warning",
    "for name, logger in logging.root.manager.loggerDict.items():\n    if name.startswith('q.'): logger.disabled = True",
    "own = sorted(n for n, l in logging.root.manager.loggerDict.items() if n[:2] in ('q.', 'w.') and isinstance(l, logging.Logger))",
    "print(own, [logging.getLogger(name).disabled for name in ('q.a', 'q.b', 'q', 'w.deep.er')])",
)
sequence(
    "logging that was reloaded, to be set up anew",
    """
import logging, importlib, sys
importlib.reload(logging); logging.basicConfig(level=logging.INFO, format='%(levelname)s-%(message)s', stream=sys.stdout)
log = logging.getLogger('mine'); handler = logging.root.handlers[0]
""",
    "log.info('one'); logging.info('of the root')",
    "handler.setLevel(logging.ERROR); log.info('too low')",
    "log.error('two'); print(logging.root.handlers == [handler], type(handler).__name__)",
)
