"""Replicas on machines of their own: cells, moves, lost machines, cut cables, the server's return."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.hosts.machine import wait_until
from tests.e2e.hosts.site import ADDRESSES, HOSTS, LAB, Site, run_everywhere, where

pytestmark = pytest.mark.timeout(180)

DAY_S = 86_400.0
FAULTY = Path(__file__).parents[2] / "support" / "faulty"


def test_each_cell_runs_on_another_machine_and_sees_the_same_variables(site: Site) -> None:
    site.start_server(executor="rotate")
    with site.page(site.open_notebook()) as page:
        page.run("import socket, numpy; rows = []; view = numpy.zeros(400_000)")
        run_everywhere(page, site.hosts)
        cell = "rows.append({0}); view[{0}] = 1; print(socket.gethostname(), view.sum())"
        seen = [page.run(cell.format(turn)).split() for turn in range(6)]
        assert [total for _, total in seen] == [f"{turn}.0" for turn in range(1, 7)]
        assert {host for host, _ in seen} == set(site.hosts)
        assert page.run("print(rows)") == "[0, 1, 2, 3, 4, 5]"


@pytest.mark.slow
def test_a_machine_without_power_costs_nothing_that_was_durable(site: Site) -> None:
    site.start_server(host_lost_s="2", durable="before_reply")
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        page.run("kept = list(range(1000))")
        first = where(page)
        wait_until(lambda: len(site.homes(kernel)) == 3, 60, "three replicas")
        site.machines[first].crash()
        assert "its host" in page.fail("kept.append(1)")
        assert where(page) != first
        site.machines[first].boot()
        site.start_agent(first)
        wait_until(lambda: first in site.homes(kernel).values(), 60, "a replica is there again")
        assert page.run("print(sum(kept))") == "499500"


@pytest.mark.slow
def test_a_cell_that_is_sent_while_its_machine_is_cut_off_runs_once_when_the_cable_is_back(
    site: Site,
) -> None:
    site.start_server(host_lost_s="60", durable="before_reply")
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        page.run("runs = 0")
        host = site.machines[where(page)]
        wait_until(lambda: len(site.homes(kernel)) == 3, 60, "three replicas")
        host.cut()
        time.sleep(1)
        asked = page.send("runs += 1; print(runs)")
        time.sleep(8)  # Longer than agent and router bear each other's silence.
        host.mend()
        reply, printed = page.answer(asked, 60)
        assert (reply["status"], printed.splitlines()[-1]) == ("ok", "1")
        assert page.run("runs += 1; print(runs)") == "2"


@pytest.mark.slow
def test_a_spare_machine_takes_the_place_of_one_that_is_gone(make_site: Callable[..., Site]) -> None:
    site = make_site(HOSTS)
    site.start_agents()
    site.start_server(host_lost_s="2", durable="before_reply")
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        page.run("kept = {'a': [1]}; kept['b'] = kept['a']")
        wait_until(lambda: set(site.homes(kernel).values()) == set(HOSTS[:3]), 60, "three replicas")
        gone = next(host for host in HOSTS[:3] if host != where(page))
        site.machines[gone].crash()
        left = set(HOSTS) - {gone}
        wait_until(lambda: set(site.homes(kernel).values()) == left, 60, "the spare machine has a replica")
        assert page.run("print(kept, kept['a'] is kept['b'])") == "{'a': [1], 'b': [1]} True"


@pytest.mark.slow
def test_a_server_that_is_killed_finds_its_kernel_on_the_other_machines_again(site: Site) -> None:
    site.start_server(durable="before_reply")
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        page.run("mark = object(); name = id(mark)")
        host = where(page)
    site.stop_server(signal.SIGKILL)
    site.start_server()
    with site.page(kernel, "another") as page:
        assert page.run("print(id(mark) == name)") == "True"
        assert where(page) == host


@pytest.mark.slow
def test_replicas_outlive_the_machine_of_the_server(site: Site) -> None:
    site.start_server(durable="before_reply")
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        page.run("kept = 17")
    site.machines[LAB].crash()
    site.machines[LAB].boot()
    site.start_server()
    with site.page(kernel, "another") as page:
        assert page.run("print(kept)") == "17"


@pytest.mark.slow
def test_machines_that_share_nothing_but_a_secret(make_site: Callable[..., Site]) -> None:
    site = make_site(shared=False)
    site.start_store()
    site.start_agents()
    site.start_server(executor="rotate")
    with site.page(site.open_notebook()) as page:
        page.run("import numpy; rows = []; large = numpy.arange(500_000)")
        run_everywhere(page, site.hosts)
        hosts = {
            page.run(f"rows.append({turn}); import socket; print(socket.gethostname())") for turn in range(3)
        }
        assert hosts == set(site.hosts)
        assert page.run("print(rows, large.sum())") == "[0, 1, 2] 124999750000"
    assert "gpu1 at 10.78.0.1:7700; gpu2 at" in site.machines[LAB].ask(["replkernel", "doctor"], site.env)
    site.machines["gpu2"].crash()
    told = site.machines[LAB].ask(["replkernel", "doctor"], site.env)
    assert "gpu2 does not answer (10.78.0.2:7700 cannot be reached" in told


@pytest.mark.slow
def test_an_agent_that_is_not_there_is_not_started_in_another_machines_place(site: Site) -> None:
    site.machines["gpu2"].crash()
    site.start_server()
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        assert page.run("print(1 + 1)") == "2"
        wait_until(lambda: len(site.homes(kernel)) == 2, 60, "the two machines that there are")
        assert set(site.homes(kernel).values()) == {"gpu1", "gpu3"}
        assert not any("gpu2" in line for line in site.machines[LAB].ask(["ps", "ax"], site.env).splitlines())


@pytest.mark.slow
def test_machines_of_several_networks_use_the_address_and_the_ports_they_are_told(
    make_site: Callable[..., Site],
) -> None:
    site = make_site()
    for host in site.hosts:
        where_to = ("--bind", "0.0.0.0", "--advertise", site.machines[host].address)
        site.start_agent(host, *where_to, "--ports", "7700-7799", "--port", "7700")
    site.start_server(executor="rotate")
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        hosts = set[str]()
        wait_until(lambda: hosts.add(where(page)) or hosts == set(site.hosts), 60, "a cell on each host")
        assert len(site.homes(kernel)) == 3
    for host in site.hosts:
        assert site.agent_file(host)["far_endpoint"].startswith(f"curve://{ADDRESSES[host]}:7700/")
        lines = site.machines[host].ask(["ss", "-ltnH"], site.env).splitlines()
        places = [line.split()[3].rpartition(":") for line in lines]
        ports = {int(port) for address, _, port in places if not address.startswith("127.")}
        assert len(ports) == 7, "the agent, its Raft member, and five of the kernel process"
        assert ports <= set(range(7700, 7800))


@pytest.mark.slow
def test_machines_whose_clocks_are_days_apart(make_site: Callable[..., Site], tmp_path: Path) -> None:
    site = make_site()
    wrong = {"gpu1": -3 * DAY_S, "gpu2": 0.0, "gpu3": 5 * DAY_S}
    for host, by_s in wrong.items():
        clock = tmp_path / f"clock-{host}"
        clock.write_text(str(by_s))
        sources = f"{FAULTY}{os.pathsep}{site.env['PYTHONPATH']}"
        site.start_agent(host, env={"PYTHONPATH": sources, "REPLKERNEL_TEST_CLOCK": str(clock)})
    site.start_server(executor="rotate", host_lost_s="2", durable="before_reply")
    kernel = site.open_notebook()
    with site.page(kernel) as page:
        page.run("import numpy; rows = []; view = numpy.zeros(400_000)")
        for turn in range(6):
            page.run(f"rows.append({turn}); view[{turn}] = 1")
        wait_until(lambda: len(site.homes(kernel)) == 3, 60, "three replicas")
        site.machines["gpu2"].crash()
        for _ in site.hosts:  # The cell whose turn it was on the machine that is gone ends with that.
            page.answer(page.send("pass"), 60)
        assert page.run("print(rows, view.sum())").splitlines()[-1] == "[0, 1, 2, 3, 4, 5] 6.0"
        page.run("%replkernel hibernate", within_s=60)
        assert page.run("print(len(rows))", within_s=60).splitlines()[-1] == "6"


@pytest.mark.slow
def test_a_machine_without_the_notebooks_directory_gets_its_replica_once_it_is_there(site: Site) -> None:
    work = site.home / "only" / "work"
    work.mkdir(parents=True)
    bare = site.hosts[-1]
    site.machines[bare].ask(["mount", "-t", "tmpfs", "none", str(work.parent)], site.env)
    site.start_server()
    kernel = site.open_notebook("only/work/n.ipynb")
    with site.page(kernel) as page:
        assert page.run("import os; print(os.getcwd())").splitlines()[-1] == str(work)
        refused = f"Host {bare} gets no replica of this kernel: the directory {work} is not there"
        wait_until(lambda: refused in site.server.log.read_text(), 60, "the machine is refused by name")
        wait_until(lambda: len(site.homes(kernel)) == 2, 60, "two replicas")
        assert bare not in site.homes(kernel).values()
        site.machines[bare].ask(["umount", str(work.parent)], site.env)
        wait_until(lambda: bare in site.homes(kernel).values(), 60, "the third replica")
