"""Locks, queues, threads that are over, thread-local data, and every kind of weak reference."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "locks held and free",
    "import threading\nfree = threading.Lock(); held = threading.Lock(); held.acquire(); r = threading.RLock(); r.acquire(); r.acquire(); alias = held; box = {'lock': free}",
    "print(free.locked(), held.locked(), alias is held, box['lock'] is free)",
    "held.release(); free.acquire()",
    "r.release()",
    "print(r._is_owned(), alias.locked(), box['lock'].locked())",
    "r.release(); free.release()",
    "print(r._is_owned(), free.locked(), alias.acquire(blocking=False)); alias.release()",
)
sequence(
    "objects that hold locks",
    "import threading\nclass Account:\n    def __init__(self): self._lock = threading.Lock(); self.cond = threading.Condition(self._lock); self.n = 0\n    def add(self, n):\n        with self._lock: self.n += n\n        with self.cond: self.cond.notify_all()\n        return self\na = Account(); b = {'a': a}",
    "a.add(1)",
    "b['a'].add(10)",
    "a._lock.acquire()",
    "print(a.n, a._lock.locked(), a.cond._lock is a._lock)",
    "a._lock.release(); a.add(100)",
    "print(a.n, a._lock.locked(), b['a'] is a)",
)
sequence(
    "events, conditions, semaphores, barriers",
    "import threading\ne = threading.Event(); s = threading.Semaphore(2); bs = threading.BoundedSemaphore(1); c = threading.Condition(); ba = threading.Barrier(1); t = threading.Timer(100, print)",
    "e.set(); s.acquire()",
    "print(e.is_set(), s._value, s.acquire(blocking=False), s.acquire(blocking=False))",
    "s.release(); e.clear(); bs.acquire()",
    "bs.release()",
    "try: bs.release()\nexcept ValueError as err: print(err)",
    "with c: print(c._is_owned(), ba.wait())",
    "print(e.is_set(), s._value, bs._value, ba.broken, t.interval, e.wait(0))",
)
sequence(
    "queues with items",
    "import queue\nq = queue.Queue(3); l = queue.LifoQueue(); p = queue.PriorityQueue(); item = ['shared']; q.put(item); q.put(2); l.put('a'); l.put('b'); p.put((2, 'z')); p.put((1, 'y'))",
    "item.append('x'); print(q.qsize(), p.get())",
    "got = q.get(); q.task_done()",
    "print(got is item, l.get(), q.unfinished_tasks, q.full())",
    "q.put('three'); q.put('four')",
    "try: q.put_nowait('five')\nexcept queue.Full: print('full')",
    "print(list(q.queue), l.queue, p.queue, q.maxsize, q.unfinished_tasks)",
)
sequence(
    "threads that are over and thread-local data",
    "import threading\nout = []\nt = threading.Thread(target=lambda: out.append(threading.current_thread().name), name='worker'); loc = threading.local(); loc.x = [1]\nclass L(threading.local):\n    y = 5\n    def __init__(self, z): self.z = z\nl2 = L(9)",
    "t.start(); t.join()",
    "print(out, t.is_alive(), t.name)",
    "loc.x.append(2); l2.z += 1; other = []\nu = threading.Thread(target=lambda: other.append((hasattr(loc, 'x'), l2.z))); u.start(); u.join()",
    "print(loc.x, l2.z, l2.y, other)",
    "n = threading.Thread(target=out.append, args=('late',))",
    "n.start(); n.join()",
    "print(out, n.is_alive(), loc.x, vars(l2))",
)
sequence(
    "weak references to living and dead",
    "import weakref, gc\nclass N:\n    def __init__(self, v): self.v = v\na, b = N('a'), N('b'); calls = []; ra = weakref.ref(a); rb = weakref.ref(b, lambda r: calls.append('b gone')); same = weakref.ref(a); pa = weakref.proxy(a); wm = weakref.WeakMethod(a.__init__)",
    "print(ra() is a, pa.v, same is ra, wm() is not None)",
    "a.v = 'A'; pa.w = 1",
    "del b",
    "print(calls, rb() is None)",
    "print(pa.v, a.w, ra().v, wm().__self__ is a)",
    "c = a; del a",
    "print(ra() is c)",
    "wm()('again')",
    "del c; n = gc.collect()",
    "print(ra(), rb(), calls)",
)
sequence(
    "weak containers",
    "import weakref, gc\nclass N:\n    def __init__(self, v): self.v = v\nkeep = {i: N(i) for i in range(4)}; wv = weakref.WeakValueDictionary({i: n for i, n in keep.items()}); wk = weakref.WeakKeyDictionary({n: [n.v] for n in keep.values()}); ws = weakref.WeakSet(keep.values())",
    "del keep[0]; n = gc.collect(); print(sorted(wv), len(wk), len(ws))",
    "wk[keep[1]].append('x'); wv['extra'] = keep[2]",
    "new = N(9); ws.add(new); wk[new] = 'new'",
    "print(sorted(map(str, wv)), wk[new], wv['extra'] is keep[2], new in ws)",
    "keep.pop(2)",
    "n = gc.collect(); print(sorted(map(str, wv)), len(ws))",
    "del new; n = gc.collect()",
    "print(sorted(map(str, wv)), sorted(str(v) for v in wk.values()), sorted(n.v for n in ws))",
)
sequence(
    "a parent known weakly, caches and observers",
    "import weakref\nclass Node:\n    def __init__(self, name, parent=None):\n        self.name, self.children = name, []; self._parent = weakref.ref(parent) if parent else None\n        if parent: parent.children.append(self)\n    @property\n    def parent(self): return self._parent() if self._parent else None\nroot = Node('root'); kid = Node('kid', root); grand = Node('grand', kid)",
    "print(grand.parent.parent is root)",
    "kid.name = 'KID'; del kid",
    "print(root.children[0].name, grand.parent.name)",
    "root2 = root; del root",
    "Node('late', grand.parent)",
    "print([c.name for c in grand.parent.children], grand.parent.parent is root2)",
    "del root2",
    "print(grand.parent)",
)
sequence(
    "finalizers registered on living objects",
    "import weakref, gc\nclass T: pass\nlog = []; t = T(); u = T(); f = weakref.finalize(t, log.append, 't gone'); f2 = weakref.finalize(u, lambda *a, **k: log.append((a, k)), 1, key=2)",
    "print(f.alive, log)",
    "del t; n = gc.collect()",
    "print(f.alive, log, f2.alive)",
    "r = f2()",
    "print(log, f2.alive, f.peek(), f2.detach())",
)
sequence(
    "finalizers that nobody holds, of the pages of a cache",
    """
