"""What is looked up and changed outside an agent for a kernel at rest: its record, its store. All blocks.

Law: a record is changed only while no router of its kernel lives.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from replkernel.agent.io.checkpoint_store import find_checkpoint
from replkernel.errors import ReplkernelError
from replkernel.launch.kernel_record import KernelRecord, read_record, router_lives, write_record
from replkernel.objects.store import open_store
from replkernel.objects.withdrawal import end_kernel
from replkernel.protocol.agent_to_router import CheckpointFound
from replkernel.protocol.kernel_spec import KernelSpec

log = logging.getLogger(__name__)


def find_record(data_dir: Path, spec: KernelSpec) -> KernelRecord | None:
    """Return the record by which this kernel can be found again, None when there is none."""
    record = read_record(data_dir, spec.kernel_id)
    if record is None or record.incarnation != spec.incarnation or record.key != spec.key.encode():
        return None
    return record


def note_rest(data_dir: Path, record: KernelRecord) -> None:
    """Note in the kernel's record that it hibernates, unless a router has taken it up meanwhile."""
    current = read_record(data_dir, record.kernel_id)
    if current is None or current.incarnation != record.incarnation or router_lives(current):
        return
    resting = msgspec.structs.replace(
        current, state="hibernated", router_pid=0, router_started=0, sealed=True
    )
    try:
        write_record(data_dir, resting)
    except (OSError, ReplkernelError) as error:
        log.warning("the record of kernel %s was not changed: %s", record.kernel_id, error)


def look_for_checkpoint(spec: KernelSpec) -> CheckpointFound:
    """Return the newest checkpoint of a kernel that can be read; raises ReplkernelError for its store."""
    store = open_store(spec.store_url, spec.env)
    try:
        return find_checkpoint(store, spec)
    finally:
        store.close()


def forget_stored(spec: KernelSpec) -> None:
    """Delete what the store holds of a kernel that has no replica; raises ReplkernelError."""
    store = open_store(spec.store_url, spec.env)
    try:
        store.probe()  # Only then it is known whether a server can tell who made a chunk.
        end_kernel(store, spec.kernel_id, spec.incarnation)
    finally:
        store.close()
