"""Widgets that a page shows go on in the next process, after a loss, a rest or a move, without a cell."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replkernel.settings import data_dir
from tests.support.group import replicas
from tests.support.live import Live, eventually, kernel, published
from tests.support.resting import replica_pids
from tests.support.shared_place import _kernel_in_reach, _own_directories, place

__all__ = ["_kernel_in_reach", "_own_directories", "place"]

pytestmark = pytest.mark.timeout(180)

REST_S = 2.0
"""So long nothing comes once all that was done is in the log."""

CELL = """
import ipywidgets as w, os
log = []
def shown():
    slider = w.IntSlider(3); label = w.Label('')
    def moved(change):
        log.append(change['new']); label.value = f"now {change['new']}"
    slider.observe(moved, 'value')
    return slider.model_id, label.model_id
doubled = w.interactive(lambda x: print(x * 2), x=(0, 9))
print(*shown(), doubled.children[0].model_id, doubled.out.model_id, os.getpid())
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """Return a kernel of the test's own, whose agent has forked those of the tests before it."""
    with kernel(tmp_path) as running:
        yield running
    eventually(lambda: not replicas(), "the end of all replicas")


def applied() -> list[int]:
    """Return up to which entry of the log each replica has come."""
    return [one.raft.applied if one.raft else 0 for one in replicas().values()]


def at_rest() -> int:
    """Return the newest entry of the log once each replica has it, and none has come for a while."""
    last, since = applied(), time.monotonic()
    while len(set(last)) > 1 or time.monotonic() - since < REST_S:
        time.sleep(0.1)
        if (now := applied()) != last:
            last, since = now, time.monotonic()
    return last[0]


def asked(live: Live, kind: str) -> dict[str, Any]:
    """Return what the router answers."""
    message = live.client.session.msg(kind)
    live.client.control_channel.send(message)
    while True:
        told = live.client.get_control_msg(timeout=60)
        if told["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            return dict(told["content"])


def lacks_nothing(live: Live) -> bool:
    """Tell whether the router knows that the log has all, also what pages did; nothing is hurried by this."""
    told = asked(live, "replkernel_save_request")
    return told["status"] == "ok" and not told["busy"]


def killed(pid: int) -> None:
    """Kill the process that ran the cells; return once another one has its place."""
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: pid not in {one.kernel_pid for one in replicas().values()}, "another process")


def subshell_for(live: Live) -> str:
    """Return a subshell as JupyterLab makes one for widgets."""
    live.client.control_channel.send(live.client.session.msg("create_subshell_request"))
    return str(live.client.get_control_msg(timeout=30)["content"]["subshell_id"])


def moved(live: Live, widget: str, value: int, subshell: str | None = None) -> list[tuple[str, str, Any]]:
    """Move a widget as a page does; return what it hears: kind, whom it concerns, and what is said."""
    data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
    message = live.client.session.msg("comm_msg", {"comm_id": widget, "data": data})
    message["header"]["subshell_id"] = subshell
    live.client.shell_channel.send(message)
    return [
        (one["msg_type"], one["content"].get("comm_id", ""), one["content"].get("data") or one["content"])
        for one in published(live.client, message["header"]["msg_id"])
    ]


def states(heard: list[tuple[str, str, Any]], widget: str) -> list[dict[str, Any]]:
    """Return what was said of one widget's state."""
    return [data["state"] for kind, known, data in heard if kind == "comm_msg" and known == widget]


def test_widgets_on_the_page_go_on_in_the_next_process(live: Live) -> None:
    slider, label, x, out, pid = live.value(CELL).splitlines()[-1].split()
    live.value("%replkernel sync")
    killed(int(pid))
    heard = moved(live, slider, 7)
    assert states(heard, label)[-1] == {"value": "now 7"}
    assert {"value": 7} in states(heard, slider)
    assert not [kind for kind, *_ in heard if kind == "comm_close"]
    heard = moved(live, x, 3)
    assert "".join(data["text"] for kind, _, data in heard if kind == "stream") == "6\n"
    assert [state["msg_id"] != "" for state in states(heard, out) if "msg_id" in state] == [True, False]
    assert live.value("print(log, doubled.children[0].value, os.getpid())").split()[:2] == ["[7]", "3"]
    known = live.reply(live.client.comm_info("jupyter.widget"))["content"]["comms"]
    assert {slider, label, x, out} <= known.keys()


