"""Two notebooks on one GPU that use CUDA without torch: NVIDIA's Python libraries over stub drivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_gpu_state import pid_of, two_notebooks
from tests.support.live import Live, eventually
from tests.support.stub_drivers import CLIENT, GB, GPU, PRELUDE, Stubs

pytestmark = [pytest.mark.timeout(300), pytest.mark.one_host]

TAKE = "%%gpu 1\n" + PRELUDE + CLIENT + "start(); take({bytes}); print(os.environ['CUDA_VISIBLE_DEVICES'])"
STEPS = ("lock", "checkpoint", "restore", "unlock")


@pytest.fixture
def notebooks(stubs: Stubs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Live, Live]]:
    stubs.script(machine=[f"gpu {GPU} H100 {80 * GB}"])
    for name in ("STUB_DRIVERS", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, stubs.env[name])
    with two_notebooks(tmp_path, gpus=0, preload={}) as made:
        yield made


def held(stubs: Stubs) -> dict[int, int]:
    """Return what lies on the GPU, by process."""
    files = [path for path in stubs.folder.glob("held.*") if path.suffix[1:].isdecimal()]
    return {int(path.suffix[1:]): int(path.read_text()) for path in files}


def test_two_notebooks_take_turns_and_the_driver_takes_the_first_ones_memory_off_and_back(
    stubs: Stubs, notebooks: tuple[Live, Live]
) -> None:
    one, two = notebooks
    first, second = pid_of(one), pid_of(two)
    assert one.value(TAKE.format(bytes=6000)) == GPU
    assert one.value("print('no lease')") == "no lease"
    assert held(stubs) == {first: 6000}, "it lingers while nobody asks"
    assert two.value(TAKE.format(bytes=7000)) == GPU
    assert held(stubs) == {second: 7000}, "the first one's memory was left there"
    assert one.run("n = 5").said["gpus"] == [GPU], "a look at any variable may be a call of CUDA"
    assert one.value("%%gpu 1\ntold(cu.cuCtxSynchronize()); print('goes on')") == "goes on"
    assert held(stubs) == {first: 6000}
    steps = [line.split()[:2] for line in stubs.calls(*STEPS)]
    assert steps[:2] == [["lock", str(first)], ["checkpoint", str(first)]]
    assert steps[2:4] == [["lock", str(second)], ["checkpoint", str(second)]]
    assert steps[4:] == [["restore", str(first)], ["unlock", str(first)]]


def test_a_gpu_that_the_driver_cannot_free_is_given_to_nobody_and_its_owner_told(
    stubs: Stubs, notebooks: tuple[Live, Live]
) -> None:
    stubs.script("fail cuCheckpointProcessLock 801", machine=[f"gpu {GPU} H100 {80 * GB}"])
    one, two = notebooks
    first = pid_of(one)
    one.value(TAKE.format(bytes=6000))
    message = two.client.execute("%%gpu 1\nprint('runs')")
    eventually(lambda: stubs.calls("lock"), "the attempt to suspend the first")
    told = eventually(lambda: next(iter([e] if (e := one.run("pass").err) else []), ""), "the sentence")
    assert "cannot leave them: a library other than torch uses CUDA here" in told
    assert held(stubs) == {first: 6000}
    one.manager.restart_kernel(now=True)
    reply = two.reply(message)
    assert reply["content"]["status"] == "ok", "it was given the GPU before, or never"
