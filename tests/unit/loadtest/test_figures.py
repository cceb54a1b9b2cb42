"""What a load test tells: percentiles of what went well, counts of what did not, and what was used up."""

from __future__ import annotations

import msgspec
from replkernel_server.live.documents import Execution
from replkernel_server.loadtest import figures
from replkernel_server.loadtest.listening import note
from replkernel_server.loadtest.processes import Machine
from replkernel_server.loadtest.samples import CellSample, StartSample


def cell(**said: object) -> CellSample:
    return msgspec.convert({"session": "a", "msg_id": "m", "due_s": 1.0, "runs_s": 0.5, **said}, CellSample)


def told(**said: object) -> Execution:
    empty: dict[str, object] = dict.fromkeys(Execution.__struct_fields__)
    texts = dict.fromkeys(("kernel_id", "msg_id", "cell_id", "code_digest", "status", "ename"), "")
    texts |= dict.fromkeys(("replica", "host", "model", "trouble"), "")
    rest = {"gpus": [], "unaudited": [], "wanted": 0, "state": "done", "safety": "pending"}
    return Execution(**(empty | texts | rest | said))  # type: ignore[arg-type]


def test_a_cell_is_timed_from_its_submission_and_one_that_failed_is_only_counted() -> None:
    cells = [
        cell(submitted_s=1.2, began_s=1.3, replied_s=1.9),
        cell(submitted_s=2.0, began_s=2.0, replied_s=90.0, trouble="ValueError"),
    ]
    times = figures.times(cells)
    delay, completion, overhead = (
        times[name] for name in ("interactivity_delay", "task_completion", "overhead")
    )
    assert delay is not None and completion is not None and overhead is not None
    assert (delay.count, round(delay.p50, 3)) == (1, 0.1)
    assert (round(completion.most, 3), round(overhead.most, 3)) == (0.7, 0.2)
    assert figures.troubles(cells) == {"ValueError": 1}
    assert times["durability_lag"] is None


def test_durability_counts_from_the_reply_and_the_commit_from_what_was_found() -> None:
    sample = cell()
    note(sample, told(safety="durable", ended_at=10.0, durable_at=10.25, capture_s=0.05, host="h"))
    assert (sample.safety, sample.host, sample.durability_lag_s) == ("durable", "h", 0.25)
    assert sample.commit_s is not None and round(sample.commit_s, 3) == 0.2
    note(sample, told(safety="durable", ended_at=10.0, durable_at=9.9))
    assert sample.durability_lag_s == 0.0, "what is durable before its reply has no lag"


def test_a_lease_waits_from_the_wish_to_the_grant() -> None:
    sample = cell(gpus=1)
    note(sample, told(state="waiting", wished_at=5.0))
    assert sample.lease_wait_s is None
    note(sample, told(wished_at=5.0, granted_at=7.5))
    assert sample.lease_wait_s == 2.5


def test_percentiles_lie_between_the_least_and_the_most() -> None:
    assert figures.spread([]) is None
    one = figures.spread([3.0])
    assert one is not None and one.p50 == one.p99 == one.most == 3.0
    many = figures.spread([float(number) for number in range(101)])
    assert many is not None
    assert (many.p50, many.p95, many.p99, many.most) == (50.0, 95.0, 99.0, 100.0)


def test_starts_that_failed_are_told_by_their_reason() -> None:
    samples = [StartSample(session="a", took_s=1.0), StartSample(session="b", took_s=60.0, trouble="no room")]
    well, failed = figures.starts(samples)
    assert well is not None and well.count == 1
    assert failed == {"no room": 1}


def test_the_limit_is_what_was_used_up() -> None:
    busy = figures.machine(Machine([0.99] * 10, 8000.0, 9000.0), 2, 1.5)
    assert figures.limit(busy, 10).startswith("CPU: 2 cores were 99% busy in the mean, 75% with this")
    full = figures.machine(Machine([0.2] * 10, 300.0, 9000.0), 2, 1.5)
    assert figures.limit(full, 10) == "memory: only 300 MiB were left"
    idle = figures.machine(Machine([0.2] * 10, 8000.0, 9000.0), 2, 1.5)
    assert figures.limit(idle, 10).startswith("none was reached here")
