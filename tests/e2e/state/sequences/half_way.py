"""Objects in the middle of their work: streams over memory, decoders, compressors, schedulers, contexts, readers."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "text and bytes in memory read and written part-way",
    """
import io, csv, struct, codecs, json
raw = io.BytesIO('zeile 1\\nzwö\\ndrei\\n'.encode()); text = io.StringIO('a,b\\n1,2\\n3,4\\n5,6\\n'); first = text.readline(); rd = csv.DictReader(text, fieldnames=first.strip().split(',')); row = next(rd); out = io.StringIO(newline=''); w = csv.writer(out, delimiter=';'); w.writerow([1, 'x;y']); unpack = struct.iter_unpack('<h', b'\\x01\\0\\x02\\0\\x03\\0'); one = next(unpack)
class Log(io.StringIO):
    lines = 0
    def write(self, s): self.lines += s.count('\\n'); return super().write(s)
log = Log(); print('hello', file=log); view = raw.getbuffer(); view[0:1] = b'Z'; view.release()
""",
    "line = raw.readline(); row2 = next(rd); w.writerow(['q', None]); print('again', 'x', file=log)",
    "print(line, raw.tell(), row, row2, rd.line_num, repr(out.getvalue()), log.lines, log.getvalue(), one)",
    "raw.seek(0, 2); raw.write(b'end'); log.truncate(0); log.seek(0); rest = list(rd); pos = out.seek(2)",
    "print(raw.getvalue()[-5:], log.lines, repr(log.getvalue()), rest, out.read(3), w.dialect.delimiter)\nout.seek(2)",
    pinned=True,
)
sequence(
    "decoders, compressors and hashes that have heard a part",
    """
import codecs, zlib, hashlib, hmac, bz2, lzma
dec = codecs.getincrementaldecoder('utf-8')(); part = dec.decode('ö'.encode()[:1]); enc = codecs.getincrementalencoder('utf-16')(); start = enc.encode('a'); near = {'part': part, 'n': 1}
""",
    "near['n'] += 1; tail = dec.decode('ö'.encode()[1:])",
    "print(repr(part), tail, near, enc.encode('b'), start)\nenc.reset(); b = enc.encode('a')",
    "near['n'] += 1; got = dec.decode(b'x')",
    "print(near, got, dec.getstate())",
    pinned=True,
)
sequence(
    "a compressor part-way is lost by name",
    "import zlib\nz = zlib.compressobj(); data = z.compress(b'abc' * 9); near = [1]",
    "data += z.compress(b'more')",
    "print(near, len(z.flush()))",
    refuses="'z'",
)
sequence(
    "schedulers, queues and simple machines with callbacks of the notebook",
    """
import sched, queue, heapq, bisect, collections, enum, time
ran = []; clock = [0.0]
s = sched.scheduler(lambda: clock[0], lambda d: clock.__setitem__(0, clock[0] + d)); e1 = s.enter(5, 1, ran.append, ('late',)); e2 = s.enter(1, 1, lambda: ran.append('early')); sq = queue.SimpleQueue() if False else collections.deque(); pq = []; heapq.heappush(pq, (2, ran)); pol = queue.PriorityQueue(); pol.put((1, 'p'))
class State(enum.Enum): OFF = 0; ON = 1
class Machine:
    table = {(State.OFF, 'go'): State.ON, (State.ON, 'stop'): State.OFF}
    def __init__(self): self.state = State.OFF; self.subs = collections.defaultdict(list); self.trail = []
    def on(self, st): return lambda f: self.subs[st].append(f) or f
    def fire(self, ev): self.state = self.table[self.state, ev]; self.trail += [f(self) for f in self.subs[self.state]]; return self
m = Machine()
@m.on(State.ON)
def hello(machine): ran.append('on'); return machine.state
""",
    "m.fire('go'); s.run(blocking=False)",
    "print(ran, m.trail, m.state is State.ON, m.subs[State.ON][0] is hello, len(s.queue))",
    "s.cancel(e1); clock[0] = 9.0; s.enter(0, 0, ran.append, ('now',)); s.run()",
    "m.on(State.OFF)(lambda x: 'bye'); m.fire('stop')",
    "print(ran, m.trail, s.empty(), clock, pq[0][1] is ran, pol.queue)",
)
sequence(
    "contexts copied, and functions run in them",
    """
import contextvars, functools
v = contextvars.ContextVar('v', default='none'); w = contextvars.ContextVar('w'); v.set('outer'); ctx = contextvars.copy_context(); seen = []
def work(x): seen.append((v.get(), x)); v.set(x); return v.get()
""",
    "r = ctx.run(work, 'one')",
    "print(r, v.get(), ctx[v], w in ctx, len(seen), list(ctx.keys())[:0])",
    "tok = v.set('changed'); ctx2 = ctx.copy(); ctx2.run(work, 'two')",
    "print(v.get(), ctx[v], ctx2[v], seen, ctx2.get(w, 'no w'))",
)
sequence(
    "contexts copied before and after a move",
    "import contextvars\nv = contextvars.ContextVar('v'); v.set(1); c0 = contextvars.copy_context()",
    "1",
    "c1 = contextvars.copy_context()",
    "print(len(c0) == len(c1), c0[v], c1[v])",
    "v.set(2); c2 = contextvars.copy_context()",
    "print(c2[v], c1[v], c0[v])",
)
sequence(
    "contexts of requests, copied on every replica",
    """
