"""What a kernel's replicas are made from, and where their processes are reached."""

from __future__ import annotations

from typing import Literal

import msgspec

from replkernel.records import KernelId


class KernelSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the launcher asked for, enough for any agent to start a replica of this kernel.

    `incarnation` changes when a restart wipes the namespace. `key` and `signature_scheme` are the
    connection file's: replicas sign with them. `env` and `cwd` are the launcher's own. `argv_extra`
    are ipykernel options (``--IPKernelApp.…``) that the kernelspec carried. `connection_file` is the
    router's own, for ``%connect_info``; it may not exist on another host.
    """

    kernel_id: KernelId
    incarnation: str
    key: str
    signature_scheme: str
    python: str
    env: dict[str, str]
    cwd: str
    store_url: str
    replicas: int
    durable: Literal["async", "before_reply"] = "async"
    inline_bytes_max: int = 16 * 1024
    argv_extra: tuple[str, ...] = ()
    session_id: str = ""
    detached: bool = False
    """Whether the replicas live on without a router, for ever."""
    connection_file: str = ""
    unsealed: bool = False
    """Whether a checkpoint without a seal is read: the kernel was put to rest by a release that made none."""


class Endpoints(msgspec.Struct, frozen=True):
    """The ZMQ addresses of a kernel process that its router connects to.

    `executions` is the direct way to the main thread, for executions of the main shell; without one they go
    to `shell`, as everything else does. `far` are the addresses for a router on another machine.
    """

    shell: str
    control: str
    stdin: str
    iopub: str
    executions: str = ""
    far: Endpoints | None = None
