"""Twelve notebooks of three users of a real JupyterHub share the eight GPUs of two hosts, cell by cell.

Once with routers that are played, once with real notebooks; the scheduler, its channel, the Hub and its proxy
are real both times.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from replkernel.leasing.wire import Denied, Granted
from tests.e2e.test_hub_holders_gone import long_cell
from tests.support import hub as running
from tests.support.lease_clients import Agent, Book, Router, opened
from tests.support.lease_history import read_history
from tests.support.live import eventually
from tests.support.server_life import Page
from tests.support.shared_hub import AGENTS_TOKEN, HOSTS, SPAWNED, SharedHub, offering, shared_hub

NOTEBOOKS = [("alice", gpus) for gpus in (1, 2, 3, 4)] + [("bob", gpus) for gpus in (1, 2, 3, 4)]
NOTEBOOKS += [("carol", 1)] * 4
"""User and GPUs of each: carol's group lets her have four at once."""
CELLS = 4
CELL_S = 0.2
START_S = 180.0
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterhub") is None,
        reason="JupyterHub is not installed: pip install -e .[dev]",
    ),
]


@pytest.mark.slow
def test_twelve_routers_share_eight_gpus_and_none_is_leased_twice(short_dir: Path) -> None:
    need_a_proxy()
    with shared_hub(short_dir) as hub:
        book = Book()
        asyncio.run(play(hub, book))
        journal = hub.journal
    history = read_history(journal)
    assert book.cells == len(NOTEBOOKS) * CELLS
    assert not book.holders
    assert history.leases == book.cells + 2
    assert history.users == {"alice", "bob", "carol"}
    assert len(history.kernels) == len(NOTEBOOKS)
    assert len(history.gpus) == 8
    assert history.queued > 0
    assert any("gpu_quota of carol is 4 GPUs at once" in why for why in history.refused)


def need_a_proxy() -> None:
    """Skip the test where the Hub's proxy cannot be had."""
    try:
        running.find_proxy()
    except FileNotFoundError as error:
        pytest.skip(str(error))


async def play(hub: SharedHub, book: Book) -> None:
    """Have all cells run at once; then see what another user's lease and a quota are."""
    agents = [Agent(hub.url, AGENTS_TOKEN, host, 4) for host in HOSTS]
    routers = [
        Router(hub.url, hub.token(user), f"{user}-{number}", HOSTS)
        for number, (user, _) in enumerate(NOTEBOOKS)
    ]
    async with opened(*agents, *routers):
        await asyncio.gather(
            *(notebook(router, book, gpus) for router, (_, gpus) in zip(routers, NOTEBOOKS, strict=True))
        )
        await nobody_touches_anothers(hub, routers[0])
        await nobody_has_more_than_the_quota(*routers[-2:])


async def notebook(router: Router, book: Book, gpus: int) -> None:
    """Run the cells of one notebook, one after the other."""
    for _ in range(CELLS):
        assert await router.cell(book, gpus, CELL_S) in HOSTS


async def nobody_touches_anothers(hub: SharedHub, alice: Router) -> None:
    """Bob cannot give back a lease of alice's."""
    answer = await alice.ask(1)
    assert isinstance(answer, Granted)
    lease = answer.lease
    address = f"leases/{lease.lease}?fence={lease.fence}"
    status, said = await asyncio.to_thread(hub.ask, hub.token("bob"), "DELETE", address)
    assert status == 403 and "another user's" in said["why"]
    alice.give_back(lease)


async def nobody_has_more_than_the_quota(holder: Router, other: Router) -> None:
    """Carol, who has one GPU, does not get four more though they are idle."""
    held = await holder.ask(1)
    assert isinstance(held, Granted)
    refused = await other.ask(4)
    assert isinstance(refused, Denied)
    assert (
        "gpu_quota of carol is 4 GPUs at once; 1 are in use, 0 are waited for, and this asks for 4"
        in refused.why
    )
    holder.give_back(held.lease)


CELL = """
import os, time
began, gpus = time.monotonic(), os.environ["CUDA_VISIBLE_DEVICES"]
time.sleep(0.3)
print("ran", began, time.monotonic(), gpus)
"""


class Ran(NamedTuple):
    """When a cell ran (on the one clock of this machine), and which GPUs it saw."""

    began: float
    ended: float
    gpus: tuple[str, ...]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_cells_of_twelve_notebooks_share_eight_gpus(short_dir: Path) -> None:
    """Real notebooks at the users' own servers; their kernels have replicas on both hosts."""
    need_a_proxy()
    with shared_hub(short_dir, SPAWNED) as hub, contextlib.ExitStack() as stack:
        for host in HOSTS:
            stack.enter_context(offering(hub, short_dir / "agents", host, 4))
        hub.running.start_servers("alice", "bob", "carol")
        pages = [
            stack.enter_context(hub.running.page(user, hub.open_notebook(user, number)))
            for number, (user, _) in enumerate(NOTEBOOKS)
        ]
        for page in pages:
            page.run("x = 0", within_s=START_S)
        with ThreadPoolExecutor(len(pages)) as threads:
            work = [
                threads.submit(cells, page, gpus) for page, (_, gpus) in zip(pages, NOTEBOOKS, strict=True)
            ]
            ran = [cell for done in work for cell in done.result()]
        refusal = over_the_quota(*pages[-2:], short_dir)
        journal = hub.journal
    history = read_history(journal)
    assert [len(cell.gpus) for cell in ran] == [gpus for _, gpus in NOTEBOOKS for _ in range(CELLS)]
    nothing_shared(ran)
    assert "gpu_quota of carol is 4 GPUs at once" in refusal
    assert history.users == {"alice", "bob", "carol"}
    assert len(history.kernels) == len(NOTEBOOKS)
    assert len(history.gpus) == 8


def cells(page: Page, gpus: int) -> list[Ran]:
    """Run the cells of one notebook, one after the other."""
    ran = []
    for _ in range(CELLS):
        printed = page.run(CELL, within_s=240.0, gpus=gpus).split("ran ")[-1].split()
        ran.append(Ran(float(printed[0]), float(printed[1]), tuple(printed[2].split(","))))
    return ran


def nothing_shared(ran: list[Ran]) -> None:
    """Fail if two cells saw one GPU at a time."""
    until: dict[str, Ran] = {}
    for cell in sorted(ran):
        for gpu in cell.gpus:
            before = until.get(gpu)
            assert before is None or before.ended <= cell.began, (gpu, before, cell)
            until[gpu] = cell


def over_the_quota(holder: Page, other: Page, directory: Path) -> str:
    """Have a cell ask for four GPUs while another of the same user has one; return what it is told."""
    began, over = directory / "began", directory / "over"
    long = long_cell(holder, began, over)
    eventually(began.exists, "the cell that has a GPU", START_S)
    told = other.fail("1", gpus=4)
    over.touch()
    assert holder.answer(long, START_S)[1] == "done"
    return told
