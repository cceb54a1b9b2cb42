"""Iterators part-way: of containers, of itertools, views of dicts; and generators, which stay where they are."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "iterators of containers part-way",
    "xs = [1, 2, 3, 4, 5, 6]; d = {'a': 1, 'b': 2, 'c': 3, 'd': 4}; it = iter(xs); same = it; dk = iter(d); dv = iter(d.values()); di = iter(d.items()); s = iter('héllo wörld'); t = iter((1, 2, 3)); r = iter(range(0, 100, 7)); b = iter(b'bytes'); ba = bytearray(b'array'); bi = iter(ba)",
    "got = [next(i) for i in (it, dk, dv, di, s, t, r, b, bi)]; print(got)",
    "xs.append(7); ba.append(33); print(next(same), next(it))",
    "got = [next(i) for i in (it, dk, dv, di, s, t, r, b, bi)]; print(got)",
    "xs.insert(0, 'front'); rest = [next(it)]",
    "rest += [*same]; print(rest)",
    "print(list(it), [*dk], [*dv], [*di], ''.join(s), [*t], [*r][:2], bytes(b), bytes(bi))",
    "print(list(it), list(dk), list(s), same is it)",
)
sequence(
    "builtin adapters part-way",
    "base = [10, 20, 30, 40, 50]; e = enumerate(base, 5); z = zip(base, 'abcde'); m = map(lambda x: x * k, base); f = filter(lambda x: x % 20 == 0, base); rv = reversed(base); k = 2; inner = iter(base); z2 = zip(inner, inner)",
    "print(next(e), next(z), next(m), next(f), next(rv), next(z2))",
    "k = 100",
    "print(next(e), next(z), next(m), next(f), next(rv), next(inner))",
    "base.append(60)",
    "left = [list(i) for i in (e, z, m, f, rv, z2)]",
    "print(left, list(inner))",
)
sequence(
    "itertools part-way",
    "from itertools import *\nits = dict(count=count(5, 3), cycle=cycle('abc'), rep=repeat('r', 6), acc=accumulate([1, 2, 3, 4, 5]), ch=chain([1, 2], 'xy', [9]), cfi=chain.from_iterable([[1, 2], [3]]), comp=compress('abcdef', [1, 0, 1, 1, 0, 1]), dw=dropwhile(lambda x: x < 3, [1, 2, 3, 1, 5]), tw=takewhile(lambda x: x < 4, [1, 2, 3, 9]), sl=islice(count(), 2, 30, 4), sm=starmap(pow, [(2, 3), (3, 2), (4, 2)]), zl=zip_longest('ab', [1, 2, 3], fillvalue='-'), pr=product('ab', [1, 2]), pe=permutations([1, 2, 3], 2), co=combinations('abcd', 2), cr=combinations_with_replacement('ab', 2), pw=pairwise([1, 2, 3, 4]), ff=filterfalse(lambda x: x % 2, range(10)))",
    "print({n: next(i) for n, i in its.items()})",
    "print({n: next(i) for n, i in its.items()})",
    "cyc = its['cycle']; next(cyc)",
    "print({n: next(i, 'end') for n, i in its.items()})",
    "print(next(cyc))",
    "out = {n: list(islice(i, 3)) for n, i in its.items()}",
    "print(out)",
)
sequence(
    "tee halves share what was read",
    "from itertools import tee, islice, count\nsource = iter(range(100)); a, b = tee(source); c = list(islice(a, 3))",
    "print(next(b), next(a))",
    "d, = tee(b, 1); next(d)",
    "next(source)",
    "print(next(a), next(b), next(d))",
    "print(list(islice(a, 2)), list(islice(b, 4)), list(islice(d, 4)))",
    "end = [next(a), next(b), next(d), next(source)]",
    "print(end)",
)
sequence(
    "groupby and a shared iterator",
    "from itertools import groupby, islice\nwords = ['apple', 'avocado', 'bear', 'bean', 'cat']; it = iter(words); lines = iter(['h1', 'h2', 'row1', 'row2', 'row3'])",
    "head = list(islice(lines, 2))",
    "first = next(lines)",
    "groups = {k: list(g) for k, g in groupby(it, key=lambda w: w[0])}",
    "rows = list(lines)",
    "print(head, first, rows, groups, list(it))",
)
sequence(
    "set iterators and dict key order",
    "s = {1, 2, 3, 4, 5}; i = iter(s); first = next(i)",
    "others = sorted(i); print(sorted([first, *others]))",
    "fs = frozenset('abc'); j = iter(fs); one = {next(j)}",
    "two = set(j)",
    "print(sorted(one | two), len(one), len(two), list(i), list(j))",
)
sequence(
    "sequence iterators of user objects",
    "class Sq:\n    def __getitem__(self, i):\n        if i > 4: raise IndexError\n        return i * i\nclass It:\n    def __init__(self, n): self.n = n; self.i = 0\n    def __iter__(self): return self\n    def __next__(self):\n        if self.i >= self.n: raise StopIteration\n        self.i += 1; return self.i\nq = iter(Sq()); r = It(5); c = iter(lambda: next(r), 4); rv = reversed(range(5)); p = enumerate(It(3))",
    "print(next(q), next(q), next(c), next(rv))",
    "print(next(r), next(q), next(p))",
    "print(next(c, 'stop'))",
    "left = [list(x) for x in (q, r, c, rv, p)]",
    "print(left)",
)
sequence(
    "dict views follow their dict",
    "d = {'a': 1, 'b': 2}; k, v, i = d.keys(), d.values(), d.items(); from collections import OrderedDict\nod = OrderedDict(x=1); ok = od.keys(); import types\np = types.MappingProxyType(d); vs = [k, {'v': v}]",
    "d['c'] = [3]",
    "print(list(k), list(v), list(i), p['c'])",
    "del d['a']; od['y'] = 2; od.move_to_end('x')",
    "print(k & {'b', 'z'}, len(vs[1]['v']), vs[0] is k, list(ok))",
    "d = {'other': 0}",
    "k.mapping['c'].append(4) if False else p['c'].append(4)",
    "print(list(k), list(i), dict(p), d, list(od.items()), k.mapping == p)",
)
sequence(
    "a generator binds, then lets go",
    "def gen():\n    got = []\n    while True:\n        x = yield got\n        got.append(x)\ng = gen(); next(g); plain = [1]",
    "g.send('a'); plain.append(2)",
    "print(g.send('b'), plain)",
    "g.close(); plain.append(3)",
    "print(next(g, 'over'), plain)",
    "plain.append(4)",
    "print(plain, next(g, 'over'))",
    pinned=True,
)
sequence(
    "a generator is lost by name",
    "def numbers():\n    yield from range(10)\ng = numbers(); first = next(g); kept = {'first': first, 'list': [1]}",
    "kept['list'].append(next(g))",
    "print(kept, next(g))",
    refuses="'g' is a generator",
)
sequence(
    "a generator inside an object is lost, its neighbours are not",
    "class Reader:\n    def __init__(self): self.rows = (r for r in range(5)); self.done = []\n    def read(self): self.done.append(next(self.rows)); return self.done\nreader = Reader(); reader.read()",
    "reader.read()",
    "print(reader.done, reader.rows)",
    refuses="reader.rows",
)
sequence(
    "unstarted generators, coroutines and agen",
    "def g(): yield 1\nu = g()",
    "print(next(u, 'end'))",
    "print(next(u, 'end'))",
    "x = [1]",
    "print(x, next(u, 'end'))",
    pinned=True,
)
sequence(
    "iterators notice what happens to their dict",
    "d = {'a': 1, 'b': 2, 'c': 3, 'd': 4}; keys = iter(d); pairs = iter(d.items()); back = reversed(d.values()); same = pairs; print(next(keys), next(pairs), next(back))",
    "d['b'] = [2]; d['d'] = 'new'",
    "print(next(pairs), next(back), next(same))",
    "d['later'] = 5",
    "try: next(keys)\nexcept RuntimeError as error: print(error)",
    "del d['later']; over = iter({}); print(next(over, 'end'))",
    "print(next(pairs), next(back), pairs is same)",
    "try: next(keys)\nexcept RuntimeError as error: print(error)",
    "d['x'] = 0; print(next(over, 'end'))",
    "held = {'it': None, 'n': 1}; held['it'] = iter(held); print(next(held['it']))",
    "print(next(held['it']), next(held['it'], 'end'), next(over, 'end'))",
    "print(list(d), next(held['it'], 'end'))",
)
sequence(
    "iterators notice what happens to their set, deque or ordered dict",
    "from collections import OrderedDict, deque, Counter\ns = {1, 2, 3, 4}; q = deque('abc'); o = OrderedDict(x=1, y=2, z=3); c = Counter('aab'); i, j, k, l, m = iter(s), iter(q), iter(o.items()), reversed(o), iter(c.items()); print(next(i), next(j), next(k), next(l), next(m))",
    "o['y'] = [2]; c['b'] += 5",
    "print(next(i), next(j), next(k), next(l), next(m))",
    "q.append('d')",
    "try: next(j)\nexcept RuntimeError as error: print(error)",
    "s.add(9)\ntry: next(i)\nexcept RuntimeError as error: print(error)\ndel i",
    "print(list(k), list(l), list(m), sorted(s))",
    "try: next(j)\nexcept RuntimeError as error: print(error)",
)
sequence(
    "groups of a groupby taken in part",
    "from itertools import groupby\ngr = groupby([1, 1, 2, 2, 3]); k, g = next(gr); print(next(g))",
    "print(k, list(g))",
    "k, g = next(gr); print(k, next(g))",
    "print(list(g), [(k, list(g)) for k, g in gr])\ngr = g = None",
    "print(k)",
)
sequence(
    "adapters that are over stay over",
    "import itertools as it\nL = [it.count(1), it.cycle('a'), it.compress('a', [1]), it.dropwhile(bool, [1]), it.takewhile(bool, [1]), it.filterfalse(bool, [0]), it.starmap(pow, [(1, 2)]), it.zip_longest('a'), it.product('a'), it.permutations('a'), it.combinations('a', 1), it.combinations_with_replacement('a', 1), it.pairwise('ab'), it.groupby('a'), it.accumulate('a'), it.chain('a'), it.islice('ab', 1), it.repeat(1, 1), *it.tee('a'), reversed('a'), reversed(range(2)), reversed({1: 2}), iter(lambda: 1, 1), reversed((1, 2))]\nfor x in L[2:]: list(x)",
    "a = [next(x, 'end') for x in L]",
    "b = [next(x, 'end') for x in L]",
    "print(a, b, [next(x, 'end') for x in L[2:]])",
)
sequence(
    "backwards over what shrinks and grows",
    "class Q:\n    def __init__(s): s.d = [1, 2, 3]\n    def __getitem__(s, i): return s.d[i]\n    def __len__(s): return len(s.d)\nq = Q(); r = reversed(q); it = iter(q); l = [1, 2, 3]; rl = reversed(l); next(r); next(rl); next(it)",
    "q.d.clear(); l.clear(); x = list(rl), list(it), list(r)",
    "q.d.extend('ab'); l.extend('ab')",
    "print(x, list(rl), list(it), list(r))",
)
sequence(
    "generators that have not begun are made again",
    "data = [1, 2, 3]; k = 2\ndef g(a, *rest, b=1, **kw):\n    hist.append('began'); yield a; yield rest; yield b, kw\nhist = []\ndef outer():\n    n = 0\n    def inner(x):\n        nonlocal n\n        while n < 3: n += x; yield n\n    return inner, lambda: n\ninner, get = outer()\nclass C:\n    def it(self): yield self; yield from self.xs\nc = C(); c.xs = data; a = g(data, 5, b=c, z=1); e = (x * k for x in data); i = inner(2); m = c.it(); nest = {'l': [a, e]}; z = zip(e, data)",
    "data.append(4); k = 10",
    "r = next(m), list(z) if False else None",
    "s = next(nest['l'][0])",
    "t = list(e); u = list(i)",
    "print(r[0] is c, s is data, hist, t, u, get(), list(m), next(a), next(a)[0] is c)",
    "print(hist, t, u, get())",
    pinned=True,
)
sequence(
    "iterators of the notebook's own go on below others, without beginning anew",
    "class Steps:\n    def __init__(self, n): self.n = n; self.i = 0; self.begun = 0\n    def __iter__(self): self.i = 0; self.begun += 1; return self\n    def __next__(self):\n        if self.i == self.n: raise StopIteration\n        self.i += 1; return self.i\na, b = Steps(9), Steps(20); e = enumerate(a); z = zip(b, 'abcdefgh'); next(e), next(z)",
    "print(next(e), next(z), a.begun, b.begun)",
    "from itertools import groupby, takewhile\ng = groupby(e, key=lambda pair: pair[0] // 3); t = takewhile(lambda x: x < limit, b); limit = 6",
    "k, part = next(g); print(k, next(part), next(t))",
    "rest = [next(part)], list(t), [(k, list(p)) for k, p in g]",
    "after = next(z)",
    "print(rest, after, a.begun, b.begun, b.i)",
)
sequence(
    "coroutines and asynchronous generators wait to begin",
    "import asyncio\nasync def job(n, sink): sink.append(n); await asyncio.sleep(0); return n * 2\nasync def ticks(n):\n    for i in range(n): yield i\nsink = []; first = job(1, sink); steps = ticks(3); more = {i: job(i, sink) for i in (2, 3)}",
    "sink.append('before'); print(first.__name__, steps.__qualname__, len(more))",
    "one = await first",
    "rest = await asyncio.gather(*more.values()); seen = [i async for i in steps]",
    "again = job(4, sink)\ntry: await first\nexcept RuntimeError as error: print(error)",
    "again.close(); print(one, rest, seen, sink)",
)
