"""What is read of a host's GPUs, with a stand-in for the driver: whole ones, split ones, lost ones."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from replkernel.agent.io.gpus import (
    LOST,
    NO_LIBRARY,
    READS_SKIPPED,
    FakeGpus,
    GpusUnread,
    NvmlGpus,
    Reading,
    chosen,
    gpu_reader,
)
from replkernel.protocol.status import GpuStatus

GIB = 2**30


class Driver:
    """As much of pynvml as is called; a device is its UUID, or a list of its instances' UUIDs."""

    def __init__(self, *devices: str | list[str]) -> None:
        self.devices = devices
        self.lost: set[str] = set()
        self.errors: dict[str, Exception] = {}
        self.tells_utilisation = True
        self.works = True
        self.starts = 0

    def module(self) -> ModuleType:
        module: Any = ModuleType("pynvml")
        for name in dir(self):
            if name.startswith("nvml"):
                setattr(module, name, getattr(self, name))
        return module  # type: ignore[no-any-return]

    def nvmlInit(self) -> None:
        self.starts += 1
        if not self.works:
            raise RuntimeError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> Any:
        device = self.devices[number]
        if isinstance(device, str) and device in self.lost:
            raise RuntimeError("GPU is lost")
        if isinstance(device, str) and device in self.errors:
            raise self.errors[device]
        return device

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        if isinstance(handle, str):
            raise RuntimeError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: list[str], number: int) -> str:
        return handle[number]

    def nvmlDeviceGetName(self, handle: Any) -> bytes:
        return b"NVIDIA H100"

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return handle if isinstance(handle, str) else "GPU-split"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(total=80 * GIB, used=3 * GIB)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        if not self.tells_utilisation:
            raise RuntimeError("Not Supported")
        return SimpleNamespace(gpu=40)


def use(driver: Driver, monkeypatch: pytest.MonkeyPatch, **env: str) -> NvmlGpus:
    monkeypatch.setitem(sys.modules, "pynvml", driver.module())
    return NvmlGpus(env)


def uuids(gpus: tuple[GpuStatus, ...]) -> list[str]:
    return [gpu.uuid for gpu in gpus]


def test_gpus_are_read_with_what_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver("GPU-a", "GPU-b")
    reader = use(driver, monkeypatch)
    assert reader.read().gpus[0] == GpuStatus("GPU-a", "NVIDIA H100", 80 * GIB, False, 0.4, 3 * GIB)
    driver.tells_utilisation = False
    assert reader.read().gpus[1].utilisation is None
    assert driver.starts == 1


