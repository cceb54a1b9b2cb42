"""GPUs held by processes that the notebook has started: real clients of CUDA and NVML over stub drivers."""

from __future__ import annotations

import pytest

from tests.integration.test_gpu_holders import OCCUPANCY, STEPS, SUSPEND
from tests.support.stub_drivers import CLIENT, Stubs

CHILD = (
    CLIENT
    + """
import os, sys
{before}
start(); take({count}); print(os.getpid(), flush=True)
for line in sys.stdin:
    told(cu.cuCtxSynchronize()); print("goes on", flush=True)
"""
)
PARENT = """
import os, signal, subprocess
def begin(source, **more):
    made = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more
    )
    return made, int(made.stdout.readline())
def name(line):
    step, pid = line.split()[:2]
    return step, "here" if int(pid) == os.getpid() else "child"
def goes_on(child):
    child.stdin.write("go\\n"); child.stdin.flush()
    return child.stdout.readline().strip()
"""
END = "child.stdin.close(); child.stdout.close(); child.wait()\n"


def child(count: int = 5000, before: str = "") -> str:
    return PARENT + f"child, pid = begin({CHILD.format(count=count, before=before)!r})\n"


def told(stubs: Stubs) -> list[tuple[str, str]]:
    return [tuple(line.split()[:2]) for line in stubs.calls(*STEPS)]  # type: ignore[misc]


def test_an_engine_that_a_cell_has_started_is_suspended_and_goes_on(stubs: Stubs) -> None:
    said = stubs.run(
        OCCUPANCY
        + child()
        + "print(mine.untouched, mine.bytes_held(), mine.has_nothing())"
        + SUSPEND
        + "print(mine.bytes_held(), mine.bytes_off())\n"
        + "moved = mine.lend((GPU,))\nprint(type(moved).__name__, moved.bytes)\nprint(goes_on(child), pid)\n"
        + END
        + "print(mine.has_nothing())"
    )
    pid = said[5].split()[-1]
    assert said[:6] == ["False 5000 False", "Moved 5000", "True", "0 5000", "Moved 5000", f"goes on {pid}"]
    assert told(stubs) == [(step, pid) for step in STEPS], "this process has not started CUDA"


def test_all_are_locked_before_one_is_copied_and_the_notebooks_process_comes_back_first(
    stubs: Stubs,
) -> None:
    said = stubs.run(
        OCCUPANCY
        + "start(); take(1000)\n"
        + child()
        + SUSPEND
        + "mine.lend((GPU,)); told(cu.cuCtxSynchronize()); print(goes_on(child), os.getpid(), pid)\n"
        + END
    )
    assert said[0] == "Moved 6000"
    assert said[2].startswith("goes on ")
    here, there = said[2].split()[2:]
    assert told(stubs) == [
        ("lock", there),
        ("lock", here),
        ("checkpoint", there),
        ("checkpoint", here),
        ("restore", here),
        ("restore", there),
        ("unlock", here),
        ("unlock", there),
    ]


def test_where_the_driver_cannot_suspend_it_the_gpu_is_kept_and_it_is_named(stubs: Stubs) -> None:
    stubs.script("fail cuCheckpointProcessLock 801")
    said = stubs.run(OCCUPANCY + child() + "print(pid)" + SUSPEND + "print(goes_on(child))\n" + END)
    pid = said[0]
    assert said[1].startswith(f"Kept process {pid} (python"), (
        "an engine of 5000 bytes would be given away with its GPU"
    )
    assert "), which this notebook has started, uses CUDA here" in said[1]
    assert said[2:] == ["False", "goes on"]


def test_nccl_in_a_rank_is_named_before_the_driver_is_asked(stubs: Stubs) -> None:
    before = "open('/proc/self/comm', 'w').write('NCCL Service 1')"
    said = stubs.run(OCCUPANCY + child(before=before) + SUSPEND + END)
    assert "is in the way: NCCL is at work in the process" in said[0]
    assert told(stubs) == []


def test_a_worker_that_was_forked_holds_nothing_by_what_it_has_open(stubs: Stubs) -> None:
    said = stubs.run(
        OCCUPANCY
        + "import os, signal\nstart(); take(1000)\nworker = os.fork()\nif not worker: signal.pause()\n"
        + SUSPEND
        + "os.kill(worker, 9); os.waitpid(worker, 0); print(os.getpid())"
    )
    assert said[:2] == ["Moved 1000", "True"]
    assert told(stubs) == [("lock", said[2]), ("checkpoint", said[2])]


def test_one_that_ended_while_it_was_off_is_let_go(stubs: Stubs) -> None:
    said = stubs.run(
        OCCUPANCY
        + "start(); take(1000)\n"
        + child()
        + SUSPEND
        + "child.kill(); child.communicate()\n"
        + "print(type(mine.lend((GPU,))).__name__, mine.suspended)\ntold(cu.cuCtxSynchronize())"
    )
    assert said == ["Moved 6000", "True", "Moved False"]


@pytest.mark.parametrize("leads", [True, False])
def test_one_whose_parent_has_ended_is_found_by_our_session(stubs: Stubs, leads: bool) -> None:
    source = CHILD.format(count=5000, before="")
    said = stubs.run(
        OCCUPANCY
        + PARENT
        + ("os.setsid()\n" if leads else "")
        + "read, write = os.pipe()\n"
        + f"shell = ['sh', '-c', '\"$0\" -c \"$1\" <&{{}} &'.format(read), sys.executable, {source!r}]\n"
        + "made = subprocess.Popen(shell, stdout=subprocess.PIPE, text=True, pass_fds=[read])\n"
        + "pid = int(made.stdout.readline()); made.wait()\n"
        + "print(mine.has_nothing())"
        + SUSPEND
        + "mine.lend((GPU,)); os.close(read); os.close(write); made.stdout.read(); made.stdout.close()"
    )
    assert said[0] == str(not leads)
    assert said[1] == ("Moved 5000" if leads else "Moved 0"), (
        "of a session that others share nothing is taken"
    )
