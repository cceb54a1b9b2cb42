"""The kernel process's line to its host agent: one thread, one ZMQ DEALER, deltas kept until committed.

Owns what was proposed and not acknowledged, and who is still there: an agent that comes back is greeted
again with everything it may have missed; a process without agent and router ends itself.
Law: nothing here waits on the main thread or keeps the process from exiting; idle, it only blocks in poll.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import zmq

from replkernel.agent.io.socket_places import check_near
from replkernel.errors import UNREADABLE, AgentUnavailable, BlobMissing
from replkernel.kernel.alarms import Alarms
from replkernel.kernel.birth import Birth
from replkernel.kernel.interrupts import WAIT_MAX_S
from replkernel.kernel.shared_socket import SharedSocket, descriptor, has_news, monitored
from replkernel.kernel.unacknowledged import Unacknowledged
from replkernel.protocol.agent_to_process import (
    AgentToKernel,
    ApplyDelta,
    BegunAfresh,
    BlobsReady,
    DeltaCommitted,
    DurabilityTrouble,
    ExecutionRefused,
    FreeGpus,
    HistoryAnswer,
    KernelWelcome,
    NotebookStatusAnswer,
    SettleState,
    StandStill,
    StopProcess,
)
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.message import MESSAGE_BYTES_MAX, Message, decoder, encode
from replkernel.protocol.process_to_agent import (
    ChunksWithdrawn,
    ChunksWritten,
    ClaimExecution,
    FetchBlobs,
    GpusFreed,
    HibernationWanted,
    HistoryQuery,
    KernelHello,
    NotebookStatusQuery,
    ProcessNotice,
    ProposeDelta,
)
from replkernel.records import BlobRef, ChunkRef, Delta, Digest, Mark, Seq
from replkernel.state.process.own_threads import own_thread

FETCH_TIMEOUT_S = 600.0
STATUS_TIMEOUT_S = 5.0
RECONNECT_FIRST_MS = 50
RECONNECT_MAX_MS = 1000
LINGER_MS = 200
JOIN_TIMEOUT_S = 2.0

CLAIM_AFTER_S = 0.01
"""A claim is sent when its cell still runs after so long; the delta of one that ended sooner is its claim."""

ATTENTION_S = 0.2
"""So long after a delta the thread looks for a claim by itself and need not be woken for one."""

STATUS_AFTER_S = 0.1
"""What a process holds is told so long after it changed, once for all changes meanwhile."""

QUIET_S = 0.075
RESTLESS_MAX_S = 1.0
"""Deltas are left to rest until none has come for QUIET_S, but no longer than RESTLESS_MAX_S."""

_OPTIONS = (
    (zmq.LINGER, LINGER_MS),
    (zmq.IMMEDIATE, 1),
    (zmq.RECONNECT_IVL, RECONNECT_FIRST_MS),
    (zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS),
    (zmq.MAXMSGSIZE, MESSAGE_BYTES_MAX),
)
_AGENT_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
ROUTER_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED

_decoder = decoder(AgentToKernel)
"""Made once, in the zygote: it takes a twentieth of a kernel process's start."""

log = logging.getLogger(__name__)


class LinkListener(Protocol):
    """What the link tells, always on its own thread: quick calls that only hand over."""

    def delta_arrived(self, delta: Delta) -> None:
        """Take a committed delta of another replica."""

    def delta_committed(self, seq: Seq, *, owing: bool = False) -> None:
        """Learn that this process's own delta is durable, or in the log but `owing` an audit."""

    def begun_afresh(self, begun: BegunAfresh) -> None:
        """Learn from where an execution goes on for a lost process."""

    def execution_refused(self, seq: Seq, why: str) -> None:
        """Learn that an execution lost against a newer one."""

    def gpus_wanted(self, lease: str) -> None:
        """Learn that somebody waits for the GPUs of a lease."""

    def pause_wanted(self, order: StandStill) -> None:
        """Learn that the cell that runs is to stand still for a shorter one."""

    def settle_wanted(self) -> None:
        """Learn that somebody waits until all that cells changed here is durable."""

    def stop(self, reason: str, *, patient: bool = False) -> None:
        """End the process in an orderly way; `patient`: its cell was interrupted, and may say so first."""

    def applied(self) -> Mark:
        """Return the last execution, and which of its audits, whose delta this process holds."""

    def quiet(self) -> None:
        """Learn that no more deltas have come for a moment."""


