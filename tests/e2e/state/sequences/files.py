"""Files and streams: open ones at their place, buffers, archives, csv over files, paths."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "a file read line by line",
    "from pathlib import Path\nPath('a.txt').write_text('one\\ntwo\\nthree\\nfour\\n'); f = open('a.txt'); head = f.readline()",
    "print(head, f.readline())",
    "print(f.tell(), f.name, f.mode, f.closed)",
    "same = f; line = same.readline()",
    "print(line, f.readline(), repr(f.readline()))",
    "f.seek(4); part = f.read(3)",
    "print(part, f.encoding, same is f)",
    "f.close()",
    "print(f.closed, same.closed, f.name)",
)
sequence(
    "files written, appended, updated",
    "w = open('w.txt', 'w'); w.write('alpha\\n')",
    "n = w.write('beta\\n'); w.flush()",
    "print(open('w.txt').read())",
    "w.close(); a = open('w.txt', 'a'); a.write('gamma\\n')",
    "a.write('delta\\n')",
    "a.close(); r = open('w.txt', 'r+b'); r.seek(6); r.write(b'BETA')",
    "r.seek(0); print(r.read())",
    "r.close(); x = open('x.bin', 'xb'); x.write(bytes(5))",
    "x.close()\nprint(Path('x.bin').read_bytes() if 'Path' in globals() else open('x.bin', 'rb').read(), r.closed, a.closed)",
)
sequence(
    "a file iterated by a for loop",
    "with open('n.txt', 'w') as out: out.writelines(f'{i}\\n' for i in range(10))\nf = open('n.txt'); total = 0\nfor line in f:\n    total += int(line)\n    if total > 3: break",
    "print(total, next(f))",
    "total += sum(int(line) for line in f); pos = f.closed",
    "f.seek(0); print(next(f), total)",
    "rest = list(f)",
    "print(len(rest), out.closed, total)\nf.close()",
    pinned=True,
)
sequence(
    "csv reader and writer over files",
    "import csv\nout = open('t.csv', 'w', newline=''); w = csv.writer(out); w.writerow(['a', 'b']); dw = csv.DictWriter(out, ['a', 'b'])",
    "w.writerow([1, 'x,y']); dw.writerow({'a': 2, 'b': 'q'})",
    "out.close(); inp = open('t.csv', newline=''); rd = csv.reader(inp); head = next(rd)",
    "print(head, next(rd))",
    "print(list(rd), rd.line_num)",
    "inp.close()",
    "print(head, inp.closed)",
    pinned=True,
)
sequence(
    "StringIO and BytesIO at a position",
    "import io\ns = io.StringIO('hello world\\nline two\\n'); b = io.BytesIO(b'0123456789'); s.read(5); b.seek(4); tw = io.TextIOWrapper(io.BytesIO('wräp\\nped'.encode()), 'utf-8'); first = tw.readline()",
    "print(s.read(6), b.read(2))",
    "s.seek(0, 2); s.write('more'); b.write(b'ABC')",
    "print(repr(s.getvalue()), b.getvalue(), s.tell(), b.tell())",
    "class Log(io.StringIO):\n    count = 0\n    def write(self, x): self.count += 1; return super().write(x)\nl = Log(); print('a', file=l)",
    "print('b', 'c', file=l)",
    "s.close(); view = b.getbuffer()[:3]",
    "del view",
    "print(l.getvalue(), l.count, s.closed, b.getvalue(), first, tw.read() if False else '')",
    pinned=True,
)
sequence(
    "pathlib, os and files made by cells",
    "from pathlib import Path, PurePosixPath\nimport os, shutil, glob\nd = Path('out') / 'sub'; d.mkdir(parents=True); p = d / 'f.txt'; p.write_text('x')",
    "print(p.read_text(), [q.name for q in d.iterdir()], p.suffix)",
    "os.chdir('out'); rel = Path('sub/f.txt')",
    "print(rel.exists(), glob.glob('sub/*'), Path.cwd().name)",
    "rel.rename('moved.txt'); os.environ['MINE'] = 'yes'",
    "print(os.environ['MINE'], os.listdir('.'), os.path.exists('moved.txt'))",
    "os.chdir('..'); shutil.rmtree('out'); del os.environ['MINE']",
    "print(p.exists(), 'MINE' in os.environ, PurePosixPath('/a/../b').parts, Path.cwd().name == 'b' or Path.cwd().name == 'a')",
)
sequence(
    "tempfile, gzip and zip",
    "import tempfile, gzip, zipfile, os\nfd, name = tempfile.mkstemp(dir='.'); os.write(fd, b'tmp'); os.close(fd)\nwith gzip.open('g.gz', 'wt') as g: g.write('line1\\nline2\\nline3\\n')\nwith zipfile.ZipFile('z.zip', 'w') as z: z.writestr('a.txt', 'A'); z.writestr('b.txt', 'B' * 100)",
    "with gzip.open('g.gz', 'rt') as g: print(g.readline())",
    "with zipfile.ZipFile('z.zip') as z: names = z.namelist(); info = z.getinfo('b.txt')",
    "print(names, info.file_size, z.fp)",
    "td = tempfile.mkdtemp(dir='.'); os.rmdir(td)",
    "print(open(name).read(), g.closed, info.filename, os.path.exists(td))",
    pinned=True,
)
sequence(
    "an open gzip and zip file",
    "import gzip, zipfile\nwith gzip.open('g.gz', 'wt') as g: g.write('one\\ntwo\\nthree\\n')\nr = gzip.open('g.gz', 'rt'); a = r.readline(); plain = [1]",
    "print(a, r.readline(), plain)",
    "print(r.readline()); r.close()",
    "plain.append(2)",
    "print(plain, r.closed)",
    pinned=True,
)
sequence(
    "sockets and pipes are lost by name",
    "import socket\na, b = socket.socketpair(); a.send(b'x'); other = {'n': 1}",
    "other['n'] += 1",
    "print(other, b.recv(1))",
    refuses="'b'",
)
sequence(
    "json, pickle and configparser through files",
    "import json, pickle, configparser\ndata = {'k': [1, 2.5, None, True, 'é'], 'n': {'deep': [[]]}}; json.dump(data, open('d.json', 'w')); cp = configparser.ConfigParser(); cp.read_string('[s]\\na = 1\\nb = %(a)s2\\n')",
    "back = json.load(open('d.json')); print(back == data)",
    "pickle.dump({'c': cp, 'd': data}, open('p.pkl', 'wb'))",
    "got = pickle.load(open('p.pkl', 'rb')); cp['s']['c'] = 'new'",
    "enc = json.JSONEncoder(sort_keys=True); dec = json.JSONDecoder(object_hook=lambda d: sorted(d))",
    "print(got['d'] == data, cp['s']['b'], dict(got['c']['s']), list(cp['s']), enc.encode({'b': 1, 'a': 2}), dec.decode('{\"z\": 1, \"y\": 2}'))",
)
sequence(
    "csv with dialects of the notebook, over text in memory",
    "import csv, io\nbuf = io.StringIO(); w = csv.writer(buf, delimiter=';', quoting=csv.QUOTE_NONNUMERIC); w.writerow(['a', 1]); csv.register_dialect('mine', delimiter='|'); rd = csv.reader(io.StringIO('x|y\\n1|\"2|3\"\\n5|6\\n'), 'mine'); h = next(rd)",
    "w.writerow(['b;c', 2]); r1 = next(rd)",
    "dw = csv.DictWriter(buf, ['k'], dialect='mine'); dw.writerow({'k': 'v'}); n = rd.line_num",
    "w.writerows([[3, 'x']]); r2 = list(rd)",
    "print(repr(buf.getvalue()), h, r1, n, r2, rd.line_num, csv.list_dialects()[-1], rd.dialect.delimiter, csv.field_size_limit())",
)
sequence(
    "what with statements leave behind",
    """
