"""Which identity frames of a request are the client's own."""

from __future__ import annotations

from replkernel.protocol.envelope import ROUTER_IDENTITY, Envelope, client_identities, envelope_frame
from replkernel.records import Fence, Seq
from replkernel.router.io import links


def test_the_client_sees_neither_router_nor_envelope() -> None:
    envelope = envelope_frame(Envelope(Seq(1), Fence(1), Seq(0)))
    assert client_identities([ROUTER_IDENTITY, envelope, b"client"]) == [b"client"]
    assert client_identities([ROUTER_IDENTITY, b"hub", b"client"]) == [b"hub", b"client"]
    assert client_identities([b"client"]) == [b"client"]


def test_the_router_uses_the_identity_that_is_taken_off() -> None:
    assert links.ROUTER_IDENTITY == ROUTER_IDENTITY
