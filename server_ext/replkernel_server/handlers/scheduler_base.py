"""The base of the scheduler's REST handlers: authentication, parsing, answers, and what each operation is.

Law: every handler authenticates in `prepare`; what a request says is parsed into documents, or answered with
400 and one sentence; a handler answers only the methods that it describes.
"""

from __future__ import annotations

import hmac
from typing import Any, ClassVar, TypeVar

import msgspec
from replkernel_scheduler.errors import UnexpectedEvent
from tornado import web

from replkernel_server.driver import SchedulerDriver
from replkernel_server.errors import BadRequest, ServerError
from replkernel_server.scheduling.metrics import Metrics

Body = TypeVar("Body")


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

    def initialize(self, driver: SchedulerDriver, token: str, metrics: Metrics) -> None:
        """Take what every handler needs."""
        self.driver, self.metrics = driver, metrics
        self._token = token

    def prepare(self) -> None:
        """Refuse whoever does not present the token."""
        given = self.request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"token {self._token}".encode()):
            self.answer(
                401, {"why": "Send the header 'Authorization: token …' with the scheduler's token file."}
            )

    def body(self, shape: type[Body]) -> Body:
        """Parse the request's body, or raise BadRequest with what is wrong with it."""
        try:
            return msgspec.json.decode(self.request.body, type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadRequest(f"The request's body does not fit: {error}.") from error

    def answer(self, status: int, document: object) -> None:
        """Finish with `document` as JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(msgspec.json.encode(document))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
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
