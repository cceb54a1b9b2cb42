"""State files: written whole or not at all, and read as if their writer meant harm."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from functools import cache
from pathlib import Path

import msgspec
import pytest
from blake3 import blake3
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.carrying.container import (
    BLOBS,
    MANIFEST,
    SIGNATURE,
    STATE,
    StateFile,
    StateWriter,
    fresh_file,
)
from replkernel.carrying.importing import read_state
from replkernel.carrying.manifest import manifest_of
from replkernel.carrying.signature import BadSignature, is_signed_by, sign
from replkernel.errors import ReplkernelError
from replkernel.protocol.timeline import PointInfo
from replkernel.records import BlobRef, ChunkRef, ComponentId, ComponentRecord, Digest, Mark, Payload, Seq
from replkernel.replication.checkpoint import digest_of
from replkernel.replication.components import TableState
from replkernel.replication.history import HistoryState, Past
from replkernel.replication.snapshot import MachineState, encode_state
from tests.support.examples import examples

CHUNK = os.urandom(5000)
DIGEST = Digest(blake3(CHUNK).hexdigest())
BLOB = BlobRef(len(CHUNK), (ChunkRef(DIGEST, len(CHUNK)),))
RECORD = ComponentRecord(
    ComponentId("c1"), ("x",), Seq(1), Payload(head=b"", buffers=(BLOB,)), digest_of(b""), len(CHUNK)
)
BASE = encode_state(MachineState(table=TableState(components={RECORD.cid: RECORD}, order=("x",))))


@cache  # It reads the names of all that is installed, for half a second.
def manifest(base: bytes) -> bytes:
    told = manifest_of({RECORD.cid: RECORD}, {}, digest_of(base), {DIGEST: len(CHUNK)}, 1, 0.0)
    return msgspec.json.encode(told)


def entries(base: bytes = BASE) -> dict[str, bytes]:
    return {MANIFEST: manifest(base), STATE: base, f"{BLOBS}{DIGEST}": CHUNK}


def written(path: Path, parts: dict[str, bytes]) -> Path:
    with fresh_file(path, replace=True) as file:
        writer = StateWriter(file)
        for name, data in parts.items():
            writer.add(name, data)
        writer.close()
    return path


def look(path: Path) -> None:
    with StateFile(path) as file:
        file.signature()
        _, state = read_state(file)
        for record in state.table.components.values():
            for blob in record.payload.buffers:
                assert isinstance(blob, BlobRef)
                for chunk in blob.chunks:
                    file.chunk(chunk)


def test_a_written_file_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.rkz", entries())
    assert path.stat().st_mode & 0o777 == 0o600
    look(path)
    assert os.listdir(tmp_path) == ["a.rkz"]


def test_an_interrupted_export_leaves_nothing(tmp_path: Path) -> None:
    def export() -> None:
        with fresh_file(tmp_path / "a.rkz", replace=False) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export()
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    (tmp_path / "a.rkz").write_text("mine")
    with pytest.raises(ReplkernelError, match="--force"), fresh_file(tmp_path / "a.rkz", replace=False):
        pass
    assert (tmp_path / "a.rkz").read_text() == "mine"


def packed(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, data in entries().items():
            zipped.writestr(name, data)


@pytest.mark.parametrize(
    "changed",
    [
        {MANIFEST: b"{}"},
        {STATE: BASE + b"\0"},
        {STATE: b""},
        {f"{BLOBS}{DIGEST}": b"other"},
        {"../../etc/passwd": b"x"},
        {f"{BLOBS}../x": b"x"},
    ],
    ids=["manifest", "state", "no state", "chunk", "path", "blob's path"],
)
def test_a_changed_file_is_refused(tmp_path: Path, changed: dict[str, bytes]) -> None:
    path = written(tmp_path / "a.rkz", entries() | changed)
    with pytest.raises(ReplkernelError):
        look(path)


def test_a_packed_file_is_refused(tmp_path: Path) -> None:
    packed(tmp_path / "a.rkz")
    with pytest.raises(ReplkernelError, match="packed"):
        look(tmp_path / "a.rkz")


def test_a_state_that_names_what_is_not_there_is_refused(tmp_path: Path) -> None:
    parts = entries()
    del parts[f"{BLOBS}{DIGEST}"]
    with pytest.raises(ReplkernelError, match="lacks chunk"):
        look(written(tmp_path / "a.rkz", parts))


def test_the_past_stays_behind(tmp_path: Path) -> None:
    """Nobody has looked at what is in it, and a state file has no chunks of it."""
    hidden = ComponentId("hidden")
    secret = ComponentRecord(hidden, ("secret",), Seq(1), Payload(head=b"secret"), Digest("0" * 64), 6)
    past = HistoryState(
        [Past(PointInfo(Mark(Seq(1), 0), 1), {hidden: secret})], PointInfo(Mark(Seq(2), 0), 2)
    )
    base = encode_state(MachineState(table=TableState(history=past)))
    with StateFile(written(tmp_path / "past.rkz", entries(base))) as file:
        read, state = read_state(file)
    assert b"secret" not in read and not state.table.history.pasts and state.table.history.head is None


@settings(max_examples=examples(200))
@given(st.data())
def test_any_damage_is_a_refusal_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damage") / "a.rkz"
    whole = bytearray(written(path, entries()).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(len(whole) - 200, len(whole)))])
    with contextlib.suppress(ReplkernelError):
        look(path)


def test_a_signature_is_of_its_key_and_of_the_whole_file(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    pem, raw = serialization.Encoding.PEM, serialization.NoEncryption()
    (tmp_path / "key").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, raw))
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pub").write_bytes(public)
    parts = entries()
    parts[SIGNATURE] = sign(blake3(parts[MANIFEST]).digest(), tmp_path / "key")
    with StateFile(written(tmp_path / "a.rkz", parts)) as file:
        signature = file.signature()
        assert signature is not None
        assert is_signed_by(signature, tmp_path / "key.pub")
    parts[MANIFEST] = parts[MANIFEST].replace(b'"execution_count":1', b'"execution_count":2')
    with pytest.raises(BadSignature):
        look(written(tmp_path / "a.rkz", parts))


def test_a_file_that_is_no_key_is_told_in_our_words(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("-----BEGIN NOTHING-----\n")
    with pytest.raises(BadSignature) as told:
        sign(b"", tmp_path / "key")
    fix = "make one with `ssh-keygen -t ed25519 -N '' -f state-key`"
    assert str(told.value) == f"{tmp_path / 'key'} is not a usable private key: {fix}."


def test_a_table_of_contents_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    end = bytearray(io.BytesIO(written(tmp_path / "a.rkz", entries()).read_bytes()).getvalue())
    end[-10:-6] = (0x7FFFFFFF).to_bytes(4, "little")
    (tmp_path / "a.rkz").write_bytes(end)
    with pytest.raises(ReplkernelError, match="table of contents"):
        look(tmp_path / "a.rkz")
