"""Births: what is handed over comes back, what is none is refused, and a repr shows no secret."""

from __future__ import annotations

import msgspec
import pytest

from replkernel.kernel.birth import BIRTH_BYTES_MAX, Birth, decode_birth, encode_birth
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.records import HostName, KernelId, ReplicaId

SPEC = KernelSpec(
    KernelId("k1"), "one", "secret-key", "hmac-sha256", "python", {"A": "b"}, "/", "memory://", 3,
    connection_file="/run/kernel-k1.json",
)  # fmt: skip
BIRTH = Birth(SPEC, ReplicaId("r1"), HostName("h"), "/s/k", "ipc:///s/a", "secret-token", "/c", "/l")


def test_a_birth_comes_back_as_it_was() -> None:
    assert decode_birth(encode_birth(BIRTH)) == BIRTH


@pytest.mark.parametrize("data", [b"", b"nonsense", encode_birth(BIRTH)[:-5]])
def test_a_message_that_is_no_birth_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_birth(data)


def test_a_birth_has_a_limit() -> None:
    with pytest.raises(msgspec.ValidationError, match=str(BIRTH_BYTES_MAX)):
        decode_birth(b"\0" * (BIRTH_BYTES_MAX + 1))


def test_repr_names_the_replica_and_no_secret() -> None:
    assert "r1" in repr(BIRTH)
    assert "secret" not in repr(BIRTH)