import gzip, bz2, lzma, tempfile, socket, os, concurrent.futures as cf
with gzip.open('a.gz', 'wt') as f1: f1.write('hi')
with gzip.open('a.gz', 'rt') as f2: s = f2.read()
with gzip.open('a.gz') as f6: pass
with bz2.open('a.bz2', 'wb') as f3: f3.write(b'x')
with lzma.open('a.xz', 'wt') as f4: f4.write('y')
""",
    """
with tempfile.NamedTemporaryFile('w') as f5: f5.write('t')
with cf.ThreadPoolExecutor(2) as ex: out = list(ex.map(str.upper, 'ab'))
with socket.socket() as so: pass
td = tempfile.TemporaryDirectory(); td.cleanup()
""",
    "null = open(os.devnull, 'w')",
    """
try: f2.read()
except ValueError as e: print(e)
try: ex.submit(print)
except RuntimeError as e: print(e)
print('x', file=null); print(s, out, [f.closed for f in (f1, f2, f3, f4, f5, f6)], so.fileno(), null.name, f6.name, f1.buffer.name, os.path.exists(f5.name), os.path.exists(td.name))
""",
)
sequence(
    "text files with newlines of their own",
    "f = open('t.txt', 'w', newline='\\r\\n'); f.write('a\\n'); g = open('u.txt', 'w+', newline=''); g.write('x\\r\\ny\\r\\nz\\r\\n'); g.seek(0); one = g.readline()",
    "f.write('b\\n'); two = g.readline()",
    "f.write('c\\n'); f.close(); rest = g.read()",
    "print(open('t.txt', 'rb').read(), [one, two, rest], g.newlines)",
)
sequence(
    "a file that is read line by line, in several cells",
    "with open('t.txt', 'w') as out: out.writelines(f'línea {i} ü€\\n' for i in range(5000))\nf = open('t.txt', encoding='utf-8'); first = next(f)",
    "second = next(f)",
    "for line in f:\n    if ' 700 ' in line: break",
    "then = f.readline(); left = sum(1 for _ in f)",
    "print([first, second, line, then, left, f.tell()])",
)
sequence(
    "an archive that is written in several cells",
    "import zipfile\nz = zipfile.ZipFile('a.zip', 'w'); z.writestr('x', 'one')",
    "z.namelist()",
    "z.writestr('y', 'two')",
    "z.close(); print(zipfile.ZipFile('a.zip').read('y'))",
    "print(zipfile.ZipFile('a.zip').namelist(), zipfile.ZipFile('a.zip').testzip())",
)
sequence(
    "files that are open by number",
    "import os, tempfile\nr, w = os.pipe(); fd, path = tempfile.mkstemp(dir='.'); near = [1]",
    "os.write(w, b'hello'); os.write(fd, b'abc'); near.append(2)",
    "print(os.read(r, 5), os.lseek(fd, 0, 1))",
    "os.write(fd, b'def'); print(os.fstat(fd).st_size, near)",
    "os.lseek(fd, 0, 0); print(os.read(fd, 10))",
    pinned="open files by number",
)
sequence(
    "one file that is open by number",
    "import os\nfd = os.open('one.bin', os.O_CREAT | os.O_RDWR); size = os.write(fd, b'abc')",
    "os.lseek(fd, 1, 0); print(os.read(fd, 2))",
    "os.pwrite(fd, b'def', 3); print(os.pread(fd, 10, 0))",
    pinned="open files by number",
)
sequence(
    "a file that is open by number, by another name of the module",
    "import os as system\nfd = system.open('one.bin', system.O_CREAT | system.O_RDWR); size = system.write(fd, b'abc')",
    "system.lseek(fd, 1, 0); print(system.read(fd, 2))",
    "print(system.pread(fd, 10, 0))",
    pinned="open files by number",
)
sequence(
    "files that were open by number, and are not",
    "import os, tempfile\ndef fresh():\n    fd, path = tempfile.mkstemp(dir='.'); os.write(fd, b'a'); os.close(fd); return path\nnear = [fresh()]",
    "fd, path = tempfile.mkstemp(dir='.')\nwith os.fdopen(fd, 'w+') as f: f.write('text')\nnear.append(fresh()); g = open(near[0])",
    "print(open(path).read(), g.read())",
    "with open(path, 'a') as f: f.write(' more')\ng.seek(0); r, w = os.pipe(); os.close(r); os.close(w)",
    "print(open(path).read(), g.read(), len(near)); g.seek(0)",
)
sequence(
    "packed files read half-way",
    r"""
