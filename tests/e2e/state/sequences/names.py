"""Names and identity: aliasing of every kind, and every way to bind and unbind a variable."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "three aliases, one undone",
    "a = [1]; b = a; c = {'k': a}",
    "a.append(2)\nprint(b, c)",
    "c['k'] = list(a); c['k'].append(3)",
    "b += [9]\nprint(a, b, c, a is b, c['k'] is a)",
    "d = c; del c; d['k2'] = a",
    "a.clear()",
    "print(a, b, d, a is b, d['k'] is a, d['k2'] is b, 'c' in globals())",
)
sequence(
    "components join and part",
    "xs = [1]; ys = [2]; zs = [3]",
    "pair = [xs, ys]",
    "ys.append(zs); xs.append('x')",
    "zs.append('z'); print(pair)",
    "pair = None; ys.pop()",
    "zs.append('alone'); xs.append('alone')",
    "link = {'x': xs, 'z': zs}",
    "link['x'].append(1); link['z'].append(2)\nprint(xs, ys, zs)",
    "print(xs, ys, zs, pair, link['x'] is xs, link['z'] is zs)",
)
sequence(
    "every way to bind a name",
    "a, (b, *c) = 1, (2, 3, 4)",
    "for i, [j, k] in enumerate([[5, 6], [7, 8]]): pass",
    "import io\nwith io.StringIO('text') as f, io.BytesIO() as g: f.read(2)",
    "if (n := len('four')) > 3: m = [w := 1, (v := w + 1)]",
    "exec('p = 1; q: int = 2'); globals()['r'] = [3]; globals().update(s={4}, t=(5,))",
    "import __main__\nsetattr(__main__, 'u', 'six'); __main__.x = {'y': 7}; vars(__main__)['z'] = 8",
    "def binder():\n    global from_function, also\n    from_function, also = [9], 10\n    import math as also_module\n    global mathematics\n    mathematics = also_module\nbinder()",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    kept = error\nimport os.path as pathy, json\nfrom collections import OrderedDict as OD, deque",
    "match {'kind': 'point', 'at': [1, 2, 3], 'more': 4}:\n    case {'kind': 'point', 'at': [first, *others], **rest}:\n        pass",
    "class K: pass\nasync def co(): pass\nlambda_ = lambda: 0\nann: list[int]\nann2: list[int] = [1]",
    "print(a, b, c, i, j, k, f.closed, g.closed, n, m, w, v, p, q, r, s, t, u, x, z, from_function, also)\nprint(mathematics.pi, repr(kept), pathy.basename('/a/b'), json.dumps([1]), OD, deque, first, others, rest, K, co.__name__, lambda_(), ann2)\nprint('error' in globals(), 'ann' in globals(), sorted(__annotations__))",
)
sequence(
    "every way to unbind a name",
    "a = b = c = d = e = [1]; f = 2; g = {}; keep = a",
    "del a, (b, [c])",
    "exec('del d'); del globals()['e']; import __main__; delattr(__main__, 'f')",
    "def undo():\n    global g\n    del g\nundo()",
    "try:\n    raise ValueError\nexcept ValueError as keep2:\n    pass\nglobals().pop('undo')",
    "print(sorted(n for n in globals() if n in 'abcdefg' or n in ('undo', 'keep', 'keep2')), keep)",
    "a = 'again'",
    "f",
    "print(a, keep, 'b' in dir(), [n for n in globals() if len(n) == 1 and n.isalpha()])",
)
sequence(
    "order of the namespace",
    "zeta = 1; alpha = 2; mid = 3",
    "del alpha; beta = 4",
    "alpha = [5]; zeta = 6",
    "globals()['last'] = mid; mid += 1",
    "mine = ('zeta', 'alpha', 'mid', 'beta', 'last')\nprint([n for n in globals() if n in mine])",
    "del zeta; zeta = 0",
    "print([n for n in globals() if n in mine], [n for n in locals() if n in mine])",
)
sequence(
    "a name rebound through every type",
    "v = 1",
    "v = [v]",
    "v = {'v': v}",
    "v['me'] = v",
    "v = lambda old=v: old['v']",
    "class v(int): pass",
    "v = v(7)",
    "v = (v, [v])",
    "v = iter(v); next(v)",
    "v = next(v)",
    "v += ['end']",
    "print(v, type(v[0]).__name__)",
)
sequence(
    "self reference through many kinds",
    "a = []; a.append(a); d = {}; d['d'] = d; t = ([],); t[0].append(t)\nclass N: pass\nn = N(); n.n = n; n.method = n.__init__",
    "s = set(); n.s = s; s.add(n)\ndef f(): return f\nf.me = f; f.d = d; d['f'] = f",
    "a.append(t); t[0].append(n)",
    "print(a[0] is a, d['d'] is d, t[0][0] is t, n.n is n, n in n.s, f().me is f, d['f'].d['d'] is d)",
    "print(a[1] is t, t[0][1] is n, n.method.__self__ is n, next(iter(s)) is n, len(s))",
)
sequence(
    "tuples that hold what changes",
    "base = [0]; t = (base, (base, {'k': base})); u = t[1]; v = t",
    "base.append(1); print(t, u)",
    "u[1]['k'].append(2); u[1]['new'] = t",
    "base.append(3)",
    "print(base, t[0] is base, u is t[1], v is t, u[1]['new'] is t, t[1][1]['k'] is base, len(t))",
)
sequence(
    "aliases through attributes, defaults, closures and containers",
    "shared = {'n': 0}\nclass C:\n    table = shared\n    def __init__(self): self.own = shared\ndef f(x=shared): x['n'] += 1; return x\ndef outer():\n    inner = shared\n    return lambda: inner\ng = outer(); c = C(); box = [(shared,)]",
    "f(); C.table['n'] += 10",
    "c.own['n'] += 100; g()['n'] += 1000",
    "box[0][0]['n'] += 10000; f.__defaults__[0]['m'] = 1",
    "shared['z'] = 2\nprint(c.table)",
    "print(shared, f.__defaults__[0] is shared, C.table is c.own is g() is box[0][0] is shared)",
)
sequence(
    "equal but not the same",
    "a = [1, 2]; b = [1, 2]; c = {'x': [a, b, list(a)]}; e1 = {}; e2 = {}; o1 = object(); o2 = object()",
    "a.append(3)",
    "print(a, b, c, a is c['x'][0], b is c['x'][1], a is b, e1 is e2, o1 is o2, o1 == o2)",
    "b.append(3); e1['k'] = o1; e2['k'] = o1",
    "print(a == b, a is b, e1 == e2, e1 is e2, e1['k'] is o1, e2['k'] is o2, c)",
)
sequence(
    "augmented assignments",
    "n = [1]; m = n; s = {1}; r = s; t = (1,); q = t; x = 5; w = x; st = 'a'; su = st",
    "n += [2]; s |= {2}; t += (2,); x += 1; st += 'b'",
    "n *= 2; s &= {2}; x **= 2; st *= 2",
    "n[1:3] = []; n[:0] = [0]; del n[-1]; s ^= {5}",
    "print(n, m, n is m, s, r, s is r, t, q, x, w, st, su)",
)
sequence(
    "private and odd names",
    "_a = [1]; __b = [2]; ___ = 3; __c__ = [4]; Ünïcödé = ['ü']; 変数 = {'k': _a}",
    "_a.append(__b); __c__.append(_a); globals()['not an identifier'] = [5]; globals()['with.dot'] = _a",
    "Ünïcödé.append(変数); globals()['not an identifier'].append(6)",
    "print(_a, __b, ___, __c__, Ünïcödé, 変数, globals()['not an identifier'], globals()['with.dot'] is _a)",
)
sequence(
    "shadowed builtins",
    "list = [1, 2]; len = lambda x: 42; id = 'mine'",
    "real = print\ndef print(*a): real('shadow', *a)\nprint(len(list), id)",
    "list.append(3); print(list)",
    "del list, len\nprint(list((1, 2)), len('abc'))",
    "max = min; sum = 5; del id",
    "print(max(1, 2), sum, id is not None, type(id).__name__)",
)
sequence(
    "swaps and rotations of objects",
    "a, b, c = [1], [2], [3]; ring = [a, b, c]",
    "a, b, c = b, c, a; ring.append(ring.pop(0))",
    "a.append('a'); ring[0].append('r0')",
    "ring[0], ring[2] = ring[2], ring[0]; b.append('b')",
    "print(a, b, c, ring, ring[0] is c, ring[1] is b, ring[2] is a)",
)
sequence(
    "two thousand names, one changes",
    "for i in range(2000): globals()[f'v{i}'] = [i]",
    "v7.append('x')",
    "v1999.append(v7)",
    "v7.append('y'); del v3",
    "print(v7, v1999, 'v3' in globals(), sum(len(globals()[f'v{i}']) for i in range(2000) if i != 3))",
)
sequence(
    "an alias made to an inner part",
    "tree = {'left': {'leaf': [1]}, 'right': ({'leaf': [2]},)}",
    "leaf = tree['left']['leaf']; right = tree['right'][0]",
    "leaf.append(10); right['leaf'] = leaf",
    "del tree['left']",
    "leaf.append(11)",
    "print(tree, leaf, right, tree['right'][0]['leaf'] is leaf)",
)
sequence(
    "bytearrays and views of them",
    "raw = bytearray(b'0123456789'); view = memoryview(raw); part = view[2:6]; deep = part[1:]; ro = view.toreadonly()",
    "part[0] = 65; raw[4] = 66",
    "deep[0] = 67; print(bytes(raw))",
    "cast = memoryview(bytearray(16)).cast('I'); cast[1] = 7; back = cast.obj; strided = view[::2]",
    "back[0] = 9; raw[0] = 90",
    "print(bytes(raw), part.tobytes(), deep.tobytes(), ro[0], ro.readonly, cast.tolist(), strided.tobytes(), strided.strides, part.obj is raw)",
)
sequence(
    "array.array with views",
    "import array\na = array.array('d', [1.0, 2.0, 3.0]); b = a; m = memoryview(a)[1:]",
    "m[0] = 20.0; print(a, b is a)",
    "a[2] = 30.0",
    "print(m.tolist(), m.format, m.obj is b)\nm.release()",
    "b.append(4.0); c = array.array('u', 'héé'); e = array.array('i')",
    "c.extend('x'); e.extend([1, 2])",
    "print(a, c, e, a is b)",
)
sequence(
    "mmap and struct",
    "import mmap, struct\nm = mmap.mmap(-1, 64); m.write(b'hello'); st = struct.Struct('<Ih')",
    "m[0:1] = b'J'; m.write(st.pack(7, -1)); pos = m.tell()",
    "print(m[:11], m.tell() == pos, st.size, st.format)",
    "m.seek(5); got = st.unpack(m.read(6))",
    "print(got, m.tell(), len(m), m[:5])",
)
sequence(
    "names of other kinds of text",
    "import enum\nclass E(enum.StrEnum):\n    one = 'one'\nclass Name(str): pass\nglobals()[Name('gamma')] = 3; globals()[E.one] = 1",
    "globals().update({Name('delta'): [gamma]}); delta.append(one)",
    "gamma += 1; globals()[Name('gamma')] += 1",
    "del one",
    "print(gamma, delta, 'one' in globals(), E.one)",
)
sequence(
    "keys of globals that are no names",
    "globals()[5] = 'x'; globals()[1, 2] = [1]",
    "globals()[1, 2].append(globals()[5])",
    "y = globals()[1, 2]",
    "print(globals()[1, 2], y, globals()[5])",
    pinned=True,
)
