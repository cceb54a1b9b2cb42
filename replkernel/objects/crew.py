"""A few threads that share the pieces of one blob, a bounded number of pieces at a time.

Hashing and I/O let go of the interpreter's lock. Law: when `crew` leaves, no thread of it is at work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

THREADS = 4
"""So many threads share a blob; one of fewer pieces is done by the caller alone."""

AHEAD = 2 * THREADS
"""So many pieces are under way at once, done ones that nobody has taken yet included."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def each(
    work: Callable[[Item], Result], items: Iterable[Item], progress: Callable[[], None] | None = None
) -> Iterator[Result]:
    """Yield `work` of each item in order. `progress` is called between items by the caller and may raise.

    After an exception no further item is begun, and those under way are awaited before it is raised.
    """
    source = iter(items)
    first = list(islice(source, THREADS))
    if len(first) < THREADS:
        for item in first:
            if progress is not None:
                progress()
            yield work(item)
        return
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="blob-cache")
    under_way: deque[Future[Result]] = deque()
    try:
        under_way.extend(pool.submit(work, item) for item in first)
        while under_way:
            for item in islice(source, AHEAD - len(under_way)):
                under_way.append(pool.submit(work, item))
            if progress is not None:
                progress()
            yield under_way.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
