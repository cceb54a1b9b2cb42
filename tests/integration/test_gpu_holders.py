"""Who holds a GPU, by the system's account: real clients of CUDA and NVML over stub drivers."""

from __future__ import annotations

import pytest

from tests.support.stub_drivers import GPU, OTHER, Stubs

STEPS = ("lock", "checkpoint", "restore", "unlock")
OCCUPANCY = f"""
import sys
from replkernel.gpu.backend import Kept, Moved
from replkernel.gpu.occupancy import Occupancy
GPU, OTHER = "{GPU}", "{OTHER}"
settled = [True]
mine = Occupancy(lambda thread: True, lambda: None, settled=lambda: settled[0])
"""
SUSPEND = """
outcome = mine.suspend()
print(type(outcome).__name__, getattr(outcome, "why", None) or outcome.bytes)
print(mine.suspended)
"""


def steps(stubs: Stubs) -> list[str]:
    return [line.split()[0] for line in stubs.calls(*STEPS)]


def test_a_process_with_cuda_and_no_torch_is_suspended_by_the_driver_and_comes_back(stubs: Stubs) -> None:
    said = stubs.run(
        OCCUPANCY
        + "start(); take(1_000_000)\nprint(mine.untouched, mine.bytes_held())"
        + SUSPEND
        + """
print(mine.bytes_held(), mine.bytes_off(), mine.unreadable)
moved = mine.lend((GPU,))
print(type(moved).__name__, moved.bytes, mine.suspended, mine.bytes_held())
print("torch" in sys.modules)
"""
    )
    size = "1000000"
    assert said == [
        f"False {size}",
        f"Moved {size}",
        "True",
        f"0 {size} True",
        f"Moved {size} False {size}",
        "False",
    ]
    assert steps(stubs) == list(STEPS)
    assert stubs.calls("cuInit") == ["cuInit"], "only the notebook has started CUDA"


@pytest.mark.parametrize(
    ("function", "code", "told"),
    [
        ("cuCheckpointProcessLock", 801, "not supported by the installed NVIDIA driver"),
        ("cuCheckpointProcessLock", 600, "NOT_READY"),
        ("cuCheckpointProcessCheckpoint", 2, "OUT_OF_MEMORY"),
    ],
)
def test_where_the_driver_cannot_the_gpu_is_kept_and_the_user_told(
    stubs: Stubs, function: str, code: int, told: str
) -> None:
    stubs.script(f"fail {function} {code}")
    said = stubs.run(OCCUPANCY + "sys.modules['jax'] = sys\nstart(); take(1000)" + SUSPEND)
    assert said[0].startswith("Kept jax uses CUDA here, which only the driver could take off the GPU: ")
    assert told in said[0]
    assert said[1] == "False", "the notebook goes on"
    assert stubs.calls("blocked") == []


def test_nothing_is_taken_off_before_all_is_captured_for_nobody_could_read_it(stubs: Stubs) -> None:
    said = stubs.run(OCCUPANCY + "settled[0] = False\nstart(); take(1000)" + SUSPEND)
    assert said[0].startswith("Kept ") and "captured" in said[0]
    assert steps(stubs) == []


def test_nvml_that_hides_processes_or_may_not_tell_does_not_make_a_gpu_free(stubs: Stubs) -> None:
    for line in ("hidden", "fail nvmlDeviceGetComputeRunningProcesses 4"):
        stubs.script(line, "fail cuCheckpointProcessLock 801")
        said = stubs.run(OCCUPANCY + "start(); take(1000)" + SUSPEND)
        assert said[0].startswith("Kept a library other than torch uses CUDA here")


def test_a_notebook_that_only_asks_nvml_holds_nothing(stubs: Stubs) -> None:
    said = stubs.run(
        OCCUPANCY
        + "import pynvml; pynvml.nvmlInit(); pynvml.nvmlDeviceGetCount()\nprint(mine.untouched)"
        + SUSPEND
    )
    assert said == ["True", "Moved 0", "False"]
    assert steps(stubs) == []


def test_an_imported_library_that_has_not_started_cuda_holds_nothing(stubs: Stubs) -> None:
    said = stubs.run(OCCUPANCY + "sys.modules['jax'] = sys\nprint(mine.untouched)" + SUSPEND)
    assert said == ["True", "Moved 0", "False"]
    assert stubs.calls("cuInit") == []


def test_a_process_comes_back_to_another_gpu_of_its_model_by_a_mapping_of_all_gpus(stubs: Stubs) -> None:
    said = stubs.run(
        OCCUPANCY
        + "start(); take(1000)"
        + SUSPEND
        + "print(mine.bound_to_others((OTHER,)) == '', type(mine.lend((OTHER,))).__name__, mine.gpus)"
    )
    assert said[-1] == f"True Moved ('{OTHER}',)"
    assert stubs.calls("restore")[0].endswith(" aa>bb bb>aa")


