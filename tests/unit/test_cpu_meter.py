"""What a process and all that it starts use of the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cpu_meter import Meter

GROUP = "replkernel-tests-7"


@pytest.mark.parametrize(
    ("above", "file", "said"),
    [
        ("cpuacct", "cpuacct.usage", "2500000000\n"),
        (".", "cpu.stat", "usage_usec 2500000\nuser_usec 2000000\n"),
    ],
)
def test_a_process_is_put_into_a_control_group_whose_usage_is_read(
    tmp_path: Path, above: str, file: str, said: str
) -> None:
    place = tmp_path / above / GROUP
    place.mkdir(parents=True)
    (place.parent / "cgroup.procs").touch()
    (place / file).write_text(said)
    meter = Meter(tmp_path, 7)
    assert meter.read() == 2.5
    assert (place / "cgroup.procs").read_text() == "7"
    meter.close()
    assert (place.parent / "cgroup.procs").read_text() == "7"


def test_without_control_groups_it_is_that_of_the_process_and_its_children(tmp_path: Path) -> None:
    assert 0 < Meter(tmp_path, 7).read() < 1e6
    (tmp_path / GROUP).mkdir()
    (tmp_path / "cgroup.procs").touch()
    (tmp_path / GROUP / "cpu.stat").write_text("other 1\n")
    assert 0 < Meter(tmp_path, 7).read() < 1e6
