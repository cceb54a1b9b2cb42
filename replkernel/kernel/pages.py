"""An IPython kernel whose widgets pages talk to, whichever process had them before.

What a page has the notebook's code do is captured as a cell's changes are: by an audit of the last cell, or,
in a process that has not run it, with the message as an execution of its own.
Law: a page's message finds every variable; the router learns when all that it changed is proposed.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel annotates few of its own methods.)

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import msgspec
from jupyter_client.session import DELIM

from replkernel.errors import UNREADABLE
from replkernel.kernel.asking import tell_router
from replkernel.kernel.auditing import AuditingKernel
from replkernel.kernel.execution import Execution
from replkernel.kernel.questions import look_of
from replkernel.protocol.envelope import ROUTER_IDENTITY, Envelope
from replkernel.protocol.pages import SAVED_TYPE, PageSaved

log = logging.getLogger(__name__)

COMM_MESSAGES = ("comm_open", "comm_msg", "comm_close")

SUBJECT = "# What widgets on the page did"
"""So the history calls what a page's message changed as an execution."""


class _Header(msgspec.Struct):
    msg_type: str = ""
    subshell_id: str | None = None


_read_header = msgspec.json.Decoder(_Header).decode


def tell_pages() -> None:
    """Have pages show what widgets hold that were rebuilt here: they may show what was lost."""
    carried = sys.modules.get("replkernel.state.libraries.ipywidgets")
    if carried is not None:
        carried.tell_pages()


class PagesKernel(AuditingKernel):
    """A kernel that takes pages' messages about comms."""

    _execution: Execution | None = None
    _page: tuple[str, list[bytes]] | None = None
    """The last message of a page of whose changes the router awaits news, and the way to it."""
    _to_main = _by_main = 0
    """How many messages that name a subshell were given to the main one, and how many it has dealt with."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        for kind in COMM_MESSAGES:
            self.shell_handlers[kind] = self._with_all_variables(self.shell_handlers[kind])
        self.shell_handlers["comm_msg"] = self._known_or_closed(self.shell_handlers["comm_msg"])

    def _with_all_variables(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """Have a page's message find every variable, and what it has the notebook's code do be captured."""

        def handler(stream: Any, ident: Any, parent: Any) -> Any:
            self.deliver_interrupts()
            if self.replica is None:
                return handle(stream, ident, parent)
            look = look_of(ident)
            if look is not None and look.seq:
                self._take_over(look)
            else:
                self.replica.before_page(look)
            tell_pages()
            try:
                return handle(stream, ident, parent)
            finally:
                self._after_page(ident, parent)

        return handler

    def _take_over(self, envelope: Envelope) -> None:
        """Go on for the process that ran the cells: what a page's message changes is an execution's."""
        assert self.replica is not None
        self.replica.travel.cell_id = ""
        self._execution = self.replica.begin(envelope)
        self._execution.texts = (SUBJECT,)
        if self._execution.trouble is None:
            self.go_on_from(max(envelope.counted, self._execution.counted))
        else:
            log.error("A page's message begins without all variables", exc_info=self._execution.trouble)
            self.replica.before_page(None)

    def go_on_from(self, counted: int) -> None:
        """Go on after the cells that were counted where this replica does not know of."""
        raise NotImplementedError

    def _after_page(self, ident: list[bytes], parent: Any) -> None:
        """Have what a page's message changed be captured, also where a subshell has taken it."""
        page = (str(parent["header"]["msg_id"]), ident) if ROUTER_IDENTITY in ident else None
        if threading.current_thread() is threading.main_thread():
            self._by_main += parent["header"].get("subshell_id") is not None
            self._page_spoke(page)
        else:
            self.io_loop.add_callback(self._page_spoke, page)

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

        def handler(stream: Any, ident: Any, parent: Any) -> Any:
            handled = handle(stream, ident, parent)
            comm_id = parent["content"].get("comm_id", "")
            if self.replica is not None and comm_id not in self.comm_manager.comms:
                content, topic = {"comm_id": comm_id, "data": {}}, f"comm-{comm_id}".encode()
                session: Any = self.session
                session.send(self.iopub_socket, "comm_close", content, parent, ident=topic)
            return handled

        return handler

    async def shell_channel_thread_main(self, msg: Any) -> None:
        """Give messages to their shells, but to the main one what of pages' no subshell may take."""
        if self.replica is not None and self._is_for_main_shell(msg):
            self._to_main += 1
            main = self.shell_channel_thread.manager.get_shell_channel_to_subshell_socket(None)
            main.send_multipart(msg, copy=False)
        else:
            await super().shell_channel_thread_main(msg)

    def _is_for_main_shell(self, msg: Any) -> bool:
        """Tell whether no subshell may take a comm's message, though it names one.

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
        if (look is not None and look.seq) or self._to_main != self._by_main:
            return True
        if self.replica is not None and not self.replica.holds_the_notebook:
            return True
        return header.subshell_id not in self.shell_channel_thread.manager.list_subshell()
