"""The driver's checkpoint before torch's way, over a stand-in: what is tried when, and what is told."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from replkernel.errors import StateSuspended  # noqa: E402
from replkernel.gpu import cuda, driver, in_place, seen, torch_state  # noqa: E402
from replkernel.gpu.backend import Backend, Kept, Moved  # noqa: E402
from replkernel.gpu.cuda import CudaBackend  # noqa: E402
from replkernel.gpu.device_buffer import DeviceBuffer  # noqa: E402
from replkernel.gpu.driver import DriverCheckpoint  # noqa: E402
from replkernel.gpu.family import Relative  # noqa: E402
from replkernel.gpu.host_copy import HostRoom  # noqa: E402
from tests.contracts.gpu_backend import GpuBackendContract  # noqa: E402
from tests.unit.gpu.test_cuda import GPU, Card, tensor_on  # noqa: E402

OTHER, THIRD, SMALL = "GPU-5678", "GPU-9abc", "GPU-small"
MACHINE = {GPU: "H100", OTHER: "H100", THIRD: "H100", SMALL: "T4"}


class Process:
    """As much of cuda.core.checkpoint.Process as is called; what is in `fails` raises, once it is called."""

    def __init__(self, *fails: str) -> None:
        self.fails = set(fails)
        self.calls: list[str] = []
        self.state = "running"
        self.mapped: Any = None

    def _do(self, name: str, needs: str, then: str) -> None:
        self.calls.append(name)
        assert self.state == needs, f"{name} of a process that is {self.state}"
        if name in self.fails:
            self.state = "failed" if "for good" in self.fails else self.state
            raise RuntimeError(f"CUDA_ERROR of {name}")
        self.state = then

    def lock(self, timeout_ms: int = 0) -> None:
        assert timeout_ms > 0, "kernels that never end would be waited for"
        self._do("lock", "running", "locked")

    def checkpoint(self) -> None:
        self._do("checkpoint", "locked", "checkpointed")

    def restore(self, gpu_mapping: Any = None) -> None:
        self._do("restore", "checkpointed", "locked")
        self.mapped = gpu_mapping

    def unlock(self) -> None:
        self._do("unlock", "locked", "running")


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    made: Any = Card()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", GPU)
    monkeypatch.setattr(cuda, "_cuda", made)
    monkeypatch.setattr(cuda, "_on_cuda", made.holds)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    monkeypatch.setattr(in_place, "HostRoom", lambda total, pinned: HostRoom(total, pinned=False))
    yield made
    in_place._in_use.clear()
    in_place.unlock()
    torch_state._held.clear()


def backend_with(process: Process) -> CudaBackend:
    return CudaBackend(DriverCheckpoint(lambda pid: process, lambda: MACHINE))


def test_the_driver_goes_first_and_nothing_moves_by_torch(card: Card) -> None:
    process = Process()
    backend, x = backend_with(process), tensor_on(card)
    off = backend.suspend(settled=True)
    assert isinstance(off, Moved)
    assert off.bytes == backend.bytes_off() == 40
    assert (backend.suspended, backend.locked, backend.bytes_held()) == (True, True, 0)
    assert x.untyped_storage().nbytes() == 40, "the driver keeps addresses"
    assert backend.suspend(settled=True) == Moved()
    back = backend.resume((GPU,))
    assert isinstance(back, Moved)
    assert back.bytes == 40
    assert process.calls == ["lock", "checkpoint", "restore", "unlock"]
    assert (process.state, process.mapped, backend.locked) == ("running", None, False)
    assert card.emptied == 1


def test_threads_of_the_notebook_and_arrays_of_any_library_are_no_hindrance_to_it(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    backend, x = backend_with(Process()), tensor_on(card)
    assert isinstance(backend.suspend("thread mine runs", settled=True), Moved)
    backend.resume((GPU,))
    assert isinstance(backend.suspend("thread mine runs"), Kept), "torch's way needs them to be quiet"
    assert x.sum().item() == 10


@pytest.mark.parametrize(
    ("fails", "calls"), [("lock", ["lock"]), ("checkpoint", ["lock", "checkpoint", "unlock"])]
)
def test_where_the_driver_fails_torch_moves_its_tensors(card: Card, fails: str, calls: list[str]) -> None:
    process = Process(fails)
    backend, x = backend_with(process), tensor_on(card)
    assert isinstance(backend.suspend(settled=True), Moved)
    assert (process.calls, process.state, backend.locked) == (calls, "running", False)
    assert backend.suspended
    assert x.untyped_storage().nbytes() == 0
    assert isinstance(backend.resume((GPU,)), Moved)
    assert x.sum().item() == 10


def test_torchs_way_is_open_to_a_notebook_whose_metaclass_raises(card: Card) -> None:
    class Meta(type):
        def __hash__(cls) -> int:
            raise RuntimeError("hash")

        def __eq__(cls, other: object) -> bool:
            raise RuntimeError("eq")

    class Made(metaclass=Meta):
        def __init__(self) -> None:
            self.values = [1]

    held = Made()
    backend, x = backend_with(Process("lock")), tensor_on(card)
    assert isinstance(backend.suspend(settled=True), Moved)
    assert isinstance(backend.resume((GPU,)), Moved)
    assert (x.sum().item(), held.values) == (10, [1])


def test_where_both_fail_the_state_stays_and_both_reasons_are_told(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    backend, x = backend_with(Process("checkpoint")), tensor_on(card)
    kept = backend.suspend(settled=True)
    assert isinstance(kept, Kept)
    assert "cupy may have arrays on the GPU" in kept.why
    assert "CUDA_ERROR of checkpoint" in kept.why
    assert not backend.suspended
    assert x.sum().item() == 10


def test_without_the_library_it_is_asked_once_and_torch_does_it(card: Card) -> None:
    asked: list[int] = []

    def missing(pid: int) -> Any:
        asked.append(1)
        raise ModuleNotFoundError("No module named 'cuda'")

    backend, x = CudaBackend(DriverCheckpoint(missing, lambda: MACHINE)), tensor_on(card)
    for _ in range(2):
        assert isinstance(backend.suspend(settled=True), Moved)
        backend.resume((GPU,))
    assert asked == [1]
    assert x.sum().item() == 10


def test_parts_of_a_gpu_and_a_host_without_memory_are_left_to_torch(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process()
    monkeypatch.setattr(driver, "free_bytes", lambda: 40)
    backend, x = backend_with(process), tensor_on(card)
    backend.suspend(settled=True)
    backend.resume((GPU,))
    monkeypatch.setattr(driver, "free_bytes", lambda: None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    split = backend_with(process)
    split.suspend(settled=True)
    split.resume(("MIG-1",))
    assert process.calls == []
    assert x.sum().item() == 10


def test_the_host_needs_room_for_what_nvml_tells_of_and_not_for_torchs_bytes_alone(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process()
    backend, x = backend_with(process), tensor_on(card)
    monkeypatch.setattr(seen, "bytes_by_gpu", lambda: {GPU: 1000})
    monkeypatch.setattr(driver, "free_bytes", lambda: 1050)
    assert isinstance(backend.suspend(settled=True), Moved)
    assert process.calls == [], "the context is copied as well"
    backend.resume((GPU,))
    monkeypatch.setattr(driver, "free_bytes", lambda: 1200)
    assert backend.suspend(settled=True) == Moved(1000, pytest.approx(0, abs=60))
    assert process.calls == ["lock", "checkpoint"]
    backend.resume((GPU,))
    assert x.sum().item() == 10


def test_a_restore_that_fails_leaves_all_with_the_driver_to_be_tried_again(card: Card) -> None:
    process = Process("restore")
    backend, x = backend_with(process), tensor_on(card)
    backend.suspend(settled=True)
    kept = backend.resume((GPU,))
    assert isinstance(kept, Kept)
    assert "CUDA_ERROR of restore" in kept.why
    assert (backend.suspended, backend.locked) == (True, True)
    process.fails.clear()
    assert isinstance(backend.resume((GPU,)), Moved)
    assert x.sum().item() == 10


def test_other_gpus_of_the_model_are_taken_by_a_mapping_of_all_that_the_driver_knows(card: Card) -> None:
    process = Process()
    backend, x = backend_with(process), tensor_on(card)
    assert backend.bound_to_others((OTHER,)) != "", "nobody knows yet whether the driver can"
    backend.suspend(settled=True)
    assert backend.bound_to_others((OTHER,)) == "", "no other process has to take over"
    assert backend.bound_to_others((SMALL,)) != ""
    assert backend.bound_to_others((GPU, OTHER)) != ""
    assert isinstance(backend.resume((SMALL,)), Kept)
    assert isinstance(backend.resume((OTHER,)), Moved)
    assert backend.gpus == (OTHER,)
    bare: Callable[[str], str] = lambda uuid: uuid.removeprefix("GPU-")  # noqa: E731
    wanted = {GPU: OTHER, OTHER: GPU, THIRD: THIRD, SMALL: SMALL}
    assert process.mapped == {bare(old): bare(new) for old, new in wanted.items()}
    assert x.sum().item() == 10


def test_a_driver_that_cannot_map_has_another_process_take_over_from_then_on(card: Card) -> None:
    process = Process("restore")
    backend, x = backend_with(process), tensor_on(card)
    backend.suspend(settled=True)
    assert isinstance(backend.resume((OTHER,)), Kept)
    assert backend.bound_to_others((OTHER,)) != ""
    process.fails.clear()
    assert isinstance(backend.resume((GPU,)), Moved)
    assert x.sum().item() == 10


def test_captures_know_what_is_with_the_driver_by_its_digest_and_read_no_byte(card: Card) -> None:
    backend, small, x = backend_with(Process()), tensor_on(card), torch.ones(100_000)
    storage = x.untyped_storage()
    card.take(storage)
    before = DeviceBuffer(torch, storage).digest()
    backend.suspend(settled=True)
    assert DeviceBuffer(torch, small.untyped_storage()).host() == bytes(small.numpy()), "in the record itself"
    assert in_place.is_off(storage)
    assert in_place.anything_parked()
    assert DeviceBuffer(torch, storage).digest() == before
    with pytest.raises(StateSuspended):
        DeviceBuffer(torch, storage).host()
    backend.resume((GPU,))
    assert not in_place.is_off(storage)
    assert DeviceBuffer(torch, storage).host()[:4] == bytes(x.numpy())[:4]


def test_before_all_is_captured_torchs_way_is_taken_which_leaves_bytes_to_be_read(card: Card) -> None:
    process = Process()
    backend, x = backend_with(process), tensor_on(card)
    assert isinstance(backend.suspend(settled=False), Moved)
    assert process.calls == []
    backend.resume((GPU,))
    assert x.sum().item() == 10


def test_a_process_that_the_driver_lets_go_on_no_more_is_left_alone_and_replaced(card: Card) -> None:
    """Each call of CUDA would wait for ever: torch's way must not be tried, and no GPU helps this process."""
    process = Process("checkpoint", "unlock")
    backend, x = backend_with(process), tensor_on(card)
    card.synchronize = lambda index: pytest.fail("a call of CUDA")  # type: ignore[method-assign]
    for _ in range(2):
        kept = backend.suspend(settled=True)
        assert isinstance(kept, Kept)
        assert "CUDA_ERROR of unlock" in kept.why
    assert (backend.suspended, backend.locked) == (True, True)
    assert "CUDA_ERROR of unlock" in backend.bound_to_others((GPU,)), "another process takes over"
    assert isinstance(backend.resume((GPU,)), Kept)
    assert process.calls == ["lock", "checkpoint", "unlock"]
    assert DeviceBuffer(torch, x.untyped_storage()).digest(), "captures go on without the device"


