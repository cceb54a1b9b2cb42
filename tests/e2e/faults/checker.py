"""The judgement on a history: what was promised and not kept, each in one sentence.

Pure. Law: an empty answer means that every promise was kept that the history can tell of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.e2e.faults.history import KEPT, OUTGREW_STORE, History, Operation
from tests.e2e.faults.linearizable import SearchTooLong, linearize

LOSS_TOLD = "the notebook is back at"
"""What the system says when cells that it had answered are gone."""


JUST_BEFORE_S = 1.0
UNWATCHED = "while its host agent was away"
"""Of a process that died together with its agent nobody can know since when it was dead."""


def judge(history: History) -> list[str]:
    """Return every broken promise."""
    return [
        *history.broken,
        *_ran_as_told(history),
        *_counts(history),
        *_one_cell(history),
        *_order(history),
        *_nothing_lost(history),
        *_agreement(history),
        *(f"left behind: {what}" for what in history.left),
    ]


def _ran_as_told(history: History) -> Iterator[str]:
    """Each cell ran once at most, not at all when that was said, and every one was answered."""
    for operation in history.operations:
        times = history.begun.get(operation.name, 0)
        if times > 1:
            yield f"{operation.name} ran {times} times"
        if times and operation.outcome == "not run":
            yield f"{operation.name} ran though it was said not to ({operation.said})"
        if not times and operation.outcome == "lost" and _sent_to_a_dead_process(operation, history.kills):
            yield f"{operation.name} was lost in a process that was dead before ({operation.said})"
        if operation.outcome == "done" and "StateLostError" in operation.said:
            yield f"{operation.name} found a value missing that can be copied ({operation.said})"
        if operation.outcome == "hung":
            yield f"{operation.name} was never answered, {operation.ended - operation.began:.0f} s long"


def _sent_to_a_dead_process(operation: Operation, kills: tuple[float, ...]) -> bool:
    """Tell whether no process was killed between a lost cell's beginning and its end, but one just before."""
    if UNWATCHED in operation.said:
        return False
    during = any(operation.began <= at <= operation.ended for at in kills)
    return not during and any(operation.began - JUST_BEFORE_S <= at < operation.began for at in kills)


def _counts(history: History) -> Iterator[str]:
    """Execution counts are given once and leave no gap but for cells whose answer never came."""
    counted = [operation for operation in history.operations if operation.count and _counts_up(operation)]
    given = Counter(operation.count for operation in counted)
    for count, times in sorted(given.items()):
        if times > 1:
            names = ", ".join(operation.name for operation in counted if operation.count == count)
            yield f"execution count {count} was given to {names}"
    silent = sum(operation.outcome in ("unknown", "hung") for operation in history.operations)
    missing = set(range(min(given, default=0), max(given, default=-1) + 1)) - set(given)
    if len(missing) > silent:
        yield f"execution counts {sorted(missing)} are missing, and only {silent} cells were not answered"


def _counts_up(operation: Operation) -> bool:
    return operation.outcome in ("done", "lost")


def _one_cell(history: History) -> Iterator[str]:
    """All of the state that a cell saw was that after one cell, whatever had gone wrong before."""
    for operation in history.operations:
        if operation.seen is not None and operation.marked not in (None, len(operation.seen)):
            yield (
                f"{operation.name} saw a mixture of cells: "
                f"{len(operation.seen)} in the list, {operation.marked} by the marks"
            )


def _order(history: History) -> Iterator[str]:
    """What the cells saw, and where they undid something what is left, is explained by some order of them."""
    known = history.operations
    ended = max((operation.ended for operation in known), default=0.0)
    left = [
        Operation(f"the end on {replica}", "read", "audit", ended, ended, "done", seen=found)
        for replica, found in history.audited.items()
    ]
    try:
        states = linearize([*known, *left] if _undone(history) else known, undurable=history.undurable)
    except SearchTooLong as error:
        yield str(error)
        return
    if states is None:
        yield "no order of the cells explains what they saw"


def _undone(history: History) -> bool:
    return any(operation.kind == "undo" for operation in history.operations)


def _nothing_lost(history: History) -> Iterator[str]:
    """What was answered as durable is there in the end; what is gone was said to be."""
    names = {operation.name: operation for operation in history.operations}
    for replica, found in sorted(history.audited.items()):
        for operation in history.operations:
            if operation.name in found or _undone(history):
                continue
            if operation.kind == "append" and operation.outcome == "done":
                if operation.durable or not history.undurable:
                    yield f"{operation.name} was answered, and is lost on {replica}"
                elif not any(LOSS_TOLD in other.said for other in history.operations):
                    yield f"{operation.name} was answered, is lost on {replica}, and nobody was told"
            elif KEPT in operation.said and not history.undurable:
                yield f"{operation.name} was said to be kept, and is lost on {replica}"
        for name in found:
            if name not in names:
                yield f"{replica} has {name}, which nobody sent"
            elif names[name].outcome in ("lost", "not run"):
                yield f"{replica} has {name}, which was said to have no effect ({names[name].said})"


def _agreement(history: History) -> Iterator[str]:
    """All replicas hold the same after healing, large values included."""
    if len(set(history.audited.values())) > 1:
        yield f"the replicas differ: {history.audited}"
    for replica, sums in sorted(history.large.items()):
        found = history.audited.get(replica, ())
        for operation in history.operations:
            if operation.large is None or operation.name not in found:
                continue
            told = not operation.durable and any(OUTGREW_STORE in other.said for other in history.operations)
            if sums.get(operation.name) != operation.large and not told:
                yield f"the large value of {operation.name} is damaged or gone on {replica}"
