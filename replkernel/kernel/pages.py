"""An IPython kernel whose widgets pages talk to, whichever process had them before.

What a page has the notebook's code do is captured as a cell's changes are: by an audit of the last cell, or,
in a process that has not run it, with the message as an execution of its own.
Law: a page's message finds every variable, or nothing is done for it; the router learns when all that it
changed is proposed.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel annotates few of its own methods.)

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from jupyter_client.session import DELIM

from replkernel.errors import UNREADABLE
from replkernel.kernel.asking import tell_router
from replkernel.kernel.auditing import AuditingKernel
from replkernel.kernel.execution import Execution, describe
from replkernel.kernel.questions import look_of
from replkernel.protocol.envelope import ROUTER_IDENTITY, Envelope
from replkernel.protocol.pages import SAVED_TYPE, PageSaved

if TYPE_CHECKING:
    from zmq.eventloop.zmqstream import ZMQStream


COMM_MESSAGES = ("comm_open", "comm_msg", "comm_close")

CONTROL = "jupyter.widget.control"
"""The target of a comm on which a page asks once for the states of all widgets."""

SUBJECT = "# What widgets on the page did"
"""So the history calls what a page's message changed as an execution."""


class _Header(msgspec.Struct):
    msg_id: str = ""
    msg_type: str = ""
    subshell_id: str | None = None


_read_header = msgspec.json.Decoder(_Header).decode


def tell_pages() -> None:
    """Have pages show what widgets hold that were rebuilt here: they may show what was lost."""
    carried = sys.modules.get("replkernel.state.libraries.ipywidgets")
    if carried is not None:
        carried.tell_pages()


def _show_again(comm_id: str, *, now: bool) -> None:
    """Have pages show what a widget holds, `now` or once that is up to date: they show what was not done."""
    carried = sys.modules.get("replkernel.state.libraries.ipywidgets")
    if carried is not None:
        carried.show_again(comm_id)
        if now:
            carried.tell_pages()


