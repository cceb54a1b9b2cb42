"""The tools by the SDK's own client, on a server that is played: what is asked, and what is told."""

from __future__ import annotations

from typing import Any

import pytest
from replkernel_server.mcp.access import Access
from replkernel_server.mcp.jupyter import Jupyter, Unreachable
from replkernel_server.mcp.words import Answer

SESSION = {"id": "s", "path": "n", "kernel": {"id": "k", "name": "replkernel", "execution_state": "idle"}}
KERNEL = "replkernel/api/kernels/k"
PLAIN = {"chars": 20000, "image_bytes": 1048576}


class Played:
    """A Jupyter Server of prepared answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.answers: dict[tuple[str, str], list[Answer | Unreachable]] = {}

    async def call(self, method: str, path: str, body: object = None) -> Answer:
        """Give the next answer to a request."""
        self.asked.append((method, path, body))
        left = self.answers.get((method, path.partition("?")[0]), [Answer(200, [SESSION])])
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Unreachable):
            raise answer
        return answer


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    found = Played()
    monkeypatch.setattr(Jupyter, "call", lambda _, *given: found.call(*given))
    return found


async def call(tool: str, **given: Any) -> Any:
    """Return what one tool answers, as an agent's program sees it."""
    from mcp import Client  # Here: it takes a second, in each process that collects tests.
    from replkernel_server.mcp.tools import make_server

    server = make_server(Access("http://127.0.0.1:1/", "secret", "replkernel", 1))
    async with Client(server) as client:
        return await client.call_tool(tool, given)


async def test_a_kernel_that_hibernates_is_resumed_and_asked_again(played: Played) -> None:
    sleeps = Answer(409, {"message": "It hibernates.", "reason": "hibernated"})
    played.answers["POST", f"{KERNEL}/cells"] = [sleeps, Answer(200, {"cell": "c", "status": "queued"})]
    told = (await call("send_cell", notebook="n", code="x = 1", cell="c", gpus=2)).structured_content
    assert (told["cell"], told["status"]) == ("c", "queued")
    assert [each[:2] for each in played.asked] == [
        ("GET", "api/sessions"),
        ("POST", f"{KERNEL}/cells"),
        ("POST", KERNEL),
        ("POST", f"{KERNEL}/cells"),
    ]
    assert played.asked[1][2] == {"code": "x = 1", "cell": "c", "gpus": 2}


async def test_a_server_that_is_away_is_told_with_the_id_to_send_again_by(played: Played) -> None:
    played.answers["POST", f"{KERNEL}/cells"] = [Unreachable("gone")]
    told = (await call("send_cell", notebook="n", code="x = 1")).structured_content
    assert told["status"] == "unreachable" and "gone" in told["reason"]
    assert told["cell"] == played.asked[-1][2]["cell"] != ""


async def test_images_are_shown_as_images(played: Played) -> None:
    outputs = [{"source": "display", "type": "image/png", "data": "QUJD"}]
    played.answers["GET", f"{KERNEL}/cells/c"] = [
        Answer(200, {"status": "ok", "over": True, "outputs": outputs})
    ]
    told = await call("read_cell", notebook="n", cell="c")
    assert [each.type for each in told.content] == ["text", "image"]
    assert told.content[1].data == "QUJD" and "QUJD" not in told.content[0].text
    assert played.asked[-1][1] == f"{KERNEL}/cells/c?wait_s=0&chars=20000&image_bytes=1048576"


async def test_a_notebook_is_attached_to_or_started_within_the_bound(played: Played) -> None:
    assert (await call("open_notebook", notebook="n")).structured_content["new"] is False
    assert (await call("open_notebook", notebook="other")).structured_content["why"] == "full"
    played.answers["GET", "api/sessions"] = [Answer(200, [])]
    played.answers["POST", "api/sessions"] = [Answer(201, SESSION)]
    told = (await call("open_notebook", notebook="n")).structured_content
    assert (told["new"], told["kernel"]) == (True, "k")
    assert (await call("list_variables", notebook="n")).structured_content["status"] == "lost"


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("send_cell", {"code": "#" * 300_000}),
        ("send_cell", {"code": "", "cell": "../x"}),
        ("wait_cell", {"cell": "c", "seconds": 1000}),
        ("read_cell", {"cell": "c", "chars": 10**9}),
        ("go_back", {"how": "elsewhere"}),
    ],
)
async def test_an_argument_out_of_bounds_is_refused_before_anybody_is_asked(
    played: Played, tool: str, given: dict[str, Any]
) -> None:
    assert (await call(tool, notebook="n", **given)).is_error
    assert not played.asked