import gzip, bz2, lzma, csv, json
for m, ext in ((gzip,"gz"),(bz2,"bz2"),(lzma,"xz")):
    with m.open(f"a.{ext}","wt", newline="") as f: f.write("".join(f"line {i} äö\n" for i in range(5000)))
g = gzip.open("a.gz","rt", encoding="utf-8"); b = bz2.open("a.bz2","rt", encoding="utf-8"); x = lzma.open("a.xz","rt", encoding="utf-8"); r = gzip.open("a.gz","rb"); raw = bz2.BZ2File("a.bz2"); un = gzip.open("a.gz","rt")
l = [g.readline(), next(b), next(x), next(r), raw.read(3)]; [next(g) for _ in range(1000)]
rd = csv.reader(g, delimiter=" ")
""",
    """
print(l, next(g), next(b), x.readline() if False else next(x), r.readline(), raw.read(4), un.name, r.name, g.closed, next(rd))
""",
    """
print(len(list(g)), len(b.read()), sum(1 for _ in x), len(r.read()), raw.tell(), g.newlines, un.readline(), un.tell())
un.close()
""",
    "g.seek(0); r.seek(1); print(len(list(g)), len(r.read()), un.closed, raw.tell())",
)
sequence(
    "files of HDF5 that were closed",
    """
