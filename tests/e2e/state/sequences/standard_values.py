"""Values of the standard library: matches, templates, contexts, random streams, times, paths, containers, parsers."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "matches, patterns and scanners",
    """
import re, string, shlex, difflib
text = 'a1 b22 c333'; pat = re.compile(r'(?P<w>[a-z])(\\d+)', re.I); m = pat.search(text); ms = list(pat.finditer(text)); fm = re.fullmatch(b'x(y)?', bytearray(b'x')); part = pat.match(text, 3, 5); sc = re.Scanner([(r'\\d+', lambda s, t: int(t)), (r'\\s+', None), (r'\\w', lambda s, t: t)])
class T(string.Template): delimiter = '%'; idpattern = '[a-z]+'
tp = T('%who owes %{what}'); sm = difflib.SequenceMatcher(None, 'abcd', 'bcde'); lex = shlex.shlex('one "two three" four'); lex.get_token()
""",
    "got = [m.group('w'), part.span(), fm.groups('none')]",
    "print(got, [x.span(2) for x in ms], m.re is pat, m.string == text, m.lastgroup, m.expand(r'\\2\\1'), part.pos, part.endpos, fm[0])",
    "sub = pat.sub(lambda k: k['w'] * len(k[2]), text); print(sub, tp.substitute(who='x', what=1), sc.scan('12 ab')[0], sm.ratio(), m == ms[0])",
    "tok = lex.get_token(); blocks = sm.get_matching_blocks()",
    "print(tok, blocks, pat.groupindex, tp.pattern is T.pattern, ms[2]['w'], repr(m), pat.flags)",
)
sequence(
    "a pattern's iterators part-way go on",
    "import re, itertools\nit = re.finditer('(?<=b)a|^|c*', 'bacab'); first = next(it).span(); near = [it]; both = zip(it, 'xyz')",
    "near.append(next(it).span()); done = re.finditer('a', 'a'); list(done)",
    "one, two = next(both); print(one.span(), two, near[0] is it, near[1], first, list(done))",
    "rest = [m.span() for m in it]",
    "print(rest, list(it), list(both), [m.group() for m in re.finditer('b', 'bacab')])",
)
sequence(
    "decimal contexts with traps and flags",
    """
import decimal, fractions
from decimal import *
mine = Context(prec=6, rounding=ROUND_UP, traps=[DivisionByZero], flags=[]); saved = getcontext().copy(); setcontext(Context(prec=9, rounding=ROUND_HALF_EVEN)); d = Decimal('1.10'); n = Decimal('-0'); snan = Decimal('sNaN1')
""",
    "x = mine.divide(1, 3); y = Decimal(1) / 7",
    "print(x, y, mine.flags[Inexact], getcontext().prec, getcontext().flags[Inexact], n.is_signed(), snan, d.as_tuple())",
    "getcontext().traps[Inexact] = True; getcontext().clear_flags()",
    "try: Decimal(1) / 3\nexcept Inexact: print('inexact')\nprint(mine.create_decimal('1.23456789'))",
    "getcontext().traps[Inexact] = False; DefaultContext.prec = 33",
    "print(getcontext().prec, Decimal(2).sqrt(), DefaultContext.prec, saved.prec, mine.rounding, getcontext().flags[Inexact])",
    pinned=True,
)
sequence(
    "streams of random numbers that were spawned",
    """
import numpy as np, random
ss = np.random.SeedSequence(7); kids = ss.spawn(2); g = np.random.default_rng(kids[0]); h = np.random.Generator(np.random.Philox(kids[1])); more = g.spawn(1)[0]; bg = g.bit_generator; mt = np.random.RandomState(3); normal = g.normal
class Dice(random.Random):
    def __init__(self, sides, seed): self.sides = sides; self.rolls = 0; super().__init__(seed)
    def roll(self): self.rolls += 1; return self.randint(1, self.sides)
