"""The control channel's answers about the history, given while a cell runs as well.

Law: the main thread is not waited for, nothing is changed, and other front ends see nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.protocol.points import (
    DIFFERENCES_MAX,
    REPLY,
    REQUEST,
    ComparisonDocument,
    HistoryDocument,
    HistoryQuestion,
    document_of,
)
from replkernel.protocol.variables import REQUEST as VARIABLES

if TYPE_CHECKING:
    from replkernel.kernel.link import AgentLink


def answer_history(kernel: Any) -> None:
    """Have a kernel answer what is asked of its history on its control channel."""

    def answer(stream: object, ident: list[bytes], parent: Mapping[str, Any]) -> None:
        kernel.session.send(stream, REPLY, _content(kernel.replica.link, parent), parent, ident)

    kernel.control_handlers[REQUEST] = answer


def is_asked(parent: Mapping[str, Any]) -> bool:
    """Tell whether a control message asks about history or variables: it makes no kernel busy."""
    header: dict[str, Any] = (parent or {}).get("header") or {}
    return header.get("msg_type") in (REQUEST, VARIABLES)


def asked(link: AgentLink | None) -> AgentLink:
    """Return the link to the agent, which has the history; raises ReplkernelError without one."""
    if link is None or not link.connected():
        raise ReplkernelError("The history cannot be asked now: this process has no host agent.")
    return link


def _content(link: AgentLink | None, parent: Mapping[str, Any]) -> dict[str, Any]:
    try:
        link = asked(link)
        question = msgspec.convert(parent["content"], HistoryQuestion)
        return {"status": "ok", **msgspec.to_builtins(_answer(link, question))}
    except (ReplkernelError, *UNREADABLE) as error:
        return {"status": "error", "ename": type(error).__name__, "evalue": str(error), "traceback": []}


def _answer(link: AgentLink, question: HistoryQuestion) -> HistoryDocument | ComparisonDocument:
    timeline = link.history().timeline
    if question.verb:
        timeline.aim(question.verb, question.one)
        return document_of(timeline)
    if not question.one and not question.other:
        return document_of(timeline)
    found = link.history(timeline.find(question.one), timeline.find(question.other)).differences
    return ComparisonDocument(found[:DIFFERENCES_MAX], max(0, len(found) - DIFFERENCES_MAX))
