"""The router's one loop: sockets, signals, the clock and lookups become events, and effects are performed.

Law: no decision is made here; nothing here waits but the poll; effects are performed in the order given.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from operator import itemgetter
from queue import Empty, SimpleQueue
from types import FrameType

import msgspec
import zmq

from replkernel.errors import ReplkernelError
from replkernel.protocol import AgentToRouter, decoder, encode
from replkernel.records import HostName, ReplicaId
from replkernel.router import events
from replkernel.router.connection import LINGER_MS, Ports
from replkernel.router.core import Router
from replkernel.router.events import Channel, Effect, Event, ReplicaChannel, RequestChannel
from replkernel.router.links import AgentLink, ReplicaLink, Socket, readable, receive, send
from replkernel.router.log import RouterLog
from replkernel.router.parent import LauncherWatch, ParentWatch
from replkernel.router.polling import SocketPoll
from replkernel.router.search import Search
from replkernel.router.wire import Builder, Gate, WireError, read_replica

BATCH = 200
"""How many messages of one socket are taken before the next socket has its turn."""
POLL_MS_MAX = 60_000
LOG_MS_MAX = 200
"""The log is written once nothing has happened for this long."""
TICK_S = 0.005
"""Ticks are never closer to each other than this, whatever a deadline says."""
CHANNELS: tuple[Channel, ...] = ("control", "shell", "stdin")
LINK_ORDER: tuple[tuple[ReplicaChannel | RequestChannel, ReplicaChannel], ...] = (
    ("iopub", "iopub"),
    ("control", "control"),
    ("stdin", "stdin"),
    ("executions", "shell"),
    ("shell", "shell"),
)
"""A replica's sockets, each with the channel that its messages are of.