@pytest.mark.parametrize("fails", [("unlock",), ("restore", "for good")])
def test_a_restore_that_nothing_can_mend_has_another_process_take_over(
    card: Card, fails: tuple[str, ...]
) -> None:
    backend, _x = backend_with(process := Process(*fails)), tensor_on(card)
    backend.suspend(settled=True)
    assert backend.bound_to_others((GPU,)) == ""
    kept = backend.resume((GPU,))
    assert isinstance(kept, Kept)
    assert backend.locked
    assert fails[0] in backend.bound_to_others((GPU,))
    process.fails.clear()
    assert backend.resume((GPU,)) == kept


def test_a_storage_on_the_host_is_read_though_it_has_the_place_of_one_that_the_driver_had(
    card: Card,
) -> None:
    backend, x = backend_with(Process()), tensor_on(card)
    backend.suspend(settled=True)
    place = x.untyped_storage()._cdata
    before = DeviceBuffer(torch, x.untyped_storage()).digest()
    del x
    for _ in range(100):
        later = torch.full((10,), 7.0)
        if later.untyped_storage()._cdata == place:
            break
    assert not in_place.is_off(later.untyped_storage())
    assert DeviceBuffer(torch, later.untyped_storage()).digest() != before


def test_a_storage_without_bytes_is_not_asked_of_the_driver(card: Card) -> None:
    empty = torch.empty(0)
    card.holds = lambda storage: True  # type: ignore[method-assign]
    in_place.lock({}, {}, card.holds)
    buffer = DeviceBuffer(torch, empty.untyped_storage())
    assert not in_place.is_off(empty.untyped_storage())
    assert len(buffer.digest()) > 0
    assert bytes(buffer.host()) == b""


