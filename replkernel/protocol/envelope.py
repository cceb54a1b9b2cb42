"""What a router says to a kernel process beside a client's own frames, inside a routing-identity frame.

Law: the signed frames stay untouched; a frame that is no envelope is the client's.
"""

from __future__ import annotations

import msgspec

from replkernel.records import Fence, Seq

ENVELOPE_MARK = b"rk1:"
"""The first bytes of the routing-identity frame that carries an `Envelope`."""

ROUTER_IDENTITY = b"rk-router"
"""The routing id of every router at its replicas, hence an identity frame of what it sends them."""

EXPECT_QUESTIONS = b"rk-expect-questions"
"""A message of this frame alone, on the direct way: a long cell runs elsewhere, questions may come here."""


class Afresh(msgspec.Struct, frozen=True, array_like=True):
    """The process that ran the cells before is lost: the execution goes on from the newest whole point.

    `answered` is the last cell that it answered, 0 where that is not known; `unlogged`: what its last
    executions changed has not reached the log.
    """

    answered: int = 0
    unlogged: bool = False


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """What the router says about one execution beside the client's own frames.

    The kernel process must hold everything up to execution `needs` before user code starts.
    `queued_s` is how long the request waited in the router. It rides as one more identity frame in
    front of the client's identity, so that the signed frames stay untouched and replies carry it back.
    `needs_audit` says which audit of `needs` belongs to that; `moves`, that the next execution may be
    another replica's, so that nothing should be left to be checked for long. With `anyway` the replica runs
    the cell although it rebuilt something otherwise than it was captured: whoever has it cannot be had.
    `counted` cells have been counted before this one, whatever the replica knows of them: some were lost.
    `gpus` are the UUIDs of the GPUs that the cell has a lease on, empty without one; None when no scheduler
    is known, so that nobody leases GPUs and the process sees what it would see otherwise.
    `stays` says why the process must not end so that another one takes over with these GPUs; empty when it
    may, None when the router knows nothing of that. `leases` tells that GPUs are leased, also where a cell
    without a lease sees what it would see otherwise. Of each GPU the process may take `vram_gb` (0: all).
    `interrupts` tells that none was sent since the last cell began, so one that is kept is meant for this.
    The GPUs cost `price_hour` of `currency`; 0: nothing is charged. `part`: of the one GPU the cell has that
    part, beside others (0: all of it).
    With `afresh` it counts what the log makes of the loss, not what the execution `needs`.

    A question about variables carries one as well, behind the client's identity: of its fields only what it
    `needs` counts, which is awaited for a moment.
    """

    seq: Seq
    fence: Fence
    needs: Seq
    queued_s: float = 0.0
    needs_audit: int = 0
    moves: bool = False
    anyway: bool = False
    counted: int = 0
    gpus: tuple[str, ...] | None = None
    stays: str | None = None
    leases: bool = False
    vram_gb: float = 0.0
    interrupts: bool = True
    afresh: Afresh | None = None
    price_hour: float = 0.0
    currency: str = ""
    part: float = 0.0


_encoder = msgspec.msgpack.Encoder()
_envelope_decoder = msgspec.msgpack.Decoder(Envelope)


def envelope_frame(envelope: Envelope) -> bytes:
    """Return the identity frame that carries `envelope`; no socket is known by it: any length will do."""
    return ENVELOPE_MARK + _encoder.encode(envelope)


def read_envelope(identities: list[bytes]) -> Envelope | None:
    """Return the envelope among a message's identity frames, or None when there is none."""
    for frame in identities:
        if frame.startswith(ENVELOPE_MARK):
            return _envelope_decoder.decode(frame[len(ENVELOPE_MARK) :])
    return None


def client_identities(identities: list[bytes]) -> list[bytes]:
    """Return the identity frames that are the client's own: without the router's routing id and envelope."""
    return [frame for frame in identities if frame != ROUTER_IDENTITY and not frame.startswith(ENVELOPE_MARK)]
