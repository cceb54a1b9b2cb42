"""A page's messages about comms find every variable, and none goes to nobody unheard by the page."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from replkernel.kernel.questions import QuestionsKernel
from replkernel.protocol.envelope import Envelope, envelope_frame
from replkernel.records import Fence, Seq

MESSAGE = {"content": {"comm_id": "c", "data": {}}}


class Kernel:
    """What of a kernel these messages meet, and what happens to it, in order."""

    def __init__(self) -> None:
        self.happened: list[Any] = []
        self.deliver_interrupts = lambda: None
        self.comm_manager = SimpleNamespace(comms={"c": object()})
        self.iopub_socket = "iopub"
        self.session = SimpleNamespace(send=self._send)
        self.replica = SimpleNamespace(
            before_page=lambda look: self.happened.append(("before", look)),
            after_page=lambda: self.happened.append("after"),
        )

    def _send(self, socket: str, kind: str, content: Any, parent: Any, *, ident: bytes) -> None:
        self.happened.append((socket, kind, content["comm_id"], ident))

    def handle(self, *_: Any) -> None:
        """Have the notebook's code do something."""
        self.happened.append("handled")


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


def test_variables_are_here_before_and_changes_are_looked_for_after(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = SimpleNamespace(tell_pages=lambda: kernel.happened.append("told"))
    monkeypatch.setitem(sys.modules, "replkernel.state.libraries.ipywidgets", told)
    look = Envelope(Seq(0), Fence(0), needs=Seq(4))
    handler = QuestionsKernel._with_all_variables(kernel, kernel.handle)  # type: ignore[arg-type]
    handler("stream", [b"client", envelope_frame(look)], MESSAGE)
    assert kernel.happened == [("before", look), "told", "handled", "after"]


def test_changes_are_looked_for_also_where_the_notebooks_code_fails(kernel: Kernel) -> None:
    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    handler = QuestionsKernel._with_all_variables(kernel, fails)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        handler("stream", [b"client"], MESSAGE)
    assert kernel.happened[-1] == "after"


@pytest.mark.parametrize("known", [True, False])
def test_a_page_hears_that_a_comm_is_closed_which_nobody_has(kernel: Kernel, known: bool) -> None:
    if not known:
        kernel.comm_manager.comms.clear()
    QuestionsKernel._known_or_closed(kernel, kernel.handle)("stream", [b"client"], MESSAGE)  # type: ignore[arg-type]
    assert kernel.happened == ["handled", *([] if known else [("iopub", "comm_close", "c", b"comm-c")])]
