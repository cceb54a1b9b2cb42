"""Work that has ended: tasks and futures of asyncio, with their results, errors and names."""

# ruff: noqa: E501 (a cell is one string, so that a notebook is one paragraph)

from __future__ import annotations

from tests.e2e.state.sequence import sequence

sequence(
    "tasks and futures that are done",
    """
import asyncio
async def job(n): await asyncio.sleep(0); return [n]
async def fail(): raise KeyError('k')
tasks = [asyncio.create_task(job(i), name=f'job{i}') for i in range(3)]; bad = asyncio.create_task(fail())
await asyncio.wait([*tasks, bad])
fut = asyncio.get_running_loop().create_future(); fut.set_result(tasks)
""",
    "fut.result()[0].result().append(2); first = tasks[0]; ended = first.get_coro()",
    "tasks",
    "print([t.result() for t in tasks], first is tasks[0], fut.result() is tasks, first.get_name(), repr(bad.exception()), await fut is tasks, await first, first.get_coro() is ended, ended.__name__, ended.cr_frame)",
)
sequence(
    "tasks that were cancelled, gathered, and are awaited again",
    """
import asyncio
async def job(n): await asyncio.sleep(0); return [n]
async def slow(): await asyncio.sleep(100)
t = asyncio.create_task(job(1), name='one'); c = asyncio.create_task(slow()); await t; c.cancel('enough')
await asyncio.wait([c])
whole = asyncio.gather(t, job(2)); pair = await whole
""",
    "pair[0].append(5); seen = []; t.add_done_callback(lambda f: seen.append(f.get_name()))\nawait asyncio.sleep(0.01)",
    "again = await asyncio.gather(t, asyncio.create_task(job(3)))",
    "print(again, pair, t.result() is pair[0], c.cancelled(), seen, t in {t}, whole.result() is pair, await asyncio.wait_for(t, 1))",
)
