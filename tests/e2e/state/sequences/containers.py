"""Values of the standard library: collections, numbers, dates, text; and very large or very deep ones."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "deque, Counter, ChainMap, OrderedDict",
    "from collections import *\ndq = deque([1, 2, 3], maxlen=4); it = iter(dq); c = Counter('mississippi'); base = {'a': 1}; cm = ChainMap({}, base, {'z': 26}); od = OrderedDict([('x', 1), ('y', [2]), ('z', 3)]); ud = UserDict(k=[1]); ul = UserList([1]); us = UserString('us')",
    "dq.append(4); dq.append(5); c['m'] += 10; cm['b'] = 2; base['a'] = 100; od.move_to_end('x')",
    "print(dq, c.most_common(2), cm['a'], dict(cm), list(od), dq.maxlen)",
    "dq.rotate(1); dq.appendleft('L'); c.subtract('ss'); child = cm.new_child({'n': 0}); od['y'].append(ud)",
    "ud['k'].append(ul); ul.append(us); child['n'] = 5; c2 = c + Counter(a=1)",
    "print(dq, c['s'], child['a'], child.parents.maps[1] is base, od['y'][1] is ud, ud, c2['a'], us + '!')",
    "od.popitem(last=False); del base['a']",
    "print(od, 'a' in child, child.maps[0], dq == deque(dq, 4), c - Counter('mi'))",
)
sequence(
    "defaultdict with factories of the notebook",
    "from collections import defaultdict\nmade = []\ndef factory(): made.append(len(made)); return {'id': len(made)}\nd = defaultdict(factory); nested = defaultdict(lambda: defaultdict(list)); n = defaultdict(int); tree = lambda: defaultdict(tree); t = tree()",
    "d['a']['x'] = 1; nested['p']['q'].append(1); n['c'] += 5; t['a']['b']['c'] = 1",
    "d['b']; nested['p']['r'].append(2)",
    "def factory(): return 'new factory'\nprint(d['c'], made, d.default_factory is factory)",
    "d.default_factory = factory; t['a']['b2']",
    "print(d['zz'], {k: dict(v) for k, v in nested.items()}, dict(n), n['nothing'], sorted(t['a']))",
    "print(list(d), made, nested['p'].default_factory is list, t['a'].default_factory is tree)",
)
sequence(
    "numbers of every kind",
    "from decimal import *; from fractions import Fraction; import math\nbig = 7 ** 5000; d = Decimal('1.10') + Decimal('2.205'); fr = Fraction(3, 9); c = 1e-300 + 2j; inf = float('-inf'); nan = float('nan'); z = -0.0; b = True; ctx = Context(prec=5)",
    "big += 1; d *= 3; fr += 1",
    "print(big % 1000007, d, fr, c.conjugate(), inf, nan != nan, math.copysign(1, z), b is True)",
    "getcontext().prec = 6; getcontext().rounding = ROUND_UP; x = Decimal(1) / Decimal(3)",
    "print(x, Decimal(2) / Decimal(3), ctx.divide(Decimal(1), Decimal(7)))",
    "with localcontext() as lc:\n    lc.prec = 3; y = Decimal(1) / 7",
    "print(y, Decimal(1) / 7, getcontext().prec, big.bit_length(), nan is nan, ctx.prec)",
)
sequence(
    "dates, zones and times",
    "from datetime import *; from zoneinfo import ZoneInfo\nz = ZoneInfo('UTC'); dt = datetime(2024, 2, 29, 12, tzinfo=timezone(timedelta(hours=5, minutes=30), 'IST')); d = date.min; t = time(1, 2, fold=1); td = timedelta(days=-1, microseconds=3)\nclass TZ(tzinfo):\n    def utcoffset(self, d): return timedelta(hours=OFF)\n    def dst(self, d): return None\n    def tzname(self, d): return 'mine'\nOFF = 3; own = datetime(2020, 1, 1, tzinfo=TZ())",
    "dt += td; OFF = 4",
    "print(dt, d, t, td, own, own.tzinfo.tzname(None))",
    "u = datetime(2020, 6, 1, tzinfo=z); same = dt.tzinfo",
    "print(u.tzinfo is z, same == dt.tzinfo, u.isoformat(), ZoneInfo('UTC') is z, dt.astimezone(z))",
    "import calendar, time as tm\nst = tm.struct_time((2020, 1, 2, 3, 4, 5, 6, 7, 0))",
    "print(st.tm_year, st, calendar.monthrange(2024, 2), own.utcoffset())",
)
sequence(
    "patterns, matches, hashes, uuids, urls",
    "import re, uuid, hashlib, hmac, string, ipaddress, urllib.parse as up\np = re.compile(r'(?P<w>\\w+)-(\\d+)', re.I); m = p.search('see ab-12 and CD-34'); it = p.finditer('a-1 b-2 c-3'); u = uuid.uuid5(uuid.NAMESPACE_DNS, 'x'); tpl = string.Template('$a is $b'); ip = ipaddress.ip_network('10.0.0.0/30'); url = up.urlparse('http://h/p?q=1#f')",
    "print(m.group('w'), m.span(2), m.re is p, m.groupdict(), m.pos)",
    "first = next(it).group()",
    "print(first, u, tpl.substitute(a=1, b=2), list(ip.hosts())[0], url.query)",
    "m2 = re.match('(a)(b)?', 'ac'); p2 = re.compile('x')",
    "print(m2.groups(), m2.string, m2.lastindex, p2.flags, p == re.compile(p.pattern, re.I), m.expand(r'\\2'))",
)
sequence(
    "a hash in the making is bound",
    "import hashlib\nh = hashlib.sha256(b'a'); n = [1]",
    "h.update(b'b'); n.append(2)",
    "h.update(b'c'); print(n)",
    "digest = h.hexdigest(); del h",
    "n.append(3)",
    "print(digest, n, hashlib.sha256(b'abc').hexdigest() == digest)",
    pinned=True,
)
sequence(
    "a linked list of thirty thousand",
    "class Node:\n    def __init__(self, v, nxt=None): self.v, self.next = v, nxt\nhead = None\nfor i in range(30000): head = Node(i, head)\ntail = head\nwhile tail.next: tail = tail.next",
    "tail.v = 'tail'; head.v = 'head'",
    "n = head; count = 0; last = None\nwhile n: count += 1; last = n; n = n.next\nprint(count, last is tail, last.v)",
    "tail.next = Node('appended'); tail = tail.next",
    "nest = []\nfor _ in range(20000): nest = [nest]",
    "depth = 0; x = nest\nwhile x: depth += 1; x = x[0]\nprint(depth, head.v, tail.v)",
    "del x",
    "n = head; vals = 0\nwhile n: vals += 1; end = n; n = n.next\nprint(vals, end is tail, end.v)",
)
sequence(
    "deep tuples, dicts and closures",
    "t = ()\nfor i in range(5000): t = (i, t)\nd = {}\ncur = d\nfor i in range(5000): cur['n'] = {}; cur = cur['n']\nbottom = cur; f = lambda: 0\nfor i in range(2000): f = (lambda g: lambda: g)(f)",
    "bottom['x'] = [1]",
    "n = 0; x = t\nwhile x: n += 1; x = x[1]\nprint(n)",
    "bottom['x'].append(2)",
    "k = 0; c = d\nwhile 'n' in c: k += 1; c = c['n']\nprint(k, c is bottom, c['x'])",
    "g = f; m = 0\nwhile callable(g) and g() != 0: g = g(); m += 1\nprint(m)",
    "print(bottom, len(d), c is bottom, m)",
)
sequence(
    "wide graphs and shared leaves",
    "leaf = ['leaf']; wide = [leaf] * 3 + [[i, leaf] for i in range(5000)]; index = {i: wide[i] for i in range(3, 5003)}; grid = [[0] * 50 for _ in range(50)]; bad = [[0] * 3] * 3",
    "leaf.append('x'); index[100].append('hundred'); bad[0][0] = 1",
    "print(wide[0] is wide[2] is leaf, wide[100], index[4000][1] is leaf, bad)",
    "grid[3][4] = leaf; del index[3]; bad[1] = list(bad[1])",
    "bad[0][1] = 2",
    "print(sum(len(r) for r in grid), grid[3][4] is leaf, bad, len(index), wide[100] is index[100])",
)
sequence(
    "large text and bytes edited",
    "text = 'abc ' * 300000; blob = bytes(range(256)) * 4000; ba = bytearray(blob); lines = [f'line {i}' for i in range(20000)]; same = text",
    "ba[500000:500003] = b'XYZ'; lines[777] = 'changed'; text2 = text.replace('abc', 'ABC', 1)",
    "print(len(text), text2[:8], ba[499999:500004], lines[776:779], same is text)",
    "ba.extend(b'end'); del lines[:10]; blob = blob[:-1] + b'!'",
    "print(len(ba), ba[-4:], len(lines), blob[-2:], hash(text) == hash(same))",
)
sequence(
    "namespaces, proxies and modules made in the notebook",
    "import types, sys\nns = types.SimpleNamespace(a=[1], b=types.SimpleNamespace(c=2)); mp = types.MappingProxyType({'k': ns.a}); mod = types.ModuleType('mymod', 'docs'); mod.x = [1]; exec('def f(): return x\\ndef g():\\n    global x\\n    x = x + [0]', mod.__dict__); sys.modules['mymod'] = mod",
    "ns.a.append(2); mod.x.append(2)",
    "import mymod\nprint(mymod.f(), mymod is mod, mp['k'], ns)",
    "from mymod import f, x as mx; mymod.g()",
    "print(f(), mx, mod.x, f.__globals__ is mod.__dict__)",
    "ns.b.me = ns; mod.child = types.ModuleType('child')",
    "print(ns.b.me is ns, mod.__doc__, mod.child.__name__, sys.modules['mymod'] is mod, f() is mod.x)",
)
sequence(
    "the dictionary of a namespace, in a variable, behind a proxy, as a view",
    "import types\nclass Settings(types.SimpleNamespace):\n    __slots__ = ('source',)\nns = types.SimpleNamespace(a=1); ns.me = ns; d = vars(ns); proxy = types.MappingProxyType(vars(ns)); names = vars(ns).keys()\ncfg = Settings(lr=.1); cfg.source = cfg; held = [vars(cfg)]",
    "d['b'] = 2; held[0]['epochs'] = 3",
    "ns.late = types.SimpleNamespace(up=ns); cfg.ns = ns",
    "print(vars(ns) is d, list(names), proxy['late'].up is ns, ns.b, ns.me is ns, vars(cfg) is held[0], cfg.epochs, cfg.source is cfg, type(cfg) is Settings, held[0]['ns'] is ns)",
)
sequence(
    "heaps, bisect, graphs, matrices of plain lists",
    "import heapq, bisect\nh = [5, 1, 4]; heapq.heapify(h); sorted_ = [1, 3, 5]; graph = {n: set() for n in 'abcd'}; m = [[1, 2], [3, 4]]",
    "heapq.heappush(h, 0); bisect.insort(sorted_, 4); graph['a'] |= {'b', 'c'}; graph['b'].add('d')",
    "print(heapq.heappop(h), h, sorted_)",
    "def bfs(s):\n    seen, todo = [s], [s]\n    while todo:\n        for n in sorted(graph[todo.pop(0)]):\n            if n not in seen: seen.append(n); todo.append(n)\n    return seen",
    "graph['d'].add('a'); m[0], m[1] = m[1], m[0]; tr = [list(r) for r in zip(*m)]",
    "print(bfs('a'), tr, m, heapq.nsmallest(2, h), sorted_)",
)
sequence(
    "sets and frozensets of mixed things",
    "s = {1, 'a', (1, 2), frozenset({3}), None, 2.5, True}; fs = frozenset(['x', frozenset(['y'])]); memo = {frozenset([1, 2]): [1], (1, (2, 3)): {'t'}}",
    "s.add('b'); s.discard(1); memo[frozenset([2, 1])].append(2)",
    "print(sorted(map(str, s)), frozenset(['y']) in fs, memo[frozenset([1, 2])])",
    "s2 = s; s2 -= {'a'}; s3 = s | {9}; memo[(1, (2, 3))].add('u')",
    "print(s is s2, sorted(map(str, s3)), sorted(memo[(1, (2, 3))]), 'a' in s)",
)
sequence(
    "ctypes and struct values",
    "import ctypes\nclass Pt(ctypes.Structure):\n    _fields_ = [('x', ctypes.c_int), ('y', ctypes.c_double)]\np = Pt(1, 2.5); arr = (ctypes.c_int * 4)(1, 2, 3, 4); i = ctypes.c_int(7); buf = ctypes.create_string_buffer(b'abc', 8)",
    "p.x += 10; arr[2] = 30",
    "print(p.x, p.y, list(arr), i.value, buf.value)",
    "i.value = 8; buf[0] = b'z'; p.y = -1.0",
    "print(p.x, p.y, list(arr), i.value, buf.raw)",
)
sequence(
    "copies, deep and shallow, of linked things",
    "import copy\nclass P:\n    def __init__(self): self.kids = []; self.tag = {'t': 1}\n    def __copy__(self): c = P(); c.kids = self.kids; return c\n    def __deepcopy__(self, memo): c = P(); c.tag = copy.deepcopy(self.tag, memo); memo['used'] = True; return c\np = P(); p.kids.append(p.tag); sh = copy.copy(p); dp = copy.deepcopy(p)",
    "p.kids.append(2); p.tag['t'] = 9",
    "print(sh.kids, dp.kids, dp.tag, sh.kids is p.kids)",
    "l = [[1], [2]]; l2 = copy.copy(l); l3 = copy.deepcopy(l)",
    "l[0].append('x'); l.append(3)",
    "print(l, l2, l3, l2[0] is l[0], l3[0] is l[0], sh.kids[0] is p.tag)",
)
sequence(
    "frozensets are iterated in the order in which they were",
    "words = [f'word{n * 7919 % 101}' for n in range(60)]; s = set(words); s -= set(words[::3])\nSTOP = frozenset(s); order = list(STOP); small = frozenset(['b', 'a', 'c', 7]) - {'a'}; was = list(small)",
    "conf = {'stop': STOP, 'nested': frozenset([STOP, small])}; vocabulary = {w: n for n, w in enumerate(STOP)}",
    "print(list(STOP) == order, list(small) == was, conf['stop'] is STOP, {w: n for n, w in enumerate(conf['stop'])} == vocabulary)",
    "MORE = STOP | {'x', 'y'}; more = list(MORE); alias = MORE",
    "print(list(MORE) == more, alias is MORE, [list(f) for f in conf['nested']] == [list(STOP if len(f) > 9 else small) for f in conf['nested']])",
)
sequence(
    "sets whose members have few hashes",
    "class P:\n    def __init__(self, n): self.n = n\n    def __hash__(self): return self.n % 3\n    def __eq__(self, o): return self.n == o.n\n    def __repr__(self): return f'P{self.n}'\ns = set()\nfor i in (7, 4, 1, 10, 2, 5): s.add(P(i))\ns.discard(P(4)); s.add(P(13)); f = frozenset([P(1), P(2), P(4)])",
    "print(list(s), s.pop(), P(4) in f, len(f))",
    "s.add(P(100)); t = s | f",
    "print(sorted(p.n for p in s), sorted(p.n for p in t), P(13) in s, P(7) in s)",
)
sequence(
    "a set of work that is taken from and added to",
    "todo = {n * 7 % 31 for n in range(12)}; words = {(n, n * 3) for n in range(6)}; done = []",
    "done += [todo.pop() for _ in range(5)] + [words.pop(), words.pop()]",
    "todo |= {1, 2, 3, 40, 33}; words.add((0, 0)); words.add((7, 1)); one = {5}; one.pop()",
    "done += [todo.pop(), todo.pop(), words.pop()]; todo.add(0); one |= {3, 9, 20}; done.append(one.pop())",
    "left = todo.copy(), words.copy(), one.copy(); done += [todo.pop() for _ in range(3)]",
    "print(done, list(todo), list(words), list(one), [s.pop() for s in (set(todo), set(words))])",
)
sequence(
    "structures of ctypes in each other, with pointers, bits and another order of bytes",
    "import ctypes\nclass Pt(ctypes.Structure):\n    _fields_ = [('x', ctypes.c_int), ('y', ctypes.c_double)]\n    made = []\n    def norm2(self): return self.x ** 2 + self.y ** 2\n    def __repr__(self): return f'Pt({self.x}, {self.y})'\nclass Box(ctypes.Structure):\n    _pack_ = 1\n    _fields_ = [('tag', ctypes.c_char), ('a', Pt), ('b', Pt * 2), ('bits', ctypes.c_uint, 3), ('more', ctypes.c_uint, 5)]\nclass U(ctypes.Union):\n    _anonymous_ = ('p',)\n    _fields_ = [('p', Pt), ('raw', ctypes.c_ubyte * 16), ('n', ctypes.c_int)]\np = Pt(1, 2.5); box = Box(b'z', Pt(3, 4)); inner = box.a; second = box.b[1]; u = U(); p.extra = [p]; Pt.made.append(p)",
    "inner.x = 30; second.y = 9.5; p.x += 1",
    "u.x = 7; box.bits = 5; q = ctypes.pointer(p); nul = ctypes.POINTER(Pt)()",
    "q.contents.y = 1.25; Pt.scale = lambda self, k: Pt(self.x * k, self.y * k)",
    "class Node(ctypes.Structure): pass\nNode._fields_ = [('v', ctypes.c_int), ('next', ctypes.POINTER(Node))]\nnn = 5\nclass Be(ctypes.BigEndianStructure): _fields_ = [('x', ctypes.c_uint16)]\nbe = Be(258); ps = (Pt * 3)(p, Pt(8, 8)); e = ps[1]",
    "e.x = 88",
    "print(p, box.a, inner, box.b[1], second, inner._b_base_ is box, u.n, u.raw[0], box.bits, box.more, box.tag, q.contents, p.extra[0] is p, Pt.made[0] is p, bool(nul), p.scale(2), p.norm2())\nprint(be.x, bytes(be), ps[1], e, ctypes.sizeof(Box), ctypes.sizeof(Pt), Node._fields_[1][0], type(be).__mro__[1].__name__, nn, Pt.x.offset, Pt.y.offset)",
)
sequence(
    "numbers, buffers and parts of structures of ctypes",
    "import ctypes, math\nclass Inner(ctypes.Structure): _fields_ = [('k', ctypes.c_int)]\nclass Outer(ctypes.Structure): _fields_ = [('i', Inner), ('j', Inner)]\no = Outer(); j = o.j; c = ctypes.c_int(5); d = ctypes.c_double(2); buf = ctypes.create_string_buffer(b'abc', 8); arr = (ctypes.c_int * 3)(1, 2, 3)\nclass Meter(ctypes.c_double):\n    def feet(self): return self.value * 3.28\nm = Meter(2.0)",
    "j.k = 9; c.value += 1; buf[0] = b'X'; arr[1] = 20",
    "m.value = 3; held = [j, c]",
    "held[0].k += 1; held[1].value += 1",
    "print(o.j.k, c.value, held[1] is c, buf.value, list(arr), round(m.feet(), 2), type(m).__name__, d.value)",
)
