"""A live scheduler's own journal as a trace: what really happened, and what other policies would have made
of it.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path

import pytest
from replkernel_scheduler.effects import LeaseGranted
from replkernel_scheduler.events import (
    Event,
    HostUp,
    KernelEnded,
    KernelReported,
    LeaseAsked,
    LeaseReleased,
)
from replkernel_scheduler.gangs.types import GangAsked, GangId, GangLeft, GangSpec
from replkernel_scheduler.sim import Costs, Normal, Trace, forms, simulate
from replkernel_scheduler.sim.__main__ import main
from replkernel_scheduler.sim.records import Cell, Session
from replkernel_scheduler.sim.trace_file import TraceFile
from replkernel_scheduler.types import (
    Gpu,
    GpuUuid,
    HostName,
    KernelId,
    KernelSpec,
    Lease,
    LeaseRequest,
    RequestId,
    Share,
    UserName,
)
from replkernel_server.driver import SchedulerDriver
from replkernel_server.scheduling.clock import CoreClock
from replkernel_server.scheduling.journal import Journal
from replkernel_server.scheduling.journal_place import JournalPlace
from replkernel_server.scheduling.recovery import recover
from replkernel_server.scheduling.settings import ServiceSettings

from tests.support.scheduler_service import scheduler_files, serving


class Live:
    """The service's own driver and journal, under a clock that the test turns."""

    def __init__(self, path: Path) -> None:
        setup = ServiceSettings(f"sqlite:///{path}")
        self.journal = Journal(JournalPlace(setup.database))
        self.now = 0.0
        self.held: dict[str, Lease] = {}
        recovered = recover(self.journal, setup)
        self.driver = SchedulerDriver(recovered, self.journal, CoreClock(recovered.at, lambda: self.now))

    async def say(self, at: float, event: Event) -> None:
        self.now = at
        for effect in await self.driver.apply(event):
            if isinstance(effect, LeaseGranted):
                self.held[effect.lease.request] = effect.lease

    async def asks(self, at: float, request: str, kernel: str, gpus: int) -> None:
        wish = LeaseRequest(RequestId(request), KernelId(kernel), gpus, 86_400.0, user=UserName("ada"))
        await self.say(at, LeaseAsked(wish))

    async def gives_back(self, at: float, request: str, busy_s: float) -> None:
        lease = self.held.pop(request)
        await self.say(at, LeaseReleased(lease.lease, lease.fence, busy_s))

    async def reports(self, at: float, kernel: str) -> None:
        spec = KernelSpec(KernelId(kernel), UserName("ada"), 4)
        await self.say(at, KernelReported(spec, (HostName("a"),)))


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two kernels of 4 GPUs whose replicas are on the same host of 4: b waits for a's cell."""
    path = tmp_path / "journal.sqlite"

    async def lives() -> None:
        live = Live(path)
        for host in ("a", "b", "c"):
            gpus = tuple(Gpu(GpuUuid(f"{host}{number}"), "A100") for number in range(4))
            await live.say(0.0, HostUp(HostName(host), gpus))
        await live.reports(10.0, "one")
        await live.reports(20.0, "two")
        await live.asks(100.0, "r1", "one", 4)
        await live.asks(160.0, "r2", "two", 4)
        await live.gives_back(400.0, "r1", 290.0)
        await live.gives_back(500.0, "r2", 95.0)
        await live.asks(600.0, "r3", "one", 2)
        await live.gives_back(700.0, "r3", 100.0)
        await live.asks(800.0, "runs on", "two", 1)
        await live.say(900.0, KernelEnded(KernelId("one")))
        await live.driver.close()

    asyncio.run(lives())
    return path


def test_cells_and_sessions_are_those_that_were(journal: Path) -> None:
    records = list(forms.read(TraceFile(journal)))
    sessions = {record.session: record for record in records if isinstance(record, Session)}
    assert (sessions["one"].at, sessions["one"].ends, sessions["one"].gpus) == (10.0, 900.0, 4)
    assert (sessions["two"].at, sessions["two"].ends, sessions["two"].user) == (20.0, 900.0, "ada")
    cells = [record for record in records if isinstance(record, Cell)]
    assert [(cell.session, cell.at, cell.duration_s, cell.gpus) for cell in cells] == [
        ("one", 100.0, 290.0, 4),
        ("two", 160.0, 95.0, 4),
        ("one", 600.0, 100.0, 2),
    ]
    assert [cell.seen and cell.seen.queued_s for cell in cells] == [0.0, 240.0, 0.0]


