"""The journal keeps what it promises within its bounds, and its next reader finds the same."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from replkernel.router.core import journal as journal_module
from replkernel.router.core.journal import Append, Journal, Remove
from replkernel.router.core.journal_notes import (
    BUFFERS_MAX,
    AnyNote,
    Message,
    TakenBack,
    read_messages,
    read_notes,
    write_message,
    write_note,
)
from replkernel.router.core.kept import Receiver
from replkernel.router.io import telling as telling_module
from replkernel.router.io.journal_disk import JournalDisk
from replkernel.router.io.telling import Telling
from tests.support.examples import examples
from tests.support.journal_memory import Memory, request

TO = Receiver("r1", "ipc://one", 1, 1)


def stream(text: str, *, missed: bool = False) -> Message:
    """Return a stream message."""
    content = json.dumps({"name": "stdout", "text": text}).encode()
    return Message("stream", b"{}", b"{}", content, (), missed)


def told(journal: Journal, memory: Memory, **question: Any) -> dict[str, Any]:
    """Return what the journal tells."""
    telling = Telling(journal, cast("JournalDisk", memory))
    return dict(json.loads(telling.answer("replkernel_outputs_request", json.dumps(question).encode())))


def test_the_next_reader_finds_the_last_page_s_message_that_was_an_execution() -> None:
    journal = Journal(0)
    for seq in (7, 8):
        journal.give_page("r1", "ipc://one", seq, seq)
    for written in (journal.pending, journal.rewritten()):
        found = Journal(0)
        for note in read_notes(b"".join(write_note(cast("AnyNote", note)) for note in written)):
            found.take(note)
        assert found.page == journal.page
        assert found.page is not None
        assert found.page.seq == 8


def test_what_ran_in_a_cell_before_what_a_saved_notebook_holds_is_dropped_too() -> None:
    """A page leaves what does not fit a cell's code, and the next one must not put it over what is newer."""
    journal = Journal(0)
    metadata = json.dumps({"cellId": "c1"}).encode()
    for msg_id in ("m1", "m2", "m3", "m4"):
        asked = request(msg_id)
        journal.accept(replace(asked, frames=[*asked.frames[:4], metadata, asked.frames[5]]))
        if msg_id != "m2":
            journal.end(msg_id, "ok", 1.0)
    journal.accept(request("elsewhere"))
    journal.end("elsewhere", "ok", 1.0)
    journal.saved(["m3"])
    assert [kept.msg_id for kept in journal.executions()] == ["m2", "m4", "elsewhere"]
    journal.check_invariants()


@pytest.mark.parametrize(("buffers", "kept"), [(BUFFERS_MAX, True), (BUFFERS_MAX + 1, False)])
def test_a_message_of_more_buffers_than_can_be_written_is_left_out(buffers: int, kept: bool) -> None:
    journal, memory = Journal(0), Memory()
    journal.accept(request("1"))
    journal.publish("1", Message("comm_msg", b"{}", b"{}", b"{}", (b"",) * buffers))
    journal.publish("1", stream("after"))
    memory.write(journal)
    journal.check_invariants()
    (execution,) = journal.executions()
    kinds = [message.kind for _, _, message in memory.messages(execution)]
    assert kinds == (["comm_msg", "stream"] if kept else ["stream"])
    assert bool(execution.left_out) != kept


def test_what_ran_in_no_cell_is_dropped_by_its_name_alone() -> None:
    journal = Journal(0)
    for msg_id in ("m1", "m2"):
        asked = request(msg_id)
        journal.accept(replace(asked, frames=[*asked.frames[:4], b"{}", asked.frames[5]]))
        journal.end(msg_id, "ok", 1.0)
    journal.saved(["m2"])
    assert [kept.msg_id for kept in journal.executions()] == ["m1"]


def test_of_a_long_output_the_beginning_and_the_end_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "EXECUTION_BYTES_MAX", 4000)
    journal, memory = Journal(0), Memory()
    journal.accept(request("1"))
    for number in range(1000):
        journal.publish("1", stream(f"line {number}\n"))
        journal.check_invariants()
    (execution,) = told(journal, memory)["executions"]
    text = execution["outputs"][0]["text"]
    assert text.startswith("line 0\nline 1\n")
    assert execution["outputs"][-1]["text"].endswith("line 998\nline 999\n")
    (gap,) = [output for output in execution["outputs"] if output["name"] == "stderr"]
    assert "of this cell's output were left out here" in gap["text"]
    assert sum(map(len, memory.parts.values())) <= 4000


