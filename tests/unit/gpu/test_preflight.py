"""What the driver is not asked to suspend, by what is known of the process; and how that is read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from replkernel.gpu import driver, seen
from replkernel.gpu.driver import DriverCheckpoint
from replkernel.gpu.preflight import Facts, no_room, refusal

GPU = "GPU-a"
MAPS = """\
7f0000000000-7f0000001000 rw-s 00000000 00:05 1  {0}/nvidia-uvm
7f0000001000-7f0000002000 rw-s 00000000 00:05 1  {0}/nvidia0
7f0000002000-7f0000003000 rw-s 00000000 00:05 1  {0}/nvidia-uvm
7f0000003000-7f0000004000 r--p 00000000 00:05 1  /usr/lib/libcuda.so.1
"""


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (Facts(), ""),
        (Facts((GPU,), 10, 11, 1, ("python", "Heartbeat")), ""),
        (Facts(("MIG-a",)), "(MIG)"),
        (Facts(uvm_mappings=2), "(UVM)"),
        (Facts(threads=("python", "NCCL Service 3")), "NCCL"),
        (Facts(threads=("pt_nccl_watchdg",)), "NCCL"),
        (Facts(shares=2), "2 tensors on the GPU are shared"),
        (Facts(bytes=2**30, host_free=2**30), "the host has 1 GiB of memory left"),
        (Facts(bytes=10**9, host_free=None), ""),
    ],
)
def test_a_refusal_is_one_clause(facts: Facts, told: str) -> None:
    why = refusal(facts)
    assert told in why if told else not why
    assert "." not in why.replace("1.", "")


def test_a_driver_that_would_be_refused_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "free_bytes", lambda: None)
    monkeypatch.setattr(seen, "uvm_mappings", lambda pid=None: 3)
    mine = DriverCheckpoint(lambda pid: pytest.fail("it was asked"))
    assert "(UVM)" in mine.off(10, (GPU,))
    assert not mine.is_off


def test_mappings_of_managed_memory_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "PROC", tmp_path)
    assert seen.uvm_mappings() is None
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "maps").write_text(MAPS.format(seen.DEVICES))
    assert seen.uvm_mappings() == 2


def test_threads_are_those_of_the_system() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        Path(f"/proc/self/task/{thread.native_id}/comm").write_text("NCCL Service 1")
        assert "NCCL Service 1" in seen.thread_names()
    finally:
        over.set()
        thread.join()


def test_a_resume_needs_room_on_each_gpu_that_is_told_of() -> None:
    assert no_room({}, {}) == ""
    assert no_room({GPU: 10}, {GPU: 10, "GPU-b": 0}) == ""
    assert no_room({GPU: 10}, {}) == ""
    assert no_room({"GPU-b": 5, GPU: 10}, {GPU: 9, "GPU-b": 5}) == (
        "10 bytes have to go back to GPU-a, which has 9 bytes free"
    )
