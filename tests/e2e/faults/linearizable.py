"""Whether there is an order of concurrent operations on a list that explains what each of them saw.

The search is Wing and Gong's with Lowe's memory of visited states ("Testing for linearizability", 2017).
Pure. Law: an operation takes effect once, between its beginning and its end; one whose answer never came may
take effect at any later time, or never. Earlier states of a list that is only appended to are its beginnings,
so whoever undoes leaves one of these, or all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.e2e.faults.history import Operation

STEPS_MAX = 500_000
"""No search takes more steps; histories of a few clients need some thousands."""

State = tuple[str, ...]


class SearchTooLong(Exception):
    """A history could not be decided."""


def linearize(operations: Iterable[Operation], *, undurable: bool = False) -> list[State] | None:
    """Return the states that some explaining order passes through, or None when there is no such order.

    With `undurable`, the latest cells that nobody called durable may be taken back at any time.
    """
    known = sorted(_with_effect(operations), key=lambda operation: operation.began)
    return _Search(known, undurable).run()


def _with_effect(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Leave out what had no effect by its own word, and reads that saw nothing."""
    for operation in operations:
        if operation.outcome in ("lost", "not run"):
            continue
        if operation.kind == "read" and operation.seen is None:
            continue
        yield operation


class _Search:
    """Depth first, without recursion; a place is which operations are done and what the list is then."""

    def __init__(self, operations: Sequence[Operation], undurable: bool) -> None:
        self._operations = operations
        self._undurable = undurable
        self._lasting = {operation.name for operation in operations if operation.durable}
        self._must = sum(
            1 << index for index, operation in enumerate(operations) if operation.outcome == "done"
        )

    def run(self) -> list[State] | None:
        visited: set[tuple[int, State]] = set()
        stack: list[tuple[int, State, Iterator[tuple[int, State]]]] = [(0, (), self._next(0, ()))]
        steps = 0
        while stack:
            done, _, following = stack[-1]
            if done & self._must == self._must:
                return [state for _, state, _ in stack]
            step = next(following, None)
            if step is None:
                stack.pop()
                continue
            steps += 1
            if steps > STEPS_MAX:
                raise SearchTooLong(f"undecided after {STEPS_MAX} steps")
            if step not in visited:
                visited.add(step)
                stack.append((*step, self._next(*step)))
        return None

    def _next(self, done: int, state: State) -> Iterator[tuple[int, State]]:
        """Yield each place that one more operation leads to: one that began before all others had to end."""
        waiting = [
            (index, operation) for index, operation in enumerate(self._operations) if not done >> index & 1
        ]
        first_end = min((operation.until for _, operation in waiting), default=0.0)
        for index, operation in waiting:
            if operation.began > first_end:
                return
            for after in self._effects(operation, state):
                yield done | 1 << index, after

    def _effects(self, operation: Operation, state: State) -> Iterator[State]:
        """Yield the lists that the operation may leave, each consistent with what it saw."""
        for before in self._befores(state):
            after = (*before, operation.name) if operation.kind == "append" else before
            if operation.seen is not None and operation.seen != after:
                continue
            yield after
            if operation.kind == "undo":
                yield from (before[:length] for length in range(len(before)))

    def _befores(self, state: State) -> Iterator[State]:
        yield state
        if not self._undurable:
            return
        for length in range(len(state) - 1, -1, -1):
            if state[length] in self._lasting:
                return
            yield state[:length]
