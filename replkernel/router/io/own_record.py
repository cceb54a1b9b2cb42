"""The kernel's record as its router keeps it: found, taken over, brought up to date, removed at the end.

Law: state is never continued under another key than the one that the record holds; a disk that refuses costs
the kernel its return after a restart, never a cell.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from replkernel.agent.io.death import start_time
from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.launch.chosen_gpus import ASKED
from replkernel.launch.kernel_record import (
    ConnectionValue,
    KernelRecord,
    forget_kernel,
    kernel_dir,
    read_record,
    router_lives,
    this_machine,
    write_record,
)
from replkernel.leasing.request import GpuRequest
from replkernel.records import KernelId, MoveRecord
from replkernel.router.io.connection import ConnectionFile

Standing = Literal["live", "hibernated", "ended"]


class RouterLives(ReplkernelError):
    """Another router serves this kernel."""


def find_record(data_dir: Path, kernel_id: KernelId, key: bytes) -> KernelRecord | None:
    """Return the record of an incarnation to be continued; None when a new one begins.

    Raises RouterLives when somebody else serves it.
    """
    record = read_record(data_dir, kernel_id)
    if record is None or record.key != key:
        return None
    if router_lives(record) and record.router_pid != os.getpid():
        raise RouterLives(
            f"Kernel {kernel_id} has a router already, process {record.router_pid}: connect to it with "
            f"the connection file {record.connection_file}, or end that process first."
        )
    return record


def new_record(
    file: ConnectionFile,
    ports: dict[str, int],
    kernel_id: KernelId,
    found: KernelRecord | None,
    chosen: Mapping[str, Any],
) -> KernelRecord:
    """Return the record of a kernel that this process serves on `ports`, to go on from what was `found`.

    `chosen` are the GPUs of a new one's cells, as fields of the record.
    """
    connection = _connection(file.path) | ports
    kept = (*ASKED, "guests", "move", "hosts", "began", "state_bytes")
    begins = {**chosen, "began": time.time()}
    known = begins if found is None else {name: getattr(found, name) for name in kept}
    return KernelRecord(
        kernel_id=kernel_id,
        kernel_name=str(connection.get("kernel_name") or ""),
        incarnation=uuid.uuid4().hex if found is None else found.incarnation,
        connection={**connection, "key": file.key.decode()},
        connection_file=str(file.path),
        cwd=os.getcwd(),
        machine=this_machine(),
        router_pid=os.getpid(),
        router_started=start_time(os.getpid()),
        sealed=found is None or found.sealed,
        **known,
    )


def _connection(path: Path) -> dict[str, ConnectionValue]:
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, *UNREADABLE):
        return {}
    return {
        name: value
        for name, value in fields.items()
        if value is None or isinstance(value, str | int | float | bool)
    }


class OwnRecord:
    """The record of the kernel that this process serves. `complain` is told once when it cannot be kept."""

    def __init__(self, data_dir: Path, record: KernelRecord, complain: Callable[[str], None]) -> None:
        self._data_dir = data_dir
        self._record = record
        self._complain = complain
        self._standing: Standing | None = None

    @property
    def directory(self) -> Path:
        """Return the directory of everything that the kernel keeps."""
        return kernel_dir(self._data_dir, self._record.kernel_id)

    @property
    def gpus(self) -> GpuRequest | None:
        """Return what the notebook's cells ask for unless they say otherwise."""
        record = self._record
        wanted = GpuRequest(
            record.gpus,
            record.vram_gb,
            record.gpu_model,
            record.cpu,
            record.memory_gib,
            record.gpu_part,
            record.gpu_shared,
        )
        return wanted if record.gpus else None

    def remember(self, gpus: GpuRequest | None) -> None:
        """Keep what the notebook's cells ask for from now on."""
        wanted = gpus or GpuRequest(0)
        self._record = msgspec.structs.replace(
            self._record,
            gpus=wanted.gpus,
            vram_gb=wanted.vram_gb,
            gpu_model=wanted.model,
            cpu=wanted.cpu,
            memory_gib=wanted.memory_gib,
            gpu_part=wanted.part,
            gpu_shared=wanted.shared,
        )
        if self._standing is not None:
            self._write(self._standing)

    def remember_move(self, guests: tuple[str, ...], move: MoveRecord | None) -> None:
        """Keep which other hosts have replicas, and the move that has begun."""
        self._record = msgspec.structs.replace(self._record, guests=guests, move=move)
        if self._standing is not None:
            self._write(self._standing)

    def note(self, standing: Standing, state_bytes: int | None = None) -> None:
        """Bring the record up to date, with the state's size where that is known; ``ended`` removes it."""
        if standing != self._standing:
            self._standing = standing
            if state_bytes is not None:
                self._record = msgspec.structs.replace(self._record, state_bytes=state_bytes)
            self._write(standing)

    def _write(self, standing: Standing) -> None:
        try:
            if standing == "ended":
                (self.directory / "kernel.json").unlink(missing_ok=True)
            else:
                sealed = self._record.sealed or standing == "hibernated"  # It has a checkpoint of ours then.
                self._record = msgspec.structs.replace(self._record, sealed=sealed)
                write_record(self._data_dir, msgspec.structs.replace(self._record, state=standing))
        except OSError as error:
            self._complain(
                f"The record of this kernel cannot be kept below {self._data_dir} ({error}), so the kernel "
                "will not come back after a restart of its server: make the directory writable, or set "
                "JUPYTER_DATA_DIR to one that is."
            )

    def close(self) -> None:
        """Leave: remove everything of a kernel that has ended; else say that no router serves it."""
        if self._standing == "ended":
            forget_kernel(self.directory)
        elif self._standing is not None:
            self._record = msgspec.structs.replace(self._record, router_pid=0, router_started=0)
            standing, self._standing = self._standing, None
            self.note(standing)
