"""What waits while cells run, as two threads see it: the main one, and a subshell's, which needs it all."""

from __future__ import annotations

import sys
import threading

import pytest

from replkernel.records import BlobRef, ChunkRef, ComponentId, ComponentRecord, Digest, Payload, Seq
from replkernel.state.restore.incoming import ReadAhead
from replkernel.state.restore.rebuild import put_in_order

REF = BlobRef(3, (ChunkRef(Digest("0" * 64), 3),))
WAITING = ComponentRecord(
    ComponentId("big"), ("big",), Seq(1), Payload(head_blob=REF), digest=Digest("0" * 64), state_bytes=3
)


class StandInCache:
    """A cache that has every blob."""

    def read_blob(self, ref: BlobRef) -> bytearray:
        return bytearray(b"big")

    def missing(self, ref: BlobRef) -> list[ChunkRef]:
        return []


def test_whoever_asks_while_the_reading_thread_is_being_started_gets_the_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead = ReadAhead(StandInCache())  # type: ignore[arg-type]
    start = threading.Thread.start
    got: list[bytearray] = []

    def slowly(thread: threading.Thread) -> None:
        got.append(ahead.read_blob(REF))
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", slowly)
    read = threading.Event()
    ahead.begin(WAITING, lambda: None, read.set)
    assert got == [b"big"]
    assert read.wait(20)
    assert ahead.read_blob(REF) == b"big"


def test_no_name_is_undefined_while_the_names_are_put_in_order() -> None:
    namespace = {f"v{number}": number for number in range(300)}
    names = tuple(namespace)
    missed: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            missed.extend(name for name in names if name not in namespace)

    interval = sys.getswitchinterval()
    looker = threading.Thread(target=look)
    sys.setswitchinterval(1e-6)
    try:
        looker.start()
        for _ in range(500):
            put_in_order(namespace, names[::-1])
            put_in_order(namespace, names)
    finally:
        done.set()
        looker.join()
        sys.setswitchinterval(interval)
    assert missed == []
    assert list(namespace.items()) == [(f"v{number}", number) for number in range(300)]
