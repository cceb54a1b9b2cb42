"""Questions of a cell to its router, in the middle of the cell, and their answers: on the stdin channel.

Law: no client sees either; an answer is waited for in short looks, so that an interrupt gets through, and for
a limited time.
"""

from __future__ import annotations

import threading
import time
from typing import Any, TypeAlias

import msgspec

from replkernel.leasing.notebook import ANSWER_LIMIT_S, ANSWER_TYPE, QUESTION_TYPE, GpuAnswer, GpuQuestion
from replkernel.protocol import remote_status
from replkernel.protocol.installing import InstallQuestion
from replkernel.protocol.pages import PageSaved

LOOK_MS = 10
NO_ROUTER = "This cell did not come from a router, so there is none to ask."
IN_SUBSHELL = "This cannot be done in a subshell: do it in a cell of the notebook."
Question: TypeAlias = GpuQuestion | InstallQuestion | remote_status.StatusQuestion


def tell_router(
    kernel: Any, identities: list[bytes], question: Question | PageSaved, kind: str = QUESTION_TYPE
) -> Any:
    """Send a question, on the main thread; whoever needs no answer leaves it at that."""
    content, parent = msgspec.to_builtins(question), kernel.get_parent("shell")
    return kernel.session.send(kernel.stdin_socket, kind, content, parent, ident=identities)


def ask_router(
    kernel: Any,
    identities: list[bytes],
    question: GpuQuestion | InstallQuestion,
    kinds: tuple[str, str] = (QUESTION_TYPE, ANSWER_TYPE),
    limit_s: float = ANSWER_LIMIT_S,
) -> GpuAnswer:
    """Return the router's answer to a cell that came with `identities`.

    The main thread alone asks: the answer comes by a socket on which a cell there may be waiting. What keeps
    it from coming is in its `error`. `kinds` are the types of the question and of the answer.
    """
    if not identities:
        return GpuAnswer(error=NO_ROUTER)
    if threading.current_thread() is not threading.main_thread():
        return GpuAnswer(error=IN_SUBSHELL)
    answer = _answer_to(kernel, identities, question, kinds, limit_s)
    if answer is None:
        return GpuAnswer(error=_unheard(limit_s), unheard=True)
    return msgspec.convert(answer, GpuAnswer)


def ask_elsewhere(kernel: Any, identities: list[bytes]) -> tuple[tuple[Any, ...], str]:
    """Return the status documents of the kernel's other hosts, as builtins, or why there are none."""
    if not identities or threading.current_thread() is not threading.main_thread():
        return (), NO_ROUTER
    kinds, limit_s = (remote_status.QUESTION_TYPE, remote_status.ANSWER_TYPE), remote_status.ANSWER_LIMIT_S
    answer = _answer_to(kernel, identities, remote_status.StatusQuestion(), kinds, limit_s)
    return ((), _unheard(limit_s)) if answer is None else (tuple(answer["documents"]), "")


def _unheard(limit_s: float) -> str:
    return f"The kernel's router has not answered within {limit_s:g} s; try again."


def _answer_to(
    kernel: Any, identities: list[bytes], question: Question, kinds: tuple[str, str], limit_s: float
) -> Any:
    """Return the content of the answer to a question; None if there is none in time."""
    socket, session = kernel.stdin_socket, kernel.session
    while socket.poll(0):  # What came too late for whoever asked before.
        socket.recv_multipart()
    sent = tell_router(kernel, identities, question, kinds[0])
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if not socket.poll(LOOK_MS):
            continue
        _, answer = session.recv(socket)
        if answer is None or answer["header"]["msg_type"] != kinds[1]:
            continue
        if answer["parent_header"].get("msg_id") == sent["header"]["msg_id"]:
            return answer["content"]
    return None
