"""What is found by identity or by a hash of before: NaNs, ids, keys that were changed."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "objects found by their ids",
    "class N:\n    def __init__(s, n): s.n = n\nobjs = [N(i) for i in range(3)]; by_id = {id(o): o.n for o in objs}; seen = {id(objs[0])}; i1 = id(objs[1])",
    "seen.add(id(objs[2])); objs[1].n = 'x'",
    "print([by_id[id(o)] for o in objs], id(objs[0]) in seen, i1 == id(objs[1]), len(seen))",
)
sequence(
    "a NaN of the notebook in containers of all kinds",
    "import math\nnan = float('nan'); lst = [1, nan]; t = (nan,); s = {nan}; d = {nan: 1}; inf = math.inf; mn = math.nan; l2 = [mn]",
    "lst.append(nan); s.add(nan); l2.append(math.nan)",
    "print(nan in lst, lst.count(nan), t == (nan,), len(s), nan in s, d.get(nan), lst[1] is lst[2], l2.count(math.nan), mn is math.nan)",
)
sequence(
    "members and keys changed while they are in sets and dicts",
    "class K:\n    def __init__(s, v): s.v = v\n    def __hash__(s): return hash(s.v)\n    def __eq__(s, o): return isinstance(o, K) and s.v == o.v\n    def __repr__(s): return f'K({s.v})'\na, b = K(1), K(2); st = {a, b}; fs = frozenset([a]); d = {a: 'a', b: 'b'}; nest = {fs: 'f'}",
    "a.v = 10; r1 = (a in st, K(1) in st, a in d, len(st))",
    "st.add(a); d[a] = 'again'; r2 = (len(st), len(d))",
    "a.v = 1; r3 = (a in st, d.get(K(1)), fs in nest, K(1) in fs)",
    "st.discard(K(1)); r4 = len(st), [x is a for x in st].count(True)",
    "d.pop(b); b.v = 'x'; d[b] = 'new'; r5 = sorted(map(str, d.values()))",
    "print(r1, r2, r3, r4, r5, next(iter(fs)) is a, len(d))",
)
sequence(
    "a key that is changed and changed back",
    "class K:\n    def __init__(s, v): s.v = v\n    def __hash__(s): return hash(s.v)\n    def __eq__(s, o): return isinstance(o, K) and s.v == o.v\na = K(1); d = {a: 'A'}; a.v = 2",
    "x = d.get(a), a in d, K(1) in d",
    "a.v = 1; y = d.get(a), d.get(K(1))",
    "print(x, y, len(d))",
)
sequence(
    "frozen members changed behind their back, and views",
    "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass P:\n    x: int; y: tuple = ()\na, b = P(1), P(2); s = {a, b}; d = {a: 'A', b: 'B'}; ks, vs = d.keys(), d.values(); inter = ks & s",
    "object.__setattr__(a, 'x', 50); r = a in s, P(50) in s, P(1) in s, len(s | {P(50)})",
    "d[P(50)] = 'fifty'; s.add(P(1))",
    "object.__setattr__(a, 'x', 1); r2 = a in s, len({*s}), d.get(P(1)), list(vs)",
    "print(r, r2, len(s), len(d), ks >= inter, [k.x for k in d])",
)
sequence(
    "tuples of a kind of the notebook, known by identity",
    "from collections import namedtuple\nTx = namedtuple('Tx', 'id amt tags'); txs = [Tx(i, i * 10, ['t']) for i in range(3)]; byid = {t.id: t for t in txs}; cur = txs[1]; pend = {Tx(9, 1, ())}; last9 = next(iter(pend))",
    "cur.tags.append('u'); txs.remove(cur)",
    "txs.append(cur._replace(amt=0)); byid[1] = txs[-1]",
    "gone = [t for t in byid.values() if not any(t is u for u in txs)]",
    "print(cur is byid[1], byid[2] is txs[1], byid[1] is txs[-1], txs[-1].tags is cur.tags, gone, last9 in pend, next(iter(pend)) is last9)",
)
sequence(
    "one text, number or tuple under several names",
    "a = b = 'some text ' * 3; t = (1, ('x', 2.5)); u = t; n = m = 10**20; f = g = 2.5 * 3; by = bz = bytes([7, 8, 9])",
    "r = [a is b, t is u, n is m, f is g, by is bz]; c = b",
    "r += [c is a]; b = ''.join(['some text ', 'some text ', 'some text ']); n = m + 0",
    "r += [a is b, a == b, a is c, n is m, n == m, t[1] is u[1]]; del u; f = g",
    "u = t; r += [u is t, f is g]",
    "print(r, a is c, a is b, u is t)",
)
sequence(
    "names that get another value together",
    "a = b = 'first text'; t = u = (1, 2.5)",
    "a = b = 'second text'; t = u = (3, 4.5)",
    "r = [a is b, t is u]",
    "a = b = 'third text'; n = m = 10**9",
    "print(r, a is b, t is u, n is m)",
)
sequence(
    "a priority queue whose removed entries are known by a text",
    "import heapq\nfrom itertools import count\nqueue, entries, number = [], {}, count()\nGONE = '<gone>'\ndef put(job, rank=0):\n    if job in entries: take_out(job)\n    entries[job] = [rank, next(number), job]\n    heapq.heappush(queue, entries[job])\ndef take_out(job): entries.pop(job)[-1] = GONE\ndef get():\n    while queue:\n        *_, job = heapq.heappop(queue)\n        if job is not GONE:\n            del entries[job]\n            return job\nput('wash', 3); put('cook', 1)",
    "put('read', 2); put('cook', 5)",
    "first = len(queue), [e[-1] is GONE for e in sorted(queue)]",
    "second = get(), next(number)",
    "put('sing', 0); third = get(), get()",
    "print(first, second, third, queue, entries['cook'] is queue[0])",
)
sequence(
    "texts, bytes and tuples that mark a place in containers of other variables",
    "UNSET = 'no value yet'; IDLE = 'idle'; END = b'end of it'; KEY = ('key', UNSET, 2.5)\nclass Mode: AUTO = 'chosen by itself'; OFF = 'off'\nclass Job:\n    def __init__(self): self.state, self.mode = IDLE, Mode.AUTO",
    "rows = [{'a': UNSET, 'b': 1}, {'a': ''.join(['no value', ' yet'])}]; job = Job(); parts = (b'x', END); table = {KEY: [KEY]}",
    "seen = [r['a'] is UNSET for r in rows], job.state is IDLE, job.mode is Mode.AUTO, parts[1] is END, next(iter(table)) is KEY, KEY[1] is UNSET",
    "Mode.AUTO = 'another'; UNSET2 = UNSET; UNSET = 'no value at all'; job.state = Mode.OFF",
    "later = rows[0]['a'] is UNSET2, rows[0]['a'] is UNSET, job.mode is Mode.AUTO, job.state is Mode.OFF, KEY[1] is UNSET2",
    "copies = [UNSET2] * 3; other = copies[0]; del UNSET2, END",
    "print(seen, later, rows[0]['a'] is copies[2] is other, rows[1]['a'] is other, table[KEY][0] is KEY, KEY[1] is other, parts)",
)
sequence(
    "one text in containers of variables that share nothing else, and had a name once",
    "mark = 'x y ' * 20; a = [mark, 'z']; b = [a[0]]; import re; text = 'find the word'; m = re.search('word', text)\nclass Token:\n    def __init__(self, source, at): self.source, self.at = source, at\ntokens = [Token(text, at) for at in (0, 5)]",
    "r = a[0] is b[0], m.string is text, tokens[1].source is text",
    "c = {'k': b[0]}; a[0] = ''.join(a[0]); text = text + '!'; del mark",
    "r += a[0] is b[0], c['k'] is b[0], m.string is text, tokens[0].source is m.string",
    "del b; other = a[0]; d = [c['k'], other]",
    "print(r, d[0] is c['k'], d[0] is a[0], d[1] is a[0], tokens[0].source is tokens[1].source is m.string)",
)

sequence(
    "immutable values of all kinds under two names",
    """
