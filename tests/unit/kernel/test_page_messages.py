"""A page's messages about comms find every variable, and none goes to nobody unheard by the page."""

from __future__ import annotations

import json
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_client.session import DELIM

from replkernel.errors import QuorumLost
from replkernel.kernel.execution import Execution
from replkernel.kernel.pages import PagesKernel
from replkernel.protocol.envelope import ROUTER_IDENTITY, Envelope, envelope_frame
from replkernel.records import Fence, Mark, Seq

MESSAGE = {"header": {"msg_id": "m"}, "content": {"comm_id": "c", "data": {}}}


class Kernel:
    """What of a kernel these messages meet, and what happens to it, in order."""

    _page: Any = None
    _execution: Any = None
    _dispatched = 1
    _not_taken = 0
    _handle_page: Any = PagesKernel._handle_page
    _has_the_notebook: Any = PagesKernel._has_the_notebook
    _asks_for_widgets: Any = PagesKernel._asks_for_widgets
    _on_main_thread: Any = PagesKernel._on_main_thread
    _after_page: Any = PagesKernel._after_page
    _page_spoke: Any = PagesKernel._page_spoke
    _take_over: Any = PagesKernel._take_over
    plan_audit: Any = PagesKernel.tell_saved

    def __init__(self) -> None:
        self.happened: list[Any] = []
        self.deliver_interrupts = lambda: None
        self.comm_manager = SimpleNamespace(comms={"c": object()})
        self.iopub_socket = "iopub"
        self.session = SimpleNamespace(send=self._send)
        self.saved: Mark | None = None
        self.begun = Execution(None)
        self.replica = SimpleNamespace(
            before_page=lambda look: self.happened.append(("before", look)),
            after_page=lambda: self.happened.append("after"),
            begin=self._begin,
            page_saved=lambda: self.saved,
            travel=SimpleNamespace(cell_id="cell"),
            holds_the_notebook=True,
            ran=0,
            tell=lambda sentence: self.happened.append(("tells", sentence)),
            state=SimpleNamespace(pending_bytes=1),
        )
        self.stdin_socket = "stdin"
        self.get_parent: Any = lambda channel: {}
        self.go_on_from = lambda count: self.happened.append(("counted", count))
        self.io_loop = SimpleNamespace(add_callback=lambda call, *told: self.later.append((call, told)))
        self.later: list[Any] = []
        self._in_main: set[str] = set()
        self.shell_channel_thread = SimpleNamespace(
            manager=SimpleNamespace(
                list_subshell=lambda: ["mine"],
                get_shell_channel_to_subshell_socket=lambda subshell: SimpleNamespace(
                    send_multipart=lambda msg, copy: self.happened.append("to the main shell")
                ),
            )
        )

    def _send(self, socket: str, kind: str, content: Any, parent: Any, *, ident: Any) -> None:
        self.happened.append((socket, kind, content.get("comm_id") or content, ident))

    def _begin(self, envelope: Envelope) -> Execution:
        self.happened.append(("begun", envelope.seq))
        if self.begun.trouble is None:
            self.replica.ran = envelope.seq
        return self.begun

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
    handler = PagesKernel._with_all_variables(kernel, kernel.handle)  # type: ignore[arg-type]
    handler("stream", [b"client", envelope_frame(look)], MESSAGE)
    assert kernel.happened == [("before", look), "told", "handled", "after"]


def test_changes_are_looked_for_also_where_the_notebooks_code_fails(kernel: Kernel) -> None:
    def fails(*_: Any) -> None:
        raise KeyboardInterrupt

    handler = PagesKernel._with_all_variables(kernel, fails)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        handler("stream", [b"client"], MESSAGE)
    assert kernel.happened[-1] == "after"


@pytest.mark.parametrize("known", [True, False])
def test_a_page_hears_that_a_comm_is_closed_which_nobody_has(kernel: Kernel, known: bool) -> None:
    if not known:
        kernel.comm_manager.comms.clear()
    PagesKernel._known_or_closed(kernel, kernel.handle)("stream", [b"client"], MESSAGE)  # type: ignore[arg-type]
    assert kernel.happened == ["handled", *([] if known else [("iopub", "comm_close", "c", b"comm-c")])]


FROM_ROUTER = [ROUTER_IDENTITY, b"client"]


def test_a_message_that_takes_the_notebook_over_is_an_execution(kernel: Kernel) -> None:
    envelope = Envelope(Seq(7), Fence(8), needs=Seq(6), counted=3)
    handler = PagesKernel._with_all_variables(kernel, kernel.handle)  # type: ignore[arg-type]
    handler("stream", [*FROM_ROUTER, envelope_frame(envelope)], MESSAGE)
    assert kernel.happened == [("begun", 7), ("counted", 3), "handled", "after"]
    assert kernel._execution is kernel.begun, "its changes are captured when it is over"


