"""The fold of messages to outputs is what nbclient makes of the same messages, for one and several cells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import nbformat.v4
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nbclient import NotebookClient

from replkernel.router.core.journal import Journal
from replkernel.router.core.journal_notes import Message
from replkernel.router.core.kept import Receiver
from replkernel.router.core.outputs_fold import OutputsFold
from replkernel.router.io.journal_disk import JournalDisk
from replkernel.router.io.telling import Telling
from tests.support.examples import examples
from tests.support.journal_memory import Memory, request

TEXTS = st.sampled_from(["a", "b\n", "50%\r", ""])
DISPLAYS = st.sampled_from([None, "d1", "d2"])


def shown(kind: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """Return displays of one message type, with and without an id."""

    def make(number: int, display_id: str | None) -> tuple[str, dict[str, Any]]:
        content = {"data": {"text/plain": str(number)}, "metadata": {"n": number}, "execution_count": 1}
        return kind, content if display_id is None else content | {"transient": {"display_id": display_id}}

    return st.builds(make, st.integers(0, 9), DISPLAYS)


MESSAGES = st.one_of(
    st.builds(
        lambda name, text: ("stream", {"name": name, "text": text}),
        st.sampled_from(["stdout", "stderr"]),
        TEXTS,
    ),
    shown("display_data"),
    shown("update_display_data"),
    shown("execute_result"),
    st.just(("error", {"ename": "E", "evalue": "v", "traceback": ["t"]})),
    st.builds(lambda wait: ("clear_output", {"wait": wait}), st.booleans()),
)


def by_nbclient(messages: list[tuple[int, tuple[str, dict[str, Any]]]], cells: int) -> list[list[Any]]:
    """Return what nbclient makes of messages for some cells, streams next to each other put together."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell() for _ in range(cells)])
    client = NotebookClient(notebook)
    client.reset_execution_trackers()
    waits = [False] * cells
    for cell, (kind, content) in messages:
        client.clear_before_next_output = waits[cell]
        message = {
            "msg_type": kind,
            "header": {"msg_type": kind},
            "parent_header": {"msg_id": str(cell)},
            "content": json.loads(json.dumps(content)),
        }
        client.process_message(message, notebook.cells[cell], cell)
        waits[cell] = client.clear_before_next_output
    return [list(merged(cell.outputs)) for cell in notebook.cells]


def merged(outputs: list[Any]) -> Iterator[dict[str, Any]]:
    """Put streams next to each other together."""
    last: dict[str, Any] | None = None
    for output in json.loads(json.dumps(outputs)):
        if output["output_type"] == "stream" and last is not None and last.get("name") == output["name"]:
            last["text"] += output["text"]
            continue
        if last is not None:
            yield last
        last = output
    if last is not None:
        yield last


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(MESSAGES, max_size=15))
@example(
    [
        ("stream", {"name": "stdout", "text": "a"}),
        ("clear_output", {"wait": True}),
        ("stream", {"name": "stdout", "text": "b"}),
    ]
)
def test_the_fold_is_nbclients(messages: list[tuple[str, dict[str, Any]]]) -> None:
    fold = OutputsFold()
    for kind, content in messages:
        fold.take(kind, content)
    (expected,) = by_nbclient([(0, message) for message in messages], 1)
    assert fold.outputs() == expected


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), MESSAGES), max_size=20),
    st.lists(st.integers(0, 20), max_size=4),
)
def test_the_journal_tells_what_nbclient_makes_of_several_cells(
    messages: list[tuple[int, tuple[str, dict[str, Any]]]], questions: list[int]
) -> None:
    journal, disk = Journal(0), Memory()
    telling = Telling(journal, cast("JournalDisk", disk))
    for cell in range(3):
        journal.accept(request(str(cell)))
        journal.give(str(cell), Receiver("r1", "p", cell + 1, 1), 1.0)
    for number, (cell, (kind, content)) in enumerate(messages):
        if number in questions:
            telling.answer("replkernel_outputs_request", b"{}")
        journal.publish(str(cell), Message(kind, b"{}", b"{}", json.dumps(content).encode()))
        journal.check_invariants()
    told = json.loads(telling.answer("replkernel_outputs_request", b"{}"))
    found = {execution["msg_id"]: execution["outputs"] for execution in told["executions"]}
    assert [found[str(cell)] for cell in range(3)] == by_nbclient(messages, 3)
