"""Random generators of their own for the forks of a kernel: those of `random`, of numpy and of torch.

Pure but for chance. Law: only the libraries' global generators are seeded anew; one that a variable holds is
data, and stays as it is.
"""

from __future__ import annotations

import random
import secrets
import struct

from replkernel.records import ComponentId, ComponentRecord, Payload, Seq
from replkernel.replication.checkpoint import digest_of
from replkernel.state.process.plain import decode_plain, encode_plain

WORDS = 624
_PYTHON, _NUMPY = ComponentId("@random"), ComponentId("@numpy_random")
_TORCH, _TORCH_GPUS = ComponentId("@torch_random"), ComponentId("@torch_cuda_random")
_TORCH_BYTES = 5056
"""What torch's generator for the CPU is, as bytes: seed, place, 624 words, and the normal number kept."""


def reseeded(components: dict[ComponentId, ComponentRecord]) -> dict[ComponentId, ComponentRecord]:
    """Return the components with generators of their own."""
    parts = {_PYTHON: _python(), _NUMPY: _numpy()}
    if _TORCH in components or any("torch" in record.modules for record in components.values()):
        parts[_TORCH] = _torch()
    seq = max((record.seq for record in components.values()), default=Seq(0))
    devices = components.get(_TORCH_GPUS)
    if devices is not None and devices.payload.head is not None:
        parts[_TORCH_GPUS] = encode_plain([_philox(one) for one in decode_plain(devices.payload.head)])
    if _NUMPY not in components:
        del parts[_NUMPY]  # Each process seeds it anew at its birth.
    fresh = {cid: _record(cid, data, seq) for cid, data in parts.items()}
    return {**components, **fresh}


def _record(cid: ComponentId, data: bytes, seq: Seq) -> ComponentRecord:
    return ComponentRecord(cid, (), seq, Payload(head=data), digest_of(data), len(data))


def _words() -> bytes:
    return secrets.token_bytes(4 * WORDS)


def _python() -> bytes:
    version, words, gauss = random.Random(secrets.randbits(19_937)).getstate()  # noqa: S311
    return encode_plain((version, struct.pack(f"<{len(words)}I", *words), gauss))


def _numpy() -> bytes:
    return encode_plain(("MT19937", _words(), WORDS, 0, 0.0))


def _torch() -> bytes:
    words = struct.unpack(f"<{WORDS}I", _words())
    head = struct.pack("<QiiQ", secrets.randbits(63), 1, 1, 0)
    return (head + struct.pack(f"<{WORDS}Q", *words)).ljust(_TORCH_BYTES, b"\0")


def _philox(state: bytes) -> bytes:
    return struct.pack("<Q", secrets.randbits(63)) + state[8:]
