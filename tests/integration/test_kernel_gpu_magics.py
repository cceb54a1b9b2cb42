"""`%gpu` and `%%gpu` in a real kernel process: listed, completed, and a `%%gpu` cell is its body."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.protocol.process_to_agent import KernelHello
from tests.support.fake_agent import FakeAgent, FakeRouter, text_of


@pytest.fixture
def router(short_dir: Path) -> Iterator[FakeRouter]:
    agent = FakeAgent(short_dir)
    agent.spawn(agent.birth("r1"))
    router = FakeRouter(agent.await_message("r1", KernelHello).endpoints)
    yield router
    router.close()
    agent.close()


def test_a_gpu_cell_is_its_body(router: FakeRouter) -> None:
    reply, published = router.run("%%gpu 1 --vram 20\nimport asyncio\nawait asyncio.sleep(0)\nx = 20\nx + 1")
    assert reply["content"]["status"] == "ok"
    results = [said["content"] for said in published if said["msg_type"] == "execute_result"]
    assert [result["data"]["text/plain"] for result in results] == ["21"]
    assert router.value("x", seq=2) == 20
    reply, _ = router.run("%%gpu\ny = 1\n1 / 0", seq=3)
    told = "\n".join(reply["content"]["traceback"])
    assert reply["content"]["ename"] == "ZeroDivisionError" and "line 3" in told


def test_a_wrong_line_is_the_cells_error_and_nothing_runs(router: FakeRouter) -> None:
    reply, published = router.run("%%gpu two\nx = 1")
    assert reply["content"]["status"] == "error"
    assert "`two` is not a number of GPUs" in reply["content"]["evalue"] + text_of(published)
    assert router.value("'x' in globals()", seq=2) is False


def test_the_magics_are_listed_and_explained(router: FakeRouter) -> None:
    _, published = router.run("%lsmagic")
    shown = str([said["content"] for said in published if said["msg_type"] == "execute_result"])
    assert "%gpu " in shown and "%%gpu " in shown
    _, published = router.run("%gpu --help", seq=2)
    assert "%gpu release" in text_of(published)