import weakref
from collections import OrderedDict
class Page:
    __slots__ = ("no", "__weakref__")
    def __init__(self, no): self.no = no; weakref.finalize(self, freed.append, no)
freed = []; hot = OrderedDict(); known = weakref.WeakValueDictionary()
def page(no):
    hot[no] = known[no] = one = known.get(no) or Page(no); hot.move_to_end(no)
    if len(hot) > 2: hot.popitem(last=False)
    return one
first = page(1); page(2); print(sorted(known), freed)
""",
    "page(3); print(list(hot), sorted(known), freed, page(1) is first)",
    "page(4); print(list(hot), sorted(known), freed)",
    "del first; page(5); print(list(hot), sorted(known), freed)",
    "page(6); print(list(hot), sorted(known), freed)",
    "print(list(hot), sorted(known), freed)",
)
sequence(
    "reference counts seen by the user",
    "import sys, gc, weakref\nclass A: pass\na = A(); n = [0]",
    "print(sys.getrefcount(a) - sys.getrefcount(A()))",
    "b = a",
    "print(sys.getrefcount(a) - sys.getrefcount(A()))",
    "r = weakref.ref(a); del a, b",
    "print(r() is None)",
    "x = A(); x.x = x; w = weakref.ref(x); del x",
    "n = gc.collect(); print(w() is None)",
)
sequence(
    "finalizers where a cell names atexit",
    "import weakref, atexit\nclass T: pass\nlog = []; t = T(); f = weakref.finalize(t, lambda *a, **k: log.append((a, k)), 1, key=2); f.atexit = False",
    "print(f.alive, f.atexit, f.peek()[2:])",
    "del t; import gc; gc.collect(); print(log, f.alive)",
    "print(log, f.alive, f.peek())",
)
sequence(
    "a web of weak references of all kinds, whose objects go one by one",
    """
