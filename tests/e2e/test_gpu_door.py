"""Cells without a lease whose C code, threads and processes start CUDA: stub drivers, real clients."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_gpu_in_cell import hold_the_gpu, shown
from tests.e2e.test_gpu_state import pid_of, two_notebooks
from tests.e2e.test_gpu_without_torch import held
from tests.support.live import Live, eventually
from tests.support.stub_drivers import CLIENT, GB, GPU, PRELUDE, Stubs

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.one_host,
    pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler"),
]

CHILD = CLIENT + "import os\nstart(); take(5000); print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)\n"
RUN = (
    "import subprocess, sys\n"
    "print(subprocess.run([sys.executable, '-c', {0!r}], capture_output=True, text=True))"
)
PRINTS = "import subprocess, sys\nprint(subprocess.check_output([sys.executable, '-c', {0!r}], text=True))"


@pytest.fixture
def notebooks(stubs: Stubs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Live, Live]]:
    stubs.script(machine=[f"gpu {GPU} H100 {80 * GB}"])
    for name in ("STUB_DRIVERS", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, stubs.env[name])
    monkeypatch.setenv("REPLKERNEL_CUDA_DOOR", "on")
    with two_notebooks(tmp_path, gpus=0, preload={}, REPLKERNEL_UNLEASED_GPUS="none") as made:
        yield made


def test_c_code_a_thread_and_a_process_of_a_cell_without_a_lease_wait_for_one_and_go_on(
    stubs: Stubs, notebooks: tuple[Live, Live], tmp_path: Path
) -> None:
    one, two = notebooks
    one.value(PRELUDE + CLIENT + "print(os.environ['CUDA_VISIBLE_DEVICES'])")
    assert stubs.calls("cuInit") == []
    # A process, while another notebook has the only GPU.
    holds = hold_the_gpu(two, tmp_path / "b")
    message = str(one.client.execute(PRINTS.format(CHILD)))
    shown(one, message, "number 1 in the queue")
    assert stubs.calls("cuInit") == [], "CUDA is not started by who waits"
    (tmp_path / "b" / "goes").touch()
    assert two.reply(holds)["content"]["status"] == "ok"
    reply = one.reply(message)
    assert (reply["content"]["status"], reply["metadata"]["replkernel"]["gpus"]) == ("ok", [GPU])
    assert len(stubs.calls("cuInit")) == 1
    # A thread of the notebook's own, which a cell waits for.
    ran = one.run("import threading\nt = threading.Thread(target=start); t.start(); t.join()")
    assert (ran.error, ran.said["gpus"]) == ("", [GPU])
    assert len(stubs.calls("cuInit")) == 2
    # C code on the main thread; what it has started lingers.
    ran = one.run("start(); take(6000); print(os.environ['CUDA_VISIBLE_DEVICES'])")
    assert (ran.error, ran.out.strip(), ran.said["gpus"]) == ("", GPU, [GPU])
    assert held(stubs)[pid_of(one)] == 6000


@pytest.mark.slow
def test_a_process_that_outlives_its_cell_is_named_and_has_a_gpu_with_the_next_cell_that_does(
    stubs: Stubs, notebooks: tuple[Live, Live]
) -> None:
    one, _ = notebooks
    later = "import time\ntime.sleep(1.5)\n" + CHILD
    one.value(
        "import subprocess, sys\n"
        f"p = subprocess.Popen([sys.executable, '-c', {later!r}], stdout=subprocess.PIPE, text=True)\n"
        "print(1)"
    )
    told = eventually(
        lambda: next(iter([e] if "waits for a GPU" in (e := one.run("pass").err) else []), ""), "it"
    )
    assert "which this notebook has started" in told and "`%%gpu`" in told
    assert stubs.calls("cuInit") == []
    assert one.value("%%gpu 1\nprint(p.stdout.readline())").strip() == GPU
    assert one.value("print(p.wait()); p.stdout.close()") == "0"


def test_who_asked_for_no_gpu_is_not_held_up_and_a_refusal_names_its_reason(
    stubs: Stubs, notebooks: tuple[Live, Live]
) -> None:
    one, _ = notebooks
    cpu = CHILD.replace("start(); take(5000); ", "cu.cuInit(0); ")
    ran = one.run(f"import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\n{PRINTS.format(cpu)}")
    assert (ran.error, ran.said["gpus"]) == ("", [])
    ran = one.run("%%gpu 0\n" + RUN.format(CHILD))
    assert "NO_DEVICE" in ran.out and "This cell uses a GPU and has no lease" in ran.out
