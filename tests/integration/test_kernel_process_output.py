"""What a kernel process prints, and in which context its cells run: seen by its router and its replicas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from replkernel.protocol.process_to_agent import ClaimExecution, ProposeDelta
from tests.integration.test_kernel_process import Stage
from tests.support.fake_agent import text_of


@pytest.fixture
def stage(short_dir: Path) -> Iterator[Stage]:
    """Return a stage of processes."""
    stage = Stage(short_dir)
    yield stage
    stage.close()


def test_output_that_is_not_read_at_once_is_not_lost(stage: Stage) -> None:
    router = stage.start("r1")
    _, published = router.run("for i in range(4000): print(i, flush=True)")
    assert text_of(published) == "".join(f"{i}\n" for i in range(4000))


def test_the_next_router_is_welcomed_while_the_last_ones_connection_seems_to_live(stage: Stage) -> None:
    """A router whose host is cut off, or lost its power, says no farewell: TCP keeps its connection long."""
    first = stage.start("r1")
    first.run("x = 1")
    following = zmq.Context.instance().socket(zmq.XSUB)
    try:
        following.linger = 0
        following.connect(first.iopub.last_endpoint)
        following.send(b"\x01")
        assert following.poll(60_000), "the next router would never use this replica"
        _, frames = first.session.feed_identities(following.recv_multipart())
        assert first.session.deserialize(frames)["msg_type"] == "iopub_welcome"
    finally:
        following.close(linger=0)


def test_output_of_programs_and_libraries_comes_before_idle(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # where it is set, ipykernel leaves the descriptors alone
    router = stage.start("r1")
    router.run("import os, subprocess")
    for number in range(20):
        _, published = router.run(f"_ = os.write(1, b'low {number}')", needs=router.seq)
        assert text_of(published) == f"low {number}"
    _, published = router.run("_ = subprocess.run(['sh', '-c', 'echo out; echo err >&2'])", needs=router.seq)
    assert (text_of(published), text_of(published, "stderr")) == ("out\n", "err\n")


def test_output_and_prompt_keep_their_order(stage: Stage) -> None:
    router = stage.start("r1")
    _, published = router.run(
        "import sys\nprint('a'); print('b', file=sys.stderr, flush=True); print('c')\n'd'"
    )
    kinds = [message["msg_type"] for message in published]
    assert (kinds[:2], kinds[-1]) == (["status", "execute_input"], "status")
    assert (text_of(published), text_of(published, "stderr")) == ("a\nc\n", "b\n")
    assert "execute_result" in kinds


def test_settings_in_context_variables_travel(stage: Stage) -> None:
    first, second = stage.start("r1"), stage.start("r2")
    first.run(
        "import decimal, contextvars\ndecimal.getcontext().prec = 5\nv = contextvars.ContextVar('v')\n"
        "_ = v.set('kept')"
    )
    stage.move("r1", "r2", 1)
    stage.await_applied("r2", 1)
    assert second.value("[str(decimal.Decimal(1) / 3), v.get()]", needs=1, seq=2) == ["0.33333", "kept"]
    second.run("decimal.getcontext().prec = 3", needs=2, seq=3)
    second.run("", needs=3, seq=4)
    assert second.value("str(decimal.Decimal(1) / 3)", needs=4, seq=5) == "0.333"


def test_a_file_stored_by_another_replica_is_read_though_it_seems_as_old(stage: Stage) -> None:
    """IPython's ``db`` (`%store`) looks at a file's time in whole seconds, and replicas are quicker."""
    first, second = stage.start("r1"), stage.start("r2")
    first.run(
        "import os; db = get_ipython().db; path = db.root / 'kept'; db['kept'] = 1\n"
        "os.utime(path, (1e9, 1e9)); before = db['kept']; del db"
    )
    stage.move("r1", "r2", 1)
    second.run("get_ipython().db['kept'] = 2; os.utime(path, (1e9, 1e9))", needs=1, seq=2)
    stage.move("r2", "r1", 2)
    assert first.value("[before, get_ipython().db['kept']]", needs=2, seq=3) == [1, 2]


def told_of(stage: Stage, seq: int) -> list[type]:
    """Return what came of an execution, claims and deltas, in that order."""
    kinds = [message for _, message in stage.agent.log if isinstance(message, (ClaimExecution, ProposeDelta))]
    return [type(m) for m in kinds if (m.delta.seq if isinstance(m, ProposeDelta) else m.seq) == seq]


def test_every_claim_comes_before_its_delta_and_a_quick_cell_has_none(stage: Stage) -> None:
    router = stage.start("r1")
    for _ in range(20):
        router.run("pass", needs=router.seq)
    stage.agent.await_delta("r1", 20)
    told = [told_of(stage, seq) for seq in range(1, 21)]
    while [ProposeDelta] not in told:  # Where others compute, a quick cell is rare.
        assert len(told) < 1000, "no cell was without a claim"
        router.run("pass", needs=router.seq)
        stage.agent.await_delta("r1", router.seq)
        told.append(told_of(stage, router.seq))
    assert all(kinds in ([ProposeDelta], [ClaimExecution, ProposeDelta]) for kinds in told), told


def test_the_claim_of_a_long_cell_does_not_wait_for_its_end(stage: Stage) -> None:
    router = stage.start("r1")
    for pause_s in (0.0, 0.5):
        time.sleep(pause_s)
        over = stage.agent.directory / f"over after {pause_s}"
        waits = f"import os, time\nwhile not os.path.exists({str(over)!r}): time.sleep(0.01)"
        msg_id = router.submit(waits, needs=router.seq)
        seq = router.seq
        stage.agent.await_message("r1", ClaimExecution, lambda claim, seq=seq: claim.seq == seq)
        assert not any(isinstance(m, ProposeDelta) and m.delta.seq == seq for _, m in stage.agent.log)
        over.touch()
        router.receive(msg_id)
        stage.agent.await_delta("r1", seq)


def test_user_code_sees_the_clients_identity(stage: Stage) -> None:
    router = stage.start("r1")
    expression = "[[f.decode() for f in get_ipython().kernel._parent_ident[c]] for c in ('shell', 'control')]"
    router.ask("kernel_info_request", {}, channel="control")
    assert router.value(expression) == [["client"], ["client"]]


def test_input_asked_for_with_that_identity_reaches_the_client(stage: Stage) -> None:
    router = stage.start("r1")
    msg_id = router.submit(
        "k = get_ipython().kernel\nk._input_request('?', k._parent_ident['shell'], k.get_parent('shell'))",
        allow_stdin=True,
    )
    request = router.receive(msg_id, "stdin")
    assert request["content"]["prompt"] == "?"
    router.send("input_reply", {"value": "yes"}, channel="stdin")
    assert router.receive(msg_id)["content"]["status"] == "ok"
