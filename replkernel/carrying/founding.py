"""A new kernel made of another one's state: a kernel at rest, with an id, a key and a record of its own.

All of it blocks. Laws: nothing of the kernel before is taken over but its state; what the new one needs is
named in a mark of its own before anybody relies on it; what fails half way leaves nothing. What is killed, or
cannot take back what it wrote, leaves it to the next who makes a kernel or collects the store (`unfinished`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from replkernel.agent.io.checkpoint_store import Shelf, said_by, write_checkpoint
from replkernel.carrying.taking import chunks_of, spec_of
from replkernel.carrying.unfinished import Making, tidy_unfinished
from replkernel.errors import BlobMissing, ReplkernelError
from replkernel.launch.kernel_record import (
    KernelRecord,
    forget_kernel,
    kernel_dir,
    this_machine,
    write_record,
)
from replkernel.objects.collect import write_mark
from replkernel.objects.shares import About, write_about
from replkernel.objects.store import ObjectStore
from replkernel.objects.withdrawal import LEAVING_MAX_S, end_kernel, read_announced, write_made
from replkernel.records import Digest, KernelId
from replkernel.replication.checkpoint import MARK, Place, document_name
from replkernel.replication.snapshot import decode_state
from replkernel.settings import data_dir

PARALLEL = 8
GENERATION = 1
LEAVING_LOOK_S = 1.0
LACKING_SHOWN = 12


class Founding:
    """One kernel in the making."""

    def __init__(self, store: ObjectStore, env: Mapping[str, str], cwd: str, kernel_name: str) -> None:
        kernel_id = KernelId(str(uuid.uuid4()))
        self._store = store
        self._env = env
        self.record = KernelRecord(
            kernel_id=kernel_id,
            kernel_name=kernel_name,
            incarnation=uuid.uuid4().hex,
            connection={
                "transport": "tcp",
                "ip": "127.0.0.1",
                "key": str(uuid.uuid4()),
                "signature_scheme": "hmac-sha256",
                "kernel_name": kernel_name,
            },
            connection_file="",
            cwd=cwd,
            machine=this_machine(),
            state="hibernated",
            sealed=True,
            began=time.time(),
        )
        self._made: set[Digest] = set()
        tidy_unfinished(store, env)
        self._making = Making(store, env, kernel_id, self.record.incarnation)

    def claim(self, digests: Iterable[Digest]) -> None:
        """Name the chunks that the kernel needs: from here on none of them goes."""
        record = self.record
        self._mark = document_name(MARK, record.kernel_id, record.incarnation, Place(GENERATION, 0))
        self._digests = frozenset(digests)
        write_mark(self._store, record.kernel_id, self._digests, name=self._mark)

    def note_made(self, made: Iterable[Digest]) -> None:
        """Note which chunks came into the store for this kernel: they go with it."""
        record = self.record
        self._made.update(made)
        write_made(self._store, record.kernel_id, record.incarnation, "carried", self._made)

    def finish(self, base: bytes, about: str = "") -> KernelRecord:
        """Write checkpoint and record, once all that is claimed is in the store; raises ReplkernelError."""
        record = self.record
        self._await_all()
        shelf = Shelf(spec_of(record, self._env))
        write_checkpoint(self._store, shelf, GENERATION, base, self._digests, said_by(base))
        user = self._env.get("JUPYTERHUB_USER") or self._env.get("USER", "")
        write_about(self._store, record.kernel_id, record.incarnation, About(about, user))
        write_record(data_dir(self._env), record)
        self._making.done()
        return record

    def give_up(self) -> None:
        """Take back what was written so far, or leave that to the next while the store fails."""
        record = self.record
        try:
            end_kernel(self._store, record.kernel_id, record.incarnation, self._made)
        except ReplkernelError:
            self._making.leave()
            return
        forget_kernel(kernel_dir(data_dir(self._env), record.kernel_id))
        self._making.done()

    def _await_all(self) -> None:
        """Return when the store has all chunks and nobody is about to delete one; raises BlobMissing."""
        deadline = time.monotonic() + LEAVING_MAX_S
        while any(self._digests & leaving for leaving in read_announced(self._store).values()):
            if time.monotonic() > deadline:
                break
            time.sleep(LEAVING_LOOK_S)
        with ThreadPoolExecutor(PARALLEL) as threads:
            digests = sorted(self._digests)
            lacking = [
                one
                for one, has in zip(digests, threads.map(self._store.has, digests), strict=True)
                if not has
            ]
        if lacking:
            raise BlobMissing(
                self._store.url,
                f"does not hold chunk {lacking[0][:LACKING_SHOWN]}…",
                "run the cell that made the data again",
            )


def found_kernel(
    base: bytes,
    store: ObjectStore,
    env: Mapping[str, str],
    cwd: str,
    kernel_name: str = "replkernel",
    about: str = "",
) -> KernelRecord:
    """Make a kernel at rest of a state whose chunks the store has; raises ReplkernelError, OSError."""
    founding = Founding(store, env, cwd, kernel_name)
    try:
        founding.claim(chunks_of(decode_state(base).table.components))
        return founding.finish(base, about)
    except BaseException:
        founding.give_up()
        raise
