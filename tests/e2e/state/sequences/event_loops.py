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
sequence(
    "switches of the running event loop",
    LOOP + "loop.set_debug(True); loop.slow_callback_duration = 7.5; near = [1]",
    "near.append(loop.get_debug())",
    "loop = asyncio.get_running_loop(); print(near, loop.get_debug(), loop.slow_callback_duration)",
)
sequence(
    "switches of the event loop that were set back",
    LOOP + "loop.set_debug(True)",
    "loop.set_debug(False); loop.slow_callback_duration = 3",
    "print(asyncio.get_running_loop().get_debug(), asyncio.get_running_loop().slow_callback_duration)",
)
sequence(
    "the event loop's exception handler",
    LOOP
    + """
def on_error(loop, context): hits.append(context['message'])
loop.set_exception_handler(on_error)
""",
    "asyncio.get_running_loop().call_exception_handler({'message': 'one'})",
    """
same = asyncio.get_running_loop().get_exception_handler() is on_error
def fail(): 1 / 0
asyncio.get_running_loop().call_soon(fail); await asyncio.sleep(0.01)
""",
    "print(hits[0], 'Exception in callback fail' in hits[1], len(hits), same)",
)
sequence(
    "an exception handler of the event loop that was taken back",
    LOOP + "loop.set_exception_handler(lambda loop, context: hits.append(context['message']))",
    "asyncio.get_running_loop().call_exception_handler({'message': 'one'}); print(hits)",
    "asyncio.get_running_loop().set_exception_handler(None)",
    "print(hits, asyncio.get_running_loop().get_exception_handler())",
)
sequence(
    "the event loop's task factory",
    LOOP
    + """
class Counted(asyncio.Task): pass
def factory(loop, coro, **options):
    hits.append(coro.__name__); return (Counted if coro.__name__ == 'job' else asyncio.Task)(coro, loop=loop, **options)
async def job(): return 5
loop.set_task_factory(factory)
""",
    "kind = type(asyncio.current_task()).__name__; print(await asyncio.create_task(job()), hits.count('job'))",
    "t = asyncio.create_task(job()); print(type(t) is Counted, await t); del t",
    "print(hits.count('job'), asyncio.get_running_loop().get_task_factory() is factory)",
)
sequence(
    "a task factory that cannot travel",
    LOOP
    + """
import threading, time
class Factory(threading.Thread):
    def __call__(self, loop, coro, **options): return asyncio.Task(coro, loop=loop, **options)
    def run(self): time.sleep(600)
loop.set_task_factory(Factory(daemon=True)); loop.get_task_factory().start()
""",
    "hits.append(1)",
    "async def job(): return 'made without it'\nprint(hits, await asyncio.create_task(job()))",
    pinned=True,
    refuses="made without it",
)
sequence(
    "tornado's loop in a variable, and a handle of it whose callback ran",
    LOOP
    + "from tornado.ioloop import IOLoop\nio = IOLoop.current(); held = [io, io.call_later(0, hits.append, 1)]; await asyncio.sleep(0.05)",
    "hits.append(io is IOLoop.current())",
    "print(hits, held[0] is io is IOLoop.current(), held[1].cancelled(), io.asyncio_loop is loop)",
)
sequence(
    "a session of aiohttp that is closed, whose resolver leaves a thread",
    "import aiohttp\nasync with aiohttp.ClientSession(headers={'A': 'b'}) as session: near = [session.closed]",
    "near.append(session.closed)",
    "print(near, session.closed)",
    needs="aiohttp",
)