def test_nothing_is_done_for_a_message_where_the_notebook_cannot_be_taken_over(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = SimpleNamespace(
        show_again=lambda comm_id: kernel.happened.append(("shown", comm_id)),
        tell_pages=lambda: kernel.happened.append("told"),
    )
    monkeypatch.setitem(sys.modules, "replkernel.state.libraries.ipywidgets", carried)
    kernel.begun.trouble = QuorumLost("No majority answers.")
    envelope = Envelope(Seq(7), Fence(8), needs=Seq(6))
    stock = PagesKernel._known_or_closed(kernel, kernel.handle)  # type: ignore[arg-type]
    kernel.comm_manager.comms.clear()
    handler = PagesKernel._with_all_variables(kernel, stock)  # type: ignore[arg-type]
    handler("stream", [*FROM_ROUTER, envelope_frame(envelope)], MESSAGE)
    kernel.replica.state.pending_bytes = 0
    handler("stream", FROM_ROUTER, {**MESSAGE, "header": {"msg_id": "n"}})
    begun, why, first, refused, again, told, behind = kernel.happened
    assert "No majority answers." in why[1]
    assert (begun, first, again, told) == (("begun", 7), ("shown", "c"), ("shown", "c"), "told")
    said = {"seq": 7, "audit": 0, "ran": False}
    assert refused[:3] == ("stdin", "replkernel_page_saved", {"msg_id": "m", **said})
    assert behind[:3] == ("stdin", "replkernel_page_saved", {"msg_id": "n", **said})


def test_messages_are_handled_again_once_the_notebook_has_been_taken_over(kernel: Kernel) -> None:
    kernel.begun.trouble = QuorumLost("No majority answers.")
    handler = PagesKernel._with_all_variables(kernel, kernel.handle)  # type: ignore[arg-type]
    handler("stream", [*FROM_ROUTER, envelope_frame(Envelope(Seq(7), Fence(8), needs=Seq(6)))], MESSAGE)
    control = {"comm_id": "x", "target_name": "jupyter.widget.control"}
    assert "handled" not in kernel.happened
    handler("stream", FROM_ROUTER, {**MESSAGE, "content": control})
    assert kernel.happened[-2:] == ["handled", "after"], "a page that is opened shows what there is"
    kernel.happened.clear()
    kernel.begun.trouble = None
    handler("stream", [*FROM_ROUTER, envelope_frame(Envelope(Seq(8), Fence(9), needs=Seq(6)))], MESSAGE)
    handler("stream", FROM_ROUTER, MESSAGE)
    assert kernel.happened.count("handled") == 2


def test_the_router_hears_once_when_all_that_a_page_changed_is_proposed(kernel: Kernel) -> None:
    PagesKernel._with_all_variables(kernel, kernel.handle)("stream", FROM_ROUTER, MESSAGE)  # type: ignore[arg-type]
    kernel.happened.clear()
    kernel.plan_audit()
    assert kernel.happened == []
    kernel.saved = Mark(Seq(7), 2)
    kernel.plan_audit()
    kernel.plan_audit()
    said = {"msg_id": "m", "seq": 7, "audit": 2, "ran": True}
    assert kernel.happened == [("stdin", "replkernel_page_saved", said, FROM_ROUTER)]


def test_a_subshells_changes_are_captured_by_the_main_thread(kernel: Kernel) -> None:
    handler = PagesKernel._with_all_variables(kernel, kernel.handle)  # type: ignore[arg-type]
    subshell = threading.Thread(target=handler, args=("stream", FROM_ROUTER, MESSAGE))
    subshell.start()
    subshell.join()
    assert "after" not in kernel.happened
    ((call, told),) = kernel.later
    call(*told)
    assert kernel.happened[-1] == "after"


def goes_to_main(
    kernel: Kernel, kind: str, subshell: str | None, *identities: bytes, msg_id: str = "m"
) -> bool:
    """Tell whether the main shell is to take a message."""
    header = json.dumps({"msg_id": msg_id, "msg_type": kind, "subshell_id": subshell}).encode()
    msg = [SimpleNamespace(buffer=part) for part in (*identities, DELIM, b"signature", header)]
    return PagesKernel._is_for_main_shell(kernel, msg)  # type: ignore[arg-type]


def test_a_subshell_that_is_here_takes_pages_messages(kernel: Kernel) -> None:
    assert not goes_to_main(kernel, "comm_msg", "mine")
    assert not goes_to_main(kernel, "comm_open", None)
    assert not goes_to_main(kernel, "execute_request", "of a former process"), "its client is told"
    assert goes_to_main(kernel, "comm_open", "of a former process")


@pytest.mark.parametrize("kind", ["comm_open", "comm_msg"])
def test_the_main_shell_takes_what_a_page_says_before_the_notebook_is_here(kernel: Kernel, kind: str) -> None:
    kernel.replica.holds_the_notebook = False
    assert goes_to_main(kernel, kind, "mine", msg_id="1")
    kernel.replica.holds_the_notebook = True
    assert goes_to_main(kernel, "comm_msg", "mine", msg_id="2"), "the one before is not dealt with"
    handler = PagesKernel._with_all_variables(kernel, kernel.handle)  # type: ignore[arg-type]
    for msg_id in ("1", "2"):
        handler("stream", [b"client"], {**MESSAGE, "header": {"msg_id": msg_id}})
    assert not goes_to_main(kernel, "comm_msg", "mine", msg_id="3")


def test_a_pages_message_that_is_an_execution_goes_to_the_main_shell(kernel: Kernel) -> None:
    envelope = Envelope(Seq(7), Fence(8), needs=Seq(6))
    assert goes_to_main(kernel, "comm_msg", "mine", ROUTER_IDENTITY, envelope_frame(envelope))
