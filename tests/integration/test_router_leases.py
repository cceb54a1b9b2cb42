"""Cells that need GPUs, from a real client by a real router and kernel to a scheduler on the real wire."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from replkernel.leasing.finding import read_address
from replkernel.leasing.wire import (
    KernelGone,
    KernelHere,
    LeaseBack,
    LeaseKept,
    LeaseLingers,
    LeaseWish,
    WishOver,
)
from tests.support.fake_scheduler import FakeScheduler
from tests.support.routed import Client, Routed

SEEN = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
COUNTED = """import os, time
with open({path!r}, 'a') as file: file.write('x')
while not os.path.exists({gate!r}): time.sleep(0.02)
print(os.environ['CUDA_VISIBLE_DEVICES'])
"""
ASK = """from replkernel.leasing.notebook import GpuQuestion
answer = get_ipython().kernel.ask_router(GpuQuestion({question}))
print(answer.text or answer.error)
"""


NOTEBOOK = "/home/me/work/train.ipynb"
"""As Jupyter Server tells a kernel whose it is."""


class Leased:
    """A kernel with a replica on each host, and a scheduler that has GPUs there."""

    def __init__(self, directory: Path, scheduler: FakeScheduler, hosts: list[str]) -> None:
        self.scheduler = scheduler
        settings = {"REPLKERNEL_REPLICAS": str(len(hosts)), "REPLKERNEL_HOSTS": ",".join(hosts)}
        self.kernel = Routed(directory, JPY_SESSION_NAME=NOTEBOOK, **settings, **scheduler.env)
        self.client = self.kernel.client()

    def send(self, code: str, gpus: int | None = None, client: Client | None = None) -> str:
        """Send a cell; return its id."""
        session = (client or self.client).kernel.session
        content = {"code": code, "silent": False, "store_history": True, "stop_on_error": True}
        metadata = {} if gpus is None else {"replkernel": {"gpus": gpus}}
        message = session.msg("execute_request", content, metadata=metadata)
        (client or self.client).kernel.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def run(self, code: str, gpus: int | None = None) -> tuple[str, dict[str, Any]]:
        """Run a cell; return what it printed, and what the reply's metadata say."""
        msg_id = self.send(code, gpus)
        content = self.client.finish(msg_id)
        assert content["status"] == "ok", content
        reply = next(r for r in self.client.replies if r["parent_header"].get("msg_id") == msg_id)
        return self.client.texts(msg_id).strip(), dict(reply["metadata"]["replkernel"])

    def begin(self, directory: Path) -> tuple[str, Path, Path]:
        """Have a cell run on two GPUs until a file is there; return its id, its mark, that file."""
        path, gate = directory / "ran", directory / "gate"
        cell = self.send(COUNTED.format(path=str(path), gate=str(gate)), gpus=2)
        self.scheduler.wait(path.exists, "the cell's beginning")
        return cell, path, gate

    def shows(self, msg_id: str) -> list[str]:
        """Return the lines that a cell showed while it waited."""
        return [
            message["content"]["data"]["text/plain"]
            for message in self.client.of(msg_id)
            if message["msg_type"] in ("display_data", "update_display_data")
        ]


@pytest.fixture
def leased(tmp_path: Path) -> Iterator[Callable[..., Leased]]:
    """Return a function that starts a kernel and a scheduler, with two GPUs on host `here` by default."""
    started: list[Leased] = []
    schedulers: list[FakeScheduler] = []

    def begin(gpus: dict[str, int] | None = None, **options: Any) -> Leased:
        gpus = gpus or {"here": 2}
        schedulers.append(FakeScheduler(gpus, **options))
        started.append(Leased(tmp_path, schedulers[-1], list(gpus)))
        return started[-1]

    yield begin
    for one in started:
        one.kernel.close()
    for scheduler in schedulers:
        scheduler.stop()


def test_a_reply_says_what_the_lease_has_cost(leased: Callable[..., Leased]) -> None:
    one = leased()
    assert "cost" not in one.run(SEEN, gpus=1)[1]
    one.scheduler.price = (7_200.0, "EUR")
    said = one.run(SEEN, gpus=2)[1]
    assert (said["cost"], said["currency"]) == (pytest.approx(2 * said["lease_s"], rel=1e-3), "EUR")


