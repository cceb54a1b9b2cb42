"""What does not fit is refused by name, also text that is no UTF-8, and lists in lists in lists."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from blake3 import blake3
from replkernel_server.errors import BadRequest
from replkernel_server.handlers.scheduler_base import SchedulerHandler
from replkernel_server.scheduling.documents import LeaseBody
from replkernel_server.service import read_port

from replkernel.agent.core.bundle import BUNDLE_MARK, unbundle
from replkernel.agent.io.folder import ReplicaFolder, saved_replicas
from replkernel.agent.io.peers import PeerSocket
from replkernel.agent.io.zygote_link import ZygoteLink
from replkernel.agent.io.zygote_wire import ForkRefused, FrameReader, KernelForked, frame
from replkernel.errors import ProtocolMismatch, SettingError
from replkernel.leasing import wire
from replkernel.leasing.request import BadGpuRequest, request_of
from replkernel.objects.store import open_store
from replkernel.protocol.confirmation import CONFIRMS, read_confirmation
from replkernel.protocol.message import encode
from replkernel.protocol.router_to_agent import RouterToAgent, StatusQuery
from replkernel.records import HostName
from replkernel.replication import checkpoint
from replkernel.replication.checkpoint import CheckpointDamaged, Place, document_name, seal_key
from replkernel.replication.entries import EntryUnreadable, assemble_delta, decode_entry
from replkernel.replication.snapshot import SnapshotUnreadable, decode_state
from replkernel.router.core.contents import ExecuteOptions, read
from replkernel.router.core.fallen_cell import FallenCell
from replkernel.router.core.journal import Append, Journal, Remove
from replkernel.router.core.journal_notes import Message, read_notes, write_note
from replkernel.router.core.outputs_fold import KINDS, OutputsFold
from replkernel.router.core.wire import DELIMITER, Gate, Signer, WireError, parent_of, read_replica, unpack
from tests.support.router_world import World

ROOT = Path(__file__).parents[2]

DEPTH = 5000


class Zygote:
    """Stands in for a process."""

    pid = 1


MSGPACK = {
    "not text": b"\x82\xa4type\xa1x\xa3key\xa2\xff\xfe",
    "nested": b"\x82\xa4type\xa1x\xa3key" + b"\x91" * DEPTH + b"\xc0",
    "nested list": b"\x91" * DEPTH + b"\xc0",
}
JSON = {
    "not text": b'{"msg_id": "\xff\xfe", "msg_type": "\xff\xfe", "replkernel": "\xff\xfe"}',
    "nested": b'{"x": ' + b"[" * DEPTH + b"]" * DEPTH + b', "replkernel": 1}',
    "nested list": b"[" * DEPTH + b"]" * DEPTH,
}
packed = pytest.mark.parametrize("bad", MSGPACK.values(), ids=MSGPACK)
written = pytest.mark.parametrize("bad", JSON.values(), ids=JSON)


def tagged(name: str, field: str, bad: bytes) -> bytes:
    """Return what is no message of this name, but for the tag that says so; what is wrong is in a field."""
    bad = bad.replace(b"\xa4type\xa1x", b"\xa4type" + msgspec.msgpack.encode(name))
    return bad.replace(b"\xa3key", msgspec.msgpack.encode(field)) if b"\xff" in bad else bad


@packed
async def test_a_message_behind_one_that_does_not_fit_is_heard(short_dir: Path, bad: bytes) -> None:
    failed: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failed.append(context))
    heard: asyncio.Queue[object] = asyncio.Queue()
    told: list[str] = []
    door = PeerSocket(
        short_dir / "door",
        RouterToAgent,
        lambda _, message: heard.put_nowait(message),
        lambda _, why: told.append(why),
        lambda _: None,
    )
    peer: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    try:
        peer.connect(door.endpoint)
        peer.send(tagged("StatusQuery", "kernel_id", bad))
        peer.send(encode(StatusQuery(7)))
        assert await asyncio.wait_for(heard.get(), 10.0) == StatusQuery(7)
        assert len(told) == 1
        assert not failed
    finally:
        peer.close(linger=0)
        door.close()


@packed
def test_a_scheduler_and_its_clients_refuse_it(bad: bytes) -> None:
    with pytest.raises(ProtocolMismatch):
        wire.decode_from_client(tagged("Hello", "name", bad))
    with pytest.raises(ProtocolMismatch):
        wire.decode_from_scheduler(tagged("Welcome", "user", bad))


@written
def test_the_routers_gate_refuses_it(bad: bytes) -> None:
    frames = [b"client", DELIMITER, b"", bad, b"{}", b"{}", b"{}"]
    try:
        request = Gate(Signer(b"", "hmac-sha256")).read("shell", frames)
    except WireError:
        pass
    else:
        assert request.header.msg_type.isprintable()
    with pytest.raises(WireError):
        read_replica(HostName("r1"), "shell", frames)  # type: ignore[arg-type]
    assert parent_of(bad) == ""
    assert read(ExecuteOptions, bad) in (ExecuteOptions(), read(ExecuteOptions, b"{}"))


@written
def test_a_cells_metadata_are_refused(bad: bytes) -> None:
    with pytest.raises(BadGpuRequest):
        request_of(bad + b' "replkernel', "x = 1", None)


@packed
def test_the_log_of_a_group_refuses_it(bad: bytes) -> None:
    for refused in (decode_entry, _as_delta, _as_bundle):
        with pytest.raises(EntryUnreadable):
            refused(tagged("Lead", "key", bad))
    with pytest.raises(SnapshotUnreadable):
        decode_state(tagged("", "version", bad))


def _as_delta(data: bytes) -> object:
    return assemble_delta([data])


def _as_bundle(data: bytes) -> object:
    return unbundle(BUNDLE_MARK + data)


@packed
def test_a_sealed_checkpoint_with_it_is_damaged(bad: bytes) -> None:
    key = seal_key(b"the kernel's")
    name = document_name("checkpoint", HostName("k"), "one", Place(1, 2))  # type: ignore[arg-type]
    bad = tagged("", "kernel_id", bad)
    rest = struct.pack(">I", len(bad)) + bad
    digest = blake3(rest).digest()
    document = checkpoint._MAGIC + digest + checkpoint._seal(name, digest, key) + rest
    with pytest.raises(CheckpointDamaged):
        checkpoint.decode_checkpoint(document, name, key)


@pytest.mark.parametrize("number", ["²", "٣", "9" * 5000])
def test_a_name_with_numbers_that_are_none_is_no_checkpoints(number: str) -> None:
    kernel = checkpoint.KernelId("k")
    names = [f"k/checkpoint-one-{number}-0000000000000001", f"k/checkpoint-one-000001-{number}"]
    real = document_name("checkpoint", kernel, "one", Place(1, 2))
    assert checkpoint.newest_first([*names, real], "checkpoint", kernel, "one") == [Place(1, 2)]


@pytest.mark.parametrize(
    "bad", [*JSON.values(), b"{", b"", b'{"transient": {"display_id": []}, "traceback": 5}']
)
def test_output_that_is_not_json_is_kept_as_it_is(bad: bytes) -> None:
    journal = Journal(1)
    gate = Gate(Signer(b"", "hmac-sha256"))
    header = b'{"msg_id": "m", "msg_type": "execute_request", "session": "s"}'
    journal.accept(gate.read("shell", [b"client", DELIMITER, b"", header, b"{}", b"{}", b"{}"]))
    journal.publish("m", Message("display_data", b"{}", b"{}", bad))
    appended = [write.message.content for write in journal.pending if isinstance(write, Append)]
    assert appended == [bad]
    fold = OutputsFold()
    for kind in KINDS:
        fold.take(kind, unpack(bad))


@pytest.mark.parametrize("count", [10**30, -1, 2**64])
def test_a_count_that_no_cell_has_is_none(count: int) -> None:
    world = World()
    world.up()
    msg_id = world.execute()
    world.begin("r1", msg_id, count)
    world.finish("r1", msg_id, count=count)
    later = world.execute()
    assert world.envelope(later).counted < 2**53
    journal = Journal(1)
    gate = Gate(Signer(b"", "hmac-sha256"))
    header = b'{"msg_id": "m", "msg_type": "execute_request", "session": "s"}'
    journal.accept(gate.read("shell", [b"client", DELIMITER, b"", header, b"{}", b"{}", b"{}"]))
    said = json.dumps({"execution_count": count}).encode()
    journal.publish("m", Message("execute_input", b"{}", b"{}", said))
    journal.answer("m", said, b"{}", 1.0)
    notes = [write for write in journal.pending if not isinstance(write, Append | Remove)]
    assert [*read_notes(b"".join(map(write_note, notes)))] == notes


def test_a_zygote_that_speaks_of_what_nobody_asked_for_is_let_go() -> None:
    for report in (KernelForked(7, 9), ForkRefused(7, "")):
        link: Any = ZygoteLink.__new__(ZygoteLink)
        link._reader, link._unanswered, link._spawned = FrameReader(), {}, Zygote
        closed: list[bool] = []
        link.close = lambda: closed.append(True)
        link.data_received(frame(report))
        assert closed == [True]


@packed
def test_notes_of_a_router_end_where_they_are_damaged(bad: bytes) -> None:
    assert [*read_notes(struct.pack(">I", len(bad)) + bad)] == []
    assert read_confirmation(CONFIRMS + bad) is None


@written
def test_a_replicas_record_that_is_damaged_is_named(tmp_path: Path, bad: bytes) -> None:
    folder = tmp_path / "k" / "one" / "r1"
    folder.mkdir(parents=True)
    (folder / "replica.json").write_bytes(bad)
    (found,) = saved_replicas(tmp_path)
    assert "delete that directory" in str(found)


@packed
def test_a_replicas_base_that_is_damaged_is_as_good_as_none(tmp_path: Path, bad: bytes) -> None:
    folder = ReplicaFolder.__new__(ReplicaFolder)
    folder.path = tmp_path
    (tmp_path / "base.msgpack").write_bytes(bad)
    assert folder.read_base("digest") is None


@written
def test_a_schedulers_body_is_refused(bad: bytes) -> None:
    handler: Any = SchedulerHandler.__new__(SchedulerHandler)
    handler.request = type("Request", (), {"body": bad})()
    with pytest.raises(BadRequest):
        handler.body(LeaseBody)


def test_a_number_of_thousands_of_digits_is_refused_by_name() -> None:
    digits = "9" * 5000
    with pytest.raises(argparse.ArgumentTypeError):
        read_port(digits)
    with pytest.raises(SettingError):
        open_store(f"redis://host/{digits}", {})


def test_an_error_that_is_no_text_keeps_its_words_though_its_cell_lost_its_lease() -> None:
    fallen = FallenCell()
    fallen.falls("cell", "the lease is over")
    for content in (b"\xff", b"[" * 100_000, b"{}"):
        assert fallen.renamed("cell", content) is None


def test_whoever_decodes_catches_all_that_decoding_raises() -> None:
    too_little = re.compile(r"except[^\n]*MsgspecError")
    found = [
        str(path.relative_to(ROOT))
        for package in ("replkernel", "server_ext")
        for path in (ROOT / package).rglob("*.py")
        if too_little.search(path.read_text())
    ]
    assert found == []
