"""A graph of a million objects beside small cells: nobody waits for it, and it is never stale in silence."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.ending import lose
from tests.support.live import CELL_S, Live, eventually, kernel
from tests.support.shared_place import _kernel_in_reach, _own_directories, place

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

pytestmark = pytest.mark.timeout(240)

ITEMS = 1_000_000
NEWS_S = 0.5
ENDS_WITHIN_S = 10.0
"""Long enough for a loaded machine; a sync that went on would make its cell durable."""
STATE = "%replkernel state"
TRIES = 5
HIDDEN_CHANGE = "import os; globals()['b' + 'ig'][0].append('new'); small = 2; print(os.getpid())"
LONG = f"{STATE}\nimport time; print('begun', flush=True); [time.sleep(0.1) for _ in range(6000)]"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with kernel(tmp_path) as running:
        yield running


def durability(live: Live, name: str) -> str:
    """Return what the state's table says of one variable."""
    return said_of(name, live.value(STATE))


def said_of(name: str, table: str) -> str:
    for line in table.splitlines():
        found = re.match(
            rf"{name}\s+[\d,]+\s+(?:[\d.]+ ms\s+)?(yes|pending|not checked since cell \d+)", line
        )
        if found:
            return found[1]
    return ""


def busy_with(live: Live, request: str) -> None:
    """Wait until a cell has begun."""
    while True:
        message = live.client.get_iopub_msg(timeout=CELL_S)
        if message["parent_header"].get("msg_id") == request and message["msg_type"] == "execute_input":
            return


def build(live: Live, items: int = ITEMS) -> None:
    """Make the graph and wait until it is safe, which on a busy machine takes more than a minute."""
    live.value(f"big = [[i] for i in range({items})]; small = 0", 120)
    live.value("%replkernel sync", 120)
    assert durability(live, "big") == "yes"


def unchecked(live: Live) -> tuple[int, int, int, str]:
    """Change the graph and begin a long cell before the change is checked: while it runs no check is made.

    Return the process, a cell before the change, the last one before the long one, and that one's request.
    An audit takes its share of the time: the next one is not due for four times as long. Where the cells took
    longer than that, all of it is done again.
    """
    for _ in range(TRIES):
        checked = live.run("small = 1; del big[0][1:]").reply["content"]["execution_count"]
        live.value("%replkernel sync")
        assert durability(live, "big") == "yes"
        pid = int(live.value(HIDDEN_CHANGE))
        live.run("pass")
        last = live.run("pass").reply["content"]["execution_count"]
        long = live.client.execute(LONG)
        shown = ""
        while "begun" not in shown:
            shown += live.client.get_iopub_msg(timeout=CELL_S)["content"].get("text", "")
        if said_of("big", shown).startswith("not checked since cell "):
            return pid, checked, last, long
        live.manager.interrupt_kernel()
        assert live.reply(long)["content"]["ename"] == "KeyboardInterrupt"
    raise AssertionError(f"the change was checked before the long cell, {TRIES} times")


def test_cells_that_changed_what_was_not_checked_before_a_process_died_are_named_once(live: Live) -> None:
    build(live)
    pid, checked, last, long = unchecked(live)
    os.kill(pid, signal.SIGKILL)
    assert live.reply(long)["content"]["ename"] == "ExecutorLost"
    after = live.run("print([small, big[0]])", 120)
    assert after.out.strip() == "[1, [0]]"
    said = re.findall(
        r"the notebook is back at cell (\d+) \(\d+ s ago\); run cells (\d+) to (\d+) again\.", after.err
    )
    assert len(said) == 1, after.err
    assert checked <= int(said[0][0]) == int(said[0][1]) - 1
    assert last <= int(said[0][2])
    assert live.run("small").err == ""
    lost = rf"^Cells {said[0][1]} (and|to) {said[0][2]} were lost \d+ s ago, when replica r\d died"
    assert re.search(lost, live.value(STATE), re.MULTILINE)
    assert "lost" not in live.value("%replkernel sync"), "it is told once"
    for _ in range(int(said[0][2]) - int(said[0][0])):
        live.value("small")
    assert "lost" not in live.value(STATE), "those cells were run again"


@pytest.mark.slow
def test_a_variable_shared_with_the_graph_is_one_object_after_a_move(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_EXECUTOR="rotate") as live:
        eventually(lambda: len({live.run("pass").replica for _ in range(3)}) == 3, "three replicas")
        live.value("big = [[i] for i in range(300_000)]; small = 0", 120)
        live.value("y = big[7]; small = 1", 120)
        seen = [
            live.run("y.append(small); small += 1; print([big[7] is y, len(y), small])", 120)
            for _ in range(3)
        ]
        assert [ran.out.strip() for ran in seen] == ["[True, 2, 2]", "[True, 3, 3]", "[True, 4, 4]"]
        assert len({ran.replica for ran in seen}) == 3
        assert [ran.err for ran in seen] == ["", "", ""]


def test_a_reply_that_says_durable_has_the_graph_checked(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_DURABLE="before_reply") as live:
        live.value("big = [[i] for i in range(300_000)]", 120)
        ran = live.run("globals()['b' + 'ig'][0].append('new')", 120)
        assert ran.said["durable"] is True
        pid = int(live.value("import os; print(os.getpid())", 120))
        lose(pid)
        after = live.run("print(big[0])", 120)
        assert (after.out.strip(), after.err) == ("[0, 'new']", "")


@pytest.mark.slow
def test_a_cell_that_asks_to_sync_leaves_nothing_to_be_checked(live: Live) -> None:
    live.value(f"big = [[i] for i in range({ITEMS})]; small = 0", 120)
    pid = int(live.value(HIDDEN_CHANGE))
    said = live.run("%replkernel sync", 120)
    assert said.said["durable"] is True
    assert re.search(r"^Durable up to this cell: \d+ components, [\d,]+ bytes\.$", said.out, re.MULTILINE)
    lose(pid)
    after = live.run("print([small, big[0]])", 120)
    assert (after.out.strip(), after.err) == ("[2, [0, 'new']]", "")


@pytest.mark.slow
def test_an_interrupt_ends_a_sync_and_says_so(live: Live) -> None:
    live.value(f"big = [[i] for i in range({3 * ITEMS})]", 120)
    request = live.client.execute("%replkernel sync")
    busy_with(live, request)
    time.sleep(NEWS_S)
    live.manager.interrupt_kernel()
    began = time.monotonic()
    reply = live.reply(request)
    assert time.monotonic() - began < ENDS_WITHIN_S
    assert reply["metadata"]["replkernel"]["durable"] is False
    assert live.value("print(len(big))", 120).strip() == str(3 * ITEMS)
