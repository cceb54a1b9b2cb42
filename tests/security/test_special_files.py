"""Somebody puts pipes, links, devices and huge files into a file:// store: they are named, and never read."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.agent.io.checkpoint_store import Shelf, Written, find_checkpoint, said_by, write_checkpoint
from replkernel.errors import BlobDamaged, StoreError
from replkernel.objects.collect import read_marks
from replkernel.objects.shares import read_shares
from replkernel.objects.store import ObjectStore, open_store
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import Digest
from replkernel.replication.checkpoint import CHECKPOINT, MARK, Place, document_name
from tests.support.agent_router import make_spec, snapshot_after

HUGE_BYTES = 3 * 2**30
ANSWERED_S = 30.0
HOWS = ["pipe", "device", "link", "dangling", "socket", "directory", "huge"]


@pytest.fixture
def spec(short_dir: Path) -> KernelSpec:
    return make_spec({}, short_dir)


@pytest.fixture
def store(spec: KernelSpec) -> ObjectStore:
    return open_store(spec.store_url, {})


def put(store: ObjectStore, key: str, how: str) -> None:
    """Put something under a key that is no object of the store's."""
    path = Path(store.url.removeprefix("file://")) / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if how == "pipe":
        os.mkfifo(path)
    elif how == "device":
        path.symlink_to("/dev/zero")
    elif how == "link":
        path.symlink_to("/etc/hostname")
    elif how == "dangling":
        path.symlink_to("nowhere")
    elif how == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            at = os.getcwd()
            os.chdir(path.parent)  # A socket's path is short.
            try:
                listener.bind(path.name)
            finally:
                os.chdir(at)
    elif how == "directory":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, HUGE_BYTES)


def write(store: ObjectStore, spec: KernelSpec, cells: int) -> Written:
    snapshot = snapshot_after(cells)
    return write_checkpoint(store, Shelf(spec), 1, snapshot, [], said_by(snapshot))


def newer(spec: KernelSpec, what: str = CHECKPOINT) -> str:
    return document_name(what, spec.kernel_id, spec.incarnation, Place(7, 99))


@pytest.fixture(autouse=True)
def _not_for_ever(store: ObjectStore) -> Iterator[None]:
    """Open the pipes for whoever waits at one, late: a test fails then, instead of standing still."""

    def relieve() -> None:
        for path in Path(store.url.removeprefix("file://")).rglob("*"):
            if path.is_fifo():
                os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))

    timer = threading.Timer(ANSWERED_S, relieve)
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()


@pytest.mark.parametrize("how", HOWS)
def test_a_wake_passes_over_it_by_name(store: ObjectStore, spec: KernelSpec, how: str) -> None:
    real = write(store, spec, 3)
    put(store, f"kernels/{newer(spec)}", how)
    found = find_checkpoint(store, spec)
    assert (found.name, found.generation) == (real.name, 1)
    if how not in ("directory", "dangling"):  # These are not listed as objects.
        assert newer(spec) in found.notices[0]
        assert "somebody else put it there" in found.notices[0]


@pytest.mark.parametrize("how", HOWS)
def test_a_living_kernel_writes_on(store: ObjectStore, spec: KernelSpec, how: str) -> None:
    put(store, f"kernels/{newer(spec)}", how)
    assert write(store, spec, 4).header.seq == 4


@pytest.mark.parametrize("how", ["pipe", "device", "huge"])
def test_in_the_place_of_a_mark_or_a_chunk_it_is_damage(
    store: ObjectStore, spec: KernelSpec, how: str
) -> None:
    digest = Digest("ab" * 32)
    put(store, f"blobs/{digest[:2]}/{digest}", how)
    with pytest.raises(BlobDamaged):
        store.get_chunk(digest)
    put(store, f"kernels/{newer(spec, MARK)}", how)
    with pytest.raises(StoreError, match=newer(spec, MARK)):
        read_marks(store)
    assert read_shares(store) is not None
