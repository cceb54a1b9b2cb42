"""What is known of a process, and whether it holds a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from replkernel.gpu import seen
from replkernel.gpu.who_holds import Holds, Known, needs_nvml, verdict

CUDA = frozenset({"nvidiactl", "nvidia-uvm", "nvidia0"})
LOOKED = frozenset({"nvidiactl", "nvidia0"})
GPU = "GPU-a"


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (Known(), None),
        (Known(libraries=("jax",)), None),
        (Known(by_nvml={GPU: 5}), None),
        (Known(CUDA, libraries=("jax",)), Holds("jax")),
        (Known(CUDA, {GPU: 5}), Holds("a library other than torch", 5)),
        (Known(CUDA, {}), Holds("a library other than torch")),
        (Known(LOOKED, {}), None),
        (Known(LOOKED, {GPU: 5}, ("cupy", "numba.cuda")), Holds("cupy, numba.cuda", 5)),
        (Known(LOOKED, None, ("jax",)), Holds("something that has /dev/nvidia0 open")),
        (Known(frozenset({"nvidiactl"})), None),
        (Known(None), None),
        (Known(None, {}, ("jax",)), Holds("jax")),
    ],
    ids=[
        "no device is open",
        "an imported library alone uses nothing",
        "a process of another container with the same number",
        "CUDA has started",
        "NVML tells how much",
        "NVML hides the processes of a container",
        "only NVML was asked",
        "NVML names the process",
        "nobody tells what a device is open for",
        "the control device is no GPU",
        "nothing is told, nothing imported",
        "nothing is told but that a library is there",
    ],
)
def test_a_process_holds_a_gpu_by_what_is_known_of_it(known: Known, expected: Holds | None) -> None:
    assert verdict(known) == expected


def test_nvml_is_asked_only_where_the_devices_do_not_say_it() -> None:
    assert needs_nvml(None)
    assert needs_nvml(LOOKED)
    assert not needs_nvml(CUDA)
    assert not needs_nvml(frozenset())
    assert not needs_nvml(frozenset({"nvidiactl"}))


def test_devices_are_read_from_the_files_that_a_process_has_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen, "DEVICES", tmp_path)
    for name in ("nvidiactl", "nvidia0", "other"):
        (tmp_path / name).touch()
    with (tmp_path / "nvidia0").open(), (tmp_path / "other").open():
        assert seen.devices_open() == {"nvidia0"}
        assert seen.devices_open(os.getpid()) == {"nvidia0"}
    assert seen.devices_open() == frozenset()


def test_a_process_that_may_not_be_looked_at_is_not_said_to_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen, "DEVICES", tmp_path)
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(seen, "PROC", tmp_path / "proc")
    assert seen.devices_open() is None


def test_a_machine_without_a_driver_has_no_devices_and_is_not_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seen, "DEVICES", tmp_path)
    monkeypatch.setattr(seen, "PROC", tmp_path / "proc")
    assert seen.devices_open() == frozenset()
