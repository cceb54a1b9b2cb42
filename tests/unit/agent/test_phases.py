"""Busy and idle phases of kernel processes, as the samples tell them."""

from __future__ import annotations

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from replkernel_scheduler.sim.loaders import swf
from replkernel_scheduler.sim.records import Pattern
from replkernel_scheduler.sim.trace_file import TraceFile

from replkernel.agent.core.phases import (
    PHASES_MAX,
    RECENT_S,
    SECONDS_OVER,
    Kept,
    Named,
    Phases,
    Record,
    swf_lines,
)

ONE, TWO = Named(10, 1), Named(11, 2)


class Sampled:
    """Samples every 5 s; `cores` is what each process has computed on since the one before."""

    def __init__(self) -> None:
        self.phases, self.now = Phases(), 0.0
        self.cpu_s: dict[Named, float] = {}

    def take(self, times: int = 1, after_s: float = 5.0, **cores: float) -> None:
        names = {"one": ONE, "two": TWO}
        for _ in range(times):
            self.now += after_s
            for name, share in cores.items():
                self.cpu_s[names[name]] = self.cpu_s.get(names[name], 0.0) + share * after_s
            here = {names[name]: (name, self.cpu_s[names[name]]) for name in cores}
            self.phases.take(here, self.now, 1000.0 + self.now)

    def records(self) -> list[Record]:
        kept = self.phases.kept()
        return [*kept.over, *(one.record for one in kept.living)]

    def restart(self) -> None:
        """Go on as another agent, with what this one has written down."""
        self.phases = Phases(msgspec.json.decode(msgspec.json.encode(self.phases.kept()), type=Kept))


def test_cpu_used_while_nobody_looked_is_not_of_the_next_sample() -> None:
    sampled = Sampled()
    sampled.take(2, one=0.0)
    sampled.take(1, SECONDS_OVER + 1.0, one=1.0)
    assert sampled.phases.busy() == 0
    sampled.take(1, one=0.0)
    assert sampled.phases.busy() == 0
    sampled.take(1, one=2.0)
    assert sampled.phases.busy() == 2


def test_phases_follow_each_other_idle_first_and_begin_with_the_second_sample() -> None:
    sampled = Sampled()
    sampled.take(3, one=0.0)
    sampled.take(2, one=1.0)
    sampled.take(4, one=0.2)
    sampled.take(1, one=0.21)
    (record,) = sampled.records()
    assert (record.kernel, record.at, record.phases_s) == ("one", 1005.0, [10.0, 10.0, 20.0, 5.0])


def test_cores_of_kernels_count_for_a_minute_and_whole() -> None:
    sampled = Sampled()
    sampled.take(1, one=0.0, two=0.0)
    sampled.take(1, one=3.6, two=0.3)
    assert sampled.phases.busy() == 5
    sampled.take(int(RECENT_S / 5), one=0.0, two=0.0)
    assert sampled.phases.busy() == 5
    sampled.take(1, one=0.0, two=0.0)
    assert sampled.phases.busy() == 0


def test_one_that_has_ended_is_kept_unless_it_never_computed_and_another_of_its_pid_is_another() -> None:
    sampled = Sampled()
    sampled.take(2, one=1.0, two=0.0)
    sampled.take(1)
    assert [record.phases_s for record in sampled.records()] == [[0.0, 5.0]]
    assert sampled.phases.busy() == 0


def test_a_machine_that_slept_was_neither_busy_nor_idle_meanwhile() -> None:
    sampled = Sampled()
    sampled.take(2, one=1.0)
    sampled.take(1, after_s=SECONDS_OVER, one=0.001)
    assert sampled.records()[0].phases_s == [0.0, 5.0]


def test_a_process_with_too_many_phases_has_its_record_begun_anew() -> None:
    sampled = Sampled()
    for number in range(PHASES_MAX + 3):
        sampled.take(1, one=float(number % 2))
    first, second = sampled.records()
    assert len(first.phases_s) == PHASES_MAX + 1 and second.phases_s == [0.0, 5.0, 5.0]


@given(shares=st.lists(st.sampled_from([0.0, 0.1, 0.5, 3.0]), min_size=2, max_size=60))
def test_the_phases_of_a_process_take_as_long_as_it_was_seen(shares: list[float]) -> None:
    sampled = Sampled()
    for share in shares:
        sampled.take(1, one=share)
    (record,) = sampled.records()
    assert sum(record.phases_s) == 5.0 * (len(shares) - 1)
    busy_s = sum(5.0 for share in shares[1:] if share > 0.2)
    assert sum(record.phases_s[1::2]) == busy_s


def test_an_agent_that_follows_goes_on_with_those_that_live_and_has_those_that_are_over() -> None:
    sampled = Sampled()
    sampled.take(2, one=1.0, two=1.0)
    sampled.restart()
    assert [record.phases_s for record in sampled.records()] == [[0.0, 5.0]] * 2
    sampled.take(1, after_s=500.0, two=0.9)
    assert [(record.kernel, record.phases_s) for record in sampled.records()] == [
        ("one", [0.0, 5.0]), ("two", [0.0, 5.0]),
    ], "nobody knows of the time between"  # fmt: skip
    sampled.take(1, two=0.0)
    assert sampled.records()[-1].phases_s == [0.0, 5.0, 5.0]


def test_the_simulator_reads_them_as_interactive_jobs_with_their_patterns(tmp_path: Path) -> None:
    records = [
        Record("b", 1030.0, [0.0, 5.0]),
        Record("idle", 1000.0, [50.0]),
        Record("a", 1010.0, [10.04, 5.0, 20.0, 15.0, 5.0]),
    ]
    trace = tmp_path / "mine.swf"
    trace.write_text("\n".join(swf_lines(records)) + "\n")
    assert swf.looks_like(trace.read_text())
    first, second = swf.records(TraceFile(trace))
    assert (first.at, first.duration_s, first.width, first.queue) == (0.0, 55.0, 1, "0")
    assert first.pattern == Pattern(10.0, 5.0, (5.0, 20.0, 15.0))
    assert (second.at, second.pattern) == (20.0, Pattern(0.0, 0.0, (5.0,)))