import h5py, numpy as np
with h5py.File("d.h5","w") as w: w["g/x"] = np.arange(5.); w["g"].attrs["u"] = "m"; gone = w["g/x"]; grp = w["g"]
with h5py.File("d.h5","r") as r: data = r["g/x"][:]
held = [r, gone]
print(w, gone, r)
""",
    """
print(w, gone, grp, bool(r), data, held[0] is r)
with h5py.File("d.h5","a") as a: a["n"] = len(a)
""",
    """
try: gone[0]
except Exception as e: print(type(e).__name__)
with h5py.File("d.h5","r") as r: print(list(r), data.sum(), a, held[0] is r)
""",
    needs=(
        "h5py",
        "numpy",
    ),
)
sequence(
    "workbooks that were closed",
    """
import pandas as pd
df = pd.DataFrame({"a":[1,2]})
with pd.ExcelWriter("o.xlsx") as writer: df.to_excel(writer, sheet_name="s")
with pd.ExcelFile("o.xlsx") as xf: d2 = xf.parse("s")
""",
    """
print(d2.a.tolist(), type(writer).__name__, writer.engine)
""",
    """
print(pd.read_excel("o.xlsx", sheet_name=None).keys(), xf.sheet_names)
""",
    needs=(
        "pandas",
        "openpyxl",
    ),
)
sequence(
    "stores that were closed",
    """
import pandas as pd
df = pd.DataFrame({"a":[1,2]})
with pd.HDFStore("s.h5") as st: st["d"] = df
df.to_hdf("t.h5", key="k")
""",
    """
print(st.is_open, pd.read_hdf("t.h5", "k").a.tolist())
""",
    """
with pd.HDFStore("s.h5", "r") as st: print(st["d"].a.sum())
""",
    needs=(
        "pandas",
        "tables",
    ),
)
sequence(
    "files of Arrow that were closed",
    """
import pyarrow as pa, pyarrow.parquet as pq, pandas as pd
t = pa.table({"a":[1,2]})
with pq.ParquetWriter("w.parquet", t.schema) as w: w.write_table(t)
n = pq.read_metadata("w.parquet").num_rows; md = pq.read_metadata("w.parquet"); sch = pq.read_schema("w.parquet")
with pa.OSFile("x.arrow","wb") as sink:
    wr = pa.ipc.new_file(sink, t.schema); wr.write_table(t); wr.close(); del wr
with pa.memory_map("x.arrow") as src: tab = pa.ipc.open_file(src).read_all()
""",
    """
print(n, w.is_open, tab.num_rows, md.num_columns, sink.closed)
""",
    """
