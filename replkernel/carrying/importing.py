"""A state file made into a kernel at rest, as a whole or as far as it is safe.

Blocks. Laws: nothing in the file is believed; nothing of it is unpickled here; with `safe`, no kernel process
is ever given a payload that may do more than bring arrays, frames, tensors and plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec

from replkernel.carrying.container import NotAState, StateFile
from replkernel.carrying.exporting import Progress, ended_in_order, silent
from replkernel.carrying.founding import Founding
from replkernel.carrying.safe import HEAD_BYTES_MAX, NotSafe, cleaned, is_plain_name, lost
from replkernel.carrying.taking import chunks_of, head_of, rewritten, state_in
from replkernel.errors import ReplkernelError
from replkernel.launch.kernel_record import KernelRecord
from replkernel.objects.chunk_files import is_digest
from replkernel.objects.store import ObjectStore, open_store
from replkernel.records import BlobRef, ChunkRef, ComponentId, ComponentRecord, Digest, payload_blobs
from replkernel.replication.components import COMPONENTS_MAX
from replkernel.replication.machine import KernelMachine
from replkernel.replication.snapshot import MachineState, SnapshotUnreadable
from replkernel.settings import read_settings


class Left(msgspec.Struct, frozen=True):
    """A variable that was left out, and why, as a clause."""

    name: str
    why: str


def read_state(file: StateFile) -> tuple[bytes, MachineState]:
    """Return the state of a file as what a group is founded from; raises NotAState."""
    data = file.state()
    try:
        machine = KernelMachine()
        machine.restore(data)
        machine.check_invariants()
        base, state = state_in(data)
    except (SnapshotUnreadable, AssertionError, ValueError, KeyError, TypeError) as error:
        raise NotAState(f"{file.path.name} holds no state that can be read: {error}.") from error
    components = state.table.components
    if len(components) > COMPONENTS_MAX:
        raise NotAState(f"{file.path.name} has more than {COMPONENTS_MAX:,} components.")
    for record in components.values():
        for blob in payload_blobs(record.payload):
            _check_blob(file, blob)
    return base, state


def _check_blob(file: StateFile, blob: BlobRef) -> None:
    sizes = [chunk.size for chunk in blob.chunks]
    if (
        sum(sizes) != blob.size
        or any(size <= 0 for size in sizes)
        or not all(is_digest(chunk.digest) for chunk in blob.chunks)
    ):
        raise NotAState(f"{file.path.name} names a blob that cannot be.")
    lacking = next((chunk for chunk in blob.chunks if not file.has_chunk(chunk.digest)), None)
    if lacking is not None:
        raise NotAState(f"{file.path.name} lacks chunk {lacking.digest[:12]}….")


def only_safe(file: StateFile, state: MachineState) -> tuple[bytes, MachineState, list[Left]]:
    """Return the state with what may be loaded from a stranger, and what was left out of it."""
    kept: dict[ComponentId, ComponentRecord] = {}
    left: list[Left] = []
    for number, record in enumerate(state.table.components.values()):
        cid = ComponentId(f"safe-{number}")
        if record.cid.startswith("@"):
            continue  # The process's own state: modules to import, hooks, settings.
        names = [name for name in record.names if is_plain_name(name)]
        if not names:
            continue
        try:
            kept[cid] = msgspec.structs.replace(_cleaned(file, record), cid=cid)
        except NotSafe as error:
            left += [Left(name, str(error)) for name in names]
            for place, name in enumerate(names):
                gone = ComponentId(f"{cid}-{place}")
                kept[gone] = lost(gone, name, record)
    base, new = rewritten(state, kept)
    return base, new, left


def _cleaned(file: StateFile, record: ComponentRecord) -> ComponentRecord:
    head = head_of(record, file.chunk, HEAD_BYTES_MAX)
    if head is None:
        raise NotSafe(f"it is longer than {HEAD_BYTES_MAX >> 20} MiB")
    sizes = [one.size if isinstance(one, BlobRef) else len(one) for one in record.payload.buffers]
    return cleaned(record, sizes, head)


def import_kernel(
    file: StateFile,
    base: bytes,
    state: MachineState,
    env: Mapping[str, str],
    cwd: str,
    *,
    progress: Progress = silent,
) -> KernelRecord:
    """Make a kernel at rest of a file's state; raises ReplkernelError, OSError, and leaves nothing then."""
    chunks = chunks_of(state.table.components)
    store = open_store(read_settings(env).store_url, env)
    founding = Founding(store, env, cwd, "replkernel")
    try:
        with ended_in_order():
            store.probe()
            founding.claim(chunks)
            _store(file, store, founding, chunks, progress)
            return founding.finish(base, f"import of {file.path.name}")
    except BaseException:
        founding.give_up()
        raise
    finally:
        store.close()


def _store(
    file: StateFile,
    store: ObjectStore,
    founding: Founding,
    chunks: Mapping[Digest, ChunkRef],
    progress: Progress,
) -> None:
    total = sum(chunk.size for chunk in chunks.values())
    made: set[Digest] = set()
    free = store.free_bytes()
    if free is not None and free < total:
        need = f"it takes {total >> 20:,} MiB, and {free >> 20:,} are free"
        raise ReplkernelError(f"The store {store.url} has no room for this state: {need}.")
    try:
        _copy(file, store, chunks, made, progress, total)
    finally:
        founding.note_made(made)


def _copy(
    file: StateFile,
    store: ObjectStore,
    chunks: Mapping[Digest, ChunkRef],
    made: set[Digest],
    progress: Progress,
    total: int,
) -> None:
    done = 0
    for digest, chunk in chunks.items():
        data = file.chunk(chunk)
        with NamedTemporaryFile(prefix="replkernel-import-") as one:
            one.write(data)
            one.flush()
            if store.make_chunk(digest, Path(one.name)):
                made.add(digest)
        done += chunk.size
        progress(done, total)
    store.settle()