def test_what_the_driver_keeps_for_itself_is_nobodys_to_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver("GPU-a")
    reader = use(driver, monkeypatch)
    module = sys.modules["pynvml"]

    def memory_info(handle: str, version: int = 1) -> Any:
        reserved = {"reserved": GIB // 2} if version == 2 else {}
        return SimpleNamespace(total=80 * GIB, used=3 * GIB, **reserved)

    monkeypatch.setattr(module, "nvmlDeviceGetMemoryInfo", memory_info)
    monkeypatch.setattr(module, "nvmlMemory_v2", 2, raising=False)
    assert [(gpu.memory_bytes, gpu.memory_used_bytes) for gpu in reader.read().gpus] == [
        (79.5 * GIB, 3 * GIB)
    ]


def test_a_lost_gpu_is_left_out_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver("GPU-a", "GPU-b", "GPU-c")
    reader = use(driver, monkeypatch)
    driver.lost = {"GPU-b"}
    assert uuids(reader.read().gpus) == ["GPU-a", "GPU-c"]
    driver.lost.clear()
    assert uuids(reader.read().gpus) == ["GPU-a", "GPU-b", "GPU-c"]


def test_a_split_gpu_is_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = use(Driver(["MIG-1", "MIG-2"], "GPU-b"), monkeypatch)
    found = reader.read().gpus
    assert uuids(found) == ["MIG-1", "MIG-2", "GPU-b"]
    assert found[0].utilisation is None


def looks(reader: NvmlGpus, times: int) -> list[list[str] | None]:
    """Return what is read again and again; None: nobody knows."""
    found: list[list[str] | None] = []
    for _ in range(times):
        try:
            found.append(uuids(reader.read().gpus))
        except GpusUnread:
            found.append(None)
    return found


def test_a_driver_that_does_not_work_is_no_machine_without_gpus_and_is_asked_again_less_and_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver("GPU-a")
    driver.works = False
    reader = use(driver, monkeypatch)
    assert looks(reader, 2 * READS_SKIPPED) == [None] * 2 * READS_SKIPPED
    assert driver.starts == 6
    driver.works = True
    assert looks(reader, READS_SKIPPED + 1)[-1] == ["GPU-a"]
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlDeviceGetCount", lambda: 1 // 0)
    assert looks(reader, 1) == [None], "also while it works no more"
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlDeviceGetCount", driver.nvmlDeviceGetCount)
    assert looks(reader, 2) == [None, ["GPU-a"]], "and after a while it is asked soon again"


class NvmlError(Exception):
    """As pynvml's, with the number that tells which."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML's error {value}")
        self.value = value


def test_a_machine_without_the_driver_has_no_gpus_for_sure_and_is_rarely_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver("GPU-a")
    reader, asked = use(driver, monkeypatch), list[int]()

    def init() -> None:
        asked.append(1)
        raise NvmlError(NO_LIBRARY)

    monkeypatch.setattr(sys.modules["pynvml"], "nvmlInit", init)
    assert looks(reader, READS_SKIPPED) == [[]] * READS_SKIPPED and asked == [1]


@pytest.mark.parametrize(("error", "gone"), [(NvmlError(LOST), True), (NvmlError(9), False)])
def test_a_gpu_is_gone_if_its_bus_has_lost_it_and_not_if_it_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, error: Exception, gone: bool
) -> None:
    driver = Driver("GPU-a", "GPU-b")
    reader = use(driver, monkeypatch)
    driver.errors["GPU-b"] = error
    gpus, whole = reader.read()
    assert (uuids(gpus), whole) == (["GPU-a"], gone)


def test_numbers_stand_for_the_same_gpus_while_one_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver("GPU-a", "GPU-b", "GPU-c")
    reader = use(driver, monkeypatch, CUDA_VISIBLE_DEVICES="1")
    driver.errors["GPU-a"] = NvmlError(9)
    assert looks(reader, 1) == [None], "nobody knows yet which is the second one"
    driver.errors.clear()
    assert looks(reader, 1) == [["GPU-b"]]
    for error in (NvmlError(9), NvmlError(LOST)):
        driver.errors["GPU-a"] = error
        assert looks(reader, 1) == [["GPU-b"]]


@pytest.mark.parametrize("error", [NvmlError(9), NvmlError(LOST)])
@pytest.mark.parametrize("begins", [True, False])
def test_one_of_those_named_by_uuid_does_not_take_the_others_with_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception, begins: bool
) -> None:
    driver = Driver("GPU-a", "GPU-b", "GPU-c")
    reader = use(driver, monkeypatch, CUDA_VISIBLE_DEVICES="GPU-a,GPU-c")
    if not begins:
        assert looks(reader, 1) == [["GPU-a", "GPU-c"]]
    driver.errors["GPU-a"] = error
    assert looks(reader, 1) == [["GPU-c"]]


def test_a_split_gpu_whose_mode_cannot_be_read_for_a_moment_is_not_whole_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(["MIG-1", "MIG-2"], "GPU-b")
    reader = use(driver, monkeypatch)
    assert looks(reader, 1) == [["MIG-1", "MIG-2", "GPU-b"]]

    def fails(handle: object) -> list[int]:
        raise NvmlError(999)

    monkeypatch.setattr(sys.modules["pynvml"], "nvmlDeviceGetMigMode", fails)
    gpus, whole = reader.read()
    assert (uuids(gpus), whole) == (["GPU-b"], False)


def test_without_the_library_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert NvmlGpus({}).read() == Reading(())


@pytest.mark.parametrize(
    ("visible", "left"),
    [
        (None, ["GPU-a1", "GPU-b2", "GPU-c3"]),
        ("", []),
        ("-1", []),
        ("2,0", ["GPU-c3", "GPU-a1"]),
        ("GPU-b", ["GPU-b2"]),
        ("0,7,1", ["GPU-a1"]),
        ("1,1", ["GPU-b2"]),
        ("9" * 30, []),
    ],
)
def test_an_environment_that_shows_some_gpus_only_is_minded(visible: str | None, left: list[str]) -> None:
    gpus = [GpuStatus(uuid) for uuid in ("GPU-a1", "GPU-b2", "GPU-c3")]
    assert [gpu.uuid for gpu in chosen(gpus, visible)] == left


def test_a_gpu_hidden_from_the_agent_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = use(Driver("GPU-a", "GPU-b"), monkeypatch, CUDA_VISIBLE_DEVICES="1")
    assert uuids(reader.read().gpus) == ["GPU-b"]


def test_pretended_gpus_take_the_place_of_real_ones() -> None:
    reader = gpu_reader("h2", 2, {})
    assert isinstance(reader, FakeGpus)
    assert uuids(reader.read().gpus) == ["GPU-fake-h2-0", "GPU-fake-h2-1"]
    assert all(gpu.fake and gpu.memory_bytes == 16 * GIB for gpu in reader.read().gpus)
    assert len(FakeGpus("h", 1000).read().gpus) == 64


def test_who_computes_on_a_gpu_is_read_with_it_where_the_driver_tells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver("GPU-a", "GPU-b")
    module: Any = driver.module()
    running = {
        "GPU-a": [SimpleNamespace(pid=7, usedGpuMemory=GIB), SimpleNamespace(pid=8, usedGpuMemory=None)]
    }
    module.nvmlDeviceGetComputeRunningProcesses = running.__getitem__
    monkeypatch.setitem(sys.modules, "pynvml", module)
    first, second = NvmlGpus({}).read().gpus
    assert [(each.pid, each.memory_bytes) for each in first.processes] == [(7, GIB), (8, 0)]
    assert second.processes == (), "and one that does not is a GPU all the same"
