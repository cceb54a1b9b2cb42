"""The base of the scheduler's REST handlers: authentication, parsing, answers, and what each operation is.

Law: every handler authenticates in `prepare`; what a request says is parsed into documents, or answered with
400 and one sentence; a handler answers only the methods that it describes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from types import TracebackType
from typing import Any, ClassVar, TypeVar

import msgspec
from replkernel_scheduler.bounds import Bounds
from replkernel_scheduler.errors import UnexpectedEvent
from replkernel_scheduler.types import NOBODY, KernelId, UserName
from tornado import web
from tornado.iostream import StreamClosedError

from replkernel.errors import UNREADABLE
from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import BadRequest, NotKnown, ServerError
from replkernel_server.scheduling import access
from replkernel_server.scheduling.channel import Channel
from replkernel_server.scheduling.documents import check_id
from replkernel_server.scheduling.identity import Identify, Identity, NotYours, TooMuch, token_of
from replkernel_server.scheduling.metrics import Metrics
from replkernel_server.scheduling.past import PastKeeper

Body = TypeVar("Body")
Row = TypeVar("Row")
PROVED = "replkernel_proved"
"""The application's setting that is told of each connection whose request had a valid token."""
PIECE = 256
"""So many rows are written before others have their turn."""


def tell_proved(handler: web.RequestHandler) -> None:
    """Say that a request's connection has shown a valid token, where those that have not are counted."""
    proved, connection = handler.settings.get(PROVED), handler.request.connection
    stream = getattr(connection, "stream", None)
    if proved is not None and stream is not None:
        proved(stream)


async def paced(rows: Iterable[Row]) -> AsyncIterator[list[Row]]:
    """Yield the rows in pieces, and let others have their turn after each."""
    left = iter(rows)
    while piece := list(islice(left, PIECE)):
        yield piece
        await asyncio.sleep(0)


class Query(msgspec.Struct, frozen=True):
    """One parameter of an address, behind `?`."""

    name: str
    shape: Any
    what: str
    required: bool = False


class Operation(msgspec.Struct, frozen=True):
    """What one method of one address takes and gives; `answers` maps HTTP statuses to documents.

    An answer that is no JSON is named by its media type.
    """

    summary: str
    answers: dict[int, Any]
    takes: Any = None
    query: tuple[Query, ...] = ()


class SchedulerHandler(web.RequestHandler):
    """What all handlers share; `operations` describes each method that a handler answers."""

    operations: ClassVar[dict[str, Operation]] = {}

    identity = Identity(NOBODY, may_host=False, may_lease=False)

    def initialize(
        self,
        driver: SchedulerDriver,
        identify: Identify,
        metrics: Metrics,
        channel: Channel,
        past: PastKeeper,
    ) -> None:
        """Take what every handler needs."""
        self.driver, self.metrics, self.channel, self.past = driver, metrics, channel, past
        self._identify = identify

    async def prepare(self) -> None:
        """Refuse whoever does not present a token; take note of the quota that comes with it."""
        token = token_of(self.request.headers.get("Authorization", ""))
        identity = await self._identify(token) if token else None
        if identity is None:
            self.answer(
                401, {"why": "Send the header 'Authorization: token …' with a token that is valid here."}
            )
            return
        self.identity = identity
        tell_proved(self)
        self.bounded(lambda bounds: bounds.calls(identity.user, time.monotonic()))
        await self.channel.known_again(identity)

    def bounded(self, why_not: Callable[[Bounds], str]) -> None:
        """Raise TooMuch if a bound of one user is met; an administrator has none."""
        why = "" if self.identity.admin else why_not(self.channel.desk.bounds)
        if why:
            raise TooMuch(why)

    def for_admins(self) -> None:
        """Raise NotYours unless an admin asks."""
        self.unless(access.why_not_administer(self.identity))

    def for_owner(self, user: UserName | None, what: str) -> None:
        """Raise NotYours unless it is `user` who asks, or an admin; None is nobody's."""
        self.unless(access.why_not_touch(self.identity, user, what))

    def unless(self, why: str) -> None:
        """Raise NotYours if there is a reason."""
        if why:
            raise NotYours(why)

    def own_kernel(self, text: str) -> KernelId:
        """Return the kernel that an address names; raise NotKnown, or NotYours if it is another user's."""
        name, owners = KernelId(check_id(text, "kernel's id")), self.channel.desk.owners
        owner = self.driver.core.owner_of_kernel(name)
        self.unless(access.why_not_kernel(name))
        self.for_owner(owner, f"Kernel {name}")
        if owner is None and name not in owners.of_kernel and name not in owners.wishes_of:
            raise NotKnown(f"No kernel {name} is known: GET /api/v1/kernels lists yours.")
        return name

    def body(self, shape: type[Body]) -> Body:
        """Parse the request's body, or raise BadRequest with what is wrong with it."""
        try:
            return msgspec.json.decode(self.request.body, type=shape)
        except UNREADABLE as error:
            raise BadRequest(f"The request's body does not fit: {error}.") from error

    def answer(self, status: int, document: object) -> None:
        """Finish with `document` as JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(msgspec.json.encode(document))

    async def answer_lists(self, **lists: Iterable[object]) -> None:
        """Finish with lists as a JSON document; of long ones piece by piece: others have their turn."""
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        before = b"{"
        try:
            for name, rows in lists.items():
                self.write(before + b'"%s":[' % name.encode())
                between = b""
                async for piece in paced(rows):
                    self.write(between + msgspec.json.encode(piece)[1:-1])
                    between = b",\n"
                    if len(piece) == PIECE:
                        await self.flush()
                before = b"],"
            self.write(b"]}")
            await self.finish()
        except StreamClosedError:
            return  # The reader has gone: nobody is left to tell.

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Leave out of the log what is answered with a sentence."""
        if not isinstance(value, ServerError | UnexpectedEvent):
            super().log_exception(typ, value, tb)

    def write_error(self, status_code: int, **kwargs: object) -> None:
        """Answer errors as JSON too, without a traceback."""
        error = kwargs.get("exc_info")
        cause = error[1] if isinstance(error, tuple) else None
        if isinstance(cause, ServerError):
            self.answer(cause.status, {"why": str(cause)})
        elif isinstance(cause, UnexpectedEvent):
            self.answer(409, {"why": str(cause).partition("\n")[0]})
        else:
            self.answer(status_code, {"why": f"{self._reason}."})