def test_a_process_that_the_driver_will_not_restore_is_for_another_one_to_replace(stubs: Stubs) -> None:
    stubs.script("fail cuCheckpointProcessRestore 2", "fail for-good 1")
    said = stubs.run(
        OCCUPANCY
        + "start(); take(1000)"
        + SUSPEND
        + "print(mine.lend((GPU,)).why)\nprint(mine.bound_to_others((GPU,)))\nprint(mine.suspended)"
    )
    assert "OUT_OF_MEMORY" in said[2]
    assert said[3] == said[2]
    assert said[4] == "True"


ROOM = """
import threading, time
from replkernel.gpu import driver
driver.ROOM_WAIT_S = {wait}
start(); take(1000)
mine.suspend()
script = pathlib.Path(os.environ["STUB_DRIVERS"], "script")
free = script.read_text()
full = free.replace("H100 80000000000\\n", "H100 80000000000\\nprocess 4100000 79999999500\\n", 1)
script.write_text(full)
"""


def test_a_gpu_that_is_too_full_for_what_comes_back_is_told_and_the_driver_not_asked(stubs: Stubs) -> None:
    said = stubs.run(
        OCCUPANCY
        + ROOM.format(wait=0)
        + """
for _ in range(5):
    print(mine.lend((GPU,)).why)
script.write_text(free)
print(type(mine.lend((GPU,))).__name__)
"""
    )
    assert said[:5] == [f"1000 bytes have to go back to {GPU}, which has 500 bytes free"] * 5
    assert said[5] == "Moved", "it was not the driver that failed"
    assert steps(stubs) == list(STEPS)


def test_a_gpu_that_its_last_holder_is_still_leaving_is_waited_for(stubs: Stubs) -> None:
    said = stubs.run(
        OCCUPANCY
        + ROOM.format(wait=60)
        + """
threading.Timer(1, script.write_text, [free]).start()
print(type(mine.lend((GPU,))).__name__)
"""
    )
    assert said == ["Moved"]


def test_a_process_that_the_driver_keeps_failing_to_restore_is_given_up_not_tried_for_ever(
    stubs: Stubs,
) -> None:
    stubs.script("fail cuCheckpointProcessRestore 999")
    said = stubs.run(
        OCCUPANCY
        + "start(); take(1000)\nmine.suspend()\n"
        + "for _ in range(5): print(mine.bound_to_others((GPU,)) != '', mine.lend((GPU,)).why)\n"
        + "print(mine.stuck)"
    )
    assert [line.split()[0] for line in said] == ["False", "False", "False", "True", "True", "True"]
    assert steps(stubs) == ["lock", "checkpoint", "restore", "restore", "restore"]


def test_a_call_that_the_driver_lacks_is_named_and_alone_done_without(stubs: Stubs) -> None:
    cannot = "fail {} 801 1"
    stubs.script(cannot.format("cuCheckpointProcessRestore"))
    said = stubs.run(
        OCCUPANCY
        + "start(); take(1000)\nmine.suspend()\n"
        + "print(mine.lend((OTHER,)).why)\n"
        + "print(mine.bound_to_others((OTHER,)) != '', type(mine.lend((GPU,))).__name__)\n"
        + "print(type(mine.suspend()).__name__, type(mine.lend((GPU,))).__name__)"
    )
    assert said[0].startswith("the driver cannot bring this process back on other GPUs (")
    assert said[1:] == ["True Moved", "Moved Moved"], "it goes on where it was, by the driver"
    stubs.script(cannot.format("cuCheckpointProcessCheckpoint"))
    said = stubs.run(OCCUPANCY + "start(); take(1000)" + SUSPEND + SUSPEND)
    assert "could not copy the GPU memory of this process" in said[0]
    assert said[2:] == ["Moved 1000", "True"], "what was in the way may be gone"
    stubs.script(cannot.format("cuCheckpointProcessLock"))
    said = stubs.run(OCCUPANCY + "start(); take(1000)" + SUSPEND + SUSPEND)
    assert said[0] == said[2], "a driver that suspends no process is asked once"


def test_a_library_that_is_missing_is_named_with_the_extra_that_suits_the_driver(stubs: Stubs) -> None:
    hide = "import sys\nsys.modules['cuda.core.checkpoint'] = None\n"
    for version, extra in (("12080", "gpu-cu12"), ("13000", "gpu-cu13")):
        stubs.script(f"version {version}")
        said = stubs.run(OCCUPANCY + "start(); take(1000)\n" + hide + SUSPEND)
        assert f"`pip install 'replkernel[{extra}]'` brings what it needs" in said[0]
