"""`%replkernel history`, `undo`, `goto`, `mark`, `branch` …, and what `replkernel.undo()` and others come to.

Law: a wish is only noted while a cell runs; what is asked of the past comes from the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

from replkernel.errors import ReplkernelError
from replkernel.kernel.history_answers import asked
from replkernel.kernel.magic_help import align
from replkernel.protocol.timeline import (
    Difference,
    PointInfo,
    Timeline,
    check_free,
    check_gone,
    check_name,
    steps_of,
)
from replkernel.records import Mark

if TYPE_CHECKING:
    from replkernel.kernel.replica import Replica

VERBS = {
    "history": (0, 0),
    "undo": (0, 1),
    "redo": (0, 1),
    "goto": (1, 1),
    "mark": (1, 2),
    "unmark": (1, 1),
    "branch": (1, 1),
    "switch": (1, 1),
    "branches": (0, 0),
    "compare": (2, 2),
}
"""The words of the history, with the fewest and most arguments of each."""

SINCE = "--since="
"""What programs add: the address of the point at which they have seen the notebook, else nothing is done."""

TRAVELS = ("undo", "redo", "goto", "switch")
LOGGED_WAIT_S = 5.0


def answer(replica: Replica, words: Sequence[str], options: set[str]) -> None:
    """Do what one line asks; raises UsageError."""
    verb, given = words[0], list(words[1:])
    fewest, most = VERBS[verb]
    since = next((option.removeprefix(SINCE) for option in options if option.startswith(SINCE)), "")
    allowed = {"--yes", f"{SINCE}{since}"} if verb in TRAVELS else set()
    if not fewest <= len(given) <= most or options - allowed:
        raise UsageError(f"%replkernel {verb} is used otherwise; `%replkernel {verb} --help` says how.")
    try:
        asked(replica.link)
        if verb in TRAVELS:
            _travel(replica, verb, given, sure="--yes" in options, since=since)
        else:
            _ACTIONS[verb](replica, *given)
    except ReplkernelError as error:
        raise UsageError(str(error)) from None


def timeline_of(replica: Replica) -> Timeline:
    """Return the history, once what earlier cells changed is in the log, for a moment at most."""
    link = asked(replica.link)
    replica.await_log(replica.applied(), LOGGED_WAIT_S)
    return link.history().timeline


def here() -> Replica:
    """Return the replica of this process; raises ReplkernelError elsewhere."""
    from IPython.core.getipython import get_ipython

    shell: object = get_ipython()
    replica: Replica | None = getattr(getattr(shell, "kernel", None), "replica", None)
    if replica is None:
        raise ReplkernelError("The history is that of a notebook with the replkernel kernel: call it there.")
    return replica


def timeline_of_here() -> Timeline:
    """Return the history of the notebook that calls this."""
    return timeline_of(here())


def differences_of_here(one: str, other: str) -> tuple[Difference, ...]:
    """Return how two points of the calling notebook differ."""
    return _differences(here(), one, other)


def travel(verb: str, word: str, *, sure: bool) -> None:
    """Have the notebook travel when its cell has ended."""
    _travel(here(), verb, [word], sure=sure)


def ask_here(verb: str, *given: str) -> None:
    """Do what a word asks in the notebook that calls this."""
    _ACTIONS[verb](here(), *given)


def _travel(replica: Replica, verb: str, given: list[str], *, sure: bool, since: str = "") -> None:
    word = given[0] if given else "1"
    if verb in ("undo", "redo"):
        steps_of(verb, word)
    elif verb == "switch":
        replica.travel.onto(word, begins=False)
    replica.travel.go(lambda timeline: timeline.aim(verb, word), sure=sure, since=since)


def _history(replica: Replica) -> None:
    timeline = timeline_of(replica)
    names: dict[Mark, list[str]] = {}
    for name, mark in (*timeline.names.items(), *timeline.branches.items()):
        names.setdefault(mark, []).append(name)
    now = timeline.points[-1].stands_for if timeline.points else None
    rows = [_row(point, names.get(point.mark, []), here=point.mark == now) for point in timeline.points]
    head = ("", "CELL", "TIME", "CHANGED", "BYTES", "NAMES", "SOURCE")
    print("\n".join(align([head, *rows])) if rows else "Nothing has changed yet.")
    print(f"{timeline.kept:,} bytes are kept for the past; `%replkernel goto CELL` goes there.")


def _row(point: PointInfo, names: list[str], *, here: bool) -> tuple[str, ...]:
    changed = ", ".join(point.changed) + (f" and {point.more} more" if point.more else "")
    clock = time.strftime("%H:%M:%S", time.localtime(point.at)) if point.at else ""
    source = "(went back)" if point.to is not None else point.source
    return (
        ">" if here else "",
        f"[{point.number}]",
        clock,
        changed,
        f"{point.bytes:,}",
        " ".join(names),
        source,
    )


def _mark(replica: Replica, name: str, word: str = "") -> None:
    timeline = timeline_of(replica)
    check_free("mark", name, timeline.names, timeline.branches)
    replica.travel.name(check_name(name), timeline.find(word) if word else None)


def _unmark(replica: Replica, name: str) -> None:
    timeline = timeline_of(replica)
    check_gone(name, timeline.names, timeline.branches, timeline.branch)
    replica.travel.unname(name)


def _branch(replica: Replica, name: str) -> None:
    timeline = timeline_of(replica)
    check_free("branch", name, timeline.names, timeline.branches)
    replica.travel.onto(check_name(name), begins=True)


def _branches(replica: Replica) -> None:
    timeline = timeline_of(replica)
    known = {point.mark: point for point in timeline.points}
    for name, mark in timeline.branches.items():
        end = f"[{known[mark].number}]" if mark in known else "not kept any more"
        print(f"{'>' if name == timeline.branch else ' '} {name}  {end}")


def _compare(replica: Replica, one: str, other: str) -> None:
    found = _differences(replica, one, other)
    rows = [(each.name, _size(each.before, each.was), _size(each.after, each.now)) for each in found]
    print("\n".join(align([("VARIABLE", one, other), *rows])) if rows else "Nothing differs.")


def _differences(replica: Replica, one: str, other: str) -> tuple[Difference, ...]:
    timeline = timeline_of(replica)
    return asked(replica.link).history(timeline.find(one), timeline.find(other)).differences


def _size(size: int | None, glance: str) -> str:
    return "–" if size is None else f"{glance} ({size:,} bytes)" if glance else f"{size:,} bytes"


_ACTIONS: dict[str, Callable[..., None]] = {
    "history": _history,
    "mark": _mark,
    "unmark": _unmark,
    "branch": _branch,
    "branches": _branches,
    "compare": _compare,
}