def test_a_message_too_large_to_keep_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "EXECUTION_BYTES_MAX", 4000)
    journal, memory = Journal(0), Memory()
    journal.accept(request("1"))
    journal.publish("1", stream("x" * 5000))
    journal.publish("1", stream("small\n"))
    (execution,) = told(journal, memory)["executions"]
    assert any("left out" in output["text"] for output in execution["outputs"])
    assert any(output["text"] == "small\n" for output in execution["outputs"])


def test_the_oldest_that_is_over_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "EXECUTIONS_MAX", 3)
    journal = Journal(0)
    for number in range(3):
        journal.accept(request(str(number)))
    journal.end("1", "ok", 2.0)
    journal.accept(request("3"))
    journal.accept(request("4"))
    assert [kept.msg_id for kept in journal.executions()] == ["0", "2", "3"]
    journal.check_invariants()


def test_the_whole_journal_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES_MAX", 10_000)
    journal, memory = Journal(0), Memory()
    for number in range(20):
        journal.accept(request(str(number)))
        journal.publish(str(number), stream("y" * 1000))
        journal.end(str(number), "ok", 2.0)
        journal.check_invariants()
        assert journal.size <= 10_000
    memory.write(journal)
    assert sum(map(len, memory.parts.values())) == journal.size
    assert "19" in {kept.msg_id for kept in journal.executions()}


def test_silent_executions_are_not_kept() -> None:
    journal = Journal(0)
    journal.accept(request("1", silent=True))
    assert len(journal) == 0


def test_only_what_is_over_can_be_saved() -> None:
    journal = Journal(0)
    for number in ("1", "2"):
        journal.accept(request(number))
    journal.answer("1", b'{"status": "ok", "execution_count": 7}', b"{}", 2.0)
    journal.saved(["1", "2", "unknown"])
    assert [kept.msg_id for kept in journal.executions()] == ["2"]


def test_an_answer_ends_where_it_would_be_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling_module, "REPLY_BYTES_MAX", 3000)
    journal, memory = Journal(0), Memory()
    for number in range(5):
        journal.accept(request(str(number)))
        journal.publish(str(number), stream("z" * 1000))
    found: list[str] = []
    since, more = 0, True
    while more:
        page = told(journal, memory, since=since)
        assert page["executions"]
        found += [execution["msg_id"] for execution in page["executions"]]
        since, more = page["executions"][-1]["version"], page["more"]
    assert found == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("content", [b"no json", b'{"since": "x"}', b'{"msg_ids": [1]}', b"[]"])
def test_a_question_that_does_not_fit_is_an_error(content: bytes) -> None:
    journal, memory = Journal(0), Memory()
    answer = Telling(journal, cast("JournalDisk", memory)).answer("replkernel_outputs_request", content)
    assert json.loads(answer)["status"] == "error"


def test_messages_of_the_front_end_to_a_cell_are_told_again() -> None:
    journal, memory = Journal(5), Memory()
    journal.accept(request("1", code="x = 1"))
    journal.give("1", TO, 10.0)
    journal.publish("1", Message("execute_input", b"{}", b"{}", b'{"code": "x = 1", "execution_count": 3}'))
    (execution,) = told(journal, memory)["executions"]
    assert execution["cell_id"] == "cell 1"
    assert execution["code_digest"] == hashlib.sha256(b"x = 1").hexdigest()
    assert (execution["state"], execution["execution_count"], execution["started"]) == ("running", 3, 10.0)
    assert execution["version"] > 5


