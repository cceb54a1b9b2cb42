"""Twelve notebooks of three users of a real JupyterHub share the eight GPUs of two hosts, cell by cell."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import pytest

from replkernel.leasing.wire import Denied, Granted
from tests.support import hub as running
from tests.support.lease_clients import Agent, Book, Router, opened
from tests.support.lease_history import read_history
from tests.support.shared_hub import AGENTS_TOKEN, SharedHub, shared_hub

HOSTS = ("one", "two")
NOTEBOOKS = [("alice", gpus) for gpus in (1, 2, 3, 4)] + [("bob", gpus) for gpus in (1, 2, 3, 4)]
NOTEBOOKS += [("carol", 1)] * 4
"""User and GPUs of each: carol's group lets her have four at once."""
CELLS = 4
CELL_S = 0.2
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        importlib.util.find_spec("jupyterhub") is None,
        reason="JupyterHub is not installed: pip install -e .[dev]",
    ),
]


def test_twelve_routers_share_eight_gpus_and_none_is_leased_twice(short_dir: Path) -> None:
    """The routers are played; the scheduler, its channel, the Hub and its proxy are real."""
    try:
        running.find_proxy()
    except FileNotFoundError as error:
        pytest.skip(str(error))
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
    assert "gpu_quota of carol is 4 GPUs at once; 1 are in use, 0 asked for, 4 more are wanted" in refused.why
    holder.give_back(held.lease)
