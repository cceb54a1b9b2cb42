"""What lies in a store under a kernel's name: names, documents before their seal and behind it, marks."""

from __future__ import annotations

import logging
import struct

import msgspec
from blake3 import blake3

from replkernel.agent.io.checkpoint_store import (
    Shelf,
    find_checkpoint,
    read_checkpoint,
    said_by,
    write_checkpoint,
)
from replkernel.errors import ReplkernelError
from replkernel.objects.backend import StoreFault
from replkernel.objects.collect import collect, is_mark, read_marks
from replkernel.objects.shares import read_shares
from replkernel.objects.store import ObjectStore, open_store
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import Digest, Fence, HostName, KernelId, ReplicaId, Seq
from replkernel.replication import checkpoint
from replkernel.replication.checkpoint import CHECKPOINT, MARK, CheckpointHeader, Place
from replkernel.replication.entries import execution_started, replica_joined, split_delta
from replkernel.replication.machine import KernelMachine
from tests.fuzz.pieces import cut, filled, joined
from tests.unit.agent.transcript import delta

NAMES, DOCUMENT, HEADER, BODY, UNSEALED, MARKS = range(6)
KERNEL, ONE = KernelId("k"), "one"
SPEC = KernelSpec(
    kernel_id=KERNEL, incarnation=ONE, key="key", signature_scheme="hmac-sha256", python="python", env={},
    cwd="/", store_url="memory://fuzz", replicas=3,
)  # fmt: skip
KEY = checkpoint.seal_key(SPEC.key.encode())
PLACE = Place(2, 7)
NAME = checkpoint.document_name(CHECKPOINT, KERNEL, ONE, PLACE)


def snapshot() -> bytes:
    """Return the state of a kernel that has run two cells."""
    machine = KernelMachine()
    entries = [replica_joined(ReplicaId("r1"), HostName("h"), "a:1")]
    for seq in (1, 2):
        entries.append(execution_started(Seq(seq), ReplicaId("r1"), Fence(seq)))  # type: ignore[arg-type]
        entries += split_delta(delta(seq, blobs=1))  # type: ignore[arg-type]
    for index, entry in enumerate(entries, 1):
        machine.apply(index, entry)
    return machine.snapshot()


def header() -> CheckpointHeader:
    """Return the header of one."""
    return CheckpointHeader(
        2, KERNEL, ONE, PLACE.generation, PLACE.entry, Seq(2), Seq(2), Fence(2), 2, ReplicaId("r1"), 1.0
    )


def seeds() -> list[bytes]:
    """Return real documents, and parts of them."""
    body, head = snapshot(), msgspec.msgpack.encode(header())
    document = checkpoint.encode_checkpoint(header(), body, KEY)
    old = msgspec.msgpack.encode(msgspec.structs.replace(header(), version=1))
    mark = checkpoint.document_name(MARK, KERNEL, ONE, PLACE)
    founding = checkpoint.founding_mark(KERNEL, ONE, 2)
    digests = bytes(64)
    return [
        joined(NAMES, NAME.encode(), mark.encode(), founding.encode(), b"k/made-one", b"k/about"),
        joined(DOCUMENT, NAME.encode(), document),
        joined(HEADER, head, body),
        joined(BODY, head, body),
        joined(UNSEALED, old, body),
        joined(
            MARKS,
            mark.encode(),
            digests,
            b"k/made-one-h",
            digests,
            b"k/about-one",
            b'{"notebook":"n","user":"u"}',
        ),
    ]


def fuzz(data: bytes) -> None:
    """Have a kernel's agent find, read and write checkpoints beside what somebody else put there."""
    logging.disable(logging.CRITICAL)
    number, pieces = cut(data)
    match number % 6:
        case 0:
            names = [piece.decode("utf-8", "replace") for piece in pieces]
            for what in (CHECKPOINT, MARK):
                checkpoint.newest_first(names, what, KERNEL, ONE)
            checkpoint.founded(names, KERNEL, ONE, 3)
            [is_mark(name) for name in names]
        case 5:
            _beside([(name.decode("utf-8", "replace"), piece) for name, piece in _pairs(pieces)])
        case 1:
            name, document = filled(pieces, 2)
            _beside([(name.decode("utf-8", "replace"), document)])
        case 4:
            rest = _rest(*filled(pieces, 2))
            _beside([(NAME, b"replkernel-checkpoint\n" + blake3(rest).digest() + rest)], unsealed=True)
        case kind:
            head, body = filled(pieces, 2)
            _sealed(head if kind == HEADER else msgspec.msgpack.encode(header()), body)


def _pairs(pieces: list[bytes]) -> list[tuple[bytes, bytes]]:
    return [*zip(pieces[0::2], pieces[1::2], strict=False)][:8]


def _rest(head: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(head)) + head + body


def _sealed(head: bytes, body: bytes) -> None:
    """Read what bears the kernel's seal: an agent of another release may have written it."""
    rest = _rest(head, body)
    digest = blake3(rest).digest()
    document = checkpoint._MAGIC + digest + checkpoint._seal(NAME, digest, KEY) + rest
    try:
        _, read = checkpoint.decode_checkpoint(document, NAME, KEY)
        machine = KernelMachine()
        machine.restore(read)
        said_by(read)
        machine.full_delta().digests()
    except ReplkernelError:
        return


def _beside(documents: list[tuple[str, bytes]], *, unsealed: bool = False) -> None:
    """Have everybody who looks at the store look at it with these documents there."""
    store = open_store("memory://fuzz", {})
    try:
        _put(store, documents)
        spec = msgspec.structs.replace(SPEC, unsealed=unsealed)
        for look in (
            lambda: _found(store, spec),
            lambda: _written(store, spec),
            lambda: read_marks(store),
            lambda: read_shares(store),
            lambda: collect(store),
        ):
            try:
                look()
            except (ReplkernelError, StoreFault):
                continue
    finally:
        _empty(store)


def _put(store: ObjectStore, documents: list[tuple[str, bytes]]) -> None:
    for name, data in documents:
        try:
            store.put_document(name, data)
        except ReplkernelError:
            continue


def _found(store: ObjectStore, spec: KernelSpec) -> None:
    found = find_checkpoint(store, spec)
    if found.name:
        read_checkpoint(store, spec, found.name, found.digest)


def _written(store: ObjectStore, spec: KernelSpec) -> None:
    body = snapshot()
    write_checkpoint(store, Shelf(spec), 1, body, [Digest("0" * 64)], said_by(body))


def _empty(store: ObjectStore) -> None:
    for name in store.list_documents():
        store.delete_document(name)
