"""`replkernel capacity`: how many hosts are told, and why not fewer."""

from __future__ import annotations

from pathlib import Path

import pytest
from replkernel_scheduler.sim.capacity import fewest, main


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return eight jobs that come at once, each for 4 GPUs and a minute."""
    path = tmp_path / "jobs.csv"
    path.write_text("job,arrival_s,duration_s,gpus\n" + "".join(f"{n},0,60,4\n" for n in range(8)))
    return path


@pytest.mark.parametrize("needed", [1, 2, 3, 7, 8, 9, 100])
def test_the_fewest_are_found_with_few_tries(needed: int) -> None:
    tries: list[int] = []

    def enough(hosts: int) -> bool:
        tries.append(hosts)
        return hosts >= needed

    assert fewest(enough, 100) == needed
    assert len(tries) == len(set(tries)) <= 14
    assert fewest(lambda hosts: False, 100) is None


def test_it_tells_the_fewest_hosts_and_what_one_fewer_would_mean(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(trace), "--wait-p95", "0s", "--policy", "srtf", "--gpus", "4", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert said.endswith("8 hosts are the fewest with which 95 of 100 wait 0 s or less.\n")
    assert "      7 hosts: 95 of 100 wait up to" in said
    assert main([str(trace), "--wait-p95", "2m", "--policy", "srtf", "--gpus", "4", "--quiet"]) == 0
    assert "4 hosts are the fewest" in capsys.readouterr().out


def test_where_no_number_is_enough_it_says_so(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [str(trace), "--policy", "srtf", "--hosts-max", "3", "--quiet"]
    assert main([*options, "--gpus", "4", "--wait-p95", "1s"]) == 1
    assert "3 hosts are not enough: allow more (--hosts-max), or a longer wait." in capsys.readouterr().out
    assert main([*options, "--gpus", "1", "--wait-p95", "1h"]) == 1
    assert "1 hosts: some are never served" in capsys.readouterr().out
    assert main([str(trace.parent / "none.csv"), "--wait-p95", "1s"]) == 1
    assert "none.csv is not there: check the path." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(trace), "--wait-p95", "soon"])
    assert "'soon' is no time, such as 500ms, 2s, 5m or 1h" in capsys.readouterr().err
