"""What is known of a kernel while nobody serves it: its connection, its incarnation, its router's process.

One file a kernel, ``<data dir>/kernels/<kernel id>/kernel.json``, beside whatever else a kernel keeps there.
Its router writes it and removes the directory when the kernel ends for good; whoever starts a router for the
same kernel reads it. It holds the kernel's key. Law: replaced whole or not at all; only ever readable by its
owner; what cannot be read is as good as absent, and said.
"""

from __future__ import annotations

import functools
import os
import re
import time
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from replkernel.agent.io.death import start_time
from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.hosts.own_file import read_own, replace_own
from replkernel.records import KernelId, MoveRecord

RECORD_BYTES_MAX = 64 * 1024
"""No record is longer; a longer file is none of ours."""

_FILE = "kernel.json"
_KERNEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

ConnectionValue: TypeAlias = str | int | float | bool | None
State: TypeAlias = Literal["live", "hibernated"]


class BadKernelId(ReplkernelError):
    """A kernel's id cannot be part of a path."""


class KernelRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kernel's record.

    `connection` is what its connection file says (address, key, five ports, CURVE keys). `router_pid` and
    `router_started` (clock ticks since boot) name the router's process on `machine`; 0 means that there is
    none. `updated` is the wall clock's time in seconds, for people. `gpus`, `vram_gb`, `gpu_model`,
    `cpu`, `memory_gib`, `gpu_part` and `gpu_shared` are what the notebook's cells ask for unless they say
    otherwise. `guests` are hosts beyond the settings' that replicas have been moved to, `move` is one
    that has begun. `hosts` are those that the scheduler chose. `sealed`: its checkpoints bear seals;
    without it a release has written the record that made none. `began` is the Unix time of the kernel's
    start, `state_bytes` its size when it last went to rest.
    """

    kernel_id: KernelId
    kernel_name: str
    incarnation: str
    connection: dict[str, ConnectionValue]
    connection_file: str
    cwd: str
    machine: str
    router_pid: int = 0
    router_started: int = 0
    state: State = "live"
    updated: float = 0.0
    gpus: int = 0
    vram_gb: float = 0.0
    gpu_model: str = ""
    guests: tuple[str, ...] = ()
    move: MoveRecord | None = None
    hosts: tuple[str, ...] = ()
    sealed: bool = False
    cpu: float = 0.0
    memory_gib: float = 0.0
    began: float = 0.0
    state_bytes: int = 0
    gpu_part: float = 0.0
    gpu_shared: bool = False

    @property
    def key(self) -> bytes:
        """Return the kernel's key, which signs its messages."""
        return str(self.connection.get("key") or "").encode()


def is_kernel_id(text: str) -> bool:
    """Tell whether `text` can name a kernel: it becomes part of paths."""
    return _KERNEL_ID.fullmatch(text) is not None


def kernels_dir(data_dir: Path) -> Path:
    """Return the directory of all kernels' directories."""
    return data_dir / "kernels"


def kernel_dir(data_dir: Path, kernel_id: str) -> Path:
    """Return the directory of everything that a kernel keeps; raises BadKernelId when there can be none."""
    if not is_kernel_id(kernel_id):
        raise BadKernelId(
            f"The kernel id {kernel_id[:200]!r} cannot name a directory: use 1 to 128 letters, digits, "
            "'.', '_' or '-', beginning with a letter or a digit."
        )
    return kernels_dir(data_dir) / kernel_id


def make_kernel_dir(data_dir: Path, kernel_id: str) -> Path:
    """Return the kernel's directory, made for its owner alone if need be; raises OSError, BadKernelId."""
    directory = kernel_dir(data_dir, kernel_id)
    data_dir.mkdir(parents=True, exist_ok=True)
    directory.parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def read_record(data_dir: Path, kernel_id: str) -> KernelRecord | None:
    """Return the kernel's record; None when there is none, or none that can be used (which is logged)."""
    if not is_kernel_id(kernel_id):
        return None
    path = kernel_dir(data_dir, kernel_id) / _FILE
    try:
        record = msgspec.json.decode(read_own(path, RECORD_BYTES_MAX), type=KernelRecord)
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE) as error:
        _warn(f"The record {path} cannot be used ({error}); the kernel is taken for a new one.")
        return None
    if record.kernel_id != kernel_id or not record.incarnation or not record.key:
        _warn(f"The record {path} is not one of kernel {kernel_id}; the kernel is taken for a new one.")
        return None
    return record


def write_record(data_dir: Path, record: KernelRecord) -> None:
    """Write the record in place of the one before; raises OSError or BadKernelId.

    That of a hibernated kernel is all that leads back to its state, so it is made to last a power cut.
    """
    directory = make_kernel_dir(data_dir, record.kernel_id)
    data = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(record, updated=time.time())))
    replace_own(directory / _FILE, data, lasting=record.state == "hibernated")


def forget_kernel(directory: Path) -> None:
    """Remove everything that a kernel keeps on disk: it has ended for good."""
    import shutil

    (directory / _FILE).unlink(missing_ok=True)
    shutil.rmtree(directory, ignore_errors=True)


@functools.cache
def this_machine() -> str:
    """Return a name for the space in which process ids mean something: host, boot, pid namespace."""
    boot = namespace = ""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        pass
    return f"{os.uname().nodename}/{boot}/{namespace}"


def router_lives(record: KernelRecord) -> bool:
    """Tell whether the record's router runs here; one elsewhere cannot be seen, and counts as gone."""
    if record.router_pid <= 0 or not record.router_started or record.machine != this_machine():
        return False
    return start_time(record.router_pid) == record.router_started


def _warn(text: str) -> None:
    import logging

    logging.getLogger(__name__).warning("%s", text)
