"""Functions in wrappers: methods in parts, dispatch by type, counters in closures, managers half entered, coroutines."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "methods in parts, dispatched, abstract and cached on one class",
    """
import functools, abc
class Shape(abc.ABC):
    log = []
    @functools.singledispatchmethod
    @classmethod
    def make(cls, x): return cls.log.append('any') or cls
    @make.register
    @classmethod
    def _(cls, x: int): return cls.log.append(('int', x)) or cls
    def area(self, w, h, *, k=1): return w * h * k
    square = functools.partialmethod(area, 2, 2)
    big = functools.partialmethod(square, k=100)
    @functools.singledispatchmethod
    def show(self, x): return f'any {x}'
    @functools.cache
    def slow(self, n): self.log.append(n); return [n]
    @staticmethod
    @functools.lru_cache(maxsize=2)
    def st(n): return object()
class Sq(Shape): pass
s = Sq(); bound = s.big; made = Shape.make; tok = Sq.st(1); slow = s.slow
""",
    "Sq.make(3); made('x'); slow(1)",
    "print(Shape.log, s.square(), bound(), bound.func.__self__ is s, Shape.st(1) is tok, s.slow(1) is slow(1))",
    "@Shape.show.register\ndef _(self, x: list): return f'list of {len(x)} {type(self).__name__}'\nShape.make.register(float, classmethod(lambda cls, x: cls.log.append('float') or cls))",
    "print(s.show([1]), s.show(1), Sq.make(1.5) is Sq, Shape.slow.cache_info(), vars(Shape)['big'].keywords)",
    "Shape.log.append('end'); print(Shape.log.count('float') , made.__self__ is Shape if hasattr(made, '__self__') else 'wrapped', Shape.slow.cache_info(), s.show(()), bound())\nShape.log.pop()",
)
sequence(
    "counters in closures under three decorators",
    """
import functools, time
def counted(fn=None, *, start=0):
    if fn is None: return functools.partial(counted, start=start)
    n = start; hist = []
    @functools.wraps(fn)
    def inner(*a):
        nonlocal n
        n += 1; hist.append(a); return fn(*a)
    def reset():
        nonlocal n, hist
        n, hist = start, []
    inner.count = lambda: n; inner.history = lambda: hist; inner.reset = reset
    return inner
class Retry:
    def __init__(self, times): self.times, self.failed = times, []
    def __call__(self, fn):
        @functools.wraps(fn)
        def run(*a):
            for i in range(self.times):
                try: return fn(*a)
                except ValueError as e: self.failed.append(str(e))
            return 'gave up'
        run.policy = self
        return run
retry = Retry(2)
@counted(start=10)
@retry
@counted
def work(x):
    if x < 0: raise ValueError(f'bad {x}')
    return work.count(), work.__wrapped__.__wrapped__.count()
""",
    "r = [work(1), work(-1)]",
    "print(r, work.count(), work.__wrapped__.policy is retry, retry.failed, work.history())",
    "work.reset(); h = work.history(); retry.times = 3",
    "print(work(-5), work.count(), h is work.history(), retry.failed[2:], work.__wrapped__.__wrapped__.history())",
    "print(work.count(), work.__name__, work.__wrapped__.__wrapped__.count(), len(retry.failed), inspect.unwrap(work)(-0) if False else h)",
)
sequence(
    "context managers entered in one cell and left in another",
    """
import contextlib, os, decimal, warnings, io, sys
trail = []
class CM(contextlib.ContextDecorator, contextlib.AbstractContextManager):
    def __enter__(self): trail.append('in'); return self
    def __exit__(self, *e): trail.append('out'); return False
os.mkdir('inner'); cm = CM(); stack = contextlib.ExitStack(); stack.enter_context(cm); stack.push(lambda *e: trail.append('pushed')); stack.callback(trail.append, 'called'); ch = contextlib.chdir('inner'); ch.__enter__(); lc = decimal.localcontext(); ctx = lc.__enter__(); ctx.prec = 4
@cm
def deco(): trail.append('body')
""",
    "print(os.path.basename(os.getcwd()), decimal.Decimal(1) / 3); deco()",
    "out = io.StringIO(); redirect = contextlib.redirect_stdout(out); redirect.__enter__(); print('hidden'); redirect.__exit__(None, None, None)",
    "print(repr(out.getvalue()), trail, len(stack._exit_callbacks))",
    "ch.__exit__(None, None, None); lc.__exit__(None, None, None); later = stack.pop_all()",
    "later.close(); n = list(trail)",
    "print(n, os.path.exists('inner'), decimal.Decimal(1) / 3, decimal.getcontext().prec)",
    pinned=True,
)
sequence(
    "a generator that was sent values is lost by name, its log is not",
    """
log = []
def averager():
    total, n, avg = 0, 0, None
    while True:
        x = yield avg
        log.append(x); total += x; n += 1; avg = total / n
avg = averager(); next(avg)
""",
    "avg.send(10)",
    "print(log, avg.send(20))",
    "print(log, avg.send(30))",
    refuses="'avg' is a generator",
)
sequence(
    "asynchronous generators and coroutines that wait are lost by name",
    """
import asyncio
async def ticks():
    for i in range(5): yield i
