"""Connections to SQLite in memory go on where they were, and what cannot be carried of them is named."""

# ruff: noqa: E501, ISC004 (a cell is one string, so that a case is one paragraph)

from __future__ import annotations

import sqlite3
import traceback
from pathlib import Path
from typing import Any

import pytest

from replkernel.errors import StateLostError
from replkernel.state.patches.registries import adapters_of_sqlite
from replkernel.state.python.sqlite3.watch import install
from tests.support.notebook import Notebook, pair

pytestmark = [
    # Python 3.13 says both of what the notebooks leave open, and of how they open it.
    pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Passing more than 1 positional argument:DeprecationWarning"),
]

MADE = (
    "import sqlite3\nc = sqlite3.connect(':memory:'); c.execute('create table t (a)')\n"
    "c.executemany('insert into t values (?)', [(i,) for i in range(5)]); c.commit()\n"
)

KEPT = [
    # what follows on one replica, what another one then runs, and what holds on both
    ("same = [c]", "c.execute('insert into t values (9)'); c.commit()", "sum(one(c)) == 19 and same[0] is c"),
    ("k = c.executemany('insert into t values (?)', [(7,), (8,)]); c.commit()", "n = k.rowcount; got = k.execute('select 1').fetchall()",
     "n == 2 and got == [(1,)] and k.fetchone() is None and k.connection is c"),
    ("f = c.row_factory = sqlite3.Row; r = c.execute('select a as n from t').fetchone()", "r2 = r",
     "r['n'] == 0 and r.keys() == ['n'] and r2 is r and c.row_factory is sqlite3.Row"),
    ("K = 3\nc.create_function('plus', 1, lambda a: a + K, deterministic=True)", "K = 10",
     "[r for r, in c.execute('select plus(a) from t where a < 2')] == [10, 11]"),
    ("class Sum:\n    def __init__(s): s.n = 0\n    def step(s, v): s.n += v\n    def finalize(s): return s.n\n"
     "c.create_aggregate('mine', 1, Sum)", "got = c.execute('select mine(a) from t').fetchone()", "got == (10,)"),
    ("c.create_collation('back', lambda a, b: (a < b) - (a > b))", "pass",
     "one(c, 'select a from t order by cast(a as text) collate back') == [4, 3, 2, 1, 0]"),
    ("c.execute('pragma foreign_keys = on'); c.execute('pragma cache_size = 77')", "pass",
     "one(c, 'pragma foreign_keys') == [1] and one(c, 'pragma cache_size') == [77]"),
    ("c.execute('pragma case_sensitive_like = on')", "pass", "one(c, \"select 'a' like 'A'\") == [0]"),
    ("c.text_factory = bytes", "pass", "one(c, \"select 'a'\") == [b'a']"),
    ("seen = []; c.set_trace_callback(seen.append)", "n = len(seen); c.execute('select 5').fetchall()",
     "n == 0 and seen == ['select 5']"),
    ("def auth(what, *a): return sqlite3.SQLITE_DENY if what == sqlite3.SQLITE_DROP_TABLE else 0\n"
     "c.set_authorizer(auth)", "pass", "denied(lambda: c.execute('drop table t'))"),
    ("seen = []\nc.set_progress_handler(lambda: seen.append(1), 1)", "n = len(seen)", "n == 0 and len(one(c)) == 5 and seen"),
    ("k = c.cursor(); k.execute('insert into t values (7)'); k.arraysize = 3; c.commit()", "pass",
     "(k.lastrowid, k.rowcount, k.arraysize, k.description) == (6, 1, 3, None) and k.connection is c"),
    ("k = c.execute('select a as x, 1 from t'); rest = k.fetchall()", "pass",
     "k.fetchone() is None and [d[0] for d in k.description] == ['x', '1'] and k.rowcount == -1"),
    ("k = c.cursor(); k.close()", "pass", "denied(k.fetchone) and k.connection is c"),
    ("c.close()", "pass", "denied(lambda: c.execute('select 1'))"),
    ("k = c.cursor(); k.close(); c.close()", "pass", "denied(k.fetchone) and k.connection is c"),
    ("k = c.cursor(); c.close()", "pass", "denied(k.fetchone) and k.connection is c"),
    ("n = c.total_changes", "m = c.total_changes", "n == m == 5"),
    ("c.execute('delete from t where a < 2'); c.commit()", "pass",
     "one(c, 'select changes()') == [2] and one(c, 'select total_changes()') == [c.total_changes] == [7]"),
    ("c.execute(\"attach ':memory:' as b\"); c.execute('create table b.u (z)'); c.execute('insert into b.u values (4)'); c.commit()",
     "pass", "one(c, 'select z from u') == [4]"),
    ("d = sqlite3.connect('', isolation_level=None, timeout=2); d.execute('create table q (a)')",
     "d.execute('insert into q values (1)')", "d.isolation_level is None and one(d, 'pragma busy_timeout') == [2000]"),
    ("d = sqlite3.connect(':memory:', detect_types=sqlite3.PARSE_COLNAMES, cached_statements=9)",
     "n = d.execute('select 1 as \"x [mark]\"').description[0][0]", "n == 'x'"),
    ("class Mine(sqlite3.Connection):\n    def __init__(self, *a, **k):\n        super().__init__(*a, **k); self.log = [self]\n"
     "d = sqlite3.connect(':memory:', factory=Mine); k = d.log", "d.execute('create table w (a)')",
     "type(d) is Mine and d.log is k and k[0] is d and one(d, 'select count(*) from w') == [0]"),
    ("class Mine(sqlite3.Connection): pass\nd = sqlite3.connect(':memory:', 5.0, 0, None, True, Mine, 9, True)", "d.execute('create table w (a)')",
     "type(d) is Mine and d.isolation_level is None and one(d, 'select count(*) from w') == [0]"),
    ("def make(*a, **k): return sqlite3.Connection(*a)\nd = sqlite3.connect(':memory:', factory=make); e = sqlite3.connect(':memory:', 5.0, 0, '', True, make)", "d.execute('create table w (a)')",
     "one(d, 'select count(*) from w') == [0] and one(e, 'select 1') == [1]"),
    ("from sqlite3 import connect", "pass", "connect is sqlite3.connect and one(connect(':memory:'), 'select 1') == [1]"),
    ("class Mine(sqlite3.Cursor): pass\nk = c.cursor(Mine); k.tag = [k]", "pass", "k.tag[0] is k and type(k) is Mine"),
    ("class Store:\n    def __init__(s): s.db = c; s.cur = c.cursor()\ns = Store()", "s.cur.execute('delete from t'); c.commit()",
     "one(s.db) == [] and s.cur.rowcount == 5 and s.cur.connection is c"),
    ("c.execute('create virtual table x using fts5(body)'); c.execute(\"insert into x values ('big dog')\"); c.commit()",
     "pass", "one(c, \"select body from x where x match 'dog'\") == ['big dog']"),
    ("d = sqlite3.connect(':memory:'); c.backup(d)", "d.execute('delete from t where a < 3'); d.commit()",
     "one(d) == [3, 4] and len(one(c)) == 5"),
    ("c.execute('insert into t values (zeroblob(9))'); c.commit()\n"
     "with c.blobopen('t', 'a', 6) as b: b.write(b'abc')", "pass", "one(c)[-1][:3] == b'abc'"),
    ("image = c.serialize(); c.execute('delete from t'); c.commit(); c.deserialize(image)", "c.deserialize(image)", "len(one(c)) == 5"),
    ("c.execute('create temp table x (a)'); c.execute('insert into x values (1)'); c.commit()", "c.execute('insert into x values (2)'); c.commit()",
     "one(c, 'select a from x') == [1, 2] and one(c, 'pragma temp.schema_version') == [1]"),
    ("n = [r[1:] for r in c.execute('pragma database_list')]", "m = [r[1:] for r in c.execute('pragma database_list')]", "n == m == [('main', '')]"),
    ("d = sqlite3.connect(':memory:'); d.execute('pragma encoding = \"UTF-16le\"'); d.execute('pragma page_size = 1024')", "d.execute('create table q (a)')",
     "one(d, 'pragma encoding') == ['UTF-16le'] and one(d, 'pragma page_size') == [1024]"),
    ("c.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 60)", "pass", "c.getlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH) == 60"),
]  # fmt: skip

