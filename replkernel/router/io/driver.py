"""The router's one loop: sockets, signals, the clock and lookups become events, and effects are performed.

Law: no decision is made here; nothing here waits but the poll; effects are performed in the order given.
"""

from __future__ import annotations

import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType

import msgspec
import zmq

from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.protocol.agent_to_router import AgentToRouter, ReplicaReady
from replkernel.protocol.message import decoder, encode
from replkernel.records import HostName, KernelId
from replkernel.router.core import events
from replkernel.router.core.events import Channel, Effect, Event
from replkernel.router.core.router import Router
from replkernel.router.core.wire import Gate, WireError
from replkernel.router.io.client_output import ClientOutput
from replkernel.router.io.connection import LINGER_MS, Ports
from replkernel.router.io.links import (
    CONFIRM_MESSAGES,
    AgentLink,
    ClientSocket,
    Socket,
    readable,
    receive,
    send,
)
from replkernel.router.io.log import RouterLog
from replkernel.router.io.own_record import OwnRecord
from replkernel.router.io.parent import LauncherWatch, ParentWatch
from replkernel.router.io.polling import SocketPoll
from replkernel.router.io.replica_links import ReplicaLinks
from replkernel.router.io.scheduler_link import SchedulerLink
from replkernel.router.io.search import Search
from replkernel.router.io.sources import Sources

POLL_MS_MAX = 60_000
LOG_MS_MAX = 200
"""The log is written once nothing has happened for this long."""
CONFIRM_MS_MAX = 50
"""Kernel processes are told what has arrived once nothing has happened for this long."""
TICK_S = 0.005
"""Ticks are never closer to each other than this, whatever a deadline says."""
CHANNELS: tuple[Channel, ...] = ("control", "shell", "stdin")