d = Dice(6, 1); r = random.Random(5); r.gauss(0, 1); shuffle = r.shuffle
""",
    "a = [g.integers(100), h.random(), more.random(), d.roll(), r.gauss(0, 1)]; xs = list(range(6)); shuffle(xs)",
    "print(a, xs, normal(), g.bit_generator is bg, ss.n_children_spawned, kids[0].spawn_key)",
    "third = ss.spawn(1)[0]; mt.standard_normal(); jumped = h.bit_generator.jumped() if hasattr(h.bit_generator, 'jumped') else None",
    "print(third.spawn_key, np.random.default_rng(third).integers(1000), d.roll(), d.rolls, mt.standard_normal(), h.integers(9, size=3), np.random.Generator(jumped).random())",
    "g.random(3, dtype='f4'); s = bg.state; kid = g.spawn(1)[0]",
    "bg.state = s; print(g.random(), g.integers(5, dtype='u1', size=5), kid.random() < 2, ss.n_children_spawned, bg.seed_seq is kids[0], bg.seed_seq.n_children_spawned, d.rolls); bg.state = s",
    needs="numpy",
)
sequence(
    "times with zones of every sort",
    """
import datetime as dt, zoneinfo, time, calendar, copy
z = zoneinfo.ZoneInfo('Europe/Rome'); fresh = zoneinfo.ZoneInfo.no_cache('Europe/Rome'); fixed = dt.timezone(dt.timedelta(hours=5, minutes=30), 'IST')
class Odd(dt.tzinfo):
    calls = 0
    def utcoffset(self, t): Odd.calls += 1; return dt.timedelta(minutes=17)
    def dst(self, t): return dt.timedelta(0)
    def tzname(self, t): return 'ODD'
class Day(dt.date):
    def __new__(cls, *a, mood='ok'): o = super().__new__(cls, *a); o.mood = mood; return o
odd = Odd(); a = dt.datetime(2023, 10, 29, 2, 30, tzinfo=z, fold=1); b = dt.datetime(2023, 10, 29, 2, 30, tzinfo=fresh); c = dt.datetime(2020, 1, 1, tzinfo=odd); t = dt.time(3, fold=1, tzinfo=fixed); day = Day(2020, 2, 29, mood='leap'); st = time.struct_time((2020, 1, 2, 3, 4, 5, 3, 2, 0)); delta = dt.timedelta(-1, 5)
""",
    "d = a.astimezone(fixed); e = a - dt.timedelta(hours=1)",
    "print(a.utcoffset(), b.utcoffset(), a.tzinfo is z, b.utcoffset() == fresh.utcoffset(b), c.tzname(), Odd.calls, day.mood, t.fold, d)",
    "day.mood = [day]; z2 = zoneinfo.ZoneInfo('Europe/Rome')",
    "print(z2 is z, e.utcoffset(), day.mood[0] is day, st.tm_year, st.tm_zone, delta, copy.copy(a).tzinfo is z, fixed, c.tzinfo is odd)",
)
sequence(
    "containers with limits, layers and order",
    """
from collections import *
import heapq, bisect, array, types
q = deque(range(5), maxlen=5); od = OrderedDict(a=1, b=2, c=3); od.move_to_end('a'); cm = ChainMap({'x': 1}, {'x': 0, 'y': [2]}); kid = cm.new_child({'z': 3}); cnt = Counter('mississippi')
class Od(OrderedDict):
    def __setitem__(self, k, v): SETS.append(k); super().__setitem__(k, v)
class Up(UserDict):
    def __missing__(self, k): return 'missing ' + k
SETS = []; o2 = Od(); o2['k'] = 1; o2.tag = 't'; u = Up(a=1); ul = UserList([1]); us = UserString('s'); proxy = types.MappingProxyType(cm.maps[1]); ns = types.SimpleNamespace(me=None, q=q); ns.me = ns; arr = array.array('d', [1, 2]); dd = defaultdict(lambda: len(dd))
""",
    "q.append('new'); q.rotate(2); cm.maps[1]['y'].append(q); od.move_to_end('c', last=False); dd['a'], dd['b']",
    "print(q, q.maxlen, list(od), kid['x'], kid.parents.maps[0] is cm.maps[0], cnt.most_common(2), SETS, o2.tag, ns.me is ns, dict(dd))",
    "kid['x'] = 9; cnt.subtract('mmm'); u.data['b'] = u; ul.append(ul.data); od.popitem(last=False); arr.append(3)",
    "print(cm['x'], kid['x'], cnt['m'], u['b'] is u, u['c'], ul[1] is ul.data, list(od), proxy['y'][1] is q, arr, SETS, +cnt)",
    "del q[0]; q.extendleft('ab'); o2['k'] = 2",
    "print(q, SETS[:2], list(o2.items()), ns.q is q, dd['a'], us.data, cm.maps[1]['y'][1].maxlen)",
)
sequence(
    "paths, trees of paths and temporary places",
    """
