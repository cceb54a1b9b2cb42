"""The committed state of a kernel as of its last whole point or of an earlier one, read from its checkpoint.
Nothing is unpickled.

All of it blocks. Law: what the state names stays in the store as long as it is being read, and the kernel
that it is taken from goes on as if nobody had looked; its key never leaves its record.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping

import msgspec

from replkernel.agent.io.checkpoint_store import find_checkpoint, read_checkpoint
from replkernel.carrying.outline import HEAD_BYTES_MAX
from replkernel.client.by_record import ask_kernel, known_record
from replkernel.errors import ReplkernelError
from replkernel.launch.kernel_record import KernelRecord, router_lives
from replkernel.objects.collect import MARK
from replkernel.objects.store import ObjectStore, open_store
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import ChunkRef, ComponentId, ComponentRecord, Digest, payload_blobs
from replkernel.replication.base import base_of
from replkernel.replication.components import TableState
from replkernel.replication.history import HistoryState
from replkernel.replication.machine import KernelMachine
from replkernel.replication.snapshot import MachineState, decode_state, encode_state
from replkernel.router.core.hibernation import SAVE
from replkernel.settings import read_settings, reads_unsealed

TAKING = "taking"
STALE_S = 24 * 3600.0
"""A mark of somebody who took the state so long ago is of one who was killed meanwhile."""


class Taken(msgspec.Struct, frozen=True):
    """A kernel's state: `base` is what a group is founded from, `state` the same, read.

    `cell` is the last one, as its user counts, whose changes are in it; `behind` tells that another one ran.
    """

    record: KernelRecord
    base: bytes
    state: MachineState
    store: ObjectStore
    cell: int
    behind: bool = False
    notices: tuple[str, ...] = ()

    @property
    def table(self) -> TableState:
        """Return the components."""
        return self.state.table


def chunks_of(records: Mapping[ComponentId, ComponentRecord]) -> dict[Digest, ChunkRef]:
    """Return the chunks that components name, each once, in their order."""
    return {
        chunk.digest: chunk
        for record in records.values()
        for blob in payload_blobs(record.payload)
        for chunk in blob.chunks
    }


def head_of(record: ComponentRecord, chunk: Callable[[ChunkRef], bytes], bytes_max: int) -> bytes | None:
    """Return a payload's head, of chunks that `chunk` verifies; None where it is longer than `bytes_max`."""
    blob = record.payload.head_blob
    if blob is None:
        return record.payload.head or b""
    return None if blob.size > bytes_max else b"".join(map(chunk, blob.chunks))


def heads_of(
    records: Mapping[ComponentId, ComponentRecord], chunk: Callable[[ChunkRef], bytes]
) -> dict[ComponentId, bytes]:
    """Return the payloads' heads; an empty one where it is too long to be looked at for its outline."""
    return {cid: head_of(record, chunk, HEAD_BYTES_MAX) or b"" for cid, record in records.items()}


def spec_of(record: KernelRecord, env: Mapping[str, str]) -> KernelSpec:
    """Return as much of a kernel's spec as its checkpoints need."""
    return KernelSpec(
        kernel_id=record.kernel_id,
        incarnation=record.incarnation,
        key=record.key.decode(),
        signature_scheme="hmac-sha256",
        python="",
        env=dict(env),
        cwd=record.cwd,
        store_url=read_settings(env).store_url,
        replicas=1,
        unsealed=reads_unsealed(env, sealed=record.sealed),
    )


def state_in(snapshot: bytes) -> tuple[bytes, MachineState]:
    """Return a snapshot's state as what a group is founded from, and read; raises SnapshotUnreadable.

    The past stays behind: nobody has looked at what is in it, and the kernel before keeps its chunks.
    """
    state = decode_state(base_of(snapshot))
    new = msgspec.structs.replace(state, table=msgspec.structs.replace(state.table, history=HistoryState()))
    return encode_state(new), new


def state_at(snapshot: bytes, word: str) -> tuple[bytes, MachineState, int]:
    """Return a snapshot's state as of the point that a name, a branch or the number of a cell means, as
    `state_in` does, and its cell; raises SnapshotUnreadable, NoSuchPoint.
    """
    machine = KernelMachine()
    machine.restore(base_of(snapshot))
    timeline = machine.timeline()
    mark = timeline.find(word)
    table = machine.table_at(mark)
    assert table is not None
    state = msgspec.structs.replace(decode_state(machine.snapshot()), table=table)
    return encode_state(state), state, timeline.point(mark).number


@contextlib.contextmanager
def taken(kernel_id: str, env: Mapping[str, str], at: str = "") -> Iterator[Taken]:
    """Yield the state of a kernel that runs or hibernates, as of now or of a point; raises ReplkernelError.

    One that runs has everything settled and written first, unless a cell runs. `at` is what
    `Timeline.find` understands.
    """
    record = known_record(kernel_id, env)
    behind = router_lives(record) and bool(ask_kernel(record, SAVE).get("busy"))
    spec = spec_of(record, env)
    store = open_store(spec.store_url, env)
    mark = f"{record.kernel_id}/{MARK}-{record.incarnation}-{TAKING}-{secrets.token_hex(8)}"
    try:
        store.probe()
        _tidy(store, spec)
        found = find_checkpoint(store, spec, mark=mark)
        if not found.name:
            why = (
                " ".join(found.notices) or f"the store {store.url} (REPLKERNEL_STORE) has no checkpoint of it"
            )
            raise ReplkernelError(
                f"Kernel {kernel_id} cannot be copied: {why.rstrip('.')}; run a cell first."
            )
        snapshot = read_checkpoint(store, spec, found.name, found.digest)
        if at:
            base, state, cell = state_at(snapshot, at)
        else:
            base, state = state_in(snapshot)
            cell = state.table.execution_count
        yield Taken(record, base, state, store, cell, behind and not at, found.notices)
    finally:
        with contextlib.suppress(ReplkernelError):
            store.delete_document(mark)
        store.close()


def _tidy(store: ObjectStore, spec: KernelSpec) -> None:
    begins = f"{spec.kernel_id}/{MARK}-{spec.incarnation}-{TAKING}-"
    for name, age_s in store.list_documents(spec.kernel_id).items():
        if name.startswith(begins) and age_s > STALE_S:
            store.delete_document(name)


def rewritten(
    state: MachineState, components: Mapping[ComponentId, ComponentRecord]
) -> tuple[bytes, MachineState]:
    """Return a state with other components as what a group is founded from, and read."""
    names = {name for record in components.values() for name in record.names}
    table = msgspec.structs.replace(
        state.table,
        components=dict(components),
        order=tuple(name for name in state.table.order if name in names),
    )
    new = msgspec.structs.replace(state, table=table)
    return encode_state(new), new