class Driver:
    """Runs one router until it exits."""

    def __init__(
        self,
        router: Router,
        ports: Ports,
        poller: SocketPoll,
        gate: Gate,
        client_output: ClientOutput,
        left: Sequence[Event],
        log: RouterLog,
        record: OwnRecord,
        launcher: LauncherWatch,
        search: Search,
        env: Mapping[str, str],
        kernel_id: KernelId,
    ) -> None:
        self._router = router
        self._ports = ports
        self._gate = gate
        self._client_output = client_output
        self._left = left
        """What the router before this one left to do."""
        self._client_socket = ClientSocket()
        self._log = log
        self._record = record
        self._search = search
        self._poller = poller
        self._sources = Sources(poller)
        self._replicas = ReplicaLinks(ports.context, self._sources, log, self._send, self._feed)
        self._agents: dict[HostName, AgentLink] = {}
        self._mail: SimpleQueue[tuple[str, Event]] = SimpleQueue()
        self._scheduler = SchedulerLink(kernel_id, env, partial(self._deliver, ""))
        self._signals: list[int] = []
        self._parent = ParentWatch(env)
        self._launcher = launcher
        self._exit_code: int | None = None
        self._next_tick = 0.0
        self._decode = decoder(AgentToRouter)
        self._wake_in, self._wake_out = socket.socketpair()
        self._perform_by_type: dict[type, Callable[..., None]] = {
            events.PassToClient: client_output.pass_to_client,
            events.PassToIopub: client_output.pass_to_iopub,
            events.Answer: client_output.answer,
            events.Publish: client_output.publish,
            events.AnswerReplica: self._answer_replica,
            events.Accepted: client_output.accept,
            events.Given: client_output.give,
            events.PageGiven: client_output.give_page,
            events.TakenBack: client_output.take_back,
            events.AskJournal: client_output.ask,
            events.ToReplica: self._replicas.pass_on,
            events.ToAgent: self._to_agent,
            events.FindAgent: self._find_agent,
            events.ConnectReplica: self._replicas.connect,
            events.DropReplica: self._replicas.drop,
            events.SignalProcess: self._replicas.signal,
            events.OpenScheduler: self._open_scheduler,
            events.ToScheduler: self._to_scheduler,
            events.Remember: self._remember,
            events.RememberMove: self._remember_move,
            events.Log: self._write_log,
            events.Register: self._register,
            events.SpeakFor: client_output.speak_for,
            events.Exit: self._exit,
        }

    # -- the loop -----------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until the router decides to exit; return the exit code."""
        self._catch_signals()
        self._listen_to_clients()
        self._perform(self._router.start(time.monotonic()))
        for event in self._left:
            self._feed(event)
        due = self._router.deadline()
        while self._exit_code is None:
            ready = self._poller.wait(self._timeout_ms(due))
            if not ready:
                self._log.flush()
                self._replicas.confirm(1)
            self._look_after_launcher()
            self._sources.take_all(ready)
            due = self._tick()
            self._client_output.turn(time.monotonic())
            self._replicas.confirm(CONFIRM_MESSAGES)
        self._close()
        return self._exit_code

    def look_into(self, question: Callable[[], str]) -> None:
        """Ask what may take seconds in a thread of its own; a sentence in answer is for the user."""

        def ask() -> None:
            text = question()
            if text:
                self._deliver("", events.Noticed(text))

        threading.Thread(target=ask, name="question", daemon=True).start()

    def _deliver(self, endpoint: str, event: Event) -> None:
        """Hand an event to the loop, from another thread."""
        self._mail.put((endpoint, event))
        self._wake_out.send(b"m")

    def _tick(self) -> float | None:
        """Tell the router of time when it wants to know; return when it wants to the next time."""
        due = self._router.deadline()
        if due is None:
            return None
        now = time.monotonic()
        if now < max(due, self._next_tick):
            return due
        self._next_tick = now + TICK_S
        self._feed(events.Tick())
        return self._router.deadline()

    def _timeout_ms(self, due: float | None) -> int:
        limit_ms = min(self._parent.interval_ms, self._launcher.interval_ms, POLL_MS_MAX)
        if self._replicas.unconfirmed:
            limit_ms = min(limit_ms, CONFIRM_MS_MAX)
        if self._log.unwritten:
            limit_ms = min(limit_ms, LOG_MS_MAX)
        sends_at = self._client_output.deadline()
        if sends_at is not None:
            limit_ms = min(limit_ms, max(0, int((sends_at - time.monotonic()) * 1000) + 1))
        if due is None:
            return limit_ms
        return min(max(0, int((max(due, self._next_tick) - time.monotonic()) * 1000) + 1), limit_ms)

    def _listen_to_clients(self) -> None:
        self._sources.watch(0, self._wake_in.fileno(), self._take_wakeups)
        for comings in self._ports.comings:
            self._sources.listen(1, comings, self._from_comings)
        for turn, channel in enumerate(CHANNELS, start=2):
            take = partial(self._from_client, channel)
            how = self._client_socket.receive if channel == "shell" else receive
            self._sources.listen(turn, self._ports.sockets[f"{channel}_port"], take, how)
        self._sources.listen(9, self._ports.sockets["iopub_port"], self._from_subscriber)

    def _send(self, target: Socket, frames: list[bytes]) -> bool:
        sent = send(target, frames)
        self._poller.used(target)
        return sent

    def _feed(self, event: Event) -> None:
        self._perform(self._router.handle(event, time.monotonic()))

    def _perform(self, effects: list[Effect]) -> None:
        by_type = self._perform_by_type
        for effect in effects:
            by_type[type(effect)](effect)

    # -- events -------------------------------------------------------------------------------------

    def _from_client(self, channel: Channel, frames: list[bytes]) -> None:
        try:
            request = self._gate.read(channel, frames)
        except WireError as error:
            self._log.write(f"{error}; it was dropped ({channel})")
            return
        connection = self._client_socket.connection if channel == "shell" else None
        self._client_output.heard(request, connection, time.monotonic())
        self._feed(request)

    def _look_after_launcher(self) -> None:
        if self._parent.vanished():
            self._feed(events.EndSignal("its parent process is gone"))
        why = self._launcher.overdue()
        if why:
            self._feed(events.LauncherGone(why, self._launcher.returns))

    def _from_comings(self, frames: list[bytes]) -> None:
        event, descriptor = struct.unpack("=hi", frames[0])
        if event == zmq.EVENT_ACCEPTED:
            self._launcher.client_came(descriptor)
        else:
            self._launcher.client_left(descriptor)
            self._client_output.dropped(descriptor, time.monotonic())
        self._feed(events.ClientsCounted(self._launcher.client_count))

    def _from_subscriber(self, frames: list[bytes]) -> None:
        way = self._client_output.subscription(frames[0], time.monotonic())
        if way is not None:
            self._feed(events.Subscribed(frames[0][1:], way))

    def _from_agent(self, host: HostName, frames: list[bytes]) -> None:
        try:
            message = self._decode.decode(frames[-1])
        except UNREADABLE as error:
            self._log.write(f"the agent of host {host} sent a message that does not fit ({error})")
            return
        if isinstance(message, ReplicaReady) and not message.unseen:
            message = msgspec.structs.replace(message, unseen=self._replicas.end_of(message.replica))
        self._feed(events.AgentSaid(host, message))  # type: ignore[arg-type]

    def _agent_gone(self, host: HostName, link: AgentLink) -> None:
        if self._agents.get(host) is not link or not readable(link.monitor):
            return
        self._close_agent(host)
        self._feed(events.AgentGone(host))

    def _take_wakeups(self) -> None:
        self._wake_in.recv(4096)
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGINT:
                self._feed(events.InterruptSignal())
            else:
                self._feed(events.EndSignal(f"it received {signal.Signals(number).name}", returns=True))
        while True:
            try:
                endpoint, event = self._mail.get_nowait()
            except Empty:
                return
            if isinstance(event, events.AgentFound):
                self._open_agent(event.host, endpoint)
            self._feed(event)

    # -- effects ------------------------------------------------------------------------------------

    def _to_agent(self, effect: events.ToAgent) -> None:
        agent = self._agents.get(effect.host)
        if agent is None or not self._send(agent.socket, [encode(effect.message)]):
            self._log.write(f"a message for the agent of host {effect.host} could not be sent", shown=True)

    def _find_agent(self, effect: events.FindAgent) -> None:
        address = self._search.at_once(effect.host)
        if address is not None:
            self._deliver(address.endpoint, events.AgentFound(effect.host, address.token))
            return
        search = partial(self._look_up, effect.host, starts=effect.starts)
        threading.Thread(target=search, name="lookup", daemon=True).start()

    def _look_up(self, host: HostName, *, starts: bool) -> None:
        """Find or start a host's agent (in a thread of its own: it may take seconds)."""
        endpoint = ""
        event: Event
        try:
            address = self._search.wait(host, starts=starts)
            endpoint, event = address.endpoint, events.AgentFound(host, address.token, address.far)
        except ReplkernelError as error:
            event = events.AgentMissing(host, type(error).__name__, str(error))
        except Exception as error:
            why = f"The agent of host {host} could not be started: {type(error).__name__}: {error}"
            event = events.AgentMissing(host, "AgentUnavailable", why)
        self._deliver(endpoint, event)

    def _open_agent(self, host: HostName, endpoint: str) -> None:
        self._close_agent(host)
        link = AgentLink(self._ports.context, endpoint, LINGER_MS)
        self._agents[host] = link
        self._sources.listen(20, link.socket, partial(self._from_agent, host))
        self._sources.watch(21, link.monitor, partial(self._agent_gone, host, link))

    def _close_agent(self, host: HostName) -> None:
        link = self._agents.pop(host, None)
        if link is not None:
            self._sources.deafen(link.socket)
            self._sources.deafen(link.monitor)
            link.close()

    def _answer_replica(self, effect: events.AnswerReplica) -> None:
        frames = self._client_output.built(effect)
        self._replicas.pass_on(events.ToReplica(effect.replica, "stdin", frames))

    def _open_scheduler(self, effect: events.OpenScheduler) -> None:
        self._scheduler.open(starts=effect.starts)

    def _to_scheduler(self, effect: events.ToScheduler) -> None:
        self._scheduler.send(effect.message)

    def _remember(self, effect: events.Remember) -> None:
        self._record.remember(effect.gpus)

    def _remember_move(self, effect: events.RememberMove) -> None:
        self._record.remember_move(effect.guests, effect.move)

    def _write_log(self, effect: events.Log) -> None:
        self._log.write(effect.text, shown=effect.severity == "warning")

    def _register(self, effect: events.Register) -> None:
        self._record.note(effect.standing, effect.state_bytes)

    def _exit(self, effect: events.Exit) -> None:
        self._exit_code = effect.code
        self._sources.ended = True

    # -- the process --------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        self._wake_out.setblocking(False)
        signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._note_signal)

    def _note_signal(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)

    def _close(self) -> None:
        for host in list(self._agents):
            self._close_agent(host)
        self._scheduler.close()
        self._replicas.close()
        self._search.close()
        self._client_output.close()
        self._log.close()
        self._poller.close()
        self._ports.close()
