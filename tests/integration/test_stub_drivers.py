"""The stub drivers under the real clients: what the other tests with them take for granted."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.live import eventually
from tests.support.stub_drivers import CLIENT, GB, GPU, OTHER, Stubs

STEPS = ("lock", "checkpoint", "restore", "unlock")
PROCESS = """
import os
from cuda.core.checkpoint import Process
mine = Process(os.getpid())
def tried(call, **arguments):
    try:
        call(**arguments)
    except Exception as error:
        print(type(error).__name__, " ".join(str(error).split()))
    else:
        print("done")
"""
NVML = """
import os, pynvml
pynvml.nvmlInit()
count = pynvml.nvmlDeviceGetCount()
handles = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
def running(handle):
    return [(each.pid, each.usedGpuMemory) for each in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
"""


def bare(calls: list[str]) -> list[str]:
    return [line.split()[0] for line in calls]


def test_a_process_goes_through_all_states_and_only_in_their_order(stubs: Stubs) -> None:
    said = stubs.run(
        PROCESS
        + """
start(); take(1000); print(mine.state)
tried(mine.checkpoint)
for step in (mine.lock, mine.checkpoint, mine.restore, mine.unlock):
    step(); print(mine.state)
"""
    )
    assert said[0] == "running"
    assert "ILLEGAL_STATE" in said[1]
    assert said[2:] == ["locked", "checkpointed", "locked", "running"]
    assert bare(stubs.calls(*STEPS)) == ["checkpoint", *STEPS]
    assert stubs.calls("cuInit") == ["cuInit"]


def test_a_checkpointed_process_is_off_the_gpu_for_nvml_until_it_is_restored(stubs: Stubs) -> None:
    said = stubs.run(
        NVML
        + PROCESS
        + """
start(); take(1000); take(24)
print(running(handles[0]) == [(os.getpid(), 1024)], running(handles[1]))
mine.lock(); mine.checkpoint()
print(running(handles[0]))
mine.restore(); mine.unlock()
print(running(handles[0]) == [(os.getpid(), 1024)])
"""
    )
    assert said == ["True []", "[]", "True"]


def test_a_restore_is_told_where_each_gpu_goes(stubs: Stubs) -> None:
    stubs.run(
        PROCESS
        + f"""
start(); mine.lock(); mine.checkpoint()
mine.restore(gpu_mapping={{"{GPU[4:]}": "{OTHER[4:]}", "{OTHER[4:]}": "{GPU[4:]}"}})
mine.unlock()
"""
    )
    assert stubs.calls("restore")[0].endswith(" aa>bb bb>aa")


@pytest.mark.parametrize(
    ("code", "told"), [(2, "OUT_OF_MEMORY"), (801, "not supported by the installed NVIDIA driver")]
)
def test_a_call_fails_as_the_script_says(stubs: Stubs, code: int, told: str) -> None:
    stubs.script(f"fail cuCheckpointProcessCheckpoint {code} 1")
    said = stubs.run(
        PROCESS + "start(); mine.lock(); tried(mine.checkpoint); print(mine.state); tried(mine.checkpoint)"
    )
    assert told in said[0]
    assert said[1:] == ["locked", "done"], "it was to fail once"


def test_a_restore_that_fails_for_good_leaves_the_process_failed(stubs: Stubs) -> None:
    stubs.script("fail cuCheckpointProcessRestore 2", "fail for-good 1")
    said = stubs.run(
        PROCESS + "start(); mine.lock(); mine.checkpoint(); tried(mine.restore); print(mine.state)"
    )
    assert said[1] == "failed"


def test_a_driver_that_is_too_old_says_so(stubs: Stubs) -> None:
    stubs.script("version 12040")
    assert "not supported" in stubs.run(PROCESS + "start(); tried(mine.lock)")[0]


def test_a_call_of_another_thread_blocks_until_the_process_goes_on(stubs: Stubs) -> None:
    source = (
        CLIENT + PROCESS + "start(); mine.lock(); print('locked', flush=True); told(cu.cuCtxSynchronize())"
    )
    process = subprocess.Popen([sys.executable, "-c", source], env=stubs.env, stdout=subprocess.PIPE)
    try:
        eventually(lambda: stubs.calls("blocked"), "a call that blocks")
        assert stubs.calls("cuCtxSynchronize") == []
        (stubs.folder / f"state.{process.pid}").write_text("running")
        assert process.wait(60) == 0
        assert stubs.calls("cuCtxSynchronize") == ["cuCtxSynchronize"]
    finally:
        process.kill()
        process.communicate()


def test_cuda_and_nvml_may_count_devices_in_other_orders(stubs: Stubs) -> None:
    stubs.script("order 1 0")
    said = stubs.run(
        NVML
        + """
told(cu.cuInit(0))
print(told(cu.cuDeviceGetCount()))
print(*(bytes(told(cu.cuDeviceGetUuid(number)).bytes).hex()[:2] for number in (0, 1)))
print(*(pynvml.nvmlDeviceGetUUID(each)[4:6] for each in handles))
"""
    )
    assert said == ["2", "bb aa", "aa bb"]


def test_nvml_tells_of_foreign_processes_of_parts_and_of_memory_that_it_does_not_know(stubs: Stubs) -> None:
    machine = [
        f"gpu {GPU} H100 {80 * GB}",
        "mig MIG-1",
        "process 4100000 5",
        "mig MIG-2",
        "process 4100001 -1",
    ]
    stubs.script(machine=[*machine, f"gpu {OTHER} T4 {16 * GB}"])
    said = stubs.run(
        NVML
        + """
parts = [pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handles[0], number) for number in (0, 1)]
print(count, [pynvml.nvmlDeviceGetMigMode(each)[0] for each in handles])
print([pynvml.nvmlDeviceGetUUID(each) for each in parts], [running(each) for each in parts])
print(pynvml.nvmlDeviceGetName(handles[1]), pynvml.nvmlDeviceGetMemoryInfo(parts[0]).used)
"""
    )
    assert said == ["2 [1, 0]", "['MIG-1', 'MIG-2'] [[(4100000, 5)], [(4100001, None)]]", "T4 5"]


def test_nvml_may_hide_processes_or_tell_of_none_without_the_right(stubs: Stubs) -> None:
    stubs.script("hidden")
    assert stubs.run(NVML + "start(); take(1000); print(running(handles[0]))") == ["[]"]
    stubs.script("fail nvmlDeviceGetComputeRunningProcesses 4")
    said = stubs.run(
        NVML
        + """
try:
    running(handles[0])
except pynvml.NVMLError as error:
    print(error)
"""
    )
    assert said == ["Insufficient Permissions"]


def test_numbers_of_visible_devices_are_cudas_where_models_differ(stubs: Stubs) -> None:
    machine = [f"gpu {GPU} T4 {16 * GB}", f"gpu {OTHER} H100 {80 * GB}", "order 1 0"]
    stubs.script(machine=machine)
    source = """
from replkernel.agent.io.gpus import NvmlGpus
for more in ({}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}):
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0", **more}
    print(*(gpu.uuid for gpu in NvmlGpus(env).read().gpus))
print(*(gpu.uuid for gpu in NvmlGpus({**os.environ, "CUDA_VISIBLE_DEVICES": os.environ["GPU"]}).read().gpus))
"""
    assert stubs.run(source, client="", GPU=GPU) == [OTHER, GPU, GPU]
    stubs.script("fail cuInit 999", machine=machine)
    assert stubs.run(source, client="", GPU=GPU)[0] == GPU, "a driver that does not tell: by bus"
