"""What is told of a cell that a program has sent: how it stands, and its outputs within bounds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replkernel.protocol.progress import Execution
from replkernel.protocol.sent_cells import Bounds, Fault, NewCell, Row, bounded, told
from tests.support.examples import examples

OVER = {"started": 1.0, "ended": 2.0}


def row(state: str = "running", **fields: Any) -> Row:
    """Return the journal's words of a cell."""
    return Row(msg_id="a", state=state, **fields)


def fault(ename: str, evalue: str = "why", status: str = "error") -> Fault:
    """Return the journal's words of a failure."""
    return Fault(status, ename, evalue)


def execution(**fields: Any) -> Execution:
    """Return the progress of a cell."""
    return Execution(msg_id="a", cell_id="a", **fields)


@pytest.mark.parametrize(
    ("seen", "progress", "status", "reason"),
    [
        (None, None, "lost", "The kernel knows of no such cell"),
        (row(), None, "queued", ""),
        (
            row(),
            execution(state="waiting", trouble="The scheduler is away."),
            "waiting",
            "The scheduler is away.",
        ),
        (row(started=1.0), execution(state="running"), "running", ""),
        (row("ok", **OVER), None, "ok", ""),
        (row("ok", **OVER), execution(safety="lost"), "lost", "It ended well, but its process was lost"),
        (row("lost", **OVER), None, "lost", "Its process ended before it said"),
        (row("error", fault=fault("ExecutorLost"), **OVER), None, "lost", "ExecutorLost: why"),
        (row("error", fault=fault("ValueError"), **OVER), None, "error", "ValueError: why"),
        (row("error", fault=fault("", "", "aborted"), **OVER), None, "error", "A cell before it failed."),
    ],
)
def test_how_a_cell_stands(seen: Row | None, progress: Execution | None, status: str, reason: str) -> None:
    found = told("a", seen, progress, Bounds())
    assert (found.status, found.reason[: len(reason)]) == (status, reason)
    assert bool(found.reason) == bool(reason)
    assert found.over == (status in ("ok", "error", "lost"))


def stream(text: str, name: str = "stdout") -> dict[str, Any]:
    """Return a stream's output."""
    return {"output_type": "stream", "name": name, "text": text}


def picture(size: int) -> dict[str, Any]:
    """Return a display of an image."""
    return {
        "output_type": "display_data",
        "data": {"image/png": "A" * (size * 4 // 3), "text/plain": "<Figure>"},
    }


@settings(max_examples=examples(200))
@given(st.lists(st.text(alphabet="ab\n", max_size=40), max_size=8), st.integers(0, 120))
def test_text_keeps_its_beginning_and_its_end(texts: list[str], chars: int) -> None:
    whole = "".join(texts)
    outputs, left_out, _ = bounded([stream(text) for text in texts], Bounds(chars))
    shown = "".join(output.text for output in outputs)
    assert left_out == max(0, len(whole) - chars)
    if not left_out:
        assert shown == whole
        return
    said = f"\n[{left_out:,} characters left out here: ask for more chars]\n"
    assert shown.count(said) == 1
    before, after = shown.split(said)
    assert len(before) + len(after) == chars
    assert whole.startswith(before) and whole.endswith(after)


def test_the_newest_images_stay_and_others_are_named() -> None:
    outputs, _, left_out = bounded([picture(600), stream("x"), picture(300)], Bounds(1000, 500))
    assert left_out == 1
    assert [(each.type, bool(each.data)) for each in outputs] == [
        ("text/plain", False),
        ("text/plain", False),
        ("image/png", True),
    ]
    assert outputs[0].text.startswith("[image/png of 600 bytes left out here")


def test_outputs_are_told_in_their_plainest_form() -> None:
    given_outputs = [
        {"output_type": "execute_result", "data": {"text/html": "<b>1</b>", "text/plain": "1"}},
        {"output_type": "display_data", "data": {"application/vnd.x": {}}},
        {"output_type": "error", "traceback": ["\x1b[31mValueError\x1b[0m: no"], "ename": "", "evalue": ""},
        {"output_type": "display_data", "data": "nonsense"},
        {"output_type": "else"},
    ]
    found, _, _ = bounded(given_outputs, Bounds())
    assert [(each.source, each.text) for each in found] == [
        ("result", "1"),
        ("display", "[application/vnd.x: not told as text]\n"),
        ("error", "ValueError: no\n"),
    ]


def test_a_cell_asks_for_gpus_only_where_it_says_so() -> None:
    assert NewCell("x").metadata("a") == {"cellId": "a"}
    assert json.dumps(NewCell("x", gpus=2.0).metadata("a")["replkernel"]) == '{"gpus": 2}'
    assert NewCell("x", gpus=0.5).metadata("a")["replkernel"] == {"gpus": 0.5}
    asked = NewCell("x", gpus=0, gpu_model="H100").metadata("a")
    assert asked["replkernel"] == {"gpus": 0, "gpu_model": "H100"}
