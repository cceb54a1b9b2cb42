"""The order in which the system kills for memory, in a file as the system's."""

from __future__ import annotations

from pathlib import Path

from replkernel.kernel.kill_order import EXECUTOR, STANDBY, KillOrder


def test_a_place_is_counted_from_the_score_that_the_process_was_born_with(tmp_path: Path) -> None:
    file = tmp_path / "oom_score_adj"
    file.write_text("-100\n")
    order = KillOrder(file)
    order.take(STANDBY)
    assert int(file.read_text()) == -100 + STANDBY
    order.take(EXECUTOR)
    assert int(file.read_text()) == -100 + EXECUTOR


def test_no_score_is_beyond_what_the_system_takes_and_none_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "oom_score_adj"
    file.write_text("985\n")
    KillOrder(file).take(STANDBY)
    assert int(file.read_text()) == 1000
    KillOrder(tmp_path / "absent").take(STANDBY)
    assert not (tmp_path / "absent").exists()