def test_parts_of_gpus_are_parts_and_the_hosts_of_one_cell_compute_at_once(tmp_path: Path) -> None:
    """Four kernels on a quarter of a GPU each, and a cell on two hosts of 4: an hour, all at once."""
    path = tmp_path / "journal.sqlite"

    async def lives() -> None:
        live = Live(path)
        for host in ("a", "b", "c"):
            gpus = tuple(Gpu(GpuUuid(f"{host}{number}"), "A100") for number in range(4))
            await live.say(0.0, HostUp(HostName(host), gpus))
        for number in range(4):
            wish = LeaseRequest(
                RequestId(f"r{number}"), KernelId(f"k{number}"), 1, 86_400.0, share=Share(milli=250)
            )
            await live.say(100.0, LeaseAsked(wish))
        spec = GangSpec(gang=GangId("g"), kernel_id=KernelId("wide"), user=UserName("ada"), gpus=4, hosts=2)
        await live.say(100.0, GangAsked(spec))
        for number in range(4):
            await live.gives_back(3700.0, f"r{number}", 3600.0)
        await live.say(3700.0, GangLeft(spec.gang))
        await live.asks(3800.0, "after it", "wide", 1)
        await live.gives_back(3900.0, "after it", 100.0)
        await live.driver.close()

    asyncio.run(lives())
    trace, work_h = Trace(path), 4 * 0.25 + 2 * 4 + 100 / 3600
    cells = [record for record in forms.read(TraceFile(path)) if isinstance(record, Cell)]
    assert trace.figures()["oracle_gpu_hours"] == pytest.approx(work_h)
    assert [cell.session for cell in cells].count("wide") == 2, "one of the hosts' and the cell after it"
    for policy in ("recorded", "oracle", "notebook"):
        cluster = simulate(trace, policy, "3x4", progress=False).run.cluster
        assert cluster.committed_gpus_max == 9, policy
        assert cluster.makespan_hours == pytest.approx(3830 / 3600, abs=0.01), policy
    assert simulate(trace, "recorded", "3x4").run.cluster.committed_gpu_hours == pytest.approx(work_h)