def test_a_request_taken_back_waits_also_for_the_next_reader() -> None:
    journal = Journal(0)
    journal.accept(request("1"))
    journal.give("1", TO, 1.0)
    journal.take_back("1", begun=True, ends=True)
    reader = Journal(0)
    for note in read_notes(b"".join(write_note(note) for note in journal.pending)):  # type: ignore[arg-type]
        reader.take(note)
    (kept,) = reader.executions()
    assert (kept.given, kept.state, kept.started) == (None, "waiting", None)
    assert (kept.begun, kept.ends) == (True, (TO.replica, TO.process))
    (again,) = [note for note in reader.rewritten() if isinstance(note, TakenBack)]
    assert (again.begun, again.ends) == (True, (TO.replica, TO.process))
    assert kept.frames == [*request("1").identities, *request("1").frames]
    journal.answer("1", b'{"status": "ok"}', b"{}", 2.0)
    journal.take_back("1")
    assert journal.executions()[0].state == "ok"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["accept", "give", "take back", "publish", "miss", "display", "answer", "reply", "seen", "saved"]
        ),
        st.integers(0, 5),
    ),
    max_size=40,
)


@settings(max_examples=examples(100), deadline=None)
@given(STEPS)
def test_the_next_reader_finds_the_same_journal(steps: list[tuple[str, int]]) -> None:
    journal, memory = Journal(0), Memory()
    written: list[AnyNote] = []
    for kind, number in steps:
        play(journal, kind, str(number))
        journal.check_invariants()
        written += [write for write in journal.pending if not isinstance(write, Append | Remove)]
        memory.write(journal)
    for source in (written, journal.rewritten()):
        reader = Journal(0)
        for note in read_notes(b"".join(map(write_note, source))):
            reader.take(note)
        for (number, part), data in memory.parts.items():
            assert reader.found(number, part, len(data))
        reader.check_invariants()
        assert [facts(kept) for kept in reader.executions()] == [facts(kept) for kept in journal.executions()]


def play(journal: Journal, kind: str, msg_id: str) -> None:
    """Have something happen to an execution."""
    if kind == "accept":
        journal.accept(request(msg_id))
    elif kind == "give":
        journal.give(msg_id, TO, 1.0)
    elif kind == "take back":
        journal.take_back(msg_id)
    elif kind in ("publish", "miss"):
        journal.publish(msg_id, stream("text", missed=kind == "miss"))
    elif kind == "display":
        content = json.dumps({"data": {}, "transient": {"display_id": "d"}}).encode()
        journal.publish(msg_id, Message("display_data", b"{}", b"{}", content))
    elif kind == "answer":
        journal.answer(msg_id, b'{"status": "ok", "execution_count": 2}', b"{}", 2.0)
    elif kind == "reply":
        journal.replied(msg_id)
    elif kind == "seen":
        journal.seen(msg_id)
    else:
        journal.saved([msg_id])


def facts(kept: Any) -> tuple[Any, ...]:
    """Return what matters of an execution, without its version."""
    names = [name for name in kept.__slots__ if name not in ("version", "parts")]
    return (*(getattr(kept, name) for name in names), kept.size)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["stream", "comm_msg", "status"]), st.lists(st.binary(), max_size=3)))
)
def test_messages_are_read_as_they_were_written(drawn: list[tuple[str, list[bytes]]]) -> None:
    messages = [Message(kind, b"h", b"m", b"c" * len(rest), tuple(rest), bool(rest)) for kind, rest in drawn]
    data = b"".join(piece for message in messages for piece in write_message(message))
    assert len(data) == sum(message.size for message in messages)
    assert [message for message, _ in read_messages(data)] == messages
    cut = [message for message, _ in read_messages(data[:-1])]
    assert cut == messages[:-1]


def test_how_executions_stand_is_told_without_their_outputs() -> None:
    journal, memory = Journal(0), Memory()
    journal.accept(request("1"))
    journal.publish("1", stream("much"))
    fault = {"status": "error", "ename": "ExecutorLost", "evalue": "gone"}
    journal.answer("1", json.dumps(fault).encode(), b"{}", 2.0)
    memory.write(journal)
    (short,) = told(journal, memory, outputs=False)["executions"]
    (whole,) = told(journal, memory)["executions"]
    assert (short["outputs"], short["fault"]) == ([], fault)
    assert whole == short | {"outputs": [{"output_type": "stream", "name": "stdout", "text": "much"}]}