import collections, datetime as dt, decimal, fractions, operator, pathlib, uuid, zoneinfo
NT = collections.namedtuple('NT', 'a b')
values = dict(fs=frozenset([1, 2]), rg=range(3, 9), sl=slice(1, 2), de=decimal.Decimal('1.50'), fr=fractions.Fraction(1, 3), da=dt.date(2024, 1, 1), at=dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), td=dt.timedelta(3), tm=dt.time(3), uu=uuid.UUID(int=5), pa=pathlib.Path('x/y'), ga=list[int], un=int | None, nt=NT(1, 'x y'), tz=dt.timezone(dt.timedelta(hours=3)), zi=zoneinfo.ZoneInfo('Asia/Tokyo'), ig=operator.itemgetter(1), co=(lambda: 0).__code__, tu=(dt.date(2024, 1, 2), decimal.Decimal(3)), ff=frozenset([frozenset([1]), 'a b']))
for name, value in values.items(): globals()['x_' + name] = globals()['y_' + name] = value
del values, value, name
def parted(): return sorted(k for k in globals() if k[:2] == 'x_' and globals()[k] is not globals()['y_' + k[2:]])
""",
    "z_da = x_da; y_pa = pathlib.Path('x/y')",
    "print(parted(), z_da is y_da); x_fs = frozenset([1, 2])",
    "del x_da; print(parted(), z_da is y_da); best = y_td; y_fs = x_fs",
    "print(parted(), best is x_td is y_td, z_da is y_da)",
)

sequence(
    "numbers, times and types of numpy, pandas and torch under two names",
    """