def test_a_gpu_too_full_to_be_looked_at_is_left_by_torchs_way(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process()
    backend, x = backend_with(process), tensor_on(card)

    def full(self: DeviceBuffer) -> bytes:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(DeviceBuffer, "digest", full)
    assert isinstance(backend.suspend(settled=True), Moved)
    assert process.calls == []
    assert x.untyped_storage().nbytes() == 0


def test_generators_of_the_gpus_are_not_asked_while_the_driver_has_them_and_keep_what_is_set(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Generator:
        """Stands in for a CUDA generator, which asks CUDA before it answers."""

        state = torch.tensor([1, 2], dtype=torch.uint8)

        def get_state(self) -> Any:
            assert process.state == "running", "a call of CUDA"
            return self.state

        def set_state(self, state: Any) -> None:
            assert process.state == "running", "a call of CUDA"
            self.state = state

    process = Process()
    backend, _x = backend_with(process), tensor_on(card)
    monkeypatch.setattr(torch.cuda, "_initialized", True)
    monkeypatch.setattr(torch.cuda, "default_generators", (Generator(),))
    backend.suspend(settled=True)
    assert torch_state.cuda_random() == (b"\1\2",)
    torch_state.set_cuda_random((b"\3\4",))
    assert torch_state.cuda_random() == (b"\3\4",)
    backend.resume((GPU,))
    assert torch_state.cuda_random() == (b"\3\4",)
    assert torch.cuda.default_generators[0].state.tolist() == [3, 4]


class TestCudaBackendWhoseDriverFails(GpuBackendContract):
    """Each suspension tries the driver first, which fails half-way: the contract holds by torch's way."""

    @pytest.fixture
    def backend(self, card: Card) -> Backend:
        self.card = card
        made = backend_with(Process("checkpoint"))
        by_torch = made.suspend
        made.suspend = lambda busy="", settled=True: by_torch(busy, settled=settled)  # type: ignore[method-assign]
        return made

    def put(self, value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            for tensor in [*value.parameters(), *value.buffers()]:
                self.card.take(tensor.untyped_storage())
            return value
        made = value.detach().clone()
        self.card.take(made.untyped_storage())
        return made


def with_child(child: Process, process: Process, monkeypatch: pytest.MonkeyPatch) -> DriverCheckpoint:
    monkeypatch.setattr(driver, "free_bytes", lambda: None)
    monkeypatch.setattr(driver.family, "lives", lambda relative: True)
    found = {7: child, os.getpid(): process}
    return DriverCheckpoint(found.__getitem__, lambda: MACHINE, lambda: (Relative(7, 1, "engine"),))


@pytest.mark.parametrize("fails", ["lock", "checkpoint"])
def test_a_child_goes_on_where_the_notebooks_process_cannot_be_suspended(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, process = Process(), Process(fails)
    mine = with_child(child, process, monkeypatch)
    why = mine.off(100, (GPU,))
    assert why.endswith(f"this process (CUDA_ERROR of {fails})")
    assert (child.state, process.state, mine.is_off, mine.stuck) == ("running", "running", False, "")


def test_a_child_that_cannot_be_restored_is_tried_again_and_the_notebooks_process_is_not_restored_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child, process = Process("restore"), Process()
    mine = with_child(child, process, monkeypatch)
    assert mine.off(100, (GPU,)) == ""
    assert "process 7 (engine), which this notebook has started," in mine.back({})
    assert mine.is_off and not mine.stuck
    child.fails.clear()
    assert mine.back({}) == ""
    assert (child.state, process.state, mine.is_off) == ("running", "running", False)
    assert process.calls == ["lock", "checkpoint", "restore", "unlock"]


def test_a_failed_suspend_that_cannot_be_undone_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    child, process = Process("restore"), Process("checkpoint")
    mine = with_child(child, process, monkeypatch)
    assert "; the driver could not bring process 7 (engine)" in mine.off(100, (GPU,))
    assert mine.is_off and mine.stuck