@pytest.mark.parametrize("in_subshell", [False, True])
def test_a_slider_that_is_moved_as_its_process_is_killed_is_moved_in_the_next(
    live: Live, in_subshell: bool
) -> None:
    slider, label, _, _, pid = live.value(CELL).splitlines()[-1].split()
    subshell = subshell_for(live) if in_subshell else None
    live.value("%replkernel sync")
    os.kill(int(pid), signal.SIGKILL)
    assert states(moved(live, slider, 7, subshell), label)[-1] == {"value": "now 7"}
    assert live.value("print(log)") == "[7]"


def test_a_page_goes_on_though_its_subshell_for_widgets_ended_with_the_process(live: Live) -> None:
    """JupyterLab has one, and names it in all that it says of widgets."""
    slider, label, _, _, pid = live.value(CELL).splitlines()[-1].split()
    subshell = subshell_for(live)
    live.value("%replkernel sync")
    assert states(moved(live, slider, 4, subshell), label)[-1] == {"value": "now 4"}
    killed(int(pid))
    assert states(moved(live, slider, 7, subshell), label)[-1] == {"value": "now 7"}


def test_a_slider_that_a_page_moved_is_durable_without_another_cell(live: Live) -> None:
    slider, label, _, _, pid = live.value(CELL).splitlines()[-1].split()
    live.value("%replkernel sync")
    before = at_rest()
    assert states(moved(live, slider, 7), label) == [{"value": "now 7"}]
    eventually(lambda: lacks_nothing(live), "the move in the log")
    eventually(lambda: min(applied()) > before, "the move in every log")
    killed(int(pid))
    assert live.value("print(log)") == "[7]"
    assert states(moved(live, slider, 8), label) == [{"value": "now 8"}]
    assert live.value("print(log)") == "[7, 8]"


def test_a_page_shows_what_there_is_after_a_loss(live: Live) -> None:
    slider, _, _, _, pid = live.value(CELL + "log.append('kept')").splitlines()[-1].split()
    live.value("log.append('last')")
    live.value("%replkernel sync")
    killed(int(pid))
    ran = live.run("print(log)")
    assert ran.out == "['kept', 'last']\n"
    told = [content for kind, content in ran.messages if kind == "comm_msg"]
    assert {one["comm_id"]: one["data"]["state"].get("value") for one in told}.get(slider) == 3


def test_a_widget_that_went_with_its_process_leaves_the_page(live: Live) -> None:
    gone, pid = live.value("import os, ipywidgets as w; print(w.IntText().model_id, os.getpid())").split()
    live.value("%replkernel sync")
    killed(int(pid))
    assert ("comm_close", gone, {"comm_id": gone, "data": {}}) in moved(live, gone, 1)


def asked_to_rest(live: Live) -> dict[str, Any]:
    """Return what a kernel answers that is to hibernate, without a cell."""
    return asked(live, "replkernel_hibernate_request")


def test_what_a_subshell_did_that_is_closed_is_there_after_a_rest(live: Live) -> None:
    live.value("kept = 1")
    subshell = subshell_for(live)
    message = live.client.session.msg("execute_request", {"code": "kept = 2", "silent": False})
    message["header"]["subshell_id"] = subshell
    live.client.shell_channel.send(message)
    assert live.reply(message["header"]["msg_id"])["content"]["status"] == "ok"
    closing = live.client.session.msg("delete_subshell_request", {"subshell_id": subshell})
    live.client.control_channel.send(closing)
    assert live.client.get_control_msg(timeout=30)["content"]["status"] == "ok"
    rest(live)
    assert live.value("print(kept)") == "2"


def rest(live: Live) -> None:
    """Have the kernel hibernate."""
    assert asked_to_rest(live) == {"status": "ok", "state": "hibernated"}
    eventually(lambda: not replica_pids(), "the end of all replicas")