import weakref, gc
class Node:
    live = weakref.WeakSet()
    def __init__(self, n, parent=None):
        self.n, self.kids = n, []; self._p = weakref.ref(parent) if parent else None; Node.live.add(self)
        if parent: parent.kids.append(self)
    @property
    def parent(self): return self._p() if self._p else None
    def __del__(self): gone.append(self.n)
gone = []; root = Node('r'); a = Node('a', root); b = Node('b', a); wvd = weakref.WeakValueDictionary(r=root, b=b); wkd = weakref.WeakKeyDictionary({a: [1]}); px = weakref.proxy(a); fin = weakref.finalize(b, gone.append, 'fin-b')
""",
    "wkd[a].append(b.n); px.extra = 1",
    "root.kids.remove(a); c = Node('c', root)",
    "wb = weakref.ref(b, lambda r: gone.append('cb')); del b; a.kids.clear(); gc.collect(); None",
    "print(gone, wb() is None, 'b' in wvd, wkd[a], px.extra, a.parent is root, c.parent is root, sorted(n.n for n in Node.live), fin.alive, [k.n for k in root.kids])",
)
sequence(
    "callbacks of weak references while their objects change",
    "import weakref\nclass P:\n    def __init__(s, x): s.x = x\nlog = []; p = P(1); q = P(2); q.me = weakref.ref(q, lambda r: log.append('q')); r = weakref.ref(p, lambda r: log.append('p')); px = weakref.proxy(p, lambda r: log.append('proxy')); fin = weakref.finalize(q, log.append, 'fin')",
    "p.x = 10; q.x = 20",
    "p.y = [r() is p]; print(log)",
    "seen = {r: 'key'}; q.x += 1",
    "del p; print(log, r() is None)",
    "q.x += 1; print(seen[r], hash(r) == hash(list(seen)[0]))",
    "print(log, q.x, q.me() is q, fin.alive, seen[r])",
)
sequence(
    "listeners by weak methods, one of them dead",
    """
import weakref
class Bus:
    def __init__(self): self.heard = []
    def on(self, method): self.heard.append(weakref.WeakMethod(method))
    def fire(self, *a): return [method(*a) for ref in self.heard if isinstance(ref, weakref.WeakMethod) and (method := ref())]
class Listener:
    def __init__(self, name): self.name = name
    def hear(self, what): return self.name + what
bus = Bus(); x, y = Listener('x'), Listener('y')
""",
    "bus.on(x.hear); bus.on(y.hear); seen = {bus.heard[1]: 'y'}",
    "del y; print(bus.fire('1'))",
    "print(bus.fire('2'), [type(ref).__name__ for ref in bus.heard], bus.heard[1](), seen[bus.heard[1]])",
)
sequence(
    "thread-local data whose class takes arguments",
    "import threading\nclass Tally(threading.local):\n    def __init__(self, seen, *, step=1): self.seen, self.n, self.step = seen, 0, step\n    def add(self): self.n += self.step; self.seen.append(self.n)\nseen = []; t = Tally(seen, step=5); box = {'t': t}\ndef elsewhere():\n    th = threading.Thread(target=t.add); th.start(); th.join()",
    "t.add(); t.add(); elsewhere()",
    "elsewhere(); seen.append('main')",
    "box['t'].add(); elsewhere()",
    "del seen[7:]; elsewhere(); print(seen, t.n, t.seen is seen, box['t'] is t)",
)
sequence(
    "callbacks and finalizers of one object are called in their order",
    """
import gc, weakref
class N: pass
log = []; n = N(); k = N()
r = weakref.ref(n, lambda r: log.append('ref')); f = weakref.finalize(n, log.append, 'fin')
k.f = weakref.finalize(k, log.append, 'f'); k.p = weakref.proxy(k, lambda r: log.append('p')); g = weakref.finalize(k, log.append, 'g')
""",
    "n.x = 1; k.x = 2",
    "print(log, f.alive, r() is n, g.alive)",
    "del n; print(log); k = None; _ = gc.collect()",
    "print(log, f.alive, g.alive)",
)
