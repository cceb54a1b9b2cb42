"""The history of a kernel, asked and travelled by whoever has its record: the server extension, programs.

All of it blocks. Laws: what changes the notebook is an execution like any other, so it has its turn, a number
and a fence, and is in the log; it is not begun while a cell runs or waits, and does nothing where the
notebook has moved on from where the asker has seen it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from replkernel.client.by_record import KernelLine, NoReply, known_record
from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.launch.kernel_record import KernelRecord, router_lives
from replkernel.protocol.points import REQUEST, ComparisonDocument, HistoryDocument, HistoryQuestion
from replkernel.protocol.progress import REQUEST as PROGRESS
from replkernel.protocol.timeline import MOVED, NoName, check_free, check_gone, check_name
from replkernel.replication.history import NAMES_MAX

LOOK_LIMIT_S = 10.0
"""A process whose code holds the interpreter that long cannot be asked just now."""
LOGGED_LIMIT_S = 5.0
LOOK_S = 0.05

Verb = Literal["undo", "redo", "goto", "switch"]
Kind = Literal["mark", "branch"]
Answer = TypeVar("Answer")


_POINT = re.compile(r"[A-Za-z_][\w.-]{0,63}|\d{1,18}(\.\d{1,18})?")


class Lost(msgspec.Struct, frozen=True):
    """What cannot come back: a variable, and its type."""

    name: str
    type: str


class Refused(ReplkernelError):
    """Nothing was done. `reason` is one word for programs; `lost` names what somebody must agree to lose."""

    def __init__(self, reason: str, why: str, lost: tuple[Lost, ...] = ()) -> None:
        super().__init__(why)
        self.reason, self.lost = reason, lost


class Outcome(msgspec.Struct, frozen=True):
    """What an execution says of where it took the notebook."""

    point: str = ""
    why: str = ""
    lost: tuple[Lost, ...] = ()
    moved: bool = False


def history(kernel_id: str, env: Mapping[str, str]) -> HistoryDocument:
    """Return the points of a kernel's history; raises ReplkernelError."""
    with KernelLine(awake(kernel_id, env)) as line:
        return _look(line)


def comparison(kernel_id: str, env: Mapping[str, str], one: str, other: str) -> ComparisonDocument:
    """Return how two points differ; raises ReplkernelError."""
    with KernelLine(awake(kernel_id, env)) as line:
        return _ask(line, HistoryQuestion(one=_point(one), other=_point(other)), ComparisonDocument)


def travel(
    kernel_id: str, env: Mapping[str, str], verb: Verb, word: str, *, since: str = "", sure: bool = False
) -> HistoryDocument:
    """Take a notebook to another point and return its history then; raises Refused, with nothing done.

    `word` is a number of steps, a point or a branch; `sure` gives up what cannot come back.
    """
    seen = [f"--since={_point(since)}"] if since else []
    code = " ".join(["%replkernel", verb, _point(word), *seen, *(["--yes"] if sure else [])])
    with KernelLine(awake(kernel_id, env)) as line:
        _check_idle(line)
        seen_now = _ask(line, HistoryQuestion(verb, word), HistoryDocument)
        if since and since != seen_now.here:
            raise Refused("moved", MOVED)
        metadata = _run(line, code)
        outcome = msgspec.convert(metadata.get("history") or {}, Outcome)
        if outcome.lost:
            raise Refused("confirm", outcome.why, outcome.lost)
        if not outcome.point:
            why = outcome.why or "The kernel does not say what came of it."
            raise Refused("moved" if outcome.moved else "refused", why)
        return _look(line)


def name(kernel_id: str, env: Mapping[str, str], kind: Kind, word: str, point: str = "") -> HistoryDocument:
    """Name a point, or begin a branch where the notebook is; return the history then."""
    code = f"%replkernel {kind} {check_name(word)} {point and _point(point)}".strip()
    with KernelLine(awake(kernel_id, env)) as line:
        _check_idle(line)
        before = _ask(line, HistoryQuestion("goto", point), HistoryDocument) if point else _look(line)
        check_free(kind, word, before.marks, before.branches)
        taken = before.marks if kind == "mark" else before.branches
        if len(taken) >= NAMES_MAX and word not in taken:
            raise Refused(
                "refused", f"There are {NAMES_MAX} already, which is the most: take one away first."
            )
        _run(line, code)
        if kind == "branch":
            return _logged(line, lambda now: now.branch == word)
        return _logged(line, lambda now: now.marks.get(word) == (point or now.here))


def unname(kernel_id: str, env: Mapping[str, str], word: str) -> HistoryDocument:
    """Take the name of a point, or a branch, away; return the history then."""
    check_name(word)
    with KernelLine(awake(kernel_id, env)) as line:
        _check_idle(line)
        before = _look(line)
        check_gone(word, before.marks, before.branches, before.branch)
        _run(line, f"%replkernel unmark {word}")
        return _logged(line, lambda now: word not in now.marks and word not in now.branches)


def _point(word: str) -> str:
    if not _POINT.fullmatch(word):
        raise NoName(f"`{word[:64]}` is not a point: a cell's number, a point's address, a mark or a branch.")
    return word


def awake(kernel_id: str, env: Mapping[str, str]) -> KernelRecord:
    """Return the record of a kernel whose process can be asked; raises Refused if it hibernates."""
    record = known_record(kernel_id, env)
    if record.state == "hibernated" or not router_lives(record):
        raise Refused("hibernated", f"Kernel {kernel_id} is hibernated: resume it first.")
    return record


def _look(line: KernelLine) -> HistoryDocument:
    return _ask(line, HistoryQuestion(), HistoryDocument)


def _ask(line: KernelLine, question: HistoryQuestion, shape: type[Answer]) -> Answer:
    try:
        answer = line.control(REQUEST, msgspec.to_builtins(question), LOOK_LIMIT_S)
        return msgspec.convert(answer, shape)
    except NoReply as error:
        why = "Its process starts, or its code holds the interpreter, so it cannot be asked; ask again."
        raise Refused("busy", why) from error
    except UNREADABLE as error:
        raise ReplkernelError("Its answer is not understood; is it of this version?") from error


def _run(line: KernelLine, code: str) -> dict[str, Any]:
    """Have a line of magic run in its turn; return what the reply says of it beside its content."""
    _check_idle(line)
    content = {
        "code": code,
        "silent": False,
        "store_history": False,
        "user_expressions": {},
        "allow_stdin": False,
        "stop_on_error": False,
    }
    reply = line.ask("shell", "execute_request", content)
    said = reply["content"]
    if said.get("status") != "ok":
        raise Refused("refused", str(said.get("evalue") or "The kernel refused."))
    metadata: dict[str, Any] = reply["metadata"].get("replkernel") or {}
    return metadata


def _check_idle(line: KernelLine) -> None:
    if line.control(PROGRESS, {"since": 0}).get("busy"):
        raise Refused("busy", "A cell runs or waits; ask again when it is done, or interrupt it first.")


def _logged(line: KernelLine, seen: Callable[[HistoryDocument], bool]) -> HistoryDocument:
    """Return the history once the log has what was asked; raises Refused if it never comes."""
    deadline = time.monotonic() + LOGGED_LIMIT_S
    while not seen(now := _look(line)):
        if time.monotonic() > deadline:
            raise Refused("refused", "It is not in the history yet; see whether the notebook is durable.")
        time.sleep(LOOK_S)
    return now