import pathlib, os, tempfile, shutil, glob, filecmp, fnmatch
root = pathlib.Path('tree'); (root / 'a' / 'b').mkdir(parents=True); (root / 'a' / 'f.txt').write_text('one'); rel = pathlib.PurePosixPath('x/../y'); win = pathlib.PureWindowsPath('c:/A/b'); here = pathlib.Path.cwd(); td = tempfile.TemporaryDirectory(dir='.', prefix='tmp'); st = (root / 'a' / 'f.txt').stat()
class Home(type(pathlib.Path())):
    extra = 'e'
hp = Home('tree'); table = {root: [hp], win: 'w'}
""",
    "walk = sorted(str(p) for p in root.rglob('*')); open(os.path.join(td.name, 'kept'), 'w').close()",
    "print(walk, table[pathlib.Path('tree')][0] is hp, win == pathlib.PureWindowsPath('C:/a/B'), os.listdir(td.name), st.st_size, here == pathlib.Path.cwd())",
    "(root / 'a' / 'f.txt').rename(root / 'g.txt'); entries = sorted(e.name for e in os.scandir('tree'))",
    "print(entries, hp.joinpath('g.txt').read_text(), type(hp / 'x').__name__, os.path.isdir(td.name))",
    "print(os.path.isdir(td.name), rel.parts, win.parts, hp.extra, st.st_mode == os.stat('tree/g.txt').st_mode)",
    pinned=True,
)
sequence(
    "parsers, trees of syntax and documents of the standard library",
    """
import ast, configparser, argparse, json, csv, io, email.message, html.parser, xml.dom.minidom as md, http.cookies, urllib.request, urllib.parse, graphlib, types, symtable, inspect, fractions, ipaddress
tree = ast.parse('x = 1 + y'); node = tree.body[0].value; cp = configparser.ConfigParser(allow_no_value=True, interpolation=configparser.ExtendedInterpolation()); cp.read_string('[a]\\nk = 1\\n[b]\\nr = ${a:k}2\\nflag'); sec = cp['a']; msg = email.message.EmailMessage(); msg['To'] = 'x@y'; msg.set_content('hi'); doc = md.parseString('<a><b/>t</a>'); ck = http.cookies.SimpleCookie('s=1; t=2')
class Links(html.parser.HTMLParser):
    def __init__(self): super().__init__(); self.found = []
    def handle_starttag(self, tag, attrs): self.found.append((tag, dict(attrs)))
hp = Links(); hp.feed('<a href=x><b'); op = urllib.request.build_opener(); op.addheaders = [('X', '1')]; req = urllib.request.Request('http://h/p', data=b'd', headers={'A': 'b'}); up = urllib.parse.urlsplit('http://u@h:1/p?q#f'); sig = inspect.signature(lambda a, /, b=[], *, c: 0); net = ipaddress.ip_network('10.0.0.0/29')
class Enc(json.JSONEncoder):
    def default(self, o): return sorted(o)
en = Enc(indent=None)
""",
    "node.left.value = 5; sec['k'] = '7'; msg['Cc'] = 'z'; doc.documentElement.firstChild.setAttribute('n', '1'); hp.feed(' id=q>')",
    "print(ast.unparse(tree), cp['b']['r'], cp.has_option('b', 'flag'), msg.as_string().count('\\n'), doc.toxml(), hp.found, ck['t'].value)",
    "ns = {'y': 2}; exec(compile(tree, 'm', 'exec'), ns); req.add_header('C', 'd'); ck['s']['path'] = '/'",
    "print(ns['x'], tree.body[0].value is node, req.headers, req.get_method(), ck.output(), up.port, up._replace(path='/z').geturl(), op.addheaders, [type(h).__name__ for h in op.handlers][:2])",
    "ts = graphlib.TopologicalSorter({'d': {'b', 'c'}, 'b': {'a'}}); ts.prepare(); first = sorted(ts.get_ready())",
    "print(first, en.encode({'k': {3, 1}}), sig, list(net.hosts())[0], sig.parameters['b'].default is sig.parameters['b'].default, sec.parser is cp, hp.rawdata, ts.is_active())",
)
sequence(
    "iterators in pipelines, all part-way",
    """