def test_a_cell_sees_the_gpus_of_its_lease_and_the_next_one_none(leased: Callable[..., Leased]) -> None:
    one = leased()
    printed, said = one.run(SEEN)
    assert printed == "-1"
    assert (said["gpus"], said["lease_s"], "bind_s" in said) == ([], 0.0, False)
    assert one.scheduler.heard == []
    printed, said = one.run(SEEN, gpus=2)
    assert printed == "here-0,here-1"
    assert said["gpus"] == ["here-0", "here-1"]
    assert 0 < said["lease_s"] < 60
    assert 0 < said["bind_s"] < 60
    assert said["queued_s"] > 0
    here = one.scheduler.told(KernelHere)
    assert (here.hosts, here.notebook) == (("here",), NOTEBOOK)
    one.scheduler.told(LeaseLingers)
    assert one.run(SEEN)[0] == "-1"
    assert one.run(SEEN, gpus=1)[0] == "here-0"
    assert one.scheduler.wait(lambda: len(one.scheduler.lingering) == 1, "the second lease's rest")


def test_a_cell_waits_in_the_queue_and_says_where_it_stands(leased: Callable[..., Leased]) -> None:
    one = leased()
    one.run(SEEN, gpus=1)
    elses = one.scheduler.occupy("here") if not one.scheduler.leases else ""
    lingering = one.scheduler.told(LeaseLingers).lease
    one.scheduler.end(lingering, "expired")
    elses = elses or one.scheduler.occupy("here")
    waits, behind = one.send(SEEN, gpus=1), one.send("print('later')")
    one.client.wait(lambda: one.shows(waits), "the line of the waiting cell")
    assert one.shows(waits) == ["Waiting for 1 GPU: number 1 in the queue, about 2 s."]
    assert one.client.states(waits) == ["busy"]
    assert one.client.states(behind) == []
    one.scheduler.end(elses, "released")
    one.client.finish(behind)
    assert one.client.texts(waits).strip() == "here-0"
    kinds = [kind for kind, _ in groupby(message["msg_type"] for message in one.client.of(waits))]
    assert kinds == ["status", "display_data", "clear_output", "execute_input", "stream", "status"]


def test_an_interrupt_ends_the_waiting_and_the_kernel_goes_on(leased: Callable[..., Leased]) -> None:
    one = leased()
    one.scheduler.occupy("here")
    one.run("x = 1")
    waits = one.send("x = 2", gpus=1)
    one.client.wait(lambda: one.shows(waits), "the line of the waiting cell")
    one.client.kernel.control_channel.send(one.client.kernel.session.msg("interrupt_request", {}))
    assert one.client.finish(waits)["ename"] == "KeyboardInterrupt"
    one.scheduler.told(WishOver)
    assert one.run("print(x)")[0] == "1"


@pytest.mark.slow
def test_more_than_there_is_is_refused_by_name(leased: Callable[..., Leased]) -> None:
    one = leased()
    content = one.client.finish(one.send("x = 1", gpus=3))
    assert (content["ename"], content["evalue"]) == ("GpusDenied", "The largest possible request is 2 GPUs.")
    assert one.run(SEEN, gpus=2)[0] == "here-0,here-1"


def test_a_cell_that_loses_its_lease_is_interrupted_and_told_why(
    leased: Callable[..., Leased], tmp_path: Path
) -> None:
    one = leased()
    cell = one.send("import time\nprint('begun', flush=True)\ntime.sleep(60)", gpus=2)
    one.client.wait(lambda: "begun" in one.client.texts(cell), "the cell's beginning")
    one.scheduler.end(next(iter(one.scheduler.leases)), "expired")
    assert one.client.finish(cell)["ename"] == "LeaseLost"
    assert "here-0, here-1" in one.client.texts(cell)
    assert "expired" in one.client.texts(cell)


@pytest.mark.slow
def test_a_lease_is_renewed_while_its_cell_runs(leased: Callable[..., Leased]) -> None:
    one = leased(ttl_s=1.5)
    one.run("import time; time.sleep(2)", gpus=1)
    assert len(one.scheduler.said(LeaseKept)) >= 3


def test_the_next_router_keeps_the_lease_of_the_cell_that_runs(
    leased: Callable[..., Leased], tmp_path: Path
) -> None:
    one = leased()
    cell, path, gate = one.begin(tmp_path)
    one.kernel.kill()
    one.kernel.start()
    here = one.scheduler.told(KernelHere, 2)
    assert [held.lease for held in here.leases] == list(one.scheduler.leases)
    gate.touch()
    assert one.client.finish(cell)["status"] == "ok"
    assert one.client.texts(cell).strip() == "here-0,here-1"
    assert path.read_text() == "x"
    one.scheduler.told(LeaseLingers)
    assert one.scheduler.said(LeaseBack) == []
    assert len(one.scheduler.said(LeaseWish)) == 1


