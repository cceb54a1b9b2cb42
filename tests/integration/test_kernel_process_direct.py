"""The direct way to a kernel process's main thread: the same answers as through the shell channel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from replkernel.protocol.envelope import EXPECT_QUESTIONS
from tests.integration.test_kernel_process import Stage
from tests.support.fake_agent import interrupt, text_of
from tests.support.live import eventually

WATCHED_LOOP = """
import select, zmq
from ipykernel.eventloops import get_shell_stream, register_integration

turns = 0

@register_integration("watched")
def watched(kernel):
    global turns
    turns += 1
    open(f"turn{turns}", "w").close()
    stream = get_shell_stream(kernel)
    while not stream.flush(limit=1):
        select.select([stream.getsockopt(zmq.FD)], [], [], 20)
"""

INTERRUPTED_FLAG = """
import signal, threading

class Flag(threading.Event):
    whole = None

    def set(self):
        self.whole = False
        signal.raise_signal(signal.SIGINT)
        self.whole = True

history = get_ipython().history_manager
saver = history.save_thread
waited_for, saver.save_flag = saver.save_flag, (flag := Flag())
"""

JEDI_TAKES_LONG = """
import time
from replkernel.kernel import practice

def practise():
    open("practises", "w").close()
    while not over:
        time.sleep(0.01)
    open("ended", "w").close()

over, practice.practise = False, practise
"""


@pytest.fixture
def stage(short_dir: Path) -> Iterator[Stage]:
    """Return a stage of processes."""
    stage = Stage(short_dir)
    yield stage
    stage.close()


def test_both_ways_give_the_same_answers(stage: Stage) -> None:
    router = stage.start("r1")
    kinds = []
    for way in ("executions", "shell", "executions"):
        reply, published = router.run("print('out')\n'value'", router.seq, channel=way)
        assert reply["content"]["status"] == "ok"
        assert text_of(published) == "out\n"
        kinds.append([kind for kind, _ in groupby(message["msg_type"] for message in published)])
    assert kinds == [["status", "execute_input", "stream", "execute_result", "status"]] * 3


def test_many_executions_at_once_are_run_in_their_order(stage: Stage) -> None:
    router = stage.start("r1")
    router.run("seen = []")
    sent = [router.submit(f"seen.append({number})", router.seq - 1) for number in range(50)]
    for msg_id in sent:
        router.receive(msg_id)
    assert router.value("seen", router.seq) == list(range(50))


def test_a_process_answers_on_the_shell_channel_while_executions_come_directly(stage: Stage) -> None:
    router = stage.start("r1")
    for number in range(20):
        cell = router.submit(f"x = {number}", router.seq)
        question = router.send("is_complete_request", {"code": "pass"})
        assert router.receive(cell)["content"]["status"] == "ok"
        assert router.receive(question)["content"]["status"] == "complete"


def test_an_event_loop_gives_way_to_executions_that_come_directly(stage: Stage) -> None:
    router = stage.start("r1")
    router.run(WATCHED_LOOP)
    router.run("get_ipython().kernel.eventloop = watched", 1)
    for number in range(1, 4):
        eventually((stage.agent.directory / f"turn{number}").exists, "a turn of the event loop")
        reply, _ = router.run("", router.seq)
        assert reply["content"]["status"] == "ok"
    assert router.ask("is_complete_request", {"code": "pass"})["content"]["status"] == "complete"
    assert router.value("turns", router.seq) >= 3


def test_interrupts_leave_every_message_whole(stage: Stage) -> None:
    router = stage.start("r1")
    process = stage.processes["r1"]
    for number in range(60):
        msg_id = router.submit("for i in range(20000): pass")
        time.sleep(number % 20 * 0.0002)
        interrupt(process)
        assert router.receive(msg_id)["content"]["status"] in ("ok", "error")
        kinds = [message["msg_type"] for message in router.drain(msg_id)]
        assert (kinds[0], kinds[-1], kinds.count("execute_input")) == ("status", "status", 1)


def test_an_interrupt_while_a_source_is_stored_leaves_its_lock_and_the_history_whole(stage: Stage) -> None:
    router = stage.start("r1")
    router.run(INTERRUPTED_FLAG)
    reply, _ = router.run("unreached = True", router.seq)
    assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "KeyboardInterrupt")
    router.run("saver.save_flag = waited_for", router.seq)
    assert router.value("[flag.whole, In[2], 'unreached' in globals()]", router.seq) == [
        True,
        "unreached = True",
        False,
    ]


def test_interrupts_leave_no_question_without_an_answer(stage: Stage) -> None:
    router = stage.start("r1")
    router.run("pass")
    process = stage.processes["r1"]
    for number in range(60):
        msg_id = router.send("is_complete_request", {"code": "x = 1\n" * 300})
        time.sleep(number * 0.0002)
        interrupt(process)
        assert router.receive(msg_id)["content"]["status"] in ("complete", "error")
    assert router.ask("is_complete_request", {"code": "pass"})["content"]["status"] == "complete"


def test_the_output_of_a_forked_child_arrives(stage: Stage) -> None:
    router = stage.start("r1")
    router.run(
        "import os\npid = os.fork()\nif not pid:\n    print('child', flush=True); os._exit(0)\n"
        "_ = os.waitpid(pid, 0)"
    )
    eventually(
        lambda: router.run("", router.seq) and "child" in text_of(router.published), "what the child printed"
    )


def test_a_cell_does_not_wait_for_jedi_to_be_made_ready(stage: Stage) -> None:
    router = stage.start("r1")
    router.run(JEDI_TAKES_LONG)
    for _ in range(2):
        router.channels["executions"].send(EXPECT_QUESTIONS)
        assert eventually((stage.agent.directory / "practises").exists, "jedi is made ready")
        (stage.agent.directory / "practises").unlink()
        assert router.value("6 * 7") == 42
    router.run("over = True")
    assert not (stage.agent.directory / "ended").exists()