print(pq.read_table("w.parquet").num_rows, sch.names)
""",
    needs=(
        "pyarrow",
        "pandas",
    ),
)
sequence(
    "connections and engines that were closed",
    """
import duckdb, requests, sqlalchemy as sa, pandas as pd
with duckdb.connect("q.db") as con: con.execute("create table t as select 1 a"); got = con.sql("select * from t").df()
eng = sa.create_engine("sqlite:///z.db")
with eng.connect() as c: c.execute(sa.text("create table t (a int)")); c.commit()
with eng.begin() as c2: c2.execute(sa.text("insert into t values (4)"))
with requests.Session() as s: s.headers["a"] = "b"
pd.DataFrame({"a":[7]}).to_sql("t", eng, if_exists="append", index=False)
""",
    """
print(got.a.tolist(), c.closed, pd.read_sql("select a from t", eng).a.tolist(), s.headers["a"])
""",
    """
with eng.connect() as c: rows = c.execute(sa.text("select * from t")).fetchall()
print(rows, rows[0].a, rows[0]._mapping)
""",
    needs=(
        "duckdb",
        "requests",
        "sqlalchemy",
        "pandas",
    ),
)
sequence(
    "texts of encodings with marks and states, read by lines",
    "for n, e in enumerate(('utf-16', 'utf-8-sig', 'shift_jis')): open(f'{n}.txt', 'w', encoding=e).write('\u65e5\\n\u672c\\n\u8a9e\\n')\n"
    "u, s, j = [open(f'{n}.txt', encoding=e) for n, e in enumerate(('utf-16', 'utf-8-sig', 'shift_jis'))]; print([f.readline() for f in (u, s, j)])",
    "print([f.readline() for f in (u, s, j)], u.newlines)",
    "place = u.tell(); rest = [f.read() for f in (u, s, j)]",
    "u.seek(place); print(rest, u.read(), s.newlines, j.newlines)",
)
sequence(
    "a file whose buffer is a variable",
    "open('a.txt', 'w').write('one two\\nthree\\n'); f = open('a.txt'); b = f.buffer; f.read(2)",
    "print(f.buffer is b, b.raw.tell(), f.read(3))",
    "b.seek(0); print(b.readline())",
    "f.seek(0); b = None; print(f.readline())",
    "f.seek(0); print(f.read())",
    pinned=True,
)
sequence(
    "text files and readers over bytes in memory",
    """
import io, csv
raw = io.BytesIO('Name;Größe\\nanna;1\\nbéla;2\\ncleo;3\\n'.encode()); text = io.TextIOWrapper(raw, encoding='utf-8', newline='')
rows = csv.reader(text, delimiter=';'); head = next(rows); out = io.TextIOWrapper(io.BytesIO(), encoding='utf-8'); b = io.BufferedReader(io.BytesIO(b'0123456789'))
""",
    "got = [next(rows)]; out.write('erste '); b.read(3)",
    "out.write('zweite'); print(out.buffer.getvalue(), text.buffer is raw, raw.tell())",
    "got.append(next(rows)); out.flush(); seen = out.buffer.getvalue().decode(); part = b.peek(2)[:2], b.read(2)",
    "rest = list(rows); raw2 = out.buffer; left = b.read()",
    "print(head, got, rest, seen, raw2.getvalue(), part, left, text.read() == '')",
)
sequence(
    "files that were opened by names of another working directory",
    """
import gzip, os
import pandas as pd
open('d.csv', 'w').write('a,b\\n1,2\\n3,4\\n5,6\\n')
with gzip.open('z.gz', 'wt') as packed: packed.write('one\\ntwo\\nthree\\n')
f = open('d.csv'); f.readline(); w = open('w.txt', 'w'); w.write('x'); z = gzip.open('z.gz', 'rt'); z.readline()
rows = pd.read_csv('d.csv', chunksize=1); first = next(rows); os.mkdir('below')
""",
    "os.chdir('below')",
    "got = f.readline(), z.readline(), int(next(rows)['b'].iloc[0]); w.write('y')",
    "w.close()",
    "print(got, f.name, w.name, open('../w.txt').read(), os.path.basename(os.getcwd()))",
    needs="pandas",
)
