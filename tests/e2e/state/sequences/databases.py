"""SQLite: databases in memory and in files, what a notebook gave their connections, cursors, rows, libraries on them."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "sqlite in memory with data",
    "import sqlite3\ndb = sqlite3.connect(':memory:'); db.execute('create table t (k text primary key, v int)'); db.executemany('insert into t values (?, ?)', [('a', 1), ('b', 2)]); db.commit()",
    "db.execute(\"update t set v = v + 10 where k = 'a'\"); db.commit()",
    "print(db.execute('select * from t order by k').fetchall())",
    "db.row_factory = sqlite3.Row; same = db",
    "row = same.execute('select * from t').fetchone(); db.execute('create index i on t (v)'); db.commit()",
    "print(dict(row), row.keys())",
    "db.execute(\"insert into t values ('c', 3)\")\ndb.commit()",
    "print([tuple(r) for r in db.execute('select count(*), sum(v) from t')], same is db, db.total_changes >= 0)",
)
sequence(
    "sqlite file database",
    "import sqlite3\ndb = sqlite3.connect('d.sqlite'); db.execute('create table t (x)'); db.execute('insert into t values (1)'); db.commit()",
    "db.execute('insert into t values (2)'); db.commit()",
    "print(db.execute('select sum(x) from t').fetchone())",
    "cur = db.cursor()",
    "print(cur.execute('select count(*) from t').fetchone())",
    "cur.close(); db.close()",
    "try: db.execute('select 1')\nexcept sqlite3.ProgrammingError as e: print(e)",
)
sequence(
    "a cursor part-way is lost by name",
    "import sqlite3\ndb = sqlite3.connect(':memory:'); db.execute('create table t (x)'); db.executemany('insert into t values (?)', [(i,) for i in range(5)]); db.commit(); cur = db.execute('select x from t order by x'); first = cur.fetchone(); safe = [1]",
    "safe.append(cur.fetchone())",
    "print(safe, cur.fetchone())",
    refuses="cur",
)
sequence(
    "functions, aggregates and collations of a connection",
    "import sqlite3\ndb = sqlite3.connect(':memory:'); db.execute('create table t (w text, n int)'); db.executemany('insert into t values (?, ?)', [('b', 1), ('A', 2), ('c', 3)]); db.commit(); rate = 2",
    "def scaled(n): return n * rate\ndb.create_function('scaled', 1, scaled, deterministic=True)",
    "class Longest:\n    def __init__(self): self.best = ''\n    def step(self, w): self.best = max(self.best, w)\n    def finalize(self): return self.best\ndb.create_aggregate('longest', 1, Longest); db.create_collation('nocase2', lambda a, b: (a.lower() > b.lower()) - (a.lower() < b.lower()))",
    "print(db.execute('select scaled(n) from t order by w collate nocase2').fetchall())",
    "rate = 10",
    "print(db.execute('select scaled(sum(n)), longest(w) from t').fetchall())",
    "db.create_function('scaled', 1, lambda n: -n)",
    "class Sum:\n    def __init__(self): self.n = 0\n    def step(self, v): self.n += v\n    def inverse(self, v): self.n -= v\n    def value(self): return self.n\n    finalize = value\ndb.create_window_function('moving', 1, Sum)",
    "print(db.execute('select scaled(n), moving(n) over (order by n rows between 1 preceding and current row) from t').fetchall())",
)
sequence(
    "transactions that stay open over cells",
    "import sqlite3\ndb = sqlite3.connect(':memory:'); db.execute('create table t (x)'); db.execute('insert into t values (1)')",
    "print(db.in_transaction, db.total_changes); db.commit()",
    "db.execute('insert into t values (2)'); n = db.total_changes",
    "print(db.execute('select count(*) from t').fetchone(), db.in_transaction)",
    "db.rollback()",
    "print(db.execute('select count(*) from t').fetchone(), db.in_transaction)",
    "try:\n    with db:\n        db.execute('insert into t values (3)'); raise KeyError('no')\nexcept KeyError as e: print(e)",
    "with db: db.execute('insert into t values (4)')",
    "db.isolation_level = None; db.execute('savepoint a'); db.execute('delete from t')",
    "db.execute('rollback to a'); db.execute('release a')",
    "print(db.execute('select x from t').fetchall(), db.in_transaction, db.isolation_level, db.total_changes)",
    pinned=True,
)
sequence(
    "an open transaction is lost by name",
    "import sqlite3\ndb = sqlite3.connect(':memory:'); db.execute('create table t (x)'); safe = [1]",
    "db.execute('insert into t values (1)')",
    "print(safe, db.execute('select * from t').fetchall())",
    refuses="'db'",
    pinned="A transaction is open",
)
sequence(
    "rows by name and by a factory",
    "import sqlite3, collections\ndb = sqlite3.connect(':memory:'); db.executescript('create table p (id integer primary key, name text, age int); insert into p (name, age) values (\"Ada\", 36), (\"Bob\", 41);'); db.row_factory = sqlite3.Row",
    "rows = db.execute('select * from p').fetchall(); first = rows[0]",
    "print(first['name'], first.keys(), tuple(rows[1]), rows[0] is first)",
    "People = collections.namedtuple('People', 'id name age')\ndef as_people(cursor, row): return People(*row)\ndb.row_factory = as_people",
    "print(db.execute('select * from p where age > 40').fetchone())",
    "db.row_factory = lambda c, r: {d[0]: v for d, v in zip(c.description, r)}; by_hash = {first: 'first'}",
    "print(db.execute('select name, age from p').fetchall(), by_hash[rows[0]], first == rows[0], first != rows[1])",
)
sequence(
    "cursors between their statements",
    "import sqlite3\ndb = sqlite3.connect(':memory:'); cur = db.cursor(); cur.execute('create table t (a, b)'); db.commit()",
    "cur.executemany('insert into t values (?, ?)', [(1, 'x'), (2, 'y'), (3, 'z')]); db.commit()",
    "print(cur.rowcount, cur.lastrowid, cur.description, cur.fetchone())",
    "cur.execute('insert into t values (9, null)'); db.commit(); other = db.cursor(); other.arraysize = 2",
    "print(cur.lastrowid, cur.rowcount, cur.connection is db); everything = cur.execute('select a, b as bee from t').fetchall()",
    "print(everything, [d[0] for d in cur.description], cur.fetchone(), other.execute('select a from t').fetchmany())",
    "rest = other.fetchall(); cur.close()",
    "try: cur.fetchone()\nexcept sqlite3.ProgrammingError as e: print(e, rest, other.arraysize)",
    pinned=True,
)
sequence(
    "adapters and converters of sqlite3",
    "import sqlite3\nclass Point:\n    def __init__(self, x, y): self.x, self.y = x, y\ndef to_text(p): return f'{p.x};{p.y}'\nsqlite3.register_adapter(Point, to_text)\nsqlite3.register_converter('point', lambda text: Point(*map(float, text.split(b';'))))",
    "db = sqlite3.connect(':memory:', detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES); db.execute('create table t (p point)'); db.commit()",
    "db.execute('insert into t values (?)', (Point(1, 2),)); db.commit()",
    "p = db.execute('select p from t').fetchone()[0]",
    'print(type(p) is Point, p.x, p.y, db.execute(\'select "3;4" as "q [point]"\').fetchone()[0].y)',
    "sqlite3.register_converter('point', lambda text: 'again')",
    "print(db.execute('select p from t').fetchall())",
)
sequence(
    "a class that holds its connection",
    "import sqlite3, contextlib\nclass Store:\n    def __init__(self):\n        self.db = sqlite3.connect(':memory:'); self.cur = self.db.cursor(); self.cur.execute('create table kv (k primary key, v)'); self.db.commit()\n    def __setitem__(self, k, v):\n        with self.db: self.db.execute('insert or replace into kv values (?, ?)', (k, v))\n    def __getitem__(self, k): return self.cur.execute('select v from kv where k = ?', (k,)).fetchall()[0][0]\ns = Store(); s['a'] = 1",
    "s['b'] = 'two'; db = s.db",
    "print(s['a'], s['b'], db is s.db, s.cur.connection is db)",
    "class Counting(sqlite3.Connection):\n    def __init__(self, *a, **k): super().__init__(*a, **k); self.asked = 0\n    def execute(self, *a): self.asked += 1; return super().execute(*a)\nc = sqlite3.connect(':memory:', factory=Counting); c.execute('create table t (x)')",
    "c.execute('insert into t values (5)'); c.commit()",
    "print(c.asked, type(c).__name__, c.execute('select x from t').fetchall())",
    "copy = sqlite3.connect(':memory:'); db.backup(copy); s['a'] = 'changed'",
    "print(copy.execute('select v from kv where k = \"a\"').fetchall(), s['a'], list(db.iterdump())[:2])",
)
sequence(
    "settings, attached and temporary databases",
    "import sqlite3\ndb = sqlite3.connect(':memory:', isolation_level=None, timeout=1.5); db.execute('pragma foreign_keys = on'); db.execute('create table a (id integer primary key)'); db.execute('create table b (a references a (id) on delete cascade)')",
    "db.execute('insert into a values (1), (2)'); db.execute('insert into b values (1), (2), (2)'); db.execute('pragma user_version = 7')",
    "db.execute('delete from a where id = 2'); print(db.execute('select count(*) from b').fetchone(), db.execute('pragma foreign_keys').fetchone())",
    "db.execute(\"attach ':memory:' as side\"); db.execute('create table side.notes (x)'); db.execute('create temp table scratch (y)'); db.execute('insert into scratch values (3)')",
    "db.execute('insert into notes select y from scratch')",
    "print(db.execute('select * from notes, scratch').fetchall(), db.execute('pragma user_version').fetchone(), [r[1] for r in db.execute('pragma database_list')], db.execute('pragma busy_timeout').fetchone())",
    "try: db.execute('insert into b values (99)')\nexcept sqlite3.IntegrityError as e: print(e)",
    "seen = []; db.set_trace_callback(seen.append); db.set_authorizer(lambda what, *a: sqlite3.SQLITE_DENY if what == sqlite3.SQLITE_DROP_TABLE else sqlite3.SQLITE_OK)",
    "try: db.execute('drop table a')\nexcept sqlite3.DatabaseError as e: print(e)",
    "del seen[:]; n = db.execute('select 1').fetchall()\nprint(seen)",
)
sequence(
    "file databases: journals, two connections, read only",
    "import sqlite3\na = sqlite3.connect('w.db'); print(a.execute('pragma journal_mode = wal').fetchone()); a.execute('create table t (x)'); a.commit()",
    "b = sqlite3.connect('w.db'); a.execute('insert into t values (1)'); a.commit()",
    "print(b.execute('select x from t').fetchall(), a.execute('pragma journal_mode').fetchone())",
    "ro = sqlite3.connect('file:w.db?mode=ro', uri=True)",
    "try: ro.execute('insert into t values (2)')\nexcept sqlite3.OperationalError as e: print(e); ro.rollback()",
    "b.execute('insert into t values (3)'); b.commit(); print(ro.execute('select count(*) from t').fetchone())",
    "b.close(); mem = sqlite3.connect(':memory:'); mem.execute(\"attach 'w.db' as f\")",
    "print(mem.execute('select sum(x) from f.t').fetchone(), a.total_changes)",
    "sqlite3.connect('no/such/place.db')",
)
sequence(
    "pandas over a database in memory",
    "import sqlite3, pandas as pd\ndb = sqlite3.connect(':memory:'); df = pd.DataFrame({'city': ['Bern', 'Rome'], 'n': [1, 2]}); print(df.to_sql('t', db, index=False))",
    "got = pd.read_sql('select * from t where n > 1', db)",
    "print(got)",
    "pd.DataFrame({'city': ['Oslo'], 'n': [3]}).to_sql('t', db, if_exists='append', index=False)",
    "print(pd.read_sql_query('select city, n * 2 as m from t', db, index_col='city').m.to_dict())",
    needs="pandas",
)
sequence(
    "sqlalchemy over a database in memory",
    "import sqlalchemy as sa\nfrom sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column\nfrom sqlalchemy.pool import StaticPool\ne = sa.create_engine('sqlite://', poolclass=StaticPool, connect_args={'check_same_thread': False})\nwith e.begin() as c: c.execute(sa.text('create table t (x int)')); c.execute(sa.text('insert into t values (1)'))",
    "with e.begin() as c: c.execute(sa.text('insert into t values (2)'))",
    "with e.connect() as c: print(c.execute(sa.text('select sum(x) from t')).scalar())",
    "d = sa.create_engine('sqlite://')\nwith d.begin() as c: c.execute(sa.text('create table u (x int)')); c.execute(sa.text('insert into u values (5)'))",
    "with d.connect() as c: print(c.execute(sa.text('select x from u')).scalar())",
    needs="sqlalchemy",
)
sequence(
    "a closed connection that had functions and a trace",
    """
