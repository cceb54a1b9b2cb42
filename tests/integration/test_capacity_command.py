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
    tries.clear()
    assert fewest(enough, 100, first=20) == needed
    assert len(tries) == len(set(tries)) <= 14
    assert fewest(lambda hosts: False, 100) is None


def test_capacity_tells_the_fewest_hosts_and_what_one_fewer_would_mean(
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
    said = capsys.readouterr().out
    assert "3 hosts: some are never served" in said and "allow more (--hosts-max)" in said
    assert main([str(trace.parent / "none.csv"), "--wait-p95", "1s"]) == 1
    assert "none.csv is not there: check the path." in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(trace), "--wait-p95", "soon"])
    assert "'soon' is no time, such as 500ms, 2s, 5m or 1h" in capsys.readouterr().err


def cells(path: Path, rows: str) -> Path:
    path.write_text("session,start_s,duration_s,num_gpu\n" + rows)
    return path


def test_sessions_that_wait_for_a_place_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = "".join(f"busy,{n * 20},10,4\n" for n in range(200))
    trace = cells(
        tmp_path / "cells.csv", many + "waits,100,10,4\n"
    )  # Few cells are in the session that waits.
    command = [str(trace), "--policy", "reservation", "--gpus", "4", "--wait-p95", "5s", "--quiet"]
    assert main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "2 hosts are the fewest with which 95 of 100 wait 5 s or less."
    waited = float(said[1].removeprefix("      1 host: 95 of 100 wait up to ").split()[0].replace(",", ""))
    assert waited > 3000


def test_work_that_no_number_of_hosts_serves_is_told_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = cells(tmp_path / "cells.csv", "a,0,60,8\nb,0,60,2\n")
    assert main([str(trace), "--gpus", "4", "--wait-p95", "1m", "--quiet"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "asks for 8 GPUs on one host, and hosts of 4 GPUs never serve that: give --gpus 8" in said.err


def test_more_hosts_are_not_tried_where_nobody_waits_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = cells(tmp_path / "cells.csv", "a,0,60,8\nb,0,60,2\na,9000,60,8\n")
    assert main([str(trace), "--wait-p95", "1ms", "--quiet"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith("2 hosts are not enough: nobody waits for GPUs there")
    assert len(said) == 4


def test_fewer_hosts_than_replicas_and_the_form_and_mix_of_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = cells(tmp_path / "cells.csv", "a,0,60,8\n")
    assert main([str(trace), "--wait-p95", "2s", "--quiet"]) == 0
    told = "But sessions have 3 replicas on different hosts, and 1 host holds 1 of them.\n"
    assert capsys.readouterr().out.endswith(told)
    assert main([str(trace), "--wait-p95", "2s", "--gpus", "2", "--gpu-mix", "2=1", "--quiet"]) == 0
    assert main([str(trace), "--wait-p95", "2s", "--form", "helios"]) == 1
    assert "has not the form helios" in capsys.readouterr().err
