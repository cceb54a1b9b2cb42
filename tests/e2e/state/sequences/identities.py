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
