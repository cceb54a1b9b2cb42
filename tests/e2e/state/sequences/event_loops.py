"""What waits on the running event loop, what it is set to, and what executors work on."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

LOOP = "import asyncio\nloop = asyncio.get_running_loop(); hits = []\n"

sequence(
    "a callback that waits on the event loop binds",
    LOOP + "loop.call_later(600, hits.append, 'late'); near = [1]",
    "near.append(2)",
    "print(hits, near, any(not h.cancelled() and h._callback == hits.append for h in loop._scheduled))",
    pinned="A callback waits on the event loop: list.append in ",
)
sequence(
    "a callback of tornado's loop binds",
    LOOP
    + "from tornado.ioloop import IOLoop\ndef late(): hits.append(1)\nheld = [IOLoop.current().call_later(600, late)]",
    "print(len(held))",
    pinned="A callback waits on the event loop: late in ",
)
sequence(
    "a handle of a callback is lost by name",
    LOOP + "h = loop.call_later(600, hits.append, 'late'); near = [1]",
    "near.append(2)",
    "h.when()",
    pinned=True,
    refuses="A callback that waits on an event loop belongs to its process",
)
sequence(
    "callbacks that ran or were cancelled bind nothing",
    LOOP
    + "h = loop.call_later(600, hits.append, 'late'); h.cancel(); s = loop.call_soon(hits.append, 'soon'); await asyncio.sleep(0)",
    "hits.append('now')",
    "print(hits, h.cancelled(), s.cancelled())",
)
sequence(
    "a future on which an executor works is lost by name",
    "import concurrent.futures as cf, threading\nstop = threading.Event(); ex = cf.ThreadPoolExecutor(1); fu = ex.submit(stop.wait); near = [1]",
    "near.append(2)",
    "fu.result(1)",
    pinned=True,
    refuses="Its result is still being computed by this process",
)
sequence(
    "a future on which nobody works is lost by name",
    "import concurrent.futures as cf\nfu = cf.Future(); held = [fu]",
    "held.append(2)",
    "held[0].result(1)",
    pinned=True,
    refuses="Its result is still being computed by this process",
)
sequence(
    "futures of executors that have ended",
    "import concurrent.futures as cf\nex = cf.ThreadPoolExecutor(1); fu = ex.submit(sorted, [3, 1]); bad = ex.submit(int, 'x'); ex.shutdown()\noff = cf.Future(); off.cancel(); seen = []",
    "fu.result().append(2); fu.add_done_callback(lambda f: seen.append(f.result()))",
    "print(fu.result(), seen[0] is fu.result(), repr(bad.exception()), off.cancelled(), off.done(), cf.wait([fu, bad]).not_done)",
)
sequence(
    "a future of asyncio that waits is lost by name",
    LOOP + "fut = loop.create_future(); near = [1]",
    "near.append(2)",
    "fut.result()",
    pinned=True,
    refuses="What an event loop works on belongs to its process",
)