@pytest.mark.slow
def test_a_cell_that_waited_when_its_router_was_killed_waits_on(leased: Callable[..., Leased]) -> None:
    one = leased()
    elses = one.scheduler.occupy("here")
    one.run("x = 1")
    cell = one.send(SEEN, gpus=1)
    one.client.wait(lambda: one.shows(cell), "the line of the waiting cell")
    one.kernel.kill()
    one.kernel.start()
    again = one.scheduler.told(LeaseWish, 2)
    assert again == one.scheduler.told(LeaseWish, 1)
    one.scheduler.end(elses, "released")
    assert one.client.finish(cell)["status"] == "ok"
    assert one.client.texts(cell).strip() == "here-0"
    kinds = [message["msg_type"] for message in one.client.of(cell) if message["msg_type"] != "status"]
    assert kinds == ["display_data", "update_display_data", "clear_output", "execute_input", "stream"]


def test_a_cell_waits_for_a_scheduler_that_went_away(leased: Callable[..., Leased]) -> None:
    one = leased()
    one.run("x = 1", gpus=1)
    one.scheduler.told(LeaseLingers)
    one.scheduler.stop()
    cell = one.send(SEEN, gpus=1)
    one.client.wait(lambda: one.shows(cell), "the line of the waiting cell")
    assert "does not answer" in one.shows(cell)[-1] or "closed" in one.shows(cell)[-1]
    one.scheduler.start()
    assert one.client.finish(cell)["status"] == "ok"
    assert one.client.texts(cell).strip() == "here-0"


@pytest.mark.slow
def test_a_cell_that_runs_while_the_scheduler_is_away_keeps_its_lease(
    leased: Callable[..., Leased], tmp_path: Path
) -> None:
    one = leased()
    cell, path, gate = one.begin(tmp_path)
    one.scheduler.stop()
    one.scheduler.start()
    one.scheduler.told(KernelHere, 2)
    gate.touch()
    assert one.client.finish(cell)["status"] == "ok"
    one.scheduler.told(LeaseLingers)
    assert path.read_text() == "x"


def test_a_notebook_goes_with_its_variables_to_where_its_gpus_are(leased: Callable[..., Leased]) -> None:
    one = leased({"h1": 1, "h2": 1})
    printed, said = one.run(f"x = list(range(41))\n{SEEN}", gpus=1)
    first, other = said["host"], {"h1": "h2", "h2": "h1"}[said["host"]]
    assert printed == f"{first}-0"
    one.scheduler.end(one.scheduler.told(LeaseLingers).lease, "expired")
    one.scheduler.occupy(first)
    printed, said = one.run(f"x.append(1); print(len(x))\n{SEEN}", gpus=1)
    assert printed.split() == ["42", f"{other}-0"]
    assert said["host"] == other
    printed, said = one.run("print(len(x))")
    assert (printed, said["host"]) == ("42", other)


@pytest.mark.slow
def test_the_notebook_s_default_outlives_its_router_and_off_ends_it(leased: Callable[..., Leased]) -> None:
    one = leased()
    assert "2 GPUs" in one.run(ASK.format(question="'default', 2"))[0]
    assert one.run(SEEN)[0] == "here-0,here-1"
    assert "This cell has 2 GPUs on host here" in one.run(ASK.format(question="'status'"))[0]
    one.kernel.kill()
    one.kernel.start()
    assert one.run(SEEN)[0] == "here-0,here-1"
    assert "get no GPU unless they ask" in one.run(ASK.format(question="'off'"))[0]
    one.scheduler.wait(lambda: not one.scheduler.leases, "the return of all GPUs")
    assert one.run(SEEN)[0] == "-1"


def test_a_kernel_that_ends_gives_its_gpus_back(leased: Callable[..., Leased]) -> None:
    one = leased()
    one.run("x = 1", gpus=2)
    one.client.kernel.shutdown()
    one.kernel.router.wait(20)
    one.scheduler.told(KernelGone)
    one.scheduler.wait(lambda: not one.scheduler.leases, "the return of all GPUs")


