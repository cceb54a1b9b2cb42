"""Exceptions: what a traceback shows, causes and contexts, notes, groups, and exceptions kept in variables."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "errors through functions of other cells",
    "def inner(x):\n    return 1 / x",
    "def outer(x):\n    y = x - 1\n    return inner(y)",
    "class Runner:\n    def go(self, n):\n        return outer(n)",
    "Runner().go(1)",
    "r = Runner()",
    "r.go('a')",
    "[r.go(i) for i in (3, 2, 1)]",
)
sequence(
    "kept exceptions with their story",
    "import traceback\ntry:\n    try:\n        {}['k']\n    except KeyError as e:\n        raise ValueError('outer', 2) from e\nexcept ValueError as e:\n    kept = e",
    "print(repr(kept), repr(kept.__cause__), kept.args, kept.__suppress_context__)",
    "print(''.join(traceback.format_exception(kept)))",
    "kept.add_note('a note'); kept.extra = [1]; kept.__cause__.tag = kept",
    "print(kept.__notes__, kept.extra, kept.__cause__.tag is kept)",
    "try:\n    raise RuntimeError('new')\nexcept RuntimeError as e:\n    e.__context__ = kept; second = e",
    "print(''.join(traceback.format_exception(second)))",
    "print(len(traceback.extract_tb(kept.__traceback__)), traceback.extract_tb(kept.__traceback__)[0].lineno, second.__context__ is kept)",
)
sequence(
    "exception classes of every make",
    "class Two(Exception):\n    def __init__(self, code, msg): super().__init__(f'{code}: {msg}'); self.code, self.msg = code, msg\nclass Kw(Exception):\n    def __init__(self, *, where): self.where = where\nclass Slotted(Exception):\n    __slots__ = ('s',)\nclass Sub(OSError): pass\nclass Reg(Exception):\n    seen = []\n    def __init__(self, *a): Reg.seen.append(a); super().__init__(*a)\nt = Two(4, 'no'); k = Kw(where='here'); s = Slotted('x'); s.s = [1]; o = Sub(2, 'No such file', 'a.txt'); r = Reg(1)",
    "print(t, t.code, k.where, repr(k), s.s, o, o.errno, o.filename, Reg.seen)",
    "t.code = 5; s.s.append(2); all_ = [t, k, s, o, r]",
    "u = UnicodeDecodeError('utf-8', b'abc', 0, 1, 'bad'); st = StopIteration(7); se = SystemExit(3); im = ImportError('m', name='n', path='p'); sx = SyntaxError('bad', ('f.py', 1, 2, 'text')); at = AttributeError('a', name='n', obj=[1])",
    "print(t.code, all_[0] is t, u, st.value, se.code, im.name, im.path, sx.lineno, sx.text, at.name, at.obj)",
    "k2 = KeyError('q'); w = UserWarning('w'); b = BaseException(1)",
    "print([repr(x) for x in (k2, w, b, *all_)], Reg.seen, isinstance(o, FileNotFoundError))",
)
sequence(
    "exception groups",
    "try:\n    raise ExceptionGroup('many', [ValueError(1), TypeError('t'), ExceptionGroup('in', [KeyError('k')])])\nexcept* ValueError as eg:\n    vals = eg\nexcept* TypeError as eg:\n    types_ = eg\nexcept* KeyError as eg:\n    keys = eg",
    "print(repr(vals), repr(types_), repr(keys))",
    "class MyGroup(ExceptionGroup):\n    def derive(self, excs): return MyGroup(self.message, excs)\nmg = MyGroup('mine', [ValueError(2), OSError(3)])",
    "a, b = mg.split(ValueError)",
    "print(repr(a), repr(b), type(a).__name__, a.exceptions[0] is mg.exceptions[0])",
    "raise mg",
    "print(len(mg.exceptions), repr(mg))",
)
sequence(
    "the last error and post-mortem",
    "def broken(v):\n    local = [v]\n    return local[v + 5]",
    "broken(1)",
    "import sys\nprint(repr(sys.last_value), sys.last_type.__name__)",
    "import traceback\nprint([f.name for f in traceback.extract_tb(sys.last_value.__traceback__)][-1])",
    "x = 1",
    "print(repr(sys.last_value), sys.last_value.args)",
)
sequence(
    "syntax errors, exits of cells and warnings",
    "x = 1",
    "def f(:\n    pass",
    "print(x",
    "  y = 1",
    "x += 1; undefined_name",
    "import warnings\nwarnings.warn('careful', UserWarning)",
    "print(x, 'y' in globals())\nraise SystemError('e')",
    "assert x == 3, f'x is {x}'",
    "x = [x]; x.append(1 / 0)",
    "print(x)",
)
sequence(
    "a cell that fails half-way keeps its first half",
    "items = [1]; d = {}",
    "items.append(2); d['a'] = items; class_made = type('M', (), {}); raise ValueError('half')",
    "print(items, d)",
    "for i in range(5):\n    items.append(i)\n    if i == 2: d[i] = 1 / 0",
    "print(items, d, i)",
    "def f():\n    items.append('f'); raise KeyError('in f')\nf()",
    "print(items, d['a'] is items, class_made.__name__)",
)
sequence(
    "tracebacks kept and shown again",
    "import sys, traceback\ndef deep(n):\n    if n == 0: raise LookupError('bottom')\n    deep(n - 1)\ntry:\n    deep(3)\nexcept LookupError:\n    info = sys.exc_info(); text = traceback.format_exc(); te = traceback.TracebackException(*info)",
    "print(text)",
    "traceback.print_exception(*info, file=sys.stdout)",
    "tb = info[2]; names = []\nwhile tb: names.append((tb.tb_frame.f_code.co_name, tb.tb_lineno)); tb = tb.tb_next",
    "print(names, ''.join(te.format())[-30:])",
    "raise info[1].with_traceback(None)",
    "print(repr(info[1]), info[0].__name__)",
)
sequence(
    "retry decorator and raised from stored",
    "import functools\ndef retry(n, *excs):\n    def deco(f):\n        @functools.wraps(f)\n        def w(*a):\n            for i in range(n):\n                try: return f(*a)\n                except excs as e: w.errors.append(e)\n            raise w.errors[-1]\n        w.errors = []\n        return w\n    return deco\nattempts = []\n@retry(2, ValueError)\ndef flaky(x):\n    attempts.append(x)\n    raise ValueError(f'no {len(attempts)}')",
    "try: flaky(1)\nexcept ValueError as e: print(e)",
    "print(len(flaky.errors), attempts)",
    "flaky.errors.clear()",
    "try: flaky(2)\nexcept ValueError as e: last = e",
    "print(last is flaky.errors[-1], [str(e) for e in flaky.errors], attempts)",
)
sequence(
    "what %tb and raising again say of the functions",
    "class Deep:\n    def go(self, a, *rest, k=1, **more): return [a / b for b in rest]\ndef call(x, /, *, y): return (lambda d: d.go(x, y))(Deep())\nfrom operator import methodcaller\ntry: call(1, y=0)\nexcept ZeroDivisionError as error: pass\ncall(1, y=0)",
    "%tb",
    "import traceback\ntraceback.print_last()",
    "%tb",
)

sequence(
    "an error that says how it is copied, and leaves out what it holds",
    """
