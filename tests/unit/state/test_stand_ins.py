"""NaNs, ids of objects and keys whose hash has changed are what they were, wherever they were moved."""

from __future__ import annotations

import pytest

from tests.support.notebook import moved, pair


@pytest.mark.parametrize(
    ("cells", "check"),
    [
        (("n = float('nan'); x = [1, n]", "x.append(n)"), "x.count(n) == 2 and n in x"),
        (("n = float('nan'); d = {n: 1}; t = (n,)", "d[n] += 1"), "d == {n: 2} and t == (n,)"),
        (
            ("x = [float('nan')] * 3; y = [float('nan'), float('nan')]", "z = 1"),
            "x.count(x[0]) == 3 and y.count(y[0]) == 1",
        ),
        (("n = float('nan')", "class A: v = n", "a = A(); a.w = [n]"), "a.w == [A.v] and a.w[0] is n"),
        (("n = float('nan'); f = lambda x=n: x", "m = f()"), "m is n"),
        (("n = float('nan'); x = [n]", "m = n", "del n", "y = x * 2"), "y == [m, m]"),
    ],
)
def test_a_nan_that_several_places_hold_stays_one(cells: tuple[str, ...], check: str) -> None:
    assert eval(check, moved(*cells))


def test_a_nan_that_one_place_holds_needs_no_name() -> None:
    executor, _ = pair()
    one = executor.run("x = [float('nan'), float('nan')]", 1)
    of_the_notebook = [unit.names for unit in one.components if not unit.names[0].startswith("library ")]
    assert of_the_notebook == [("x",)]
    assert executor.run("y = 1", 2).components[0].names == ("y",)


_OBJECTS = "class N: pass\nxs = [N(), N()]; d = {}; f = lambda: 1\n"


@pytest.mark.parametrize(
    ("cells", "check"),
    [
        (
            (_OBJECTS + "ids = {id(x): i for i, x in enumerate(xs)}", "again = 1"),
            "[ids[id(x)] for x in xs] == [0, 1]",
        ),
        (
            (_OBJECTS + "seen = {id(xs[0]), id(d), id(f), id(N)}", "seen.add(id(xs))"),
            "seen == {id(o) for o in (xs[0], d, f, N, xs)}",
        ),
        (
            (_OBJECTS + "xs[0].me = id(xs[0]); one = id(d)", "again = 1", "d[1] = one"),
            "xs[0].me == id(xs[0]) and d[1] == one == id(d)",
        ),
        (
            (
                _OBJECTS + "hs = {hash(x): x for x in xs}; h = hash(f); k = {hash(N)}",
                "again = 1",
            ),
            "[hs[hash(x)] for x in xs] == xs and h == hash(f) and k == {hash(N)}",
        ),
        (
            ("class V:\n def __hash__(self): return 1 << 42\nv = V(); h = hash(v)", "again = 1"),
            "h == hash(v) == 1 << 42",
        ),
        (
            ("xs = [[1]]; ids = {id(xs[0]): 'a'}", "ids[id(xs[0])] += 'b'", "xs.clear()"),
            "list(ids.values()) == ['ab']",
        ),
        (("n = [140_000_000_000_000 + i for i in range(9)]", "again = 1"), "n[8] == 140_000_000_000_008"),
    ],
)
def test_the_id_of_an_object_is_its_id_where_it_is_now(cells: tuple[str, ...], check: str) -> None:
    assert eval(check, moved(*cells))


def test_the_object_of_an_id_is_told_with_it() -> None:
    executor, standby = pair()
    standby.take(executor.run("xs = [[1]]; ids = {id(xs[0]): 'a'}", 1))
    delta = standby.run("xs[0].append(2)", 2)
    assert [component.names for component in delta.components] == [("xs", "ids")]


_KEYS = (
    "class K:\n"
    "  def __init__(s, v): s.v = v\n"
    "  def __hash__(s): return hash(s.v)\n"
    "  def __eq__(s, o): return isinstance(o, K) and s.v == o.v\n"
    "a, b = K(1), K(2); d = {a: 'a', b: 'b', 'c': 0}; s = {a, b, 7}; f = frozenset([a]); n = {f: 1}\n"
)


@pytest.mark.parametrize(
    ("cells", "check"),
    [
        (
            ("a.v = 3", "again = 1"),
            "a not in d and a not in s and a not in f and len(d) == 3 and d['c'] == 0 and 7 in s",
        ),
        (
            ("a.v = 3", "a.v = 1"),
            "d[a] == d[K(1)] == 'a' and a in s and K(1) in f and n[frozenset([K(1)])] == 1",
        ),
        (
            ("a.v = 3", "s.add(a); d[a] = 'again'", "again = 1"),
            "len(s) == 4 and len(d) == 4 and list(d.values()) == ['a', 'b', 0, 'again']",
        ),
        (
            ("a.v = 3", "s.add(K(1)); d[K(1)] = 'n'", "a.v = 1"),
            "len(s) == len(d) == 4 and len({k for k in s}) == 3 and d[a] == 'a'",
        ),
        (("a.v = 2", "d[K(1)] = 'new'", "e = d"), "len(d) == 4 and e is d and d[b] == 'b'"),
        (
            ("e = {(b, 1): 't', ((b, 'x'), 2): 'u'}; b.v = 20", "e[b, 1] = 'again'"),
            "list(e.values()) == ['t', 'u', 'again'] and ((b, 'x'), 2) not in e and len({k for k in e}) == 2",
        ),
        (
            (
                "from collections import namedtuple\nT = namedtuple('T', 'k')\ne = {T(b)}; b.v = 20",
                "e.add(T(b))",
            ),
            "len(e) == 2 and len({k for k in e}) == 1",
        ),
        (("a.v = 3; a.d = d; d['self'] = d", "again = 1"), "a.d is d is d['self'] and next(iter(d)) is a"),
        (
            ("a.v = 3; t = [s, d]", "t[0].discard(b); t[1].pop(b)"),
            "s is t[0] and len(s) == 2 and list(d) == [a, 'c']",
        ),
    ],
)
def test_a_key_whose_hash_has_changed_is_found_and_missed_as_before(
    cells: tuple[str, ...], check: str
) -> None:
    assert eval(check, moved(_KEYS, *cells))


def test_a_hash_method_with_effects_is_not_asked_by_a_capture() -> None:
    executor, _ = pair()
    executor.run(
        "n = []\nclass K:\n  def __hash__(s): n.append(1); return 5\n"
        "class P:\n  def __hash__(s): return 7\nd = {K(): 1, (P(), (K(),)): 2}",
        1,
    )
    assert executor.namespace["n"] == [1, 1]


_ALIKE = (
    "class P:\n"
    "  def __init__(s, n): s.n = n\n"
    "  def __hash__(s): return s.n % 3\n"
    "  def __eq__(s, o): return s.n == o.n\n"
    "s = set()\n"
    "for i in (7, 4, 1, 10, 2, 5): s.add(P(i))\n"
)


@pytest.mark.parametrize("then", ["", "s.discard(P(4)); s.add(P(13))", "f = frozenset(s); s.clear()"])
def test_members_with_one_hash_travel_in_their_order(then: str) -> None:
    executor, standby = pair()
    assert standby.take(executor.run(_ALIKE + then, 1)).failed == ()
    members = [p.n for p in standby["f" if "f" in standby else "s"]]
    assert members == [p.n for p in executor["f" if "f" in executor else "s"]]
    assert standby.capture(2).components == ()
