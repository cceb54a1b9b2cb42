"""The life of a job's processes: who leaves is asked first, nothing starts beside what still runs."""

from __future__ import annotations

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.jobs.life import (
    PAUSE_S_MAX,
    RESHAPE_S,
    TRIES_MAX,
    Act,
    Ask,
    End,
    Kill,
    Life,
    Nowhere,
    Say,
    Start,
)
from replkernel.jobs.processes import command_with
from replkernel.jobs.words import (
    JobsUnsealed,
    Order,
    check_seal,
    is_job_name,
    seal_of,
)
from tests.support.examples import examples


def order(
    number: int, attempt: int = 1, *, runs: bool = True, within_s: float = 10.0, saves: bool = True
) -> Order:
    return Order(number, "j", attempt, ("GPU-1",), ("train",), "/w", runs, within_s, saves)


def test_who_is_to_stop_is_asked_then_told_then_ended() -> None:
    life = Life()
    assert life.ordered(order(1), 0.0) == [Start(order(1))]
    assert life.ordered(order(2, runs=False), 100.0) == [Say("stopping"), Ask()]
    assert life.heard(True, 100.0) == []
    assert life.deadline() == 106.0
    assert life.time(106.0) == [End()]
    assert life.time(108.5) == [Kill()]
    assert life.ended(-9, "it was ended by SIGKILL", 109.0) == [Say("stopped")]
    assert life.deadline() == inf


def test_who_has_saved_is_told_to_end_at_once_and_who_hears_nothing_as_well() -> None:
    for hears in (True, False):
        life = Life()
        life.ordered(order(1), 0.0)
        life.ordered(order(2, runs=False), 1.0)
        assert life.heard(hears, 1.0) == ([] if hears else [End()])
        assert life.saved(2.0) == ([End()] if hears else [])
        assert life.ended(0, "", 3.0) == [Say("stopped")], "it has stopped, whatever its exit code"


def test_a_new_shape_starts_once_the_old_one_has_left() -> None:
    life = Life()
    life.ordered(order(1), 0.0)
    assert life.ordered(order(2, 2), 5.0) == [Say("stopping"), Ask()]
    assert life.deadline() == 5.0 + RESHAPE_S * 0.6
    assert life.ordered(order(3, 3), 6.0) == []
    assert life.ended(-15, "", 7.0) == [Start(order(3, 3))]


def test_who_leaves_sooner_than_was_ordered_is_still_followed_by_the_new_shape() -> None:
    life = Life()
    life.ordered(order(1), 0.0)
    life.ordered(order(2, 2), 5.0)
    assert life.heard(True, 5.0) == life.hastens(8.0, 6.0) == []
    assert life.deadline() == 6.0 + 8.0 * 0.6
    assert life.ended(0, "", 7.0) == [Start(order(2, 2))]
    assert life.hastens(8.0, 20.0) == [Say("stopping"), Ask()]
    assert life.ended(0, "", 21.0) == [Say("stopped")]
    assert life.hastens(8.0, 22.0) == []


def test_a_start_without_its_other_host_has_stopped_and_any_other_that_fails_has_failed() -> None:
    for nowhere, says in ((Nowhere("h2"), Say("stopped", "why", "h2")), (Nowhere(), Say("failed", "why"))):
        life = Life()
        life.ordered(order(1), 0.0)
        assert life.ended(127, "why", 60.0, nowhere) == [says]
        life.ordered(order(2, 2), 70.0)
        life.ordered(order(3, 2, runs=False), 80.0)
        assert life.ended(127, "why", 90.0, nowhere) == [Say("stopped")]


def test_who_is_not_to_save_is_ended_at_once_also_while_it_leaves() -> None:
    life = Life()
    life.ordered(order(1), 0.0)
    life.ordered(order(2, runs=False), 1.0)
    assert life.ordered(order(3, runs=False, saves=False), 2.0) == [Say("stopping"), Kill()]