class AgentLink:
    """The connection of one kernel process to its agent.

    `routers` tells as a monitor of the control channel does whether a router is connected; the link alone
    reads it.
    """

    def __init__(
        self,
        birth: Birth,
        context: zmq.Context[Any],
        endpoints: Endpoints,
        kernel_info: bytes,
        listener: LinkListener,
        routers: zmq.Socket[Any] | None,
        grace_s: float,
    ) -> None:
        self.trouble = ""
        self.welcome: KernelWelcome | None = None
        self._birth = birth
        self._endpoints = endpoints
        self._kernel_info = kernel_info
        self._listener = listener
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._outbox: deque[Message] = deque()
        """Used under the lock alone."""
        self._unacknowledged = Unacknowledged()
        self._claim: ClaimExecution | None = None
        self._status: Message | None = None
        self._alarms = Alarms()
        """Used under the lock, like `_attentive`: whether the thread looks at them every CLAIM_AFTER_S."""
        self._attentive = True
        self._restless_since = 0.0
        self._requests: dict[int, _Request] = {}
        self._request_count = 0
        self._greeted = False
        self._present = False
        self._alone_since: float | None = time.monotonic()
        self._router_fds: set[int] = set()
        self._stopping = False
        self._wake_in, self._wake_out = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._pid = os.getpid()
        self._socket = context.socket(zmq.DEALER)
        for option, value in _OPTIONS:
            self._socket.setsockopt(option, value)
        self._shared = SharedSocket(self._socket)
        self._monitor = self._socket.get_monitor_socket(_AGENT_EVENTS)
        self._watched = (self._monitor,) if routers is None else (self._monitor, routers)
        self._thread = own_thread(self._run, "Agent link")

    # -- for the main thread ------------------------------------------------------------------------

    def start(self) -> None:
        """Connect and greet the agent; raises AgentUnavailable where it could be somebody else."""
        check_near(self._birth.agent_endpoint)
        self._socket.connect(self._birth.agent_endpoint)
        self._thread.start()

    def stop(self) -> None:
        """Say no more and close; safe to call twice, and in a forked child."""
        self._stopping = True
        if self._pid == os.getpid() and self._thread.is_alive():
            self._wake()
            self._thread.join(JOIN_TIMEOUT_S)

    def connected(self) -> bool:
        """Tell whether the agent has welcomed this process and is still there."""
        return self._present and self.welcome is not None

    def congested(self) -> bool:
        """Tell whether so much is unacknowledged that no more deltas are taken."""
        return self._unacknowledged.full()

    def claim(self, claim: ClaimExecution) -> None:
        """Tell the agent that an execution starts: soon, or together with its delta; at once if afresh."""
        with self._lock:
            self._claim = claim
            if claim.afresh:
                self._enqueue(claim)
                self._send_here()
                return
            self._alarms.set("claim", time.monotonic() + CLAIM_AFTER_S)
            self._draw_attention()

    def propose(self, delta: Delta, capture_s: float = 0.0) -> None:
        """Hand over what an execution changed; it is sent again until it is committed or refused."""
        with self._lock:
            self._unacknowledged.add(delta)
            self._alarms.set("attention", time.monotonic() + ATTENTION_S)
            self._alarms.cancel("claim")
            self._claim = None
            self._enqueue(ProposeDelta(delta, capture_s))
            self._send_here()

    def chunks_written(self, chunks: Sequence[ChunkRef]) -> None:
        """Tell the agent of chunks that a delta will name, so that it can begin to store them; any thread."""
        with self._lock:
            self._enqueue(ChunksWritten(tuple(chunks)))
            self._wake()

    def chunks_withdrawn(self, digests: Sequence[Digest]) -> None:
        """Tell the agent of chunks that no delta will name, so that it takes them out of the store."""
        with self._lock:
            self._enqueue(ChunksWithdrawn(tuple(digests)))
            self._wake()

    def tell(self, status: Message, *, at_once: bool = False) -> None:
        """Tell the agent what this process holds: in a moment, for a newer status takes this one's place."""
        with self._lock:
            self._status = status
            if at_once:
                self._alarms.cancel("status")
                self._enqueue(status)
                self._wake()
                return
            self._alarms.set_once("status", time.monotonic() + STATUS_AFTER_S)
            self._draw_attention()

    def complain(self, sentence: str) -> None:
        """Have the user told a sentence, in the terminal and with the next cell."""
        with self._lock:
            self._enqueue(ProcessNotice(sentence))
            self._wake()

    def gpus_freed(self, lease: str, moved_bytes: int, why: str) -> None:
        """Say that no state is left on the GPUs of a lease, or (`why`) that it has to stay."""
        self._tell_freed(GpusFreed(lease, moved_bytes, why))

    def computes_on(self, lease: str, why: str) -> None:
        """Say why the cell under a lease does not stand still."""
        self._tell_freed(GpusFreed(lease, 0, why, computes_on=True))

    def _tell_freed(self, said: GpusFreed) -> None:
        with self._lock:
            self._enqueue(said)
            self._wake()

    def want_hibernation(self) -> None:
        """Ask for the hibernation of the kernel; any thread."""
        with self._lock:
            self._enqueue(HibernationWanted(self._birth.spec.kernel_id))
            self._wake()

    def fetch_blobs(self, blobs: Sequence[BlobRef], timeout_s: float = FETCH_TIMEOUT_S) -> None:
        """Have the agent bring `blobs` into the host's cache; blocks, and SIGINT interrupts it.

        Raises BlobMissing when no store has one of them, AgentUnavailable when no answer comes in time.
        """
        if not blobs:
            return
        answer = self._ask(lambda number: FetchBlobs(number, tuple(blobs)), timeout_s)
        if isinstance(answer, BlobsReady) and (answer.missing or answer.why):
            url = self._birth.spec.store_url or "of this kernel"
            problem = (
                answer.why or f"does not hold {len(answer.missing)} chunks that the notebook's variables need"
            )
            problem = problem.removeprefix(f"The object store {url} ").rstrip(".")
            raise BlobMissing(url, problem, "check that every host reaches the same store")

    def notebook_status(self, timeout_s: float = STATUS_TIMEOUT_S) -> bytes:
        """Return this kernel's status document (JSON); raises AgentUnavailable without an answer."""
        answer = self._ask(NotebookStatusQuery, timeout_s)
        assert isinstance(answer, NotebookStatusAnswer)
        return answer.document

    def history(self, to: Mark | None = None, other: Mark | None = None) -> HistoryAnswer:
        """Return the points of the history, and what leads `to` one, or how two differ.

        Raises AgentUnavailable without an answer.
        """
        answer = self._ask(lambda number: HistoryQuery(number, to, other), STATUS_TIMEOUT_S)
        assert isinstance(answer, HistoryAnswer)
        return answer

    def awaits(self, mark: Mark) -> bool:
        """Tell whether a delta up to `mark` is on its way still."""
        return any(delta.mark <= mark for delta in self._unacknowledged.deltas())

    def _ask(self, make: Callable[[int], Message], timeout_s: float) -> Message:
        with self._lock:
            self._request_count += 1
            number = self._request_count
            request = self._requests[number] = _Request(make(number))
            self._enqueue(request.message)
            self._wake()
        try:
            deadline = time.monotonic() + timeout_s
            while not request.await_answer(WAIT_MAX_S) and time.monotonic() < deadline:
                pass
            if request.answer is None:
                raise AgentUnavailable(
                    f"The host agent did not answer within {timeout_s:g} s; "
                    "run the cell again, or restart the agent with `python -m replkernel.agent`."
                )
            return request.answer
        finally:
            self._requests.pop(number, None)

    def _enqueue(self, message: Message) -> None:
        """Queue a message (the caller holds the lock); without an agent the next greeting says it all."""
        if self._greeted:
            self._outbox.append(message)

    def _draw_attention(self) -> None:
        """Have the thread look at the alarms (the caller holds the lock)."""
        if not self._attentive:
            self._attentive = True
            self._wake()

    def _send_here(self) -> None:
        """Send what waits without the thread (the caller holds the lock), and wake it if more is to do."""
        if self._greeted:
            self._flush()
        if self._outbox or self._shared.wants(sending=False):
            self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_out, b"w")

    # -- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        poll = select.poll()
        for number in (self._wake_in, *map(descriptor, (self._socket, *self._watched))):
            poll.register(number, select.POLLIN)
        try:
            while not self._stopping:
                patience_ms = 0 if self._has_news() else self._patience_ms()
                self._serve({number for number, _ in poll.poll(patience_ms)})
        except zmq.ContextTerminated:
            pass
        except Exception as fault:
            log.exception("The link to the agent failed")
            self._listener.stop(f"its link to the agent failed: {fault}")
        finally:
            self._close()

    def _has_news(self) -> bool:
        """Tell whether there is something to do of which no descriptor may tell any more."""
        sending = bool(self._outbox)
        return self._shared.wants(sending=sending) or any(has_news(socket) for socket in self._watched)

    def _serve(self, ready: set[int]) -> None:
        if self._wake_in in ready:
            os.read(self._wake_in, 4096)
        for socket in self._watched:
            for event, value in monitored(socket):
                (self._agent_event if socket is self._monitor else self._router_event)(event, value)
        self._receive()
        self._look_at_alarms()
        with self._lock:
            self._flush()
        self._end_when_orphaned()

    def _look_at_alarms(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        with self._lock:
            if self._alarms.take("claim", now) and self._claim is not None:
                self._enqueue(self._claim)
            if self._alarms.take("status", now) and self._status is not None:
                self._enqueue(self._status)
            quiet = self._alarms.take("quiet", now)
            self._alarms.take("attention", now)
        if quiet:
            self._listener.quiet()

    def _note_delta(self) -> None:
        """Let what came rest for a moment: others may follow."""
        now = time.monotonic()
        with self._lock:
            if "quiet" not in self._alarms:
                self._restless_since = now
            self._alarms.set("quiet", min(now + QUIET_S, self._restless_since + RESTLESS_MAX_S))

    def _agent_event(self, event: int, _value: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._present = True
            self._greet()
        elif event == zmq.EVENT_DISCONNECTED:
            self._present = self._greeted = False
        self._note_company()

    def _router_event(self, event: int, value: int) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._router_fds.add(value)
        elif event == zmq.EVENT_DISCONNECTED:
            self._router_fds.discard(value)
        self._note_company()

    def _note_company(self) -> None:
        if self._present or self._router_fds:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()

    def _greet(self) -> None:
        """Introduce this process; a new agent learns at once what the last one may have lost."""
        applied = self._listener.applied()
        with self._lock:
            hello = KernelHello(
                token=self._birth.birth_token,
                kernel_id=self._birth.spec.kernel_id,
                replica=self._birth.replica,
                pid=os.getpid(),
                endpoints=self._endpoints,
                applied=applied.seq,
                applied_audit=applied.audit,
                kernel_info=self._kernel_info,
                unacknowledged=self._unacknowledged.deltas(),
            )
            self._outbox.clear()
            self._outbox.append(hello)
            self._alarms.cancel("claim")
            if self._claim is not None:
                self._outbox.append(self._claim)
            self._outbox.extend(request.message for request in list(self._requests.values()))
            self._greeted = True

    def _flush(self) -> None:
        """Send what waits, as far as the agent takes it (the caller holds the lock)."""
        while self._outbox and self._shared.send(encode(self._outbox[0])):
            self._outbox.popleft()

    def _receive(self) -> None:
        while (frame := self._shared.receive()) is not None:
            try:
                message = _decoder.decode(frame)
            except UNREADABLE as error:
                log.warning("A message of the agent does not fit: %s", error)
                continue
            self._deliver(message)

    def _deliver(self, message: object) -> None:
        match message:
            case ApplyDelta():
                self._listener.delta_arrived(message.delta)
                self._note_delta()
            case DeltaCommitted():
                self._unacknowledged.committed(Mark(message.seq, message.audit))
                self._listener.delta_committed(message.seq, owing=message.owing)
            case BegunAfresh():
                self._listener.begun_afresh(message)
            case ExecutionRefused():
                self._unacknowledged.refused(message.seq)
                self._listener.execution_refused(message.seq, message.why)
            case BlobsReady() | NotebookStatusAnswer() | HistoryAnswer():
                request = self._requests.get(message.request)
                if request is not None:
                    request.answer = message
                    request.answered()
            case KernelWelcome():
                self.welcome = message
            case DurabilityTrouble():
                self.trouble = message.why
            case FreeGpus():
                self._listener.gpus_wanted(message.lease)
            case StandStill():
                self._listener.pause_wanted(message)
            case SettleState():
                self._listener.settle_wanted()
            case StopProcess():
                self._listener.stop(message.reason, patient=True)

    def _patience_ms(self) -> int | None:
        """Return how long to block: for ever while agent or router is there and nothing is due later."""
        with self._lock:
            patience_s = self._alarms.patience_s(time.monotonic())
            self._attentive = "attention" in self._alarms
            if patience_s is not None and self._attentive:
                patience_s = min(patience_s, CLAIM_AFTER_S)
        if self._alone_since is not None:
            left_s = max(1.0, self._alone_since + self._grace_s - time.monotonic())
            patience_s = left_s if patience_s is None else min(patience_s, left_s)
        return None if patience_s is None else math.ceil(patience_s * 1000)

    def _end_when_orphaned(self) -> None:
        if self._alone_since is None or self._stopping:
            return
        if time.monotonic() - self._alone_since >= self._grace_s:
            self._stopping = True
            self._listener.stop(f"neither agent nor router has been there for {self._grace_s:g} s")

    def _close(self) -> None:
        for request in list(self._requests.values()):
            request.answered()
        with contextlib.suppress(zmq.ZMQError):
            self._shared.close()
        for closing in (self._socket, *self._watched):
            if not closing.closed:
                closing.close()


class _Request:
    """A question to the agent and, once it was `answered`, its answer."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self.answer: Message | None = None
        self._open = threading.Lock()
        """Taken until there is an answer. No event: SIGINT in its methods would leave it locked for ever."""
        self._open.acquire()

    def answered(self) -> None:
        """Let go on who waits; the answer stands by, unless the link ends."""
        with contextlib.suppress(RuntimeError):  # So it was before.
            self._open.release()

    def await_answer(self, patience_s: float) -> bool:
        """Wait for a time; tell whether there is an answer."""
        return self._open.acquire(timeout=patience_s)