NAMED = [
    ("c.execute('insert into t values (6)')", "c", "A transaction is open"),
    ("k = c.execute('select a from t')", "k", "rows left"),
    ("j = c.executemany('insert into t values (?)', [(7,)]); c.commit(); k = c.execute('select a from t'); k.fetchone()", "k", "rows left"),
    ("b = c.blobopen; c.execute('insert into t values (zeroblob(3))'); c.commit()\nb = c.blobopen('t', 'a', 6)", "b", "blob"),
    ("c.isolation_level = None\nk = c.execute('insert into t values (1), (2) returning a'); k.fetchone()", "c", "transaction"),
    ("c.close(); c = sqlite3.connect('file:known?mode=memory&cache=shared', uri=True)", "c", "share"),
    ("c.close(); c = sqlite3.connect('no.db', check_same_thread=False); import os; os.remove('no.db')", "c", "no.db is no longer at its path"),
    ("c.enable_load_extension(True)", "c", "extensions"),
    ("import threading, _sqlite3\ndef make():\n    global d\n    d = sqlite3.connect(':memory:')\n"
     "t = threading.Thread(target=make); t.start(); t.join(); del t", "d", "thread that made it"),
]  # fmt: skip

HELD = {
    "one": lambda c, sql="select a from t": [row[0] for row in c.execute(sql).fetchall()],
    "denied": lambda act: _raises(act),
}


def _raises(act: Any) -> bool:
    try:
        act()
    except sqlite3.Error:
        return True
    return False


