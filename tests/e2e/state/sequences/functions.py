"""Functions: closures and their cells, globals, decorators, caches, dispatch, partials, and what holds them."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "three closures over two cells",
    "def make():\n    n = 0; log = []\n    def inc(by=1):\n        nonlocal n\n        n += by; log.append(n); return n\n    def reset():\n        nonlocal n, log\n        n, log = 0, []\n    def show(): return n, log\n    return inc, reset, show\ninc, reset, show = make()",
    "inc(); inc(5)",
    "print(show())",
    "reset()",
    "print(show())",
    "inc(2); seen = show()[1]",
    "inc(3)",
    "print(show(), seen, seen is show()[1], inc.__closure__[1] is show.__closure__[1])",
)
sequence(
    "closures made in a loop",
    "fs = []\nfor i in range(3):\n    fs.append(lambda: i)\ngs = [lambda i=i: i for i in range(3)]\nhs = [(lambda k: lambda: k * i)(k) for k in range(3)]",
    "print([f() for f in fs], [g() for g in gs], [h() for h in hs])",
    "i = 10",
    "print([f() for f in fs], [g() for g in gs], [h() for h in hs])",
    "def maker():\n    out = []\n    for j in range(3):\n        def f(): return j\n        out.append(f)\n    return out\nms = maker()",
    "print([f() for f in fs], [m() for m in ms], ms[0].__closure__[0] is ms[2].__closure__[0])",
)
sequence(
    "late binding through three levels",
    "def a(): return b() + 1\ndef b(): return c() * 2\ndef c(): return BASE\nBASE = 10",
    "print(a())",
    "BASE = 20",
    "print(a())",
    "def b(): return -c()",
    "print(a())",
    "old_c = c\ndef c(): return old_c() + 100",
    "print(a())",
    "del BASE",
    "a()",
    "BASE = 1",
    "print(a(), old_c())",
)
sequence(
    "global writers called later",
    "count = 0\ndef bump(by=1):\n    global count, trail\n    count += by\n    trail = [*globals().get('trail', []), count]\nclass Bumper:\n    def __call__(self):\n        global count\n        count *= 10\n        return self",
    "bump()",
    "bump(4); b = Bumper()()",
    "for _ in range(3): bump()",
    "count -= 1; b()",
    "handlers = {'up': bump, 'times': b}; handlers['up'](2); handlers['times']()",
    "print(count, trail, handlers['up'] is bump, handlers['times'] is b)",
)
sequence(
    "defaults that are changed in place",
    "def f(x, seen=[], *, table={}):\n    seen.append(x); table[x] = len(seen); return seen\nf(1)",
    "f(2)",
    "print(f.__defaults__, f.__kwdefaults__)",
    "g = f; kept = f(3)",
    "f.__defaults__ = ([],); f(9)",
    "g.__kwdefaults__['table'].clear()",
    "print(f.__defaults__, kept, g.__kwdefaults__, g is f)",
)
sequence(
    "decorators with state and wraps",
    "import functools\ndef counted(label):\n    def deco(fn):\n        @functools.wraps(fn)\n        def inner(*a, **k):\n            inner.calls += 1\n            calls[label] = calls.get(label, 0) + 1\n            return fn(*a, **k)\n        inner.calls = 0\n        return inner\n    return deco\ncalls = {}\n@counted('sq')\ndef sq(x):\n    'Square.'\n    return x * x",
    "sq(2); sq(3)",
    "print(sq.calls, sq.__name__, sq.__doc__, calls)",
    "sq = counted('outer')(sq); sq(4)",
    "print(sq.__wrapped__.__wrapped__(5), sq(5))",
    "print(sq.calls, sq.__wrapped__.calls, calls, sq.__qualname__)",
)
sequence(
    "partials and bound methods",
    "from functools import partial, partialmethod\nclass Acc:\n    def __init__(self): self.items = []\n    def add(self, x, times=1):\n        self.items.extend([x] * times); return self\n    twice = partialmethod(add, times=2)\nacc = Acc(); add = acc.add; add3 = partial(acc.add, times=3); nested = partial(add3, 'n')\nadd3.note = ['attr']",
    "add('a'); add3('b')",
    "nested(); acc.twice('t')",
    "print(acc.items, add.__self__ is acc, nested.func.__self__ is acc, add3.note)",
    "acc.items.clear(); add('z'); cls_add = Acc.add; cls_add(acc, 'c')",
    "print(acc.items, add3.keywords, nested.args, add == acc.add, add3.func.__func__ is Acc.add)",
)
sequence(
    "lru_cache contents and counters",
    "from functools import lru_cache, cache\nruns = []\n@lru_cache(maxsize=3)\ndef slow(x, *, k=1):\n    runs.append(x); return [x, k]\n@cache\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)",
    "a = slow(1); slow(2); fib(30)",
    "print(slow.cache_info(), slow(1) is a)",
    "slow(3); slow(4)",
    "print(slow.cache_info(), runs); slow(1)",
    "fib(31); print(fib.cache_info())",
    "slow.cache_clear(); slow(9)",
    "print(slow.cache_info(), fib.cache_info(), runs, slow.__wrapped__(5), slow.cache_parameters()); runs.pop()",
)
sequence(
    "lru_cache on methods",
    "from functools import lru_cache, cached_property, cache\nclass Lab:\n    made = 0\n    def __init__(self, n): self.n = n\n    @lru_cache(maxsize=None)\n    def power(self, e):\n        Lab.made += 1; return self.n ** e\n    @cached_property\n    def heavy(self):\n        Lab.made += 100; return [self.n]\n    @staticmethod\n    @cache\n    def st(x): return object()\nx, y = Lab(2), Lab(3); token = Lab.st(1)",
    "x.power(3); y.power(2)",
    "x.power(3); x.heavy.append('h')",
    "print(Lab.made, Lab.power.cache_info())",
    "print(x.heavy, y.heavy, vars(x), Lab.st(1) is token)",
    "x.n = 5; del x.heavy",
    "print(x.power(3), x.heavy, Lab.made, Lab.power.cache_info().currsize)",
)
sequence(
    "singledispatch grows",
    "from functools import singledispatch, singledispatchmethod\n@singledispatch\ndef show(x): return f'any {x!r}'\n@show.register\ndef _(x: int): return f'int {x}'\nclass P:\n    @singledispatchmethod\n    def go(self, x): return 'go any'\n    @go.register\n    def _(self, x: str): return 'go str'\np = P()",
    "print(show(1), show('a'), p.go(1), p.go('s'))",
    "class Mine(list): pass\n@show.register(Mine)\ndef show_mine(x): return f'mine {len(x)}'",
    "show.register(float, lambda x: 'float'); P.go.register(int, lambda self, x: 'go int')",
    "class Sub(Mine): pass\nprint(show(Sub([1])), show(1.5), show(True))",
    "print(show.dispatch(Sub) is show_mine, sorted(k.__name__ for k in show.registry), p.go('x'), show_mine([1, 2]))",
)
sequence(
    "recursive and mutually recursive closures",
    "def outer():\n    memo = {}\n    def even(n): return True if n == 0 else odd(n - 1)\n    def odd(n):\n        memo[n] = memo.get(n, 0) + 1\n        return False if n == 0 else even(n - 1)\n    return even, odd, memo\neven, odd, memo = outer()",
    "print(even(6), sorted(memo))",
    "odd(3)",
    "Y = lambda f: (lambda x: x(x))(lambda x: f(lambda *a: x(x)(*a)))\nfact = Y(lambda self: lambda n: 1 if n < 2 else n * self(n - 1))",
    "print(fact(10), memo)",
    "even = lambda n: 'replaced'",
    "print(even(1), sorted(memo.items()), fact(5))",
)
sequence(
    "function attributes and metadata",
    "def f(a: int, b: 'str' = 'x', /, c=1, *args: float, d, e=2, **kw) -> list[int]:\n    \"Doc of f.\"\n    return [a]\nf.tags = {'x'}; f.self = f",
    "f.tags.add('y'); f.__name__ = 'renamed'; f.__doc__ += ' More.'",
    "import inspect\nprint(inspect.signature(f), f.__annotations__)",
    "f.__qualname__ = 'other.place'; f.__module__ = 'elsewhere'; f.__annotations__['a'] = float",
    "f.__signature__ = inspect.signature(lambda q: 0)",
    "print(f, sorted(f.tags), f.self is f, inspect.signature(f), f.__doc__, f.__module__, f.__annotations__['a'], f.__code__.co_name)",
)
sequence(
    "source of functions after moves",
    "import inspect\ndef first(x):\n    # a comment\n    return x + 1\nclass Shape:\n    'A shape.'\n    def area(self):\n        return 0",
    "print(inspect.getsource(first))",
    "print(inspect.getsource(Shape))\nadd = lambda a, b: a + b",
    "print(inspect.getsource(Shape.area), inspect.getsource(add))",
    "def first(x):\n    return 'second version'",
    "print(inspect.getsource(first), inspect.getsourcelines(Shape.area)[1])",
    "first.__code__ = Shape.area.__code__",
    "print(inspect.getsource(first), first('self'), inspect.getdoc(Shape))",
)
sequence(
    "code replaced and globals shared",
    "import types\ndef f(): return X\nX = 1\nscope = {'X': 50, '__builtins__': __builtins__}\ng = types.FunctionType(f.__code__, scope, 'g')\nexec('def h():\\n    global X\\n    X += 1\\n    return X', scope)",
    "X = 2; scope['X'] += 1",
    "print(f(), g(), scope['h']())",
    "h = scope['h']; h(); print(X, scope['X'], h.__globals__ is scope)",
    "f.__code__ = (lambda: X * 100).__code__",
    "k = types.FunctionType(h.__code__, globals(), 'k'); k()",
    "print(f(), g(), X, scope['X'], g.__globals__ is h.__globals__, f.__globals__ is globals())",
)
sequence(
    "generators functions and coroutines as functions",
    "def gen(n):\n    got = []\n    for i in range(n):\n        got.append((yield i))\n    return got\nasync def co(x):\n    return x * 2\nasync def agen():\n    for i in range(3): yield i",
    "import inspect\nprint(list(gen(3)), inspect.isgeneratorfunction(gen), inspect.iscoroutinefunction(co), inspect.isasyncgenfunction(agen))",
    "r = await co(21)\nprint(r, [i async for i in agen()])",
    "def chain(*its):\n    for it in its:\n        yield from it",
    "print(list(chain(gen(2), 'ab')), await co('z'))",
)
sequence(
    "context managers from the notebook",
    "from contextlib import contextmanager, ExitStack, suppress, nullcontext, closing\ntrail = []\n@contextmanager\ndef noted(name):\n    trail.append(f'in {name}')\n    try:\n        yield name\n    finally:\n        trail.append(f'out {name}')\nclass CM:\n    depth = 0\n    def __enter__(self): self.depth += 1; return self\n    def __exit__(self, *a): self.depth -= 1; return True\ncm = CM()",
    "with noted('a') as n, cm: 1 / 0\nprint(n, cm.depth)",
    "with noted('b'): trail.append('body')",
    "cm.__enter__(); s = suppress(ZeroDivisionError); nc = nullcontext([1])",
    "with s: 1 / 0\nwith nc as inner: inner.append(2)",
    "stack = ExitStack(); stack.callback(trail.append, 'callback'); stack.enter_context(cm)",
    "print(cm.depth, nc.enter_result)",
    "stack.close(); done = list(trail)",
    "print(done, cm.depth, nc.enter_result)",
)
sequence(
    "operators and callables from libraries",
    "import operator, functools, math, itertools\nig = operator.itemgetter(1, 'k'); ag = operator.attrgetter('a.b', 'c'); mc = operator.methodcaller('join', ['x', 'y'])\ntable = {'sqrt': math.sqrt, 'upper': str.upper, 'len': len, 'append': [].append, 'get': {'k': 1}.get, 'cmp': functools.cmp_to_key(lambda a, b: b - a)}",
    "table['append'](1); print(table['append'].__self__, table['get']('k'), mc('-'))",
    "class O:\n    class a: b = 1\n    c = 2\nprint(ag(O), table['upper']('q'), sorted([1, 3, 2], key=table['cmp']))",
    "table['append'](2); d = {1: 'one', 'k': 'kay'}",
    "print(ig(d), table['append'].__self__, table['sqrt'](4), repr(ig), repr(ag), repr(mc), table['len'] is len)",
)
sequence(
    "nested functions and classes of functions",
    "def factory(base):\n    class Item:\n        unit = base\n        def __init__(self, v): self.v = v\n        def scaled(self):\n            def inner(k): return self.v * k + base\n            return inner\n        class Part:\n            owner = base\n    def make(v): return Item(v)\n    return Item, make\nI1, make1 = factory(100); I2, make2 = factory(200)",
    "i = make1(1); s = i.scaled()",
    "i.v = 7; print(s(2), I1 is I2, isinstance(make2(1), I1))",
    "I1.unit = 'changed'; part = I2.Part()",
    "print(i.unit, make2(0).unit, I1.__qualname__, part.owner)",
    "i.extra = I2",
    "print(type(i) is I1, type(make1(3)) is I1, i.extra.Part is I2.Part, s(3), i.unit, part.__class__.__qualname__)",
)
sequence(
    "exec and eval in the namespace",
    "src = 'def made(x): return x + offset'\nexec(src); offset = 1",
    "print(made(1))",
    "offset = 10; code = compile('offset * 2', '<mine>', 'eval')",
    "print(made(1), eval(code), eval('made(2)', {'made': lambda x: 'other'}))",
    "ns = {}\nexec('class Z:\\n    def who(self): return data\\ndata = [1]', ns)\nz = ns['Z']()",
    "ns['data'].append(2)\nprint(z.who())",
    "z.who().append(3); ns['more'] = ns['data']",
    "print(ns['data'], z.who() is ns['data'], ns['more'] is z.who(), type(z) is ns['Z'], code.co_filename)",
)
sequence(
    "lambdas in tables",
    "ops = {'+': lambda a, b: a + b, '*': lambda a, b: a * b}; hist = []\ndef run(op, *a):\n    hist.append((op, a)); return ops[op](*a)",
    "print(run('+', 1, 2))",
    "ops['-'] = lambda a, b: a - b; ops['+'] = lambda a, b: f'{a}+{b}'",
    "r = [run(o, 5, 3) for o in ops]\nprint(r)",
    "by_name = {f.__name__: f for f in (run,)}; del ops['*']",
    "print(sorted(ops), hist, by_name['run'] is run, ops['-'](1, 1))",
)
sequence(
    "monkey-patched print and input of helpers",
    "import builtins\nsaid = []\ndef hush(*a, **k): said.append(' '.join(map(str, a)))\nprint_ = print; print = hush\nprint('one')",
    "print('two', 3)",
    "print_(said)\nprint('three')",
    "print = print_",
    "print(said)",
)
sequence(
    "functools in odd places",
    "import functools\n@functools.total_ordering\nclass V:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o): return self.n == o.n\n    def __lt__(self, o): return self.n < o.n\n    def __hash__(self): return hash(self.n)\na, b = V(1), V(2); d = {a: 'a', b: 'b'}",
    "print(a <= b, max(a, b) is b, d[V(1)])",
    "red = functools.reduce; cmp = functools.partial(red, lambda x, y: x + y)",
    "print(cmp([1, 2, 3]), a >= b)",
    "a.n = 1; s = sorted([b, a])",
    "print(s[0] is a, d[a], b > a, cmp('ab'), V.__ge__ is not V.__gt__)",
)
sequence(
    "functions of one def have one code",
    "def make():\n    n = 0\n    def inc():\n        nonlocal n\n        n += 1; return n\n    return inc\na, b = make(), make()",
    "a(); c = make()",
    "b(); b(); d = lambda: c.__code__",
    "a.mark = [b]; c()",
    "print(a.__code__ is b.__code__ is c.__code__, d() is a.__code__, a.__closure__[0] is b.__closure__[0], a.mark[0] is b)",
)