import numpy as np, pandas as pd, torch
values = dict(nf=np.float64(2.5), ni=np.int32(7), nd=np.datetime64('2024-01-01'), dty=np.dtype([('a', int)]), ts=pd.Timestamp('2024-01-01', tz='Europe/Rome'), td=pd.Timedelta('3D'), pe=pd.Period('2024-01'), iv=pd.Interval(0, 1), de=torch.device('cpu'), sz=torch.Size([2, 3]), off=pd.offsets.Day(3), ct=pd.CategoricalDtype(['a']))
for name, value in values.items(): globals()['x_' + name] = globals()['y_' + name] = value
del values, value, name; arr = np.array([1., 2.]); best = score = arr.max()
def parted(): return sorted(k for k in globals() if k[:2] == 'x_' and globals()[k] is not globals()['y_' + k[2:]])
""",
    "arr[0] = 5; last = best",
    "print(parted(), best is score is last)",
    "score = arr.max(); print(parted(), best is last, score is best)",
    "print(parted(), best is last, score is best, score)",
    needs=("numpy", "pandas", "torch"),
)

sequence(
    "functions of modules that are methods of their objects, in tables, defaults and classes",
    """
import calendar, random, secrets
import numpy as np
table = {'u': random.random, 'n': np.random.normal, 'm': calendar.month, 'c': secrets.choice}
def shuffled(by=random.shuffle): return by is random.shuffle
class Walk: draw = staticmethod(random.randint); kinds = (random.gauss, np.random.rand)
class Patch:
    def __init__(self, owner, name, new): self.held = owner, name, getattr(owner, name); setattr(owner, name, new)
    def undo(self): setattr(*self.held)
""",
    "p = Patch(random, 'betavariate', lambda a, b: .5)",
    "print(table['u'] is random.random, table['n'] is np.random.normal, table['m'] is calendar.month, table['c'] is secrets.choice, random.betavariate(1, 1))",
    "p.undo(); random.seed(3); a = random.random(); random.seed(3); b = table['u']()",
    "print(a == b, shuffled(), Walk.draw is random.randint, Walk.kinds[0] is random.gauss, Walk.kinds[1] is np.random.rand, p.held[2] is random.betavariate)",
    needs="numpy",
)
sequence(
    "the dictionary of a library's object, shown and kept",
    "import argparse\np = argparse.ArgumentParser(prog='x'); p.add_argument('--lr', type=float, default=.1)\nargs = p.parse_args(['--lr', '0.5'])",
    "vars(args)",
    "args.lr *= 2; d = vars(args); d['extra'] = 1; print(args.extra, _)",
    "d['more'] = 2; print(args.more, vars(args) is d, _2 is d)",
    "print(p.parse_args([]).lr, args)",
)
sequence(
    "dates, paths, sets and fractions of variables that containers and classes hold",
    """
from datetime import date, timedelta; from decimal import Decimal; from pathlib import Path
START = date(2024, 1, 1); RATE = Decimal("0.19"); ROOT = Path("data"); ALLOWED = frozenset({"a", "b"}); STEP = timedelta(days=2)
cfg = {"start": START, "rate": RATE, "root": ROOT, "allowed": ALLOWED, "step": STEP, "grid": range(9)}
class Job:
    rate = RATE
    def __init__(self): self.start, self.allowed = START, ALLOWED
jobs = [Job(), Job()]; GRID = cfg["grid"]; groups = {ALLOWED: [ALLOWED], (START, 1): START}
""",
    "cfg['extra'] = jobs; jobs.append(ROOT)",
    "same = date(2024, 1, 1); cfg['same'] = same; START2 = START",
    "print([cfg[k] is v for k, v in dict(start=START, rate=RATE, root=ROOT, allowed=ALLOWED, step=STEP, grid=GRID, same=same).items()], same is START)",
    "print(Job.rate is RATE, jobs[0].start is START2 is jobs[1].start, jobs[0].allowed is groups[ALLOWED][0] is ALLOWED, jobs[2] is cfg['root'], groups[(START, 1)] is START)",
)
sequence(
    "hashes of objects kept as numbers",
    """
class Node:
    def __init__(self, n): self.n = n
nodes = [Node(i) for i in range(3)]; seen = {}
def once(node):
    if hash(node) in seen: return 'old'
    seen[hash(node)] = node.n; return 'new'
first = [once(node) for node in nodes[:2]]; marks = {hash(once), hash(Node)}
""",
    "second = [once(node) for node in nodes]",
    "print(first, second, [once(node) for node in nodes], len(seen), marks == {hash(once), hash(Node)})",
)
sequence(
    "contexts of multiprocessing",
    "import multiprocessing as mp\nctx = mp.get_context('fork'); box = [ctx, {'other': mp.get_context('spawn')}]; usual = mp.get_context()",
    "with ctx.Pool(1) as pool: done = pool.map(abs, [-1])\ndel pool",
    "print(done, ctx is mp.get_context('fork'), box[0] is ctx, box[1]['other'] is mp.get_context('spawn'), usual is mp.get_context())",
)
