"""Replicas on machines of their own: cells, moves, lost machines, cut cables, the server's return."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.e2e.hosts.machine import wait_until
from tests.e2e.hosts.site import HOSTS, LAB, Site, where

pytestmark = pytest.mark.timeout(180)


def test_each_cell_runs_on_another_machine_and_sees_the_same_variables(site: Site) -> None:
    site.start_server(executor="rotate")
    with site.page(site.open_notebook()) as page:
        page.run("import socket, numpy; rows = []; view = numpy.zeros(400_000)")
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
        hosts = {
            page.run(f"rows.append({turn}); import socket; print(socket.gethostname())") for turn in range(3)
        }
        assert hosts == set(site.hosts)
        assert page.run("print(rows, large.sum())") == "[0, 1, 2] 124999750000"


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