Output is taken before the reply that followed it, as a stock kernel's clients expect.
"""


class Driver:
    """Runs one router until it exits."""

    def __init__(
        self,
        router: Router,
        ports: Ports,
        gate: Gate,
        builder: Builder,
        log: RouterLog,
        launcher: LauncherWatch,
        search: Search,
        env: Mapping[str, str],
    ) -> None:
        self._router = router
        self._ports = ports
        self._gate = gate
        self._builder = builder
        self._log = log
        self._search = search
        self._poller = SocketPoll()
        self._takers: dict[object, tuple[int, Callable[[], None]]] = {}
        """For everything that is read from: its turn, and who takes what is there."""
        self._replicas: dict[ReplicaId, ReplicaLink] = {}
        self._agents: dict[HostName, AgentLink] = {}
        self._mail: SimpleQueue[tuple[str, Event]] = SimpleQueue()
        self._signals: list[int] = []
        self._parent = ParentWatch(env)
        self._launcher = launcher
        self._exit_code: int | None = None
        self._next_tick = 0.0
        self._decode = decoder(AgentToRouter)
        self._topic = b"kernel." + os.urandom(8).hex().encode() + b"."
        self._wake_in, self._wake_out = socket.socketpair()
        self._perform_by_type: dict[type, Callable[..., None]] = {
            events.PassToClient: self._pass_to_client,
            events.PassToIopub: self._pass_to_iopub,
            events.Answer: self._answer,
            events.Publish: self._publish,
            events.ToReplica: self._to_replica,
            events.ToAgent: self._to_agent,
            events.FindAgent: self._find_agent,
            events.ConnectReplica: self._connect_replica,
            events.DropReplica: self._drop_replica,
            events.Log: self._write_log,
            events.Exit: self._exit,
        }

    # -- the loop -----------------------------------------------------------------------------------

    def run(self) -> int:
        """Serve until the router decides to exit; return the exit code."""
        self._catch_signals()
        self._listen_to_clients()
        self._perform(self._router.start(time.monotonic()))
        due = self._router.deadline()
        while self._exit_code is None:
            ready = self._poller.wait(self._timeout_ms(due))
            if not ready:
                self._log.flush()
            self._look_after_launcher()
            self._take_all(ready)
            due = self._tick()
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
        if self._log.unwritten:
            limit_ms = min(limit_ms, LOG_MS_MAX)
        if due is None:
            return limit_ms
        return min(max(0, int((max(due, self._next_tick) - time.monotonic()) * 1000) + 1), limit_ms)

    def _listen_to_clients(self) -> None:
        self._takers[self._wake_in.fileno()] = (0, self._take_wakeups)
        self._poller.register(self._wake_in.fileno())
        if self._ports.comings is not None:
            self._listen(1, self._ports.comings, self._from_comings)
        for turn, channel in enumerate(CHANNELS, start=2):
            self._listen(turn, self._ports.sockets[f"{channel}_port"], partial(self._from_client, channel))
        self._listen(9, self._ports.sockets["iopub_port"], self._from_subscriber)

    def _listen(self, turn: int, source: Socket, take: Callable[[list[bytes]], None]) -> None:
        self._takers[source] = (turn, partial(self._drain, source, take))
        self._poller.register(source)

    def _deafen(self, source: Socket) -> None:
        self._takers.pop(source, None)
        self._poller.unregister(source)

    def _take_all(self, ready: AbstractSet[object]) -> None:
        """Take what is there, in turn; a source that is closed meanwhile is passed over."""
        takers = [self._takers[source] for source in ready if source in self._takers]
        if len(takers) > 1:
            takers.sort(key=itemgetter(0))
        for _, take in takers:
            take()

    def _drain(self, source: Socket, take: Callable[[list[bytes]], None]) -> None:
        for _ in range(BATCH):
            if source.closed or self._exit_code is not None:
                return
            frames = receive(source)
            if frames is None:
                return
            take(frames)
            if source.closed or not readable(source):
                return
        self._poller.used(source)

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
        self._feed(request)

    def _look_after_launcher(self) -> None:
        if self._parent.vanished():
            self._feed(events.EndSignal("its parent process is gone"))
        why = self._launcher.overdue()
        if why:
            self._feed(events.EndSignal(why))

    def _from_comings(self, frames: list[bytes]) -> None:
        event, descriptor = struct.unpack("=hi", frames[0])
        if event == zmq.EVENT_ACCEPTED:
            self._launcher.client_came(descriptor)
        else:
            self._launcher.client_left(descriptor)

    def _from_subscriber(self, frames: list[bytes]) -> None:
        if frames[0][:1] == b"\x01":
            self._feed(events.Subscribed(frames[0][1:]))

    def _from_replica(self, name: ReplicaId, channel: ReplicaChannel, frames: list[bytes]) -> None:
        try:
            message = read_replica(name, channel, frames)
        except WireError as error:
            self._log.write(f"{error}; it was dropped ({name}, {channel})")
            return
        self._feed(message)

    def _from_agent(self, host: HostName, frames: list[bytes]) -> None:
        try:
            message = self._decode.decode(frames[-1])
        except msgspec.MsgspecError as error:
            self._log.write(f"the agent of host {host} sent a message that does not fit ({error})")
            return
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
                self._feed(events.EndSignal(f"it received {signal.Signals(number).name}"))
        while True:
            try:
                endpoint, event = self._mail.get_nowait()
            except Empty:
                return
            if isinstance(event, events.AgentFound):
                self._open_agent(event.host, endpoint)
            self._feed(event)

    # -- effects ------------------------------------------------------------------------------------

    def _pass_to_client(self, effect: events.PassToClient) -> None:
        self._send(self._ports.sockets[f"{effect.channel}_port"], effect.frames)

    def _pass_to_iopub(self, effect: events.PassToIopub) -> None:
        self._send(self._ports.sockets["iopub_port"], effect.frames)

    def _answer(self, effect: events.Answer) -> None:
        frames = self._builder.build(effect.msg_type, effect.parent, effect.content, effect.metadata)
        self._send(self._ports.sockets[f"{effect.channel}_port"], [*effect.identities, *frames])

    def _publish(self, effect: events.Publish) -> None:
        frames = self._builder.build(effect.msg_type, effect.parent, effect.content)
        topic = self._topic + effect.msg_type.encode() if effect.topic is None else effect.topic
        self._send(self._ports.sockets["iopub_port"], [topic, *frames] if topic else frames)

    def _to_replica(self, effect: events.ToReplica) -> None:
        link = self._replicas.get(effect.replica)
        if link is None or not self._send(link.to(effect.channel), effect.frames):
            self._log.write(
                f"a message for {effect.replica} could not be sent ({effect.channel})", shown=True
            )

    def _to_agent(self, effect: events.ToAgent) -> None:
        agent = self._agents.get(effect.host)
        if agent is None or not self._send(agent.socket, [encode(effect.message)]):
            self._log.write(f"a message for the agent of host {effect.host} could not be sent", shown=True)

    def _find_agent(self, effect: events.FindAgent) -> None:
        address = self._search.at_once(effect.host)
        if address is not None:
            self._deliver(address.endpoint, events.AgentFound(effect.host, address.token))
            return
        threading.Thread(target=self._look_up, args=(effect.host,), name="lookup", daemon=True).start()

    def _look_up(self, host: HostName) -> None:
        """Find or start a host's agent (in a thread of its own: it may take seconds)."""
        endpoint = ""
        event: Event
        try:
            address = self._search.wait(host)
            endpoint, event = address.endpoint, events.AgentFound(host, address.token)
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
        self._listen(20, link.socket, partial(self._from_agent, host))
        self._takers[link.monitor] = (21, partial(self._agent_gone, host, link))
        self._poller.register(link.monitor)

    def _close_agent(self, host: HostName) -> None:
        link = self._agents.pop(host, None)
        if link is not None:
            self._deafen(link.socket)
            self._deafen(link.monitor)
            link.close()

    def _connect_replica(self, effect: events.ConnectReplica) -> None:
        self._drop_replica(events.DropReplica(effect.replica))
        link = ReplicaLink(self._ports.context, effect.endpoints)
        self._replicas[effect.replica] = link
        for turn, (kind, told_as) in enumerate(LINK_ORDER, start=10):
            if kind in link.sockets:
                self._listen(turn, link.sockets[kind], partial(self._from_replica, effect.replica, told_as))

    def _drop_replica(self, effect: events.DropReplica) -> None:
        link = self._replicas.pop(effect.replica, None)
        if link is not None:
            for source in link.sockets.values():
                self._deafen(source)
            link.close()

    def _write_log(self, effect: events.Log) -> None:
        self._log.write(effect.text, shown=effect.severity == "warning")

    def _exit(self, effect: events.Exit) -> None:
        self._exit_code = effect.code

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
        for name in list(self._replicas):
            self._drop_replica(events.DropReplica(name))
        self._search.close()
        self._log.close()
        self._poller.close()
        self._ports.close()
