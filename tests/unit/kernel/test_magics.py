"""`%replkernel`: what is printed for each question, and what an unknown one says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError

from replkernel.errors import AgentUnavailable
from replkernel.kernel.arrivals import forgets_missing
from replkernel.kernel.birth import Birth
from replkernel.kernel.magics import ROWS_MAX, ReplkernelMagics
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.status import (
    KernelStatus,
    PinnedSection,
    ReplicaStatus,
    StatusDocument,
    UnfaithfulSection,
    read_document,
    to_json,
)
from replkernel.records import HostName, KernelId, Pin, ReplicaId, Seq
from replkernel.state.tombstone import lost


class FakeLink:
    trouble = ""

    def __init__(self, document: bytes | None) -> None:
        self._document = document

    def notebook_status(self) -> bytes:
        if self._document is None:
            raise AgentUnavailable("The host agent did not answer.")
        return self._document

    def connected(self) -> bool:
        return self._document is not None


@pytest.fixture(autouse=True)
def _a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replkernel.state.tombstone._STOOD", {})


class FakeReplica:
    """A replica with two components and one pin."""

    def __init__(self, document: bytes | None = None, rows: int = 2) -> None:
        table = [
            SimpleNamespace(
                cid=f"c{size}",
                names=(f"name{size}",),
                kind=f"kind{size}",
                state_bytes=size,
                pins=(),
                seconds=size / 1e3,
            )
            for size in range(rows)
        ]
        self.state = SimpleNamespace(
            table=lambda: table,
            components=rows,
            state_bytes=1234,
            pending_bytes=5,
            awaits=lambda name: False,
        )
        self.link = FakeLink(document)
        self.pins = [Pin("gen", "generator", ReplicaId("r1"), Seq(3), "gen", "A generator cannot be copied.")]
        self.told: list[str] = []

    def held_pins(self) -> list[Pin]:
        return self.pins

    def unfaithful(self) -> tuple[Pin, ...]:
        return ()

    def durability(self, row: Any) -> str:
        return f"said-of-{row.cid}"

    def new_and_unchecked(self) -> list[str]:
        return []

    def lost_lately(self) -> list[str]:
        return []

    def tell(self, sentence: str) -> None:
        self.told.append(sentence)


def magics(replica: FakeReplica) -> ReplkernelMagics:
    spec = KernelSpec(KernelId("k1"), "one", "secret-key", "hmac-sha256", "python", {}, "/", "memory://", 3)
    birth = Birth(spec, ReplicaId("r1"), HostName("hosta"), "/s/k", "ipc:///s/a", "secret-token", "/c", "/l")
    made = ReplkernelMagics(None, birth)
    made.replica = replica  # type: ignore[assignment]
    return made


def ask(replica: FakeReplica, line: str, capsys: pytest.CaptureFixture[str]) -> str:
    magics(replica).replkernel(line)
    return capsys.readouterr().out


@pytest.mark.parametrize("line", ["", "--help", "help", "nonsense -h"])
def test_help_names_every_question(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = ask(FakeReplica(), line, capsys)
    assert all(verb in out for verb in ("status", "where", "state", "pins"))


@pytest.mark.parametrize(
    ("line", "said"),
    [("pins --help", "CELL "), ("state -h", "--all"), ("help migrate", "HOST"), ("status --help", "--json")],
)
def test_help_of_one_question(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = ask(FakeReplica(), line, capsys)
    assert said in out
    assert "forget-missing" not in out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pins  # what's pinned", "WHY"),
        ("state --all # status", "TYPE"),
        ("where#here", "replica r1"),
        ("pins --help  # of that", "CELL "),
        ("  # nothing asked", "%replkernel hibernate"),
    ],
)
def test_a_comment_may_follow_a_question(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said in ask(FakeReplica(b"{}"), line, capsys)


@pytest.mark.parametrize(
    ("line", "host"),
    [("migrate hosta  # nearer", "hosta"), ("migrate 'rack #2'", "rack #2"), ("migrate bob's", "bob's")],
)
def test_a_quoted_argument_is_whole(line: str, host: str) -> None:
    asked: list[Any] = []
    made: Any = magics(FakeReplica())
    answer = SimpleNamespace(error="", text="")
    made.shell = SimpleNamespace(kernel=SimpleNamespace(ask_router=lambda it: asked.append(it) or answer))
    made.replkernel(line)
    assert [question.host for question in asked] == [host]


@pytest.mark.parametrize(
    ("cell", "forgets"),
    [
        ("%replkernel forget-missing", True),
        ("# they are gone\n%replkernel forget-missing  # for good\n", True),
        ("%replkernel forget-missing\nx = 1", False),
        ("# %replkernel forget-missing", False),
    ],
)
def test_giving_up_what_is_missing_is_a_cell_alone(cell: str, forgets: bool) -> None:
    assert forgets_missing(cell) is forgets


@pytest.mark.parametrize("line", ["migrate", "migrate one two"])
def test_migrate_says_that_it_takes_a_host(line: str) -> None:
    with pytest.raises(UsageError, match="migrate HOST"):
        magics(FakeReplica()).replkernel(line)


def test_status_is_the_table_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    replica = ReplicaStatus("r1", "hosta", "executor", kernel_pid=77)
    document = StatusDocument(kernels=(KernelStatus("k1", "idle", 4, None, (replica,)),))
    assert "hosta" in ask(FakeReplica(to_json(document)), "status --json", capsys)


def test_status_asked_by_a_cell_says_that_this_one_runs(capsys: pytest.CaptureFixture[str]) -> None:
    kernels = KernelStatus("k1", "idle", 4), KernelStatus("k2", "idle", 9)
    replica: Any = FakeReplica(to_json(StatusDocument(kernels=kernels)))
    replica.kept_back, replica.unstored = (lambda: ""), (list)
    out = ask(replica, "status", capsys)
    assert "kernel k1:\n  busy (this cell), 4 executions" in out
    assert "kernel k2:\n  idle, 9 executions" in out
    told = read_document(ask(replica, "status --json", capsys).encode())
    assert [kernel.state for kernel in told.kernels] == ["busy", "idle"]


def test_status_names_what_binds_as_pins_does(capsys: pytest.CaptureFixture[str]) -> None:
    """The log has the name from when it was lost, and no other."""
    tombstone = lost("gen", "generator", "r1", 3, 3, "gen", "A generator cannot be copied.")
    replicas = (ReplicaStatus("r1", "hosta", "executor", pinned=(PinnedSection("gen", "generator"),)),)
    kernels = KernelStatus("k1", "idle", 4, None, replicas), KernelStatus("k2", "idle", 9, None, replicas)
    replica: Any = FakeReplica(to_json(StatusDocument(kernels=kernels)))
    made: Any = magics(replica)
    kernel = SimpleNamespace(get_parent=dict, ask_elsewhere=lambda: ((), ""))
    made.shell = SimpleNamespace(kernel=kernel, user_ns={"kept": [tombstone]})
    made.replkernel("status --json")
    told = read_document(capsys.readouterr().out.encode())
    assert [one.replicas[0].pinned[0].name for one in told.kernels] == ["kept", "gen"]


def test_status_asked_by_a_widget_says_what_the_agents_say(capsys: pytest.CaptureFixture[str]) -> None:
    made: Any = magics(FakeReplica(to_json(StatusDocument(kernels=(KernelStatus("k1", "idle", 4),)))))
    parent = {"header": {"msg_type": "comm_msg"}}
    made.shell = SimpleNamespace(
        kernel=SimpleNamespace(get_parent=lambda: parent, ask_elsewhere=lambda: ((), "")), user_ns={}
    )
    made.replkernel("status --json")
    assert read_document(capsys.readouterr().out.encode()).kernels[0].state == "idle"


def test_status_without_an_agent_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    replica = FakeReplica(None)
    assert ask(replica, "status", capsys) == ""
    assert replica.told == ["The status cannot be shown: The host agent did not answer."]


def test_where_names_replica_and_host_and_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    out = ask(FakeReplica(b"{}"), "where", capsys)
    assert "replica r1 on host hosta" in out
    assert "secret" not in out


def test_state_lists_the_largest_first(capsys: pytest.CaptureFixture[str]) -> None:
    lines = ask(FakeReplica(rows=ROWS_MAX + 3), "state", capsys).splitlines()
    largest = ROWS_MAX + 2
    said = [f"name{largest}", str(largest), f"{largest}.0", "ms", f"said-of-c{largest}", f"kind{largest}"]
    assert lines[1].split() == said
    assert len(lines) == ROWS_MAX + 3
    assert "3 smaller ones" in lines[-2]
    assert lines[-1].endswith("1,234 bytes in all, 5 bytes not rebuilt here yet")


def test_a_row_of_many_variables_is_of_bounded_length(capsys: pytest.CaptureFixture[str]) -> None:
    replica = FakeReplica(rows=1)
    (row,) = replica.state.table()
    row.names = tuple(f"v{number}" for number in range(200))
    line = ask(replica, "state", capsys).splitlines()[1]
    assert line.startswith("v0, v1, ") and "and 192 more" in line


def test_pins_say_what_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    out = ask(FakeReplica(), "pins", capsys)
    assert "generator" in out
    assert "A generator cannot be copied." in out


def test_a_component_that_another_replica_rebuilt_otherwise_is_a_pin(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost = UnfaithfulSection("x", "Drops", "r1", 3, "Its attributes differ.")
    replicas = tuple(ReplicaStatus(name, "hosta", "standby", unfaithful=(lost,)) for name in ("r2", "r3"))
    document = StatusDocument(kernels=(KernelStatus("k1", "idle", 4, None, replicas),))
    lines = ask(FakeReplica(to_json(document)), "pins", capsys).splitlines()
    assert [line.split()[:4] for line in lines if line.startswith("x ")] == [["x", "Drops", "r1", "3"]]
    assert any("On replica r2: Its attributes differ." in line for line in lines)


def test_where_nothing_binds_the_notebook_pins_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    replica = FakeReplica()
    replica.pins = []
    assert "Nothing binds" in ask(replica, "pins", capsys)


def test_variables_not_looked_at_yet_are_told_with_the_pins(capsys: pytest.CaptureFixture[str]) -> None:
    replica = FakeReplica()
    replica.new_and_unchecked = lambda: ["not captured yet: s"]  # type: ignore[method-assign]
    assert ask(replica, "pins", capsys).splitlines()[-1] == "not captured yet: s"


@pytest.mark.parametrize("line", ["nonsense", "status state"])
def test_unknown_questions_name_the_help(line: str) -> None:
    with pytest.raises(UsageError, match="--help"):
        magics(FakeReplica()).replkernel(line)


@pytest.mark.parametrize(
    ("line", "meant"), [("rest", "hibernate"), ("move host-2", "migrate"), ("pins everything", "pins")]
)
def test_an_unknown_word_is_answered_with_what_may_be_meant(line: str, meant: str) -> None:
    with pytest.raises(UsageError, match=f"`%replkernel {meant} --help` says how"):
        magics(FakeReplica()).replkernel(line)


def test_no_answer_names_a_secret() -> None:
    made: Any = magics(FakeReplica())
    assert "secret" not in repr(made._birth)


def test_open_widgets_are_among_what_binds(capsys: pytest.CaptureFixture[str]) -> None:
    replica = FakeReplica(None)
    replica.pins = []
    made = magics(replica)
    assert ask(replica, "pins", capsys) == "Nothing binds this notebook to one replica.\n"
    comms = SimpleNamespace(comms={"a": 1, "b": 2})
    kernel = SimpleNamespace(comm_manager=comms, ask_elsewhere=lambda: ((), ""))
    made.shell = SimpleNamespace(kernel=kernel, user_ns={})
    made.replkernel("pins")
    out = capsys.readouterr().out
    assert "2 comms" in out and "r1" in out and "until they are closed" in out


def test_a_pin_that_binds_twice_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    replica = FakeReplica(None)
    replica.pins = replica.pins * 3
    assert ask(replica, "pins", capsys).count("gen") == 3  # its name, its type, and why