import contextvars
class Request:
    user = contextvars.ContextVar('user', default=None)
    trace = contextvars.ContextVar('trace')
    @classmethod
    def bind(cls, name): cls.user.set(name); cls.trace.set([name]); return contextvars.copy_context()
a = Request.bind('ann')
""",
    "b = Request.bind('bob'); Request.trace.get().append(1)",
    "a.run(Request.trace.get).append('x'); b.run(Request.user.set, 'changed');",
    "c = contextvars.copy_context(); c.run(Request.user.set, 'cee'); d = b.copy()",
    "Request.bind('dora'); e = contextvars.copy_context()",
    "print([x[Request.user] for x in (a, b, c, d, e)], [x[Request.trace] for x in (a, b, c, d, e)], Request.user.get(), d[Request.trace] is b[Request.trace])",
)
sequence(
    "a context manager made of a generator is lost by name when it is entered",
    "import contextlib\ntrail = []\n@contextlib.contextmanager\ndef noted():\n    trail.append('in')\n    yield 5\n    trail.append('out')\ncm = noted(); got = cm.__enter__()",
    "trail.append(got)",
    "print(trail, cm.__exit__(None, None, None))",
    refuses="'cm.gen' is a generator",
)
sequence(
    "archives and pickled streams over memory",
    """
import io, zipfile, tarfile, pickle, shelve, gzip, json
buf = io.BytesIO()
with zipfile.ZipFile(buf, 'w') as z: z.writestr('a.txt', 'one'); z.writestr('d/b.txt', 'two')
info = zipfile.ZipFile(buf).getinfo('a.txt'); gz = gzip.compress(b'zip', mtime=0); pk = io.BytesIO(); p = pickle.Pickler(pk); shared = [1]; p.dump(shared); names = zipfile.ZipFile(buf).namelist(); sh = shelve.open('db'); sh['k'] = [1]; sh.close(); path = zipfile.Path(zipfile.ZipFile(buf), 'a.txt') if False else None
""",
    "shared.append(2); size = len(buf.getvalue()); pk.seek(0)",
    "print(info.filename, info.file_size, names, gzip.decompress(gz), pickle.load(pk), size == len(buf.getvalue()))",
    "with shelve.open('db') as sh2: sh2['k'] = sh2['k'] + shared; keys = sorted(sh2)",
    "with shelve.open('db') as sh3: print(sh3['k'], keys, zipfile.ZipFile(buf).read('d/b.txt'))",
    pinned=True,
)
sequence(
    "rows of frames and arrays taken part-way",
    """
import numpy as np, pandas as pd
df = pd.DataFrame({'a': [1, 2, 3, 4], 'b': list('wxyz')}); tup = df.itertuples(); t1 = next(tup); z = zip(df.a, df.b); z1 = next(z); en = np.ndenumerate(np.arange(6).reshape(2, 3)); e1 = next(en); nd = np.ndindex(2, 2); n1 = next(nd); fl = np.arange(5).flat; f1 = next(fl); br = np.broadcast([1, 2], [[3], [4]]); b1 = next(br); it = iter(np.arange(3) * 10); i1 = next(it)
""",
    "t2 = next(tup); z2 = next(z); e2 = next(en); n2 = next(nd); f2 = next(fl); i2 = next(it)",
    "print(t1, t2, z2, e2, n2, f2, i2, type(t1).__name__, fl.index)",
    "df.loc[2, 'a'] = 30; fl[4] = 44",
    "r = [list(tup)[-1].b, list(z), len(list(en)), list(nd), list(fl), list(it)]",
    "print(r, t1.Index, b1)",
    needs=("numpy", "pandas"),
    pinned=True,
)
sequence(
    "a variable that holds the event loop",
    """
import asyncio
loop = asyncio.get_running_loop(); held = [loop]
async def work(): return asyncio.get_running_loop() is loop
""",
    "print(await work(), held[0] is loop, loop is asyncio.get_event_loop(), loop.is_running())",
    "got = []; loop.call_soon(got.append, 1); await asyncio.sleep(0); await asyncio.sleep(0)",
    "print(got, await loop.run_in_executor(None, len, 'abc') if False else await asyncio.wait_for(work(), 5))",
)
sequence(
    "readers of separated values",
    """
import pandas as pd
pd.DataFrame({"x": range(50), "y": ["é", "b"]*25, "z": [1.5, None]*25}).to_csv("a.csv", index=False)
c = pd.read_csv("a.csv", chunksize=7); it = pd.read_csv("a.csv", iterator=True, usecols=["x"], dtype={"x": "int32"}, nrows=30); done = pd.read_csv("a.csv", chunksize=25); fresh = pd.read_csv("a.csv", chunksize=20, index_col="x")
a = next(c); b = it.get_chunk(4); n = len(list(done))
with pd.read_csv("a.csv", chunksize=10) as w: first = next(w)
""",
    """
a2 = next(c); b2 = it.get_chunk(3); print(a2.index.tolist(), a2.dtypes.to_dict(), b2.x.tolist(), b2.x.dtype, next(done, "end"), n)
""",
    """
f = next(fresh); print(f.index.tolist()[:2], f.y.tolist()[:2], len(it.read()), c._currow, first.shape)
rest = [len(p) for p in c]
""",
    """
print(rest, next(c, "end"), f.shape, b.x.tolist())
""",
    needs=("pandas",),
)
