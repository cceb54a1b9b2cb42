"""What a kernel process is born from: one struct, handed over by the zygote's fork or on standard input.

Light imports only: the agent, which never imports IPython, builds births too.
Law: a birth holds secrets (the client's key, the birth token), so it never travels in argv or a log.
"""

from __future__ import annotations

import msgspec

from replkernel.hosts.reach import Reach
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import HostName, ReplicaId

BIRTH_BYTES_MAX = 16 * 1024 * 1024
"""No birth is larger than this; environments are a few KiB."""


class Birth(msgspec.Struct, frozen=True):
    """Everything one kernel process needs to start.

    `ipc_base` is the path prefix of its sockets, `agent_endpoint` the agent's ``kernels.sock``,
    `birth_token` what it proves itself with there, `log_path` the file that takes its fd 1 and 2.
    """

    spec: KernelSpec
    replica: ReplicaId
    host: HostName
    ipc_base: str
    agent_endpoint: str
    birth_token: str
    cache_dir: str
    log_path: str
    reach: Reach | None = None
    """How other machines reach its sockets; None where no router of another machine is to."""

    def __repr__(self) -> str:
        """Name the replica and nothing secret."""
        return f"<Birth of {self.replica} of kernel {self.spec.kernel_id} on {self.host}>"


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Birth)


def encode_birth(birth: Birth) -> bytes:
    """Return `birth` as the bytes that ``python -m replkernel.kernel`` reads from standard input."""
    return _encoder.encode(birth)


def decode_birth(data: bytes) -> Birth:
    """Return the birth in `data`; raises ValueError when it is none."""
    if len(data) > BIRTH_BYTES_MAX:
        raise msgspec.ValidationError(f"The birth is larger than {BIRTH_BYTES_MAX} bytes.")
    return _decoder.decode(data)
