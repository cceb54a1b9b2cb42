"""Whatever a server answers, an agent is told a status, a reason and no more than the bounds allow."""

from __future__ import annotations

from typing import Any

import pytest
from replkernel_server.mcp import words
from replkernel_server.mcp.words import Answer, Picture


def session(path: str, kernel: str = "k", name: str = "replkernel") -> dict[str, Any]:
    """Return a session as Jupyter lists it."""
    return {"id": "s", "path": path, "kernel": {"id": kernel, "name": name, "execution_state": "idle"}}


@pytest.mark.parametrize(
    ("answer", "status", "why"),
    [
        (Answer(200, {"status": "running"}), "running", None),
        (Answer(201, {"variables": []}), "ok", None),
        (Answer(204), "ok", None),
        (Answer(404, {"message": "No kernel k is known here."}), "lost", None),
        (Answer(404, {"message": "Not Found"}), "refused", "extension"),
        (Answer(403, {"message": "Forbidden"}), "refused", "token"),
        (Answer(409, {"message": "A cell runs.", "reason": "busy"}), "refused", "busy"),
        (Answer(409, "nonsense"), "refused", "refused"),
        (Answer(500, None), "refused", "http-500"),
        (Answer(302, None), "refused", "http-302"),
    ],
)
def test_every_answer_has_a_status(answer: Answer, status: str, why: str | None) -> None:
    told = words.document(answer, notebook="n")
    assert (told["status"], told.get("why"), told["notebook"]) == (status, why, "n")
    assert status not in ("lost", "refused") or told["reason"]


def test_variables_that_cannot_come_back_are_named() -> None:
    lost = [{"name": "line", "type": "socket.socket"}]
    told = words.document(Answer(409, {"message": "It would be lost.", "reason": "confirm", "lost": lost}))
    assert (told["why"], told["cannot_come_back"]) == ("confirm", lost)


def test_notebooks_are_found_by_path_and_counted_by_kernel() -> None:
    sessions = [session("a.ipynb"), session("b", "k2"), session("c", "k3", "python3"), "nonsense", {}]
    found = words.session_of(sessions, "b")
    assert found is not None and words.kernel_of(found) == "k2"
    assert words.session_of(sessions, "none") is None
    assert words.session_of({"message": "Forbidden"}, "b") is None
    assert [each["notebook"] for each in words.notebooks(sessions, "replkernel")["notebooks"]] == [
        "a.ipynb",
        "b",
    ]
    assert words.too_many(sessions, "replkernel", 3) is None
    refusal = words.too_many(sessions, "replkernel", 2)
    assert refusal is not None and refusal["why"] == "full"


@pytest.mark.parametrize("name", ["", "../x", "a//b", "/etc/x", "a\nb", "a\\b", "x" * 201, "."])
def test_a_text_that_is_no_path_is_no_name(name: str) -> None:
    assert words.bad_name(name) is not None


def test_a_name_that_is_no_file_of_a_notebook_is_a_console() -> None:
    assert words.bad_name("work/a b.ipynb") is None
    assert words.session_wanted("work/a.ipynb", "k")["type"] == "notebook"
    assert words.session_wanted("training", "k") == {
        "path": "training", "name": "training", "type": "console", "kernel": {"name": "k"},
    }  # fmt: skip


def test_images_leave_the_document_and_are_numbered() -> None:
    outputs = [{"source": "stdout", "text": "x"}, {"source": "display", "type": "image/png", "data": "QUJD"}]
    told, pictures = words.parted({"status": "ok", "outputs": outputs})
    assert pictures == [Picture("image/png", "QUJD")]
    assert told["outputs"][1]["data"] == "image 1 of this answer"
    assert outputs[1]["data"] == "QUJD"


def test_of_a_long_history_the_newest_points_are_told() -> None:
    told = words.shortened({"points": list(range(70)), "more": 5})
    assert (told["points"][0], told["points"][-1], told["more"]) == (20, 69, 25)
