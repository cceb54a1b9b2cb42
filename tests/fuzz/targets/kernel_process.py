"""What a router and an agent say to a kernel process, and what it says of its birth."""

from __future__ import annotations

import logging
from typing import Any

from replkernel.client.inquiry import AgentAddress, _await_answer
from replkernel.errors import UNREADABLE
from replkernel.kernel.birth import Birth, decode_birth
from replkernel.kernel.link import AgentLink
from replkernel.kernel.questions import look_of
from replkernel.protocol.agent_to_process import AgentToKernel
from replkernel.protocol.agent_to_router import AgentToRouter
from replkernel.protocol.confirmation import Confirmation, confirmation_frame, read_confirmation
from replkernel.protocol.envelope import ENVELOPE_MARK, Envelope, client_identities
from replkernel.protocol.message import decoder
from tests.fuzz.examples import packed
from tests.fuzz.pieces import cut, filled, joined

ENVELOPES, CONFIRMATIONS, AGENT, BIRTH, STATUS = range(5)
_reads = decoder(AgentToKernel)


class Said:
    """Stands in for a socket: what is received is what was given."""

    def __init__(self, frames: list[bytes]) -> None:
        self.frames = list(frames)

    def receive(self) -> bytes | None:
        return self.frames.pop(0) if self.frames else None

    def poll(self, _: int) -> bool:
        return bool(self.frames)

    def recv_multipart(self) -> list[bytes]:
        return [self.frames.pop(0)]


def seeds() -> list[bytes]:
    """Return one input for each message."""
    told = [joined(ENVELOPES, ENVELOPE_MARK + envelope, b"client") for envelope in packed(Envelope)]
    told += [joined(CONFIRMATIONS, confirmation_frame(Confirmation(b"h", [b"m"])))]
    told += [joined(AGENT, message) for message in packed(AgentToKernel)]
    told += [joined(STATUS, message) for message in packed(AgentToRouter)]
    return [*told, *(joined(BIRTH, birth) for birth in packed(Birth))]


def fuzz(data: bytes) -> None:
    """Have a kernel process, or a command, hear the pieces."""
    logging.disable(logging.CRITICAL)
    number, pieces = cut(data)
    match number % 5:
        case 0:
            look_of(pieces)
            client_identities(pieces)
        case 1:
            read_confirmation(filled(pieces, 1)[0])
        case 2:
            link: Any = AgentLink.__new__(AgentLink)
            link._shared, link._decoder, heard = Said(pieces), _reads, []
            link._deliver = heard.append
            link._receive()
        case 3:
            try:
                decode_birth(filled(pieces, 1)[0])
            except UNREADABLE:
                return
        case _:
            address = AgentAddress("h", 1, "ipc:///nowhere", "token", "1")
            _await_answer(Said(pieces), address, 0.0)  # type: ignore[arg-type]