def test_a_program_that_fails_starts_again_after_growing_pauses_and_then_has_failed() -> None:
    life, now = Life(), 0.0
    life.ordered(order(1), now)
    for number in range(TRIES_MAX):
        (said,) = life.ended(3, "it ended with exit code 3", now)
        assert isinstance(said, Say) and said.state == "starting"
        assert life.deadline() == now + min(PAUSE_S_MAX, 2.0**number)
        now = life.deadline()
        assert life.time(now) == [Start(order(1))]
    (said,) = life.ended(3, "it ended with exit code 3", now)
    assert said == Say("failed", "it ended with exit code 3, 6 times in a row", elsewhere=True)


def test_a_stop_takes_back_a_start_that_waits() -> None:
    life = Life()
    life.ordered(order(1), 0.0)
    life.ended(1, "", 0.0)
    assert life.ordered(order(2, runs=False), 0.5) == [Say("stopped")]
    assert life.time(100.0) == []


def test_an_earlier_supervisors_processes_are_asked_to_leave_before_anything_starts() -> None:
    life = Life(order(1), 0.0)
    assert life.ordered(order(1), 0.0) == [Say("stopping"), Ask()]
    assert life.ended(None, "", 1.0) == [Start(order(1))]


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from((0.0, 1.0, 40.0, 700.0))), max_size=40))
def test_nothing_starts_beside_what_runs_and_who_is_to_go_goes(steps: list[tuple[int, float]]) -> None:
    life, now, alive, number = Life(), 0.0, False, 0
    stop_by = inf

    def see(acts: list[Act]) -> None:
        nonlocal alive, stop_by
        for act in acts:
            match act:
                case Start():
                    assert not alive
                    alive = True
                case Ask():
                    see(life.heard(True, now))
                case Kill():
                    assert alive
                    alive = False
                    see(life.ended(-9, "", now))

    for kind, after_s in steps:
        until = now + after_s
        while life.deadline() <= until:
            now = max(now, life.deadline())
            see(life.time(now))
        now = until
        if kind < 4:
            number += 1
            stop_by = now + 10.0 if kind == 3 else inf
            see(life.ordered(order(number, number, runs=kind != 3, saves=kind != 2), now))
        elif alive:
            alive = False
            see(life.ended(kind - 4, "", now))
        assert alive == life.lives
        assert not (alive and now > stop_by), "it should have left"


def test_a_command_learns_how_many_gpus_it_has() -> None:
    assert command_with(("train", "--n={gpus}"), 4) == ["train", "--n=4"]
    assert command_with(("/bin/torchrun", "t.py"), 2) == ["/bin/torchrun", "--nproc-per-node=2", "t.py"]
    assert command_with(("torchrun", "--nproc_per_node", "8", "t.py"), 2)[2] == "2"
    assert command_with(("torchrun", "--nproc-per-node=gpu", "t.py"), 2)[1] == "--nproc-per-node=2"
    module = ("python", "-m", "torch.distributed.run", "t.py")
    assert command_with(module, 3) == [*module[:3], "--nproc-per-node=3", "t.py"]
    behind = ("env", "PYTHONPATH=/work", "python", "-m", "torch.distributed.run", "t.py")
    assert command_with(behind, 4) == [*behind[:5], "--nproc-per-node=4", "t.py"]
    cell = ("/usr/bin/env", "PYTHONPATH=/work", "/usr/bin/env", "OMP_NUM_THREADS=4", "A=b", *module)
    assert command_with(cell, 4) == [*cell[:8], "--nproc-per-node=4", "t.py"]
    assert command_with(("python", "torchrun.py"), 2) == ["python", "torchrun.py"]


def test_a_seal_is_of_one_job_command_and_directory() -> None:
    seal = seal_of(b"key", "j", ("a", "b"), "/w")
    check_seal(b"key", seal, "j", ("a", "b"), "/w")
    others = [
        (b"other", "j", ("a", "b"), "/w"),
        (b"key", "k", ("a", "b"), "/w"),
        (b"key", "j", ("ab",), "/w"),
        (b"key", "j", ("a", "b"), "/x"),
    ]
    for key, job, command, directory in others:
        try:
            check_seal(key, seal, job, command, directory)
        except JobsUnsealed:
            continue
        raise AssertionError("another command is taken")


def test_names_that_lead_elsewhere_name_no_job() -> None:
    assert is_job_name("resnet-3f9a2c")
    assert not any(is_job_name(name) for name in ("", "..", "a/b", "-x", ".x", "a\n", "x" * 81, "ä", "wake"))
