"""What an agent is told: a server's answers as documents, with a status in each.

Pure. Law: whatever happens is data (`lost`, `refused`, `unreachable`, with the reason), and bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

Document = dict[str, Any]

POINTS_MAX = 50
NOTEBOOKS_MAX = 200
NAME_CHARS_MAX = 200
REASON_CHARS_MAX = 2_000

NO_NOTEBOOK = "No notebook of this name is open on the server; open_notebook begins one without variables."
TOO_MANY = (
    "{found} replicated kernels run on the server, and agents start none where {most} do: end one "
    "that you started with end_notebook, or have a person raise REPLKERNEL_MCP_KERNELS."
)
AWAY = (
    "The Jupyter Server does not answer ({why}). Its kernels go on without it: ask again in some seconds. A "
    "cell that is sent again by the same id runs once."
)
NO_EXTENSION = "The Jupyter Server has no replkernel extension, or an older one: have a person look at it."
NO_WORDS = "The Jupyter Server does not say why."
NO_RIGHT = "The Jupyter Server refuses the token: have a person give this MCP server a valid one."


class Answer(msgspec.Struct, frozen=True):
    """What a server answered."""

    status: int
    body: Any = None


class Picture(msgspec.Struct, frozen=True):
    """An image, as base64."""

    type: str
    data: str


def session_of(sessions: object, notebook: str) -> Document | None:
    """Return the session of a notebook, as Jupyter lists sessions."""
    found = (each for each in _sessions(sessions) if each.get("path") == notebook)
    return next(found, None)


def kernel_of(session: Mapping[str, Any]) -> str:
    """Return the id of a session's kernel, to be put into an address."""
    kernel = session.get("kernel")
    return quote(str(kernel.get("id")), safe="") if isinstance(kernel, dict) else ""


def notebooks(sessions: object, kernel: str) -> Document:
    """Return the notebooks that have a replicated kernel."""
    ours = _of_kernel(sessions, kernel)
    rows = [
        {
            "notebook": str(each.get("path")),
            "kernel": kernel_of(each),
            "state": each["kernel"].get("execution_state"),
        }
        for each in ours[:NOTEBOOKS_MAX]
    ]
    return {"status": "ok", "notebooks": rows, "more": max(0, len(ours) - NOTEBOOKS_MAX)}


def too_many(sessions: object, kernel: str, most: int) -> Document | None:
    """Return a refusal where no other kernel may be started."""
    found = len({kernel_of(each) for each in _of_kernel(sessions, kernel)})
    return refused("full", TOO_MANY.format(found=found, most=most)) if found >= most else None


def bad_name(notebook: str) -> Document | None:
    """Return a refusal of what can be no notebook's path."""
    parts = notebook.split("/")
    fits = 0 < len(notebook) <= NAME_CHARS_MAX and notebook.isprintable() and "\\" not in notebook
    if fits and all(part.strip() and part not in (".", "..") for part in parts):
        return None
    return refused(
        "name",
        f"A notebook's name is a path below the server's directory, {NAME_CHARS_MAX} characters at most.",
    )


def session_wanted(notebook: str, kernel: str) -> Document:
    """Return the session to ask Jupyter for; what is no file of a notebook is a console's."""
    kind = "notebook" if notebook.endswith(".ipynb") else "console"
    return {"path": notebook, "name": notebook.rpartition("/")[2], "type": kind, "kernel": {"name": kernel}}


def hibernates(answer: Answer) -> bool:
    """Tell whether a kernel must be resumed before it answers."""
    return (
        answer.status == 409 and isinstance(answer.body, dict) and answer.body.get("reason") == "hibernated"
    )


def document(answer: Answer, **more: object) -> Document:
    """Return what an answer means; `more` is told beside it."""
    body = answer.body if isinstance(answer.body, dict) else {}
    message = str(body.get("message") or "")[:REASON_CHARS_MAX]
    if 200 <= answer.status < 300:
        return {"status": "ok"} | more | body
    if answer.status in (401, 403):
        return refused("token", NO_RIGHT) | more
    if answer.status == 404 and "known here" in message:
        return lost(message) | more
    if answer.status == 404:
        return refused("extension", NO_EXTENSION) | more
    if answer.status == 409:
        named = {"cannot_come_back": body["lost"]} if body.get("lost") else {}
        return refused(str(body.get("reason") or "refused"), message or NO_WORDS) | named | more
    return refused(f"http-{answer.status}", message or NO_WORDS) | more


def lost(reason: str) -> Document:
    """Return that something is gone."""
    return {"status": "lost", "reason": reason, "over": True}


def refused(why: str, reason: str) -> Document:
    """Return that nothing was done: one word for programs, and a sentence."""
    return {"status": "refused", "why": why, "reason": reason}


def unreachable(why: str) -> Document:
    """Return that the server did not answer."""
    return {"status": "unreachable", "reason": AWAY.format(why=why)}


def shortened(history: Document) -> Document:
    """Return a history with its newest points alone."""
    points = history.get("points")
    if not isinstance(points, list) or len(points) <= POINTS_MAX:
        return history
    older = len(points) - POINTS_MAX
    return history | {"points": points[-POINTS_MAX:], "more": int(history.get("more") or 0) + older}


def parted(told: Document) -> tuple[Document, list[Picture]]:
    """Return a document without its images, which it numbers from 1, and the images."""
    outputs = told.get("outputs")
    if not isinstance(outputs, list):
        return told, []
    pictures: list[Picture] = []
    shown: list[Document] = []
    for output in outputs:
        if output.get("data"):
            pictures.append(Picture(output["type"], output["data"]))
            output = {**output, "data": f"image {len(pictures)} of this answer"}
        shown.append(output)
    return told | {"outputs": shown}, pictures


def _sessions(sessions: object) -> Sequence[Document]:
    return [each for each in sessions if isinstance(each, dict)] if isinstance(sessions, list) else []


def _of_kernel(sessions: object, kernel: str) -> list[Document]:
    return [
        each
        for each in _sessions(sessions)
        if isinstance(each.get("kernel"), dict) and each["kernel"].get("name") == kernel
    ]
