"""Messages on the wire: read as Jupyter's own session reads them, believed only when signed."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyter_client.session import Session

from replkernel.protocol.envelope import Envelope, envelope_frame
from replkernel.records import Fence, ReplicaId, Seq
from replkernel.router.core import wire
from replkernel.router.core.events import ClientRequest
from replkernel.router.core.wire import Builder, ConnectionKeyError, Gate, Signer, WireError, made_before

SCHEMES = ["hmac-sha256", "hmac-sha512", "hmac-md5", "hmac-blake2b"]


def frames_of(session: Session, msg_type: str = "execute_request", **content: Any) -> list[bytes]:
    """Return a message as a client's socket delivers it."""
    return session.serialize(session.msg(msg_type, content), ident=[b"client"])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_signed_request_is_read_and_its_answer_is_believed(scheme: str) -> None:
    session = Session(key=b"key", signature_scheme=scheme)
    signer = Signer(b"key", scheme)
    request = Gate(signer).read("shell", frames_of(session, code="1"))
    assert (request.identities, request.header.msg_type) == ((b"client",), "execute_request")
    answer = Builder(signer, "me", "s").build("execute_reply", request.header_frame, b'{"status": "ok"}')
    _, message = session.feed_identities(answer)
    reply = session.deserialize(message)
    assert reply["parent_header"]["msg_id"] == request.header.msg_id
    assert (reply["msg_type"], reply["content"]) == ("execute_reply", {"status": "ok"})
    assert reply["header"]["date"].tzinfo is not None


def test_routers_of_one_session_give_their_messages_ids_of_their_own() -> None:
    session, signer = Session(key=b"key"), Signer(b"key", "hmac-sha256")
    headers = [
        session.deserialize(session.feed_identities(builder.build("status", b"{}", b"{}"))[1])["header"]
        for builder in (Builder(signer, "me", "one"), Builder(signer, "me", "one"))
        for _ in range(2)
    ]
    assert {header["session"] for header in headers} == {"one"}
    assert len({header["msg_id"] for header in headers}) == 4


@pytest.mark.parametrize("scheme", ["sha256", "hmac-", "hmac-rot13", "hmac"])
def test_an_unknown_scheme_is_refused_by_name(scheme: str) -> None:
    with pytest.raises(ConnectionKeyError, match=scheme):
        Signer(b"key", scheme)


def test_an_empty_key_signs_and_checks_nothing() -> None:
    gate = Gate(Signer(b"", "hmac-sha256"))
    assert not gate.read("shell", frames_of(Session(key=b""))).repeated


def test_a_replay_is_told_apart() -> None:
    gate, frames = Gate(Signer(b"key", "hmac-sha256")), frames_of(Session(key=b"key"))
    assert [gate.read("shell", frames).repeated for _ in range(3)] == [False, True, True]


def test_an_interrupt_that_was_sent_before_a_router_took_over_is_not_for_it() -> None:
    """Jupyter's restarter sends one to a dead router; it is delivered to the next one."""
    session, signer, now = Session(key=b"key"), Signer(b"key", "hmac-sha256"), time.time()

    def sent(msg_type: str, at: float) -> list[bytes]:
        message = session.msg(msg_type)
        message["header"]["date"] = datetime.fromtimestamp(at, UTC)
        return session.serialize(message, ident=[b"client"])

    before = sent("interrupt_request", now - 2.0)
    taken_over = Gate(signer, now - 1.0)
    assert taken_over.read("control", before).stale
    assert not taken_over.read("shell", sent("execute_request", now - 2.0)).stale
    assert not taken_over.read("control", frames_of(session, "interrupt_request")).stale
    assert not Gate(signer).read("control", before).stale, "a kernel that is new takes over from nobody"
    long_ago = Gate(signer, time.time() - wire.STALE_S - 1.0)
    assert not long_ago.read("control", before).stale, "the client's clock may be behind"


def test_only_so_many_signatures_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "DIGESTS_MAX", 2)
    gate, session = Gate(Signer(b"key", "hmac-sha256")), Session(key=b"key")
    first = frames_of(session)
    gate.read("shell", first)
    for _ in range(2):
        gate.read("shell", frames_of(session))
    assert not gate.read("shell", first).repeated


@pytest.mark.parametrize("part", [2, 3, 4, 5, 6])
def test_a_changed_frame_is_refused(part: int) -> None:
    frames = frames_of(Session(key=b"key"))
    assert len(frames) == 7
    frames[part] = frames[part][:-1] + b"#"
    with pytest.raises(WireError):
        Gate(Signer(b"key", "hmac-sha256")).read("shell", frames)


@given(st.lists(st.binary(max_size=20), max_size=9))
def test_nonsense_is_refused_not_believed(frames: list[bytes]) -> None:
    for key in (b"key", b""):
        with pytest.raises(WireError):
            Gate(Signer(key, "hmac-sha256")).read("shell", [*frames[:3], wire.DELIMITER, *frames[3:]])


def test_an_unsigned_message_is_refused() -> None:
    with pytest.raises(WireError, match="no signature"):
        Gate(Signer(b"key", "hmac-sha256")).read("shell", frames_of(Session(key=b"")))


def test_a_replicas_reply_loses_the_envelope_and_keeps_the_client() -> None:
    session = Session(key=b"key")
    envelope = envelope_frame(Envelope(Seq(1), Fence(2), Seq(0)))
    parent = session.msg("execute_request", {})
    reply = session.serialize(session.msg("execute_reply", {"status": "ok"}, parent=parent))
    message = wire.read_replica(ReplicaId("r1"), "shell", [envelope, b"client", *reply])
    assert message.prefix == (b"client",)
    assert message.parent_id == parent["header"]["msg_id"]
    assert message.frames == reply


def test_buffers_travel_untouched() -> None:
    session = Session(key=b"key")
    frames = [*frames_of(session, "comm_msg", comm_id="c"), b"\x00" * 100, b"\xff" * 100]
    request = Gate(Signer(b"key", "hmac-sha256")).read("shell", frames)
    assert request.frames[-2:] == frames[-2:]


@given(st.text(st.characters(codec=None)))
def test_any_text_can_be_said(text: str) -> None:
    assert wire.unpack(wire.pack({"text": text}))["text"] == text


def test_which_of_two_messages_was_made_first_is_known_within_one_session_or_a_moment() -> None:
    session, now = Session(key=b"key"), datetime.now(UTC)
    gate = Gate(Signer(b"key", "hmac-sha256"))

    def made(owner: Session, ago_s: float) -> ClientRequest:
        message = owner.msg("interrupt_request", {})
        message["header"]["date"] = now - timedelta(seconds=ago_s)
        return gate.read("control", owner.serialize(message, ident=b"c"))

    earlier, later = made(session, 2.0), made(session, 1.0)
    assert made_before(earlier, later)
    assert not made_before(later, earlier)
    assert not made_before(made(Session(key=b"key"), 2.0), later)
    assert made_before(made(Session(key=b"key"), 1.1), later)