def test_recorded_figures_stand_beside_those_of_other_policies(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = ("--policy", "recorded", "--policy", "notebook", "--policy", "oracle")
    out = tmp_path / "out"
    assert main([str(journal), *policies, "--hosts", "3x4", "--quiet", "--out", str(out)]) == 0
    recorded, notebook, oracle = json.loads((out / "summary.json").read_text())["runs"]
    assert recorded["cells"]["delay_s"]["max"] == 240.0
    assert recorded["cells"]["immediate"] == pytest.approx(2 / 3)
    assert recorded["cluster"]["committed_gpu_hours"] == pytest.approx((300 * 4 + 100 * 4 + 100 * 2) / 3600)
    # Where the core may place and move replicas, nobody waits for four minutes.
    assert notebook["cells"]["served"] == 3 and notebook["cells"]["delay_s"]["max"] < 60
    assert oracle["cluster"]["committed_gpu_hours"] < recorded["cluster"]["committed_gpu_hours"]
    first = (out / "summary.json").read_bytes()
    assert main([str(journal), *policies, "--hosts", "3x4", "--quiet", "--out", str(out)]) == 0
    assert (out / "summary.json").read_bytes() == first
    assert "recorded" in capsys.readouterr().out


def test_the_journal_of_a_service_that_runs_can_be_played(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as service:
        assert service.rest.call("POST", "hosts", {"name": "a", "gpus": ["GPU-0", "GPU-1"]})[0] == 200
        for name in ("one", "two"):
            wish = {"request": name, "kernel_id": f"k-{name}", "gpus": 1, "ttl_s": 60.0}
            status, granted = service.rest.call("POST", "leases", wish)
            assert status == 201
            lease = granted["lease"]
            assert service.rest.call("DELETE", f"leases/{lease['lease']}?fence={lease['fence']}")[0] == 200
        path = scheduler_files() / "journal.sqlite"
        policies = ("--policy", "recorded", "--policy", "fcfs-batch")
        assert main([str(path), *policies, "--hosts", "1x2", "--quiet"]) == 0
        assert capsys.readouterr().out.startswith("2 sessions, 2 cells in ")
        wish = {"request": "three", "kernel_id": "k", "gpus": 1, "ttl_s": 60.0}
        assert service.rest.call("POST", "leases", wish)[0] == 201


def test_a_trace_that_does_not_say_what_happened_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = tmp_path / "cells.csv"
    cells.write_text("session,start_s,duration_s,num_gpu\na,0,60,1\n")
    assert main([str(cells), "--policy", "recorded", "--quiet"]) == 1
    assert "--policy recorded is for a scheduler's journal" in capsys.readouterr().err
    assert main([str(cells), "--policy", "recorded,x=1", "--quiet"]) == 1
    assert "write --policy recorded" in capsys.readouterr().err


def test_a_file_that_is_no_journal_is_told_in_a_sentence(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE cats (name TEXT)")
    database.close()
    assert main([str(other), "--quiet"]) == 1
    assert "cannot be read as a scheduler's journal: no such table" in capsys.readouterr().err
    with sqlite3.connect(journal) as database:
        database.execute("UPDATE replkernel_usage SET usage = '{}' WHERE number > 8")
    database.close()
    assert main([str(journal), "--quiet"]) == 1
    assert "line 2: " in capsys.readouterr().err
    assert main([str(journal), "--policy", "recorded", "--skip-bad", "--quiet"]) == 0
    with sqlite3.connect(journal) as database:
        database.execute("UPDATE replkernel_head SET version = 99")
    database.close()
    assert main([str(journal), "--quiet"]) == 1
    assert "is a journal of another version" in capsys.readouterr().err


def test_a_journal_is_played_with_the_costs_that_it_shows(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual, own = tmp_path / "usual", tmp_path / "own"
    asked = [str(journal), "--policy", "notebook", "--hosts", "3x4", "--quiet", "--rows", "csv"]
    assert main([*asked, "--out", str(usual)]) == 0
    assert main([*asked, "--out", str(own), "--costs-from", str(journal)]) == 0
    document = json.loads((own / "summary.json").read_text())
    assert document["plan"]["costs"]["session_start"] == {"mean_s": 0.0, "sigma_s": 0.0}
    with sqlite3.connect(journal) as database:
        rows = [json.loads(row) for (row,) in database.execute("SELECT usage FROM replkernel_usage")]
    beside = sorted((row["leased_s"] - row["busy_s"]) / 2 for row in rows if row["busy_s"])
    load = document["plan"]["costs"]["load"]["quantiles"]
    assert (load[0], load[-1]) == (pytest.approx(beside[0]), pytest.approx(beside[-1]))
    assert main([*asked, "--costs-from", str(tmp_path / "none.sqlite")]) == 1
    assert "cannot be read as a scheduler's journal" in capsys.readouterr().err


def test_costs_are_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, costs = tmp_path / "cells.csv", tmp_path / "costs.toml"
    trace.write_text("session,start_s,duration_s,num_gpu,session_start_s\na,100,50,1,0\n")
    asked = [str(trace), "--policy", "fcfs-batch", "--hosts", "1x4", "--quiet", "--costs", str(costs)]
    costs.write_text(
        "[start_cold]\nmean_s = 60\n[state_read]\nlow_s = 5\nhigh_s = 5\n"
        "[elect]\nmean_s = 0\n[load]\nmean_s = 1\n"
    )
    out = tmp_path / "out"
    assert main([*asked, "--out", str(out), "--rows", "csv"]) == 0
    header, row = (line.split(",") for line in (out / "fcfs-batch.csv").read_text().splitlines())
    times = dict(zip(header, row, strict=True))
    assert float(times["started_s"]) - float(times["bound_s"]) == 66.0
    for text, why in [
        ("[colour]\nmean_s = 1\n", "there is no cost 'colour'; there are start_cold"),
        ("[load]\nmean_s = -1\n", "load is not told by mean_s"),
        ("[load]\nmean_s = 1\nhigh_s = 2\n", "load is not told by mean_s"),
        ("load = 3\n", "load is not told by mean_s"),
        ("[load]\np50_s = 3\np99_s = 1\n", "load has a p99_s of 1 below its p50_s of 3: exchange them"),
        ("[load]\nlow_s = 3\nhigh_s = 1\n", "load has a high_s of 1 below its low_s of 3: exchange them"),
        ("[load\n", "cannot be read as a file of costs"),
    ]:
        costs.write_text(text)
        assert main(asked) == 1
        assert why in capsys.readouterr().err
    assert main([*asked, "--costs-from", str(trace)]) == 1
    assert "leave out one of them" in capsys.readouterr().err


def test_a_cell_of_a_kernel_that_ran_already_does_not_wait_for_its_start() -> None:
    row = {"session": "a", "start_s": 100, "duration_s": 50, "num_gpu": 1, "session_start_s": 100}
    trace = Trace.of_rows([row])

    def delay_s(costs: Costs) -> float:
        cells = simulate(trace, "notebook", "3x4", costs=costs).cells
        (delay,) = [row["started_s"] - row["submitted_s"] for row in cells.rows()]  # type: ignore[operator]
        return delay

    assert delay_s(Costs()) > 5
    assert delay_s(Costs(session_start=Normal(0.0))) < 1