class Retry(Exception):
    made = []
    def __init__(self, n, errors=None): super().__init__(n, errors); self.n = n; Retry.made.append(self)
    def __reduce__(self): return type(self), (self.n,)
def flaky(x):
    errors = []
    for i in range(2):
        try: raise ValueError(f'{x}@{i}')
        except ValueError as e: errors.append(e)
    raise Retry(2, errors) from errors[-1]
try: flaky(5)
except Retry as e: last = e
""",
    "last.args[1][0].add_note('first'); last.extra = [last]",
    "print(last.args[1][0].__notes__, last.__cause__ is last.args[1][-1], Retry.made[0] is last, last.extra[0] is last, len(Retry.made))",
    "raise last",
    "print(last, last.args[1][0].__notes__, last.__cause__ is last.args[1][1], len(Retry.made))",
)
sequence(
    "a traceback in a variable, and the last one of sys",
    "import sys, traceback\ndef f(n):\n  if n: f(n - 1)\n  raise LookupError('bottom')\n"
    "try: f(0)\nexcept LookupError as e: err, tb = e, e.__traceback__",
    "f(1)",
    "print(err.__traceback__ is tb, sys.last_traceback is sys.last_value.__traceback__)",
    "last = sys.last_traceback; d = {'tb': tb}\ntry: raise err\nexcept LookupError: pass",
    "print(err.__traceback__ is tb, d['tb'] is tb, last is sys.last_value.__traceback__)",
    "print(traceback.format_tb(tb), len(traceback.extract_tb(last)), last is sys.last_traceback)",
)
