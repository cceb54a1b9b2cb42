"""/replkernel/api/kernels/KERNEL/history…: where a notebook can go back to, and its way there.

Law: with the rights that Jupyter's own kernels need, and for kernels of this server's user alone; what cannot
come back is named, and nothing is done, until the request says `confirm`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec
from jupyter_server.auth.decorator import authorized
from tornado import web

from replkernel.client.history import (
    Kind,
    Lost,
    Refused,
    Verb,
    comparison,
    history,
    name,
    travel,
    unname,
)
from replkernel.errors import ReplkernelError
from replkernel.protocol.points import ComparisonDocument, HistoryDocument, Word
from replkernel.protocol.timeline import STEPS_MAX, NoName
from replkernel_server.handlers.own_kernel import OwnKernelHandler
from replkernel_server.handlers.scheduler_base import Operation, Query

KERNEL = "/replkernel/api/kernels/{kernel}"


class Travel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to go: `to` for `goto` and `switch`, `steps` for `undo` and `redo`.

    With `since`, the `here` of the history that somebody has seen, nothing is done where a cell has changed
    something after that. `confirm` gives up what cannot come back.
    """

    to: Word = ""
    steps: Annotated[int, msgspec.Meta(ge=1, le=STEPS_MAX)] = 1
    since: Word = ""
    confirm: bool = False


class Naming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which point gets the name; without one it is the state of now."""

    point: Word = ""


class Fault(msgspec.Struct, frozen=True):
    """Why a request was refused, as Jupyter Server says it."""

    message: str


class NotDone(msgspec.Struct, frozen=True):
    """Why nothing was done. `reason` is one word: `busy`, `hibernated`, `confirm`, `moved`, `refused`, or of
    cells `full`, `taken`, `unheard`, `not-running`.

    `confirm` names in `lost` what cannot come back; asked again with `confirm` the notebook goes without it.
    """

    message: str
    reason: str
    lost: tuple[Lost, ...] = ()


class PastStateHandler(OwnKernelHandler):
    """What all of them share; `operations` describes each method that a handler answers."""

    _track_activity = False
    operations: ClassVar[dict[str, Operation]] = {}

    async def answer(
        self, kernel_id: str, ask: Callable[..., Any], *given: object, **options: object
    ) -> None:
        """Ask in a thread and answer with what comes of it: 404 for no kernel, 409 where nothing was done."""
        await self.recorded(kernel_id)
        self.set_header("Cache-Control", "no-store")
        self.set_header("Content-Type", "application/json")
        try:
            found = await asyncio.to_thread(ask, kernel_id, dict(os.environ), *given, **options)
        except NoName as error:
            raise web.HTTPError(400, str(error)) from error
        except ReplkernelError as error:
            reason, lost = ("refused", ()) if not isinstance(error, Refused) else (error.reason, error.lost)
            self.set_status(409)
            found = NotDone(str(error), reason, lost)
        self.finish(msgspec.json.encode(found))


class HistoryHandler(PastStateHandler):
    """The points."""

    operations: ClassVar = {
        "get": Operation(
            "The points that a kernel's notebook can go to. A kernel that hibernates is not resumed for it.",
            {200: HistoryDocument, 409: NotDone},
        )
    }

    @web.authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        """Answer with the history."""
        await self.answer(kernel_id, history)


class ComparisonHandler(PastStateHandler):
    """How two points differ."""

    operations: ClassVar = {
        "get": Operation(
            "The variables that differ between two points, with their bytes at each.",
            {200: ComparisonDocument, 409: NotDone},
            query=(
                Query("one", Word, "A point, mark, branch or cell number.", required=True),
                Query("other", Word, "Another one.", required=True),
            ),
        )
    }

    @web.authenticated
    @authorized
    async def get(self, kernel_id: str) -> None:
        """Answer with the differences."""
        await self.answer(kernel_id, comparison, self.get_argument("one"), self.get_argument("other"))


class TravelHandler(PastStateHandler):
    """The notebook's way to another point."""

    VERB: ClassVar[Verb]

    @web.authenticated
    @authorized
    async def post(self, kernel_id: str) -> None:
        """Take the notebook there; answer with its history then."""
        wanted = self.body(Travel)
        word = wanted.to if self.VERB in ("goto", "switch") else str(wanted.steps)
        await self.answer(kernel_id, travel, self.VERB, word, since=wanted.since, sure=wanted.confirm)


def _travels(verb: Verb, summary: str) -> type[TravelHandler]:
    operation = Operation(summary, {200: HistoryDocument, 409: NotDone}, takes=Travel)
    body = {"VERB": verb, "operations": {"post": operation}, "__doc__": summary}
    return type(f"{verb.capitalize()}Handler", (TravelHandler,), body)


class NameHandler(PastStateHandler):
    """The name of a point, or a branch."""

    KIND: ClassVar[Kind] = "mark"
    operations: ClassVar = {
        "put": Operation(
            "Name a point, which is kept until the name is taken away.",
            {200: HistoryDocument, 409: NotDone},
            takes=Naming,
        ),
        "delete": Operation("Take the name away.", {200: HistoryDocument, 409: NotDone}),
    }

    @web.authenticated
    @authorized
    async def put(self, kernel_id: str, word: str) -> None:
        """Give the name."""
        point = self.body(Naming).point if self.KIND == "mark" else ""
        await self.answer(kernel_id, name, self.KIND, word, point)

    @web.authenticated
    @authorized
    async def delete(self, kernel_id: str, word: str) -> None:
        """Take it away."""
        await self.answer(kernel_id, unname, word)


class BranchHandler(NameHandler):
    """One branch."""

    KIND: ClassVar[Kind] = "branch"
    operations: ClassVar = {
        "put": Operation(
            "Begin a branch where the notebook is; cells go on there.", {200: HistoryDocument, 409: NotDone}
        ),
        "delete": Operation(
            "Take the branch away; the notebook must be on another.", {200: HistoryDocument, 409: NotDone}
        ),
    }


ADDRESSES: dict[str, type[PastStateHandler]] = {
    f"{KERNEL}/history": HistoryHandler,
    f"{KERNEL}/history/compare": ComparisonHandler,
    f"{KERNEL}/history/undo": _travels("undo", "Undo the last changes."),
    f"{KERNEL}/history/redo": _travels("redo", "Go forward again."),
    f"{KERNEL}/history/goto": _travels("goto", "Go to a point."),
    f"{KERNEL}/history/switch": _travels("switch", "Go to the end of a branch, and on with it."),
    f"{KERNEL}/history/marks/{{name}}": NameHandler,
    f"{KERNEL}/history/branches/{{name}}": BranchHandler,
}
"""All addresses of the history; `{…}` is an id or a name."""