def test_an_object_that_a_page_shows_like_a_widget_holds_the_notebook_until_it_is_closed(
    live: Live,
) -> None:
    """So anywidget shows objects of any class."""
    opened = "import comm; _ = comm.create_comm(target_name='jupyter.widget', comm_id='shown')"
    live.value(opened)
    live.value("%replkernel sync")
    assert "The page shows an object" in asked_to_rest(live)["evalue"]
    live.value("_ = comm.get_comm_manager().comms['shown'].close()")
    live.value("%replkernel sync")
    rest(live)


@pytest.mark.parametrize("subshell", [False, True], ids=["main", "subshell"])
def test_a_notebook_with_a_live_slider_hibernates_and_the_slider_wakes_it(live: Live, subshell: bool) -> None:
    """What is moved is there after each rest, though no cell has run between them."""
    slider, label, _, _, pid = live.value(CELL).splitlines()[-1].split()
    eventually(lambda: len(replica_pids()) == 3, "three replicas")
    named = subshell_for(live) if subshell else None
    assert states(moved(live, slider, 4, named), label)[-1] == {"value": "now 4"}
    for value in (5, 6):
        rest(live)
        heard = moved(live, slider, value, named)
        assert states(heard, label)[-1] == {"value": f"now {value}"}
        assert not [kind for kind, *_ in heard if kind == "comm_close"]
    rest(live)
    now = live.value("print(log, os.getpid())").split("] ")
    assert now[0] == "[4, 5, 6"
    assert now[1] != pid


def test_a_page_goes_on_where_the_router_dies_right_after_it_has_woken_the_notebook(live: Live) -> None:
    slider, label, *_ = live.value(CELL).splitlines()[-1].split()
    eventually(lambda: len(replica_pids()) == 3, "three replicas")
    rest(live)
    assert states(moved(live, slider, 4), label)[-1] == {"value": "now 4"}
    os.kill(live.manager.provisioner.pid, signal.SIGKILL)
    eventually(lambda: not live.manager.is_alive(), "the router's end")
    live.manager.restart_kernel(now=True)
    live.client.wait_for_ready(timeout=30)
    assert states(moved(live, slider, 5), label) == [{"value": "now 5"}]
    assert live.value("print(log)") == "[4, 5]"


def test_nothing_is_done_for_a_page_while_variables_cannot_be_had(live: Live) -> None:
    slider, label, *_ = live.value(CELL + "kept = os.urandom(3_000_000)").splitlines()[-1].split()
    eventually(lambda: len(replica_pids()) == 3, "three replicas")
    rest(live)
    kept = data_dir(os.environ)
    held = [path for place in ("blobs", "cache") for path in kept.glob(f"**/{place}/*/*") if path.is_file()]
    assert held
    for path in held:
        path.rename(path.with_name(f".{path.name}.away"))
    heard = moved(live, slider, 7)
    (why,) = [told["text"] for kind, _, told in heard if kind == "stream"]
    assert "What you did with a widget had no effect" in why
    assert [kind for kind, *_ in heard if kind == "comm_close"] == states(heard, label) == []
    for path in held:
        path.with_name(f".{path.name}.away").rename(path)
    heard = moved(live, slider, 8)
    assert states(heard, label)[-1] == {"value": "now 8"}
    assert live.value("print(log, len(kept))") == "[8] 3000000"


def test_a_slider_goes_along_when_cells_move(tmp_path: Path) -> None:
    with kernel(tmp_path, REPLKERNEL_EXECUTOR="rotate") as live:
        ran = live.run(CELL)
        slider, label = ran.out.splitlines()[-1].split()[:2]
        eventually(lambda: len(replica_pids()) == 3, "three replicas")
        been = [ran.replica]
        for value in (4, 5, 6):
            heard = moved(live, slider, value)
            assert states(heard, label)[-1] == {"value": f"now {value}"}
            ran = live.run("print(log[-1])")
            assert ran.out == f"{value}\n", "what was moved is there wherever the next cell runs"
            been.append(ran.replica)
        assert all(one != other for one, other in itertools.pairwise(been))