@pytest.mark.parametrize(("made", "changed", "holds"), KEPT, ids=[made for made, *_ in KEPT])
def test_a_connection_goes_on_as_it_was(made: str, changed: str, holds: str) -> None:
    one, two = pair()
    delta = one.run(MADE + made, 1)
    assert not [pin for component in delta.components for pin in component.pins]
    assert two.take(delta).failed == ()
    assert one.take(two.run(changed, 2)).failed == ()
    assert one.state.unfaithful == two.state.unfaithful == ()
    assert two.capture(3).components == ()
    assert one.capture(4).components == ()
    assert eval(holds, {**HELD, **two.namespace})
    assert eval(holds, {**HELD, **one.namespace})


@pytest.mark.parametrize(("made", "name", "reason"), NAMED, ids=[made for made, *_ in NAMED])
def test_parts_of_a_database_that_cannot_be_carried_are_named(
    made: str, name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "load_extension" in made and not hasattr(sqlite3.Connection, "enable_load_extension"):
        pytest.skip("this Python was built without extensions of SQLite")
    notebook = Notebook("r1")
    delta = notebook.run(MADE + made, 1)
    reasons = {pin.name: pin.reason for component in delta.components for pin in component.pins}
    assert reason in reasons[name]
    for held in ("k", "b", "c"):
        if hasattr(notebook.namespace.get(held), "close"):
            notebook[held].close()


def test_a_large_database_is_told_only_when_it_changes() -> None:
    one, two = pair()
    fill = "c.execute('insert into t values (zeroblob(5000000))'); c.commit()"
    two.take(one.run(MADE + fill, 1))
    assert one.run("n = c.execute('select count(*) from t').fetchone()", 2).components[0].names == ("n",)
    one.cache.written.clear()
    delta = one.run("c.execute('update t set a = -1 where a = 1'); c.commit()", 3)
    assert len(one.cache.written) == 1
    two.take(delta)
    assert two["c"].execute("select a from t where a < 0").fetchall() == [(-1,)]


def test_an_end_of_the_transaction_sets_the_notebook_free() -> None:
    one, two = pair()
    one.run(MADE + "c.execute('delete from t')", 1)
    delta = one.run("c.rollback()", 2)
    assert not [pin for component in delta.components for pin in component.pins]
    two.take(delta)
    assert two["c"].execute("select count(*) from t").fetchone() == (5,)


def test_a_cursor_of_a_connection_that_stays_is_named_like_it() -> None:
    one, two = pair()
    delta = one.run(MADE + "k = c.execute('delete from t'); z = [k, c]", 1)
    assert {pin.name for component in delta.components for pin in component.pins} >= {"c", "k"}
    assert two.take(delta).failed == ()
    assert two.state.unfaithful == ()
    with pytest.raises(StateLostError):
        two["k"].fetchone()
    two.take(one.run("c.rollback()", 2))
    assert two["k"].connection is two["c"] is two["z"][1]


def test_adapters_that_ipython_adds_for_its_history_are_not_the_notebooks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of_history(value: bytes) -> bytes:
        return value

    of_history.__module__ = "IPython.core.history"
    monkeypatch.setitem(sqlite3.converters, "OF_HISTORY", of_history)
    assert not [place for place, _ in adapters_of_sqlite() if "OF_HISTORY" in place.root()]
    monkeypatch.setitem(sqlite3.converters, "OF_NOTEBOOK", lambda value: value)
    assert [place for place, _ in adapters_of_sqlite() if "OF_NOTEBOOK" in place.root()]


@pytest.mark.parametrize(
    "act",
    [
        lambda: sqlite3.connect("no/such/place.db"),
        lambda: sqlite3.connect(),  # type: ignore[call-overload]
        lambda: sqlite3.connect(":memory:").create_function("f"),  # type: ignore[call-arg]
        lambda: sqlite3.connect(":memory:").deserialize(1),  # type: ignore[arg-type]
    ],
)
def test_an_error_of_sqlite_has_no_lines_but_the_notebooks(act: Any) -> None:
    install()
    with pytest.raises((sqlite3.Error, TypeError)) as caught:
        act()
    files = {entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)}
    assert files == {__file__}


@pytest.mark.parametrize(
    "made",
    [
        "import sqlite3\nc = sqlite3.connect('gone.db'); c.execute('create table t (a)')",
        "import sqlite3\nc = sqlite3.connect(':memory:'); c.execute('attach \"gone.db\" as b'); c.execute('create table b.t (a)')",
        "c = open('gone.db', 'w+'); k = [c]",
    ],
)
def test_a_file_that_is_not_where_its_state_comes_to_is_named(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = pair()
    delta = one.run(made, 1)
    one["c"].close()
    (tmp_path / "gone.db").unlink()
    (failure,) = two.take(delta).failed
    assert str(tmp_path / "gone.db") in failure.reason
    with pytest.raises(StateLostError) as caught:
        two["c"].close()
    assert str(tmp_path / "gone.db") in caught.value.__notes__[0]