from itertools import *
import operator, io, csv, collections
log = []
src = iter(range(1, 100)); acc = accumulate(src, operator.mul, initial=1); win = zip(*[iter('abcdefgh')] * 3); ch = chain(islice(src, 2), repeat('r', 2)); en = enumerate(filter(lambda x: x % 3, count(1)), 100); mp = map(lambda a, b: log.append((a, b)) or a + b, src, cycle([10, 20]))
rows = csv.reader(io.StringIO('h1,h2\\n1,2\\n3,4\\n')); head = next(rows); sent = iter(collections.deque([3, 2, 1, 0]).popleft, 0); gb = groupby(sorted('aabbbc')); zs = zip_longest(en, 'xy')
""",
    "a = [next(i) for i in (acc, win, ch, en, mp, rows, sent, zs)]; k, g = next(gb); grp = list(g)",
    "print(a, k, grp, log)",
    "b = [next(i) for i in (acc, win, ch, en, mp, rows, sent, zs)]",
    "print(b, log, next(src), rows.line_num)",
    "c = [next(i, 'end') for i in (acc, win, ch, en, mp, rows, sent, zs)]; k2, g2 = next(gb); n2 = len(list(g2))",
    "rest = [list(islice(i, 3)) for i in (acc, win, ch, en, mp, rows, sent, zs)]; left = [(k, len(list(g))) for k, g in gb]",
    "print(c, k2, n2, rest, left, log)",
    pinned=True,
)
sequence(
    "a variable that holds mpmath's context",
    """
import mpmath
from mpmath import mp
mp.dps = 30; third = mpmath.mpf(1) / 3
""",
    "ctx = mpmath.mp; ctx.pretty = True",
    "third",
    "print(ctx is mpmath.mp, mp is ctx, ctx.dps, mpmath.sqrt(2), [mpmath.fp, mpmath.iv][0] is mpmath.fp)",
    needs=("mpmath",),
)
sequence(
    "a scanner of regular expressions",
    "import re\nn = 0\ndef number(s, t):\n    global n\n    n += 1; return int(t)\nsc = re.Scanner([(r'\\d+', number), (r'\\s+', None), (r'\\w+', lambda s, t: (t, n))])",
    "print(sc.scan('12 ab'))",
    "n += 10",
    "print(sc.scan('ab cd'), n, type(sc).__name__)",
)

sequence(
    "a pattern in variables, rules and matches that share nothing else",
    r"""
import re
p = re.compile(r'(\w+)@(\w+)', re.I); inline = re.compile('(?i)[xy]'); raw = re.compile(b'q')
found = list(p.finditer('a@b c@D')); kinds = {p: 'mail', inline: 'x'}
class Rule:
    def __init__(self, p): self.p = p; self.last = None
    def __call__(self, text): self.last = self.p.search(text); return self.last
""",
    "r = Rule(p); m = r('q@w')",
    "print(r.p is p, m.re is p, found[0].re is p, next(iter(kinds)) is p)",
    "rules = [Rule(one) for one in (*kinds, raw)]; rules[0]('z@z'); k = p.match('k@k')",
    r"print(rules[0].p is p, rules[2].p is raw, rules[1].p is inline, rules[0].last.re is k.re is p, re.compile(r'(\w+)@(\w+)', re.I) is p, re.compile('(?i)[xy]') is inline)",
    "print(len({id(one) for one in (p, r.p, m.re, k.re, found[1].re, rules[0].p, *kinds)}), m.groups(), kinds[rules[1].p])",
)