@pytest.mark.slow
def test_a_kernel_process_that_dies_gives_its_gpus_back(leased: Callable[..., Leased]) -> None:
    one = leased()
    pid = int(one.run("import os; print(os.getpid())", gpus=1)[0])
    cell = one.send("import time; time.sleep(60)", gpus=2)
    one.scheduler.told(LeaseWish, 2)
    one.client.wait(lambda: "busy" in one.client.states(cell), "the cell's beginning")
    os.kill(pid, signal.SIGKILL)
    assert one.client.finish(cell)["ename"] == "ExecutorLost"
    one.scheduler.told(LeaseBack)
    assert one.run(SEEN, gpus=2)[0] == "here-0,here-1"


def ask(client: Client, code: str, gpus: int) -> str:
    """Send a cell that asks for GPUs; return its id."""
    session = client.kernel.session
    message = session.msg("execute_request", {"code": code}, metadata={"replkernel": {"gpus": gpus}})
    client.kernel.shell_channel.send(message)
    return str(message["header"]["msg_id"])


def test_without_a_scheduler_one_is_started_for_the_first_cell_that_asks(tmp_path: Path) -> None:
    kernel = Routed(tmp_path, REPLKERNEL_REPLICAS="1", REPLKERNEL_FAKE_GPUS="2")
    try:
        client = kernel.client()
        ran = client.kernel.execute(SEEN)
        assert client.finish(ran)["status"] == "ok"
        assert read_address(kernel.env) is None
        cell = ask(client, SEEN, 1)
        assert client.finish(cell)["status"] == "ok"
        assert client.texts(cell).startswith("GPU-fake-")
        too_many = client.finish(ask(client, SEEN, 3))
        assert "2" in too_many["evalue"]
    finally:
        kernel.close()
        started = read_address(kernel.env)
        assert started is not None
        os.kill(started.pid, signal.SIGTERM)


def test_a_scheduler_that_is_killed_and_started_at_another_port_is_followed(tmp_path: Path) -> None:
    kernel = Routed(tmp_path, REPLKERNEL_REPLICAS="1", REPLKERNEL_FAKE_GPUS="2")
    try:
        client = kernel.client()
        assert client.finish(ask(client, SEEN, 1))["status"] == "ok"
        first = read_address(kernel.env)
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        command = [sys.executable, "-m", "replkernel.cli", "scheduler", "--port", "0"]
        with subprocess.Popen(command, env=kernel.env, stdout=subprocess.PIPE) as second:
            assert second.stdout is not None
            assert first.url.encode() not in second.stdout.readline()
            cell = ask(client, SEEN, 2)
            assert client.finish(cell)["status"] == "ok"
            assert client.texts(cell).count("GPU-fake-") == 2
            second.terminate()
    finally:
        kernel.close()


@pytest.mark.slow
def test_a_scheduler_of_one_s_own_that_is_killed_is_started_again_for_a_cell_that_waits(
    tmp_path: Path,
) -> None:
    kernel = Routed(tmp_path, REPLKERNEL_REPLICAS="1", REPLKERNEL_FAKE_GPUS="2")
    pids: list[int] = []
    try:
        client = kernel.client()
        assert client.finish(ask(client, SEEN, 1))["status"] == "ok"
        for gpus in (2, 1):
            here = read_address(kernel.env)
            assert here is not None and here.pid not in pids
            pids.append(here.pid)
            os.kill(here.pid, signal.SIGKILL)
            cell = ask(client, SEEN, gpus)
            assert client.finish(cell)["status"] == "ok"
            assert client.texts(cell).count("GPU-fake-") == gpus
    finally:
        kernel.close()
        last = read_address(kernel.env)
        if last is not None:
            os.kill(last.pid, signal.SIGTERM)


@pytest.mark.slow
def test_where_no_scheduler_can_be_started_a_cell_that_asks_is_told_why(
    tmp_path: Path,
) -> None:
    kernel = Routed(tmp_path, REPLKERNEL_REPLICAS="1", REPLKERNEL_SCHEDULER_GRACE_S="long")
    try:
        client = kernel.client()
        content = client.finish(ask(client, "1", 1))
        assert content["ename"] == "NoScheduler"
        assert "REPLKERNEL_SCHEDULER_GRACE_S" in content["evalue"]
        assert "replkernel scheduler" in content["evalue"]
        ran = client.kernel.execute(SEEN)
        assert client.finish(ran)["status"] == "ok"
        assert client.texts(ran).strip() == str(os.environ.get("CUDA_VISIBLE_DEVICES"))
    finally:
        kernel.close()
