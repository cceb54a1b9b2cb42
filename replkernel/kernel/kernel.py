"""The Jupyter kernel of a replica: stock IPythonKernel to its client, the replica's steps around each cell.

Owns where in ipykernel's message handling those steps are taken; what they are is in `replica.py`.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel annotates few of its own methods.)

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ipykernel.utils import LazyDict
from traitlets import Float, Type

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.gpu.backend import Kept, Moved, Outcome
from replkernel.kernel.arrivals import forgets_missing
from replkernel.kernel.asking import ask_elsewhere, ask_router, tell_router
from replkernel.kernel.birth import Birth
from replkernel.kernel.cells import CellCompiler
from replkernel.kernel.execution import Execution, describe
from replkernel.kernel.history_answers import is_asked
from replkernel.kernel.late_debugger import LateDebugger
from replkernel.kernel.leased_gpus import Beginning, LeasedGpus
from replkernel.kernel.output import OutputThread, OutStream
from replkernel.kernel.pages import PagesKernel, tell_pages
from replkernel.kernel.practice import Practice
from replkernel.kernel.replica import Replica
from replkernel.kernel.reply_metadata import declined_metadata, reply_metadata
from replkernel.kernel.shell import ReplicatedShell
from replkernel.kernel.short_ways import on_main_shell
from replkernel.leasing.notebook import GpuAnswer, GpuQuestion
from replkernel.leasing.request import split_gpu_line
from replkernel.protocol import installing
from replkernel.protocol.agent_to_process import StandStill
from replkernel.protocol.envelope import client_identities, read_envelope
from replkernel.protocol.installing import InstallQuestion

END_TIMEOUT_S = 10.0
"""So long after it was told to end, a process that still runs a cell ends at once."""

INTERRUPTED_S = 1.0
"""A cell that was interrupted has so long to say so, which a second SIGINT would break."""

LOOKS = 50
"""So often it is looked meanwhile whether the cell has ended."""

HEARD_LIMIT_S = 60.0
"""So long a process that ends for another one to take over waits for a router that has heard of it."""
HEARD_LOOK_S = 0.02

SKIPPED_MAX = 10_000
"""No more lines of In are left empty at a time."""

log = logging.getLogger(__name__)


class ReplicatedKernel(PagesKernel):
    """One replica's kernel. `replica` is set before the first message is taken."""

    shell_class = Type(ReplicatedShell)
    compiler_class = Type(CellCompiler)
    debugger_class = Type(LateDebugger, klass=object)

    birth: Birth
    connection_file = ""
    replica: Replica | None = None
    is_ours: Callable[[threading.Thread], bool] = staticmethod(lambda thread: False)
    """Tells which threads the kernel itself started."""
    hands_over = False
    """Whether this process ends because another one takes over for the notebook."""
    _ending = False
    _execute_sleep = Float(
        0.0, help="Seconds between output and reply; none are needed, for the router reads output first."
    ).tag(config=True)

    def __init__(self, **traits: object) -> None:
        super().__init__(**traits)
        self.gpus = LeasedGpus(self, self._started_here)
        self.practice = Practice()
        self._parent_ident = LazyDict(
            {
                "control": lambda: client_identities(self._identities("control")),
                "shell": lambda: client_identities(self._identities("shell")),
            }
        )

    def _started_here(self, thread: threading.Thread) -> bool:
        return self.is_ours(thread)

    # -- executions ---------------------------------------------------------------------------------

    async def dispatch_shell(
        self, msg: object, /, subshell_id: str | None = None, *, concurrent: bool = False
    ) -> None:
        """Handle a message as stock does; a cell's changes are captured after its idle, before the next."""
        replica = self.replica
        if replica is None or subshell_id is not None or concurrent:
            await super().dispatch_shell(msg, subshell_id=subshell_id, concurrent=concurrent)
            return
        self.practice.end()
        if replica.stale:
            replica.refresh()
        self._dispatched = 1
        try:
            await super().dispatch_shell(msg, subshell_id=subshell_id, concurrent=concurrent)
        finally:
            execution, self._execution = self._execution, None
            if execution is not None:
                if execution.sent_back:
                    self._forget_seen(msg)
                replica.capture(execution, rests=self.eventloop is None)
                self.gpus.rest()
                replica.state.devices.take_back()
                replica.restorer.rest()
            self._dispatched = 0
            self.plan_audit()

    def _what_keeps(self, stays: str) -> str:
        """Say what keeps this process from ending for another one to take over; else nothing."""
        return stays or ("" if self.replica is None else self.replica.what_keeps())

    def _forget_seen(self, msg: object) -> None:
        """Have a message taken once more: its session knows it by its signature, and takes none twice."""
        session: Any = self.session
        _, frames = session.feed_identities(msg, copy=False)
        session.digest_history.discard(frames[0].bytes)

    async def execute_request(self, stream: object, ident: list[bytes], parent: Mapping[str, Any]) -> None:
        """Run a cell; an interrupt between its steps, which stock drops without a word, is its answer too.

        None reaches the sending of the reply, for it would tear the message in two.
        """
        if on_main_shell(parent):
            self._input_shown = False
        await self._execute_or_answer(self._way_back(stream, parent), ident, parent)

    async def _execute_or_answer(self, stream: object, ident: list[bytes], parent: Mapping[str, Any]) -> None:
        try:
            self.deliver_interrupts()
            await self._execute(stream, ident, parent)
        except KeyboardInterrupt as interrupt:
            self.hold_interrupts()
            self.gpus.over()
            self.show_input(parent)
            if self._execution is None:
                self._execution = Execution(None)
                self._execution.trouble = interrupt
            content = self._refusal(interrupt)
            metadata = self.finish_metadata(parent, self.init_metadata(parent), content)
            session: Any = self.session
            session.send(stream, "execute_reply", content, parent, metadata=metadata, ident=ident)

    async def _execute(self, stream: object, ident: list[bytes], parent: Mapping[str, Any]) -> None:
        """Run a cell; on the main shell, first bring the state here that it needs."""
        if self.replica is not None and on_main_shell(parent):
            try:
                envelope = read_envelope(ident)
            except UNREADABLE as error:
                log.warning("An execution's envelope does not fit and is ignored: %s", error)
                envelope = None
            texts = _texts_of(parent["content"])
            self.replica.travel.cell_id = str((parent.get("metadata") or {}).get("cellId") or "")
            begins, silent = Beginning(), bool(parent["content"].get("silent", False))
            if envelope is not None and not envelope.interrupts:
                self.interrupts.forget()
            if envelope is not None:
                keeps = None if envelope.stays is None else partial(self._what_keeps, envelope.stays)
                begins = (
                    Beginning(renews=True)
                    if self.hands_over
                    else self.gpus.begin(
                        envelope.gpus,
                        texts,
                        silent=silent,
                        vram_gb=envelope.vram_gb,
                        part=envelope.part,
                        what_keeps=keeps,
                    )
                )
            if begins.wants or begins.renews or begins.trouble is not None:
                self._execution = Execution(envelope)
                self._execution.wants_gpus, self._execution.renews = begins.wants, begins.renews
                self._execution.trouble = begins.trouble or ReplkernelError("The cell is not run here.")
            else:
                forget = forgets_missing(texts[0])
                if envelope is not None:
                    self.replica.state.devices.lend(envelope.gpus, leased=envelope.leases)
                wishes = envelope is not None and not silent
                self._execution = self.replica.begin(
                    envelope, forget_missing=forget, texts=texts, wishes=wishes
                )
            if self._execution.sent_back:
                self.gpus.over()
                self._decline(stream, ident, parent)
                return
            if envelope is not None and self._execution.trouble is None:
                tell_pages()
                self.go_on_from(max(envelope.counted, self._execution.counted))
            for notice in [*self.replica.notices, *([begins.notice] if begins.notice else [])]:
                self.replica.tell(notice)
            self.replica.notices.clear()
        try:
            await super().execute_request(stream, ident, parent)
        finally:
            if self.replica is not None and not on_main_shell(parent):
                self._after_page(ident, parent)  # What it changed is captured as a page's doing is.

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: object = None,
        allow_stdin: bool = False,
        *,
        cell_meta: object = None,
        cell_id: object = None,
    ) -> object:
        """Run the cell as stock does, unless its state could not be brought here."""
        execution = self._current()
        if execution is not None and execution.trouble is not None:
            self.hold_interrupts()
            self.gpus.over()
            return self._refusal(execution.trouble)
        try:
            reply = await super().do_execute(
                code,
                silent,
                store_history,
                user_expressions,
                allow_stdin,
                cell_meta=cell_meta,
                cell_id=cell_id,
            )
        finally:
            if execution is not None:
                self.hold_interrupts()
                self.gpus.over()
        if self.replica is not None:
            self.replica.explain(reply)
        for stream in (self._stdout, self._stderr):
            if isinstance(stream, OutStream):
                stream.take_descriptor()
        return reply

    def go_on_from(self, counted: int) -> None:
        """Go on after the cells that were counted where this replica does not know of."""
        shell: Any = self.shell
        for number in range(shell.execution_count, min(counted, shell.execution_count + SKIPPED_MAX) + 1):
            shell.history_manager.skip(number)
            shell.execution_count = number + 1

    def _decline(self, stream: object, ident: list[bytes], parent: Mapping[str, Any]) -> None:
        """Answer that another replica is to run the cell, or under a lease: the router alone sees it."""
        self.hold_interrupts()
        assert self._execution is not None
        said = declined_metadata(self.birth, self._execution)
        metadata = {**self.init_metadata(parent), "replkernel": said}
        if isinstance(self._stdout, OutStream):
            self._stdout.flush()  # What was shown goes first: after the answer nobody passes it on.
        session: Any = self.session
        session.send(stream, "execute_reply", {"status": "error"}, parent, metadata=metadata, ident=ident)
        if self._execution.renews and not self.hands_over:
            self.hands_over = True
            self._leave_when_heard(time.monotonic() + HEARD_LIMIT_S)

    def _leave_when_heard(self, until: float) -> None:
        """End this process once a router, perhaps the next one, has taken note of why."""
        thread = self.iopub_thread
        if time.monotonic() >= until or not isinstance(thread, OutputThread) or thread.replies_heard():
            shell: Any = self.shell
            shell.exit_now = True
        else:
            self.io_loop.call_later(HEARD_LOOK_S, self._leave_when_heard, until)

    def _publish_status(self, status: str, channel: str, parent: Mapping[str, Any] | None = None) -> None:
        """Publish a status; a declined execution goes on elsewhere, so it is not idle yet."""
        if channel == "control" and is_asked(parent or self.get_parent(channel)):
            return
        execution = self._current() if channel == "shell" else None
        if status != "idle" or execution is None or not execution.sent_back:
            super()._publish_status(status, channel, parent)

    def _current(self) -> Execution | None:
        """Return the main shell's execution, when this is the main thread."""
        return self._execution if threading.current_thread() is threading.main_thread() else None

    def _refusal(self, trouble: BaseException) -> dict[str, Any]:
        """Publish `trouble` as the cell's error and return the reply's content."""
        name = type(trouble).__name__
        lines = [f"\x1b[31m{name}\x1b[39m{describe(trouble).removeprefix(name)}"]
        shell: Any = self.shell
        shell._showtraceback(type(trouble), trouble, lines)
        return {
            "status": "error",
            "ename": name,
            "evalue": describe(trouble).removeprefix(name).removeprefix(": "),
            "traceback": lines,
            "execution_count": shell.execution_count,
            "user_expressions": {},
            "payload": [],
        }

    def finish_metadata(
        self, parent: Mapping[str, Any], metadata: Any, reply_content: Mapping[str, Any]
    ) -> object:
        """Add what replkernel says about the execution to the reply's metadata."""
        metadata = super().finish_metadata(parent, metadata, reply_content)
        replica = self.replica
        if replica is None or parent["header"]["msg_type"] != "execute_request":
            return metadata
        birth = self.birth
        execution = self._current() or Execution(None)
        if replica.syncs and execution is self._execution:
            replica.sync(execution)
        elif replica.travel.to is not None and execution is self._execution:
            replica.go_to(execution)
            tell_pages()
        elif birth.spec.durable == "before_reply" and reply_content["status"] != "aborted":
            replica.capture(execution, whole=True)
            replica.await_commit(execution)
        told = {} if execution.envelope is None else self.gpus.told() | replica.travel.told()
        leaves = bool(getattr(self.shell, "exit_now", False))
        ran = execution.trouble is None and reply_content["status"] != "aborted"
        state_bytes = replica.state.state_bytes
        metadata["replkernel"] = reply_metadata(birth, execution, state_bytes, told, ran=ran, leaves=leaves)
        return metadata

    def _abort_queues(self, subshell_id: str | None = None) -> None:
        """Abort what waits behind an error, except for the router's cells: it holds and aborts those itself.

        Aborting here as well could hit a cell that was sent after the error was seen.
        """
        execution = self._current() if subshell_id is None else None
        if execution is None or execution.envelope is None:
            super()._abort_queues(subshell_id)

    # -- between messages ---------------------------------------------------------------------------

    def wake(self) -> None:
        """Have the main thread refresh the namespace once no message is handled; from any thread."""
        self._do_between_messages(self._refresh)

    def _do_between_messages(self, work: Callable[[], None]) -> None:
        """Have the main thread do something once no message is handled; from any thread.

        It is done in the context in which cells run: libraries keep settings there.
        """
        self.io_loop.add_callback(self._begin, work)

    async def _begin(self, work: Callable[[], None]) -> None:
        await asyncio.create_task(self._while_idle(work), context=self._cells_context)

    async def _while_idle(self, work: Callable[[], None]) -> None:
        async with self._main_asyncio_lock:
            self.practice.end()
            work()

    def _refresh(self) -> None:
        if self.replica is not None:
            if self.replica.stale:
                self.replica.refresh()
            self.replica.advance()

    def expect_questions(self) -> None:
        """Bring here what a question would wait for, while another process runs a long cell."""
        self._do_between_messages(self._fill_in)
        self._do_between_messages(self.practice.begin)

    def _fill_in(self) -> None:
        if self.replica is not None and not self.replica.holds_the_notebook:
            self.replica.fill_in()

    def free_gpus(self, lease: str) -> None:
        """Move the state off the GPUs of a lease once no message is handled, and say so; from any thread.

        Where there is none that is said at once. A cell without a lease may run for long: it is done in it.
        """
        if self.gpus.has_nothing() and self.replica is not None and self.replica.link is not None:
            self.replica.link.gpus_freed(lease, 0, "")
            return
        self.gpus.hand_over.ask(lease)
        self._do_between_messages(partial(self._free_gpus, lease))

    def pause_cell(self, order: StandStill) -> None:
        """Have the cell that runs stand still off its GPUs for a shorter one, or say why not; any thread."""
        self.gpus.pause.ask(order)

    def stands_still(self) -> None:
        """Take note that the cell which runs has left its GPUs for a shorter one."""
        if self._execution is not None:
            self._execution.stands_still()

    def _free_gpus(self, lease: str) -> None:
        if self.gpus.hand_over.was_done(lease):
            return
        outcome = self.gpus.suspend()
        if isinstance(outcome, Kept) and self.replica is not None and self.replica.settle_kept():
            outcome = self.gpus.suspend()
        self.gpus_freed(lease, outcome)

    def gpus_freed(self, lease: str, outcome: Outcome) -> None:
        """Say that the state is off the GPUs of a lease, or why it stays; from any thread."""
        if self.replica is not None and self.replica.link is not None:
            moved, why = (outcome.bytes, "") if isinstance(outcome, Moved) else (0, outcome.why)
            self.replica.link.gpus_freed(lease, moved, why)

    def computes_on(self, lease: str, why: str) -> None:
        """Say why the cell under a lease does not stand still for a shorter one; from any thread."""
        if self.replica is not None and self.replica.link is not None:
            self.replica.link.computes_on(lease, why)

    # -- the rest of Jupyter's protocol -------------------------------------------------------------

    async def connect_request(self, stream: object, ident: list[bytes], parent: Mapping[str, Any]) -> None:
        """Answer with the ports that clients use: the router's, as in its connection file."""
        ports = client_ports(self.connection_file)
        if ports:
            self.record_ports(ports)
        await super().connect_request(stream, ident, parent)

    def _identities(self, channel: str) -> list[bytes]:
        """Return all identity frames of the channel's current message."""
        frames: Any = (
            self._control_parent_ident
            if channel == "control"
            else self._get_shell_context_var(self._shell_parent_ident)
        )
        return list(frames)

    def _input_request(
        self, prompt: object, ident: list[bytes], parent: Mapping[str, Any], password: bool = False
    ) -> str:
        """Ask the client for input; who has its identity from `_parent_ident` is routed like ourselves.

        An interrupt's traceback is as stock's, without this file, which takes a tenth of a second to parse.
        """
        __tracebackhide__ = True
        routed = self._identities("shell")
        if ident == client_identities(routed):
            ident = routed
        return super()._input_request(prompt, ident, parent, password)

    def kernel_info_content(self) -> bytes:
        """Return the content of this kernel's kernel_info_reply as JSON."""
        return json.dumps({"status": "ok", **self.kernel_info}).encode()

    def ask_router(self, question: GpuQuestion) -> GpuAnswer:
        """Ask the router in the middle of a cell; what keeps the answer from coming is in its `error`."""
        answer = ask_router(self, self._identities("shell"), question)
        if answer.price_hour and self._execution is not None:
            self._execution.costs(answer.price_hour, answer.currency)
        return answer

    def tell_router(self, question: GpuQuestion) -> None:
        """Tell the router something in the middle of a cell, and await no answer."""
        tell_router(self, self._identities("shell"), question)

    def in_leased_notebook(self) -> bool:
        """Tell whether a cell of the main shell runs, where GPUs are leased."""
        envelope = None if self._execution is None else self._execution.envelope
        return envelope is not None and (envelope.leases or envelope.gpus is not None)

    def leased_gpus(self) -> tuple[str, ...]:
        """Return the GPUs on which the running cell has, or had, its lease."""
        envelope = None if self._execution is None else self._execution.envelope
        return () if envelope is None or envelope.gpus is None else envelope.gpus

    def leased_in_cell(self, answer: GpuAnswer, notice: str) -> None:
        """Take note that the cell which runs has got a lease."""
        assert self._execution is not None and self.replica is not None
        self._execution.lease(answer.gpus, answer.part, answer.vram_gb)
        self.replica.state.devices.lend(answer.gpus)
        if notice:
            self.replica.tell(notice)

    def ask_installs(self, question: InstallQuestion) -> GpuAnswer:
        """Have what a cell has installed installed on the other replicas' hosts; wait until it is."""
        kinds = (installing.QUESTION_TYPE, installing.ANSWER_TYPE)
        return ask_router(self, self._identities("shell"), question, kinds, installing.ANSWER_LIMIT_S)

    def ask_elsewhere(self) -> tuple[tuple[Any, ...], str]:
        """Return the other hosts' status documents, or what keeps them from coming."""
        return ask_elsewhere(self, self._identities("shell"))

    # -- the end ------------------------------------------------------------------------------------

    def end(self, reason: str, *, patient: bool = False) -> None:
        """End the process as a shutdown_request would; from any thread, once.

        `patient`: whoever wants the end has interrupted the cell, which may say so first.
        """
        if self._ending:
            return
        self._ending = True
        watchdog = threading.Timer(END_TIMEOUT_S, os._exit, (1,))
        watchdog.daemon = True
        watchdog.start()
        log.warning("This kernel process ends: %s", reason)
        self.io_loop.add_callback(self.practice.end)
        loop = self.control_thread.io_loop
        loop.add_callback(self._end, INTERRUPTED_S if patient else 0.0)

    async def _end(self, patience_s: float) -> None:
        try:
            async with asyncio.timeout(END_TIMEOUT_S / 2):
                await self._progressively_terminate_all_children()
        except Exception:
            log.exception("A child process could not be ended")
        self.io_loop.add_callback(self.io_loop.stop)
        for _ in range(LOOKS):
            if self._execution is not None:
                await asyncio.sleep(patience_s / LOOKS)
        if self._execution is not None:
            os.kill(os.getpid(), signal.SIGINT)


def _texts_of(content: Mapping[str, Any]) -> list[str]:
    """Return a cell's source, without its `%%gpu` line, and the expressions that it comes with."""
    expressions = content.get("user_expressions") or {}
    texts = (content.get("code"), *expressions.values())
    return [split_gpu_line(text)[1] if isinstance(text, str) else "" for text in texts]


def client_ports(connection_file: str) -> dict[str, int]:
    """Return the ports in a connection file; none when it cannot be read on this host."""
    try:
        info = json.loads(Path(connection_file).read_text())
        return {name: int(value) for name, value in info.items() if name.endswith("_port")}
    except (OSError, ValueError, AttributeError):
        return {}
