"""Who is heard: a launcher with its user's proof, a cell with its user's seal; what a process is told."""

from __future__ import annotations

import pytest

from replkernel.ranks.launcher import environment, interface_of, own_address
from replkernel.ranks.words import Begin, RanksUnsealed, check_seal, is_proof, proof_of, seal_of

KEY, OTHER = b"k" * 32, b"o" * 32
BEGIN = Begin(2, 2, 4, "127.0.0.1", 2001, b"")


def test_only_the_users_own_seal_has_something_started() -> None:
    seal = seal_of(KEY, "g", "/work", "curve://h:1/aa")
    check_seal(KEY, seal, "g", "/work", "curve://h:1/aa")
    for changed in (
        ("h", "/work", "curve://h:1/aa"),
        ("g", "/", "curve://h:1/aa"),
        ("g", "/work", "curve://h:1/ab"),
    ):
        with pytest.raises(RanksUnsealed):
            check_seal(KEY, seal, *changed)
    with pytest.raises(RanksUnsealed):
        check_seal(OTHER, seal, "g", "/work", "curve://h:1/aa")


def test_only_the_users_own_launcher_is_heard_and_for_its_own_host_alone() -> None:
    proof = proof_of(KEY, "g", "a")
    assert is_proof(KEY, proof, "g", "a")
    assert not is_proof(KEY, proof, "g", "b")
    assert not is_proof(KEY, proof, "h", "a")
    assert not is_proof(OTHER, proof, "g", "a")
    assert seal_of(KEY, "g", "", "a") != proof


def test_a_process_has_what_torchrun_would_set() -> None:
    made = environment({"HOME": "/h", "KERNEL_ID": "k"}, BEGIN, 1, "127.0.0.1", ("GPU-1", "GPU-2"))
    wanted = {
        "HOME": "/h", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "2001", "RANK": "3", "LOCAL_RANK": "1",
        "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2",
    }  # fmt: skip
    assert {name: made[name] for name in wanted} == wanted
    assert "KERNEL_ID" not in made
    assert made["GLOO_SOCKET_IFNAME"] == interface_of("127.0.0.1") == "lo"
    assert made["NCCL_SOCKET_IFNAME"] == "=lo"
    own = environment({"GLOO_SOCKET_IFNAME": "eth7"}, BEGIN, 0, "127.0.0.1", ())
    assert own["GLOO_SOCKET_IFNAME"] == "eth7", "what the user has set stays"


def test_the_address_is_the_settings_or_else_the_way_to_the_cell() -> None:
    assert own_address("curve://127.0.0.1:4000/aa", {}) == "127.0.0.1"
    told = {"REPLKERNEL_BIND": "0.0.0.0", "REPLKERNEL_ADVERTISE": "10.1.2.3"}
    assert own_address("curve://127.0.0.1:4000/aa", told) == "10.1.2.3"