class PagesKernel(AuditingKernel):
    """A kernel that takes pages' messages about comms."""

    _execution: Execution | None = None
    _page: tuple[str, list[bytes]] | None = None
    """The last message of a page of whose changes the router awaits news, and the way to it."""
    _not_taken = 0
    """The last execution with which a page's message was to take the notebook over, and could not."""

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self._in_main: set[str] = set()
        """Messages that name a subshell and were given to the main shell, which has not dealt with them."""
        self.shell_handlers["comm_msg"] = self._known_or_closed(self.shell_handlers["comm_msg"])
        for kind in COMM_MESSAGES:
            self.shell_handlers[kind] = self._with_all_variables(self.shell_handlers[kind])

    def _with_all_variables(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """Have a page's message find every variable, and what it has the notebook's code do be captured."""

        def handler(stream: ZMQStream, ident: list[bytes], parent: Mapping[str, Any]) -> Any:
            try:
                self.deliver_interrupts()
                if self.replica is None:
                    return handle(stream, ident, parent)
                if self._has_the_notebook(look_of(ident), ident, parent):
                    return self._handle_page(handle, stream, ident, parent)
            finally:
                self._in_main.discard(parent["header"]["msg_id"])

        return handler

    def _handle_page(
        self, handle: Callable[..., Any], stream: object, ident: list[bytes], parent: Mapping[str, Any]
    ) -> object:
        tell_pages()
        try:
            return handle(stream, ident, parent)
        finally:
            self._after_page(ident, parent)

    def _has_the_notebook(self, look: Envelope | None, ident: list[bytes], parent: Mapping[str, Any]) -> bool:
        """Have all variables be here for a page's message; tell whether it may reach the notebook's code.

        Where the notebook could not be taken over it may not, nor may what was sent behind it: that would
        find old values, and what it changed would be lost.
        """
        assert self.replica is not None
        if look is not None and look.seq:
            self._take_over(look)
        elif self._not_taken <= self.replica.ran or self._asks_for_widgets(parent):
            self.replica.before_page(look)
            return True
        if self._not_taken <= self.replica.ran:
            return True
        _show_again(parent["content"].get("comm_id", ""), now=not self.replica.state.pending_bytes)
        if ROUTER_IDENTITY in ident:
            said = PageSaved(str(parent["header"]["msg_id"]), self._not_taken, ran=False)
            self._on_main_thread(tell_router, self, ident, said, SAVED_TYPE)
        return False

    def _take_over(self, envelope: Envelope) -> None:
        """Go on for the process that ran the cells: what a page's message changes is an execution's."""
        assert self.replica is not None
        self.replica.travel.cell_id = ""
        self._execution = execution = self.replica.begin(envelope)
        execution.texts = (SUBJECT,)
        if execution.trouble is None:
            self.go_on_from(max(envelope.counted, execution.counted))
        else:
            self._not_taken = envelope.seq
            why = describe(execution.trouble)
            self.replica.tell(f"What you did with a widget had no effect; use it again in a moment ({why}).")

    def _asks_for_widgets(self, parent: Mapping[str, Any]) -> bool:
        """Tell whether a message only has pages be told what widgets hold."""
        content = parent["content"]
        held = self.comm_manager.comms.get(content.get("comm_id", ""))
        return CONTROL in (content.get("target_name"), getattr(held, "target_name", None))

    def go_on_from(self, counted: int) -> None:
        """Go on after the cells that were counted where this replica does not know of."""
        raise NotImplementedError

    def _after_page(self, ident: list[bytes], parent: Mapping[str, Any]) -> None:
        """Have what a page's message changed be captured, also where a subshell has taken it."""
        page = (str(parent["header"]["msg_id"]), ident) if ROUTER_IDENTITY in ident else None
        self._on_main_thread(self._page_spoke, page)

    def _on_main_thread(self, call: Callable[..., Any], *told: object) -> None:
        if threading.current_thread() is threading.main_thread():
            call(*told)
        else:
            self.io_loop.add_callback(call, *told)

    def _page_spoke(self, page: tuple[str, list[bytes]] | None) -> None:
        self._page = page or self._page
        if self.replica is not None:
            self.replica.after_page()
        if not self._dispatched:
            self.plan_audit()

    def plan_audit(self) -> None:
        """Have what is owed be checked, and tell the router once that is nothing more."""
        super().plan_audit()
        self.tell_saved()

    def tell_saved(self) -> None:
        """Tell the router once all is proposed that pages' messages have changed."""
        page, replica = self._page, self.replica
        if page is not None and replica is not None and (mark := replica.page_saved()) is not None:
            self._page = None
            tell_router(self, page[1], PageSaved(page[0], mark.seq, mark.audit), SAVED_TYPE)

    def _known_or_closed(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """Have pages hear that a comm is closed which no process has any more."""

        def handler(stream: object, ident: list[bytes], parent: Mapping[str, Any]) -> Any:
            handled = handle(stream, ident, parent)
            comm_id = parent["content"].get("comm_id", "")
            if self.replica is not None and comm_id not in self.comm_manager.comms:
                content, topic = {"comm_id": comm_id, "data": {}}, f"comm-{comm_id}".encode()
                session: Any = self.session
                session.send(self.iopub_socket, "comm_close", content, parent, ident=topic)
            return handled

        return handler

    async def shell_channel_thread_main(self, msg: list[Any]) -> None:
        """Give messages to their shells, but to the main one what of pages' no subshell may take."""
        if self.replica is not None and self._is_for_main_shell(msg):
            main = self.shell_channel_thread.manager.get_shell_channel_to_subshell_socket(None)
            main.send_multipart(msg, copy=False)
        else:
            await super().shell_channel_thread_main(msg)

    def _is_for_main_shell(self, msg: list[Any]) -> bool:
        """Tell whether no subshell may take a comm's message, though it names one; the main one then does.

        Perhaps that is another process's, or the message is an execution, or the notebook is to be rebuilt
        for it, which the main thread does. What comes while the main shell has such ones goes behind them.
        """
        frames = [frame.buffer for frame in msg]
        try:
            at = frames.index(DELIM)
            header = _read_header(frames[at + 2])
        except (ValueError, IndexError, *UNREADABLE):
            return False
        if header.msg_type not in COMM_MESSAGES or header.subshell_id is None:
            return False
        look = look_of([bytes(frame) for frame in frames[:at]])
        waits = (look is not None and look.seq > 0) or bool(self._in_main)
        away = self.replica is not None and not self.replica.holds_the_notebook
        goes = waits or away or header.subshell_id not in self.shell_channel_thread.manager.list_subshell()
        if goes:
            self._in_main.add(header.msg_id)
        return goes
