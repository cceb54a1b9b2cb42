"""What a scheduler's REST takes: bodies, names in addresses, times. `tests/fuzz/rest.py` asks a service."""

from __future__ import annotations

from typing import Any

import msgspec
from replkernel_server.errors import BadRequest
from replkernel_server.handlers.scheduler_base import SchedulerHandler
from replkernel_server.handlers.scheduler_routes import ADDRESSES
from replkernel_server.scheduling.accounting import parse_since
from replkernel_server.scheduling.documents import check_id
from replkernel_server.scheduling.identity import token_of

from replkernel.leasing.models import model_name
from tests.fuzz.examples import written
from tests.fuzz.pieces import cut, filled, joined

BODIES: tuple[Any, ...] = tuple(
    dict.fromkeys(
        operation.takes
        for handler in ADDRESSES.values()
        for operation in handler.operations.values()
        if operation.takes is not None
    )
)
OTHERS = 4


def seeds() -> list[bytes]:
    """Return one input for each body, and one for each other thing."""
    told = [joined(number, body) for number, kind in enumerate(BODIES) for body in written(kind)]
    texts = (b"host-1", b"2026-01-31T12:00:00Z", b"token abc", b"NVIDIA A100-SXM4-40GB")
    return [*told, *(joined(len(BODIES) + number, text) for number, text in enumerate(texts))]


def fuzz(data: bytes) -> None:
    """Have the first piece read as a body, a name, a time, a header or a model."""
    number, pieces = cut(data)
    number %= len(BODIES) + OTHERS
    (piece,) = filled(pieces, 1)
    if number < len(BODIES):
        handler: Any = SchedulerHandler.__new__(SchedulerHandler)
        handler.request = type("Request", (), {"body": piece})
        try:
            body = handler.body(BODIES[number])
        except BadRequest:
            return
        assert handler.body.__func__(_with(msgspec.json.encode(body)), BODIES[number]) == body
        return
    text = piece.decode("utf-8", "replace")
    try:
        (_name, parse_since, token_of, model_name)[number - len(BODIES)](text)
    except BadRequest:
        return


def _name(text: str) -> None:
    assert check_id(text, "name").isprintable() or "\x7f" not in text


def _with(body: bytes) -> Any:
    handler: Any = SchedulerHandler.__new__(SchedulerHandler)
    handler.request = type("Request", (), {"body": body})
    return handler
