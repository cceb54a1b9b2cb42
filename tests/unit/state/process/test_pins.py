"""Process-level pins: what runs is named with its reason, what serves the kernel or a library is not."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from replkernel.records import ReplicaId, Seq
from replkernel.state.process import pins
from replkernel.state.process.parts import Baseline, process_pins

SEQ, REPLICA = Seq(4), ReplicaId("r2")


def test_a_quiet_process_has_no_pins() -> None:
    assert process_pins(SEQ, REPLICA, Baseline(None, ())) == ()


def test_a_running_thread_pins_until_it_ends() -> None:
    baseline = Baseline(None, ())
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="poller", daemon=True)
    thread.start()
    (pin,) = process_pins(SEQ, REPLICA, baseline)
    assert (pin.replica, pin.seq) == (REPLICA, SEQ)
    assert pin.reason == "A running thread cannot be copied to another process."
    assert process_pins(SEQ, REPLICA, baseline, is_ours=lambda thread: thread.name == "poller") == ()
    stop.set()
    thread.join()
    assert process_pins(SEQ, REPLICA, baseline) == ()


def test_memory_that_is_traced_pins_until_nobody_traces_it() -> None:
    baseline = Baseline(None, ())
    tracemalloc.start()
    (pin,) = process_pins(SEQ, REPLICA, baseline)
    assert pin.name == "tracemalloc"
    tracemalloc.stop()
    assert process_pins(SEQ, REPLICA, baseline) == ()


def test_a_pools_worker_pins_only_while_it_works() -> None:
    baseline = Baseline(None, ())
    started, stop = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        stop.wait()

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(work)
        started.wait()
        assert len(process_pins(SEQ, REPLICA, baseline)) == 1
        stop.set()
        job.result()
        while any(process_pins(SEQ, REPLICA, baseline)):
            threading.Event().wait(0.001)


def test_a_thread_that_waits_for_a_child_or_is_about_to_end_pins_nothing() -> None:
    baseline = Baseline(None, ())
    stop = threading.Event()

    class Watcher:
        def wait(self) -> None:
            stop.wait()

    Watcher.wait.__module__ = "asyncio.unix_events"
    ending = threading.Thread(target=stop.wait)
    both = [threading.Thread(target=Watcher().wait), ending]
    for thread in both:
        thread.start()
    target = ending.__dict__.pop("_target")  # As `Thread.run` does in the end.
    assert process_pins(SEQ, REPLICA, baseline) == ()
    ending.__dict__["_target"] = target
    stop.set()
    for thread in both:
        thread.join()


def test_the_thread_on_which_fsspec_reads_and_writes_pins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec.asyn")
    baseline = Baseline(None, ())
    monkeypatch.setattr(fsspec, "loop", [None])
    monkeypatch.setattr(fsspec, "iothread", [None])
    loop = fsspec.get_loop()
    assert fsspec.iothread[0].is_alive()
    found = process_pins(SEQ, REPLICA, baseline)
    loop.call_soon_threadsafe(loop.stop)
    fsspec.iothread[0].join()
    loop.close()
    assert found == ()


@pytest.mark.parametrize(
    ("module", "pinned"), [("torch._inductor.compile_worker.subproc_pool", 0), ("torch.utils.data", 1)]
)
def test_a_thread_that_waits_for_what_torch_compiles_pins_nothing(module: str, pinned: int) -> None:
    baseline = Baseline(None, ())
    stop = threading.Event()

    def read() -> None:
        stop.wait()

    read.__module__ = module
    thread = threading.Thread(target=read, name="InductorSubproc", daemon=True)
    thread.start()
    found = process_pins(SEQ, REPLICA, baseline)
    stop.set()
    thread.join()
    assert len(found) == pinned


async def test_an_unfinished_task_pins() -> None:
    baseline = Baseline(None, ())

    async def poll() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(poll())
    await asyncio.sleep(0)
    (pin,) = process_pins(SEQ, REPLICA, baseline)
    assert "poll' has not finished" in pin.reason
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert process_pins(SEQ, REPLICA, baseline) == ()


def test_a_replaced_standard_stream_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    baseline = Baseline(None, ())
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    (pin,) = process_pins(SEQ, REPLICA, baseline)
    assert pin.reason == "The notebook replaced sys.stdout by a StringIO."


def test_a_child_process_pins_and_a_librarys_service_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    compiles = "/lib/python3/site-packages/torch/_inductor/compile_worker/__main__.py"
    commands = {7: ["sleep", "100"], 8: ["python", "-m", "multiprocessing.resource_tracker"], 9: None}
    commands[10] = ["python", compiles, "--kind=fork"]
    monkeypatch.setattr(pins, "children", lambda: frozenset({5, 7, 8, 9, 10}))
    monkeypatch.setattr(pins, "_command_of", lambda pid: commands[pid])
    found = list(pins.child_processes(frozenset({5})))
    assert [name for name, _, _ in found] == ["process 7"]
    assert "sleep 100" in found[0][2]


def test_a_value_that_a_part_cannot_carry_is_a_pin() -> None:
    baseline = Baseline.take()
    baseline.parts[0].stuck = ("It holds a function.",)
    (pin,) = process_pins(SEQ, REPLICA, baseline)
    assert (pin.name, pin.reason) == ("process: environment variables", "It holds a function.")