import sqlite3
con = sqlite3.connect(':memory:'); hits = []
con.create_function('twice', 1, lambda v: v * 2); con.set_trace_callback(hits.append); cur = con.cursor()
""",
    "n = con.execute('select twice(4)').fetchone(); con.close()",
    """
try: con.execute('select 1')
except sqlite3.ProgrammingError as e: print(e, n, hits, cur.connection is con)
""",
)
sequence(
    "a database in memory that was copied from a file with a write-ahead log",
    "import sqlite3\ncon = sqlite3.connect('shop.db'); con.execute('pragma journal_mode=wal'); con.execute('create table t(a)'); con.execute('insert into t values (1)'); con.commit(); mem = sqlite3.connect(':memory:'); con.backup(mem)",
    "mem.execute('insert into t values (2)'); mem.commit()",
    "print(mem.execute('select sum(a) from t').fetchone(), con.execute('select sum(a) from t').fetchone(), mem.execute('pragma journal_mode').fetchone(), con.execute('pragma journal_mode').fetchone())",
    "mem.execute('delete from t where a = 1'); mem.commit()",
    "print(mem.execute('select * from t').fetchall())",
)
sequence(
    "SQL goes on counting what a connection changed",
    "import sqlite3, os\nc = sqlite3.connect(':memory:'); c.execute('create table t (a)')\nfor i in range(5): c.execute('insert into t values (?)', (i,))\nc.commit()\nf = sqlite3.connect('f.db'); f.execute('create table t (a)')",
    "print(c.execute('select changes(), total_changes()').fetchone(), c.total_changes)",
    "c.execute('delete from t where a < 2'); c.commit(); f.executemany('insert into t values (?)', [(1,), (2,)]); f.commit()",
    "print([one.execute('select changes(), total_changes(), last_insert_rowid()').fetchone() for one in (c, f)], c.total_changes, f.total_changes)",
)