async def job(): return 7
at = ticks(); first = await anext(at); kept = [first]
""",
    "kept.append(await anext(at))",
    "print(kept, await anext(at))",
    refuses="'at' is a",
)
sequence(
    "asyncio's own objects over cells",
    """
import asyncio
q = asyncio.Queue(3); ev = asyncio.Event(); sem = asyncio.Semaphore(2); fut_done = None; cond = asyncio.Condition(); got = []
await q.put('a'); await q.put(['b'])
""",
    "await sem.acquire(); ev.set()",
    "got.append(await q.get()); print(q.qsize(), ev.is_set(), sem._value, await ev.wait())",
    "async def worker(n):\n    async with sem: got.append(n); await asyncio.sleep(0)\nr = await asyncio.gather(*map(worker, range(3)), return_exceptions=True)",
    "got.append(await q.get()); q.task_done(); sem.release(); ev.clear()",
    "async with cond: cond.notify_all()\nprint(got, q.empty(), q._unfinished_tasks, sem._value, ev.is_set(), r, cond.locked())",
    pinned=True,
)
sequence(
    "closures that build themselves: trampolines, memo tables, class cells",
    """
def make(n):
    def self_(k=0):
        self_.depth = max(self_.depth, k)
        return k if k >= n else self_(k + 1)
    self_.depth = 0
    return self_
class Base:
    made = 0
    def __new__(cls, *a): o = super().__new__(cls); __class__.made += 1; return o
    def who(self): return __class__.__name__, super().__repr__()[:5]
class Kid(Base):
    def who(self): return super().who() + (__class__.__name__,)
def tree():
    from collections import defaultdict
    return defaultdict(tree)
f = make(3); g = make(5); t = tree(); t['a']['b']['c'] = f; k = Kid(); w = k.who; memo = {}
def fib(n, m=memo): return m.setdefault(n, n if n < 2 else fib(n - 1) + fib(n - 2))
""",
    "f(); t['x']['y']; fib(20)",
    "print(f.depth, g.depth, t['a']['b']['c'] is f, sorted(t), w(), Base.made, len(memo))",
    "Base.who.__closure__[0].cell_contents is Base; f.__closure__[0].cell_contents = 8; f()",
    "print(f.depth, f(7), t['a']['b']['c'].depth, memo is fib.__defaults__[0], t.default_factory is tree)",
    "class Kid(Kid):\n    def who(self): return 'new', *super().who()\nk2 = Kid()",
    "print(k2.who(), k.who(), w(), Base.made, type(t['new'][1]).__name__, fib(25), len(memo))",
)
sequence(
    "caches around static methods, partials and bound methods",
    """
import functools as ft
class C:
    @ft.cache
    @staticmethod
    def st(x): return [x]
    def m(self, x): return {x}
c = C(); r = C.st(1); part = ft.lru_cache(4)(ft.partial(lambda a, b: [a, b], 1)); p = part(2); bound = ft.cache(c.m); b = bound(3)
""",
    "print(C.st(1) is r, part(2) is p, bound(3) is b)",
    "C.st(2); part(5)",
    "print(C.st.cache_info(), part.cache_info(), bound.cache_info(), bound.__wrapped__.__self__ is c)",
)

sequence(
    "decorators and proxies of wrapt",
    """
import wrapt
calls = []
@wrapt.decorator
def traced(wrapped, instance, args, kwargs):
    calls.append((wrapped.__name__, type(instance).__name__))
    return wrapped(*args, **kwargs)
@traced
def add(a, b=1):
    "Adds."
    return a + b
table = {'a': 1}; proxy = wrapt.ObjectProxy(table)
""",
    "class A:\n    n = 0\n    @traced\n    def m(self): self.n += 1; return self\n    @traced\n    @classmethod\n    def c(cls): return cls\na = A(); bound = a.m; a.m() is a, add(2)",
    "class Counting(wrapt.ObjectProxy):\n    def __init__(self, wrapped): super().__init__(wrapped); self._self_n = 0\n    def __getitem__(self, key): self._self_n += 1; return self.__wrapped__[key]\ncounting = Counting(table); counting['a']",
    "proxy['b'] = 2; bound() is a, A.c() is A",
    "alias = wrapt.CallableObjectProxy(add); lazily = wrapt.LazyObjectProxy(dict); dropped = lazily.__wrapped__; del lazily, dropped; print(calls)",
    "print(add(1), add.__doc__, add.__wrapped__(1, 1), a.n, sorted(table), counting['b'] and counting._self_n > 0, isinstance(proxy, dict), proxy.__wrapped__ is table, counting.__wrapped__ is table, alias(3), add.__name__)",
    needs="wrapt",
)
sequence(
    "the code of a function in a variable",
    "ns = {'K': 5}; exec(compile('def h(x): return x + K', '<made>', 'exec'), ns); h = ns['h']; code = h.__code__\n"
    "def outer(x):\n  def inner(): return x\n  return inner\n"
    "a, b = outer([1]), outer([2]); inner = a.__code__",
    "print(h.__code__ is code, inner is b.__code__, h(1), h.__globals__ is ns)",
    "h.__code__ = code.replace(co_name='other'); d = {'code': inner}",
    "print(h.__code__ is code, inner is b.__code__, d['code'] is inner, h.__name__)",
    "h.__code__ = code; print(h.__code__ is code, code.co_name, a.__code__ is inner)",
)
