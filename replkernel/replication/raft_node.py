"""One PySyncObj node: its transport, its log, and the few inner values that it must be asked for or told.

Only this file, `raft_rules` and `raft_fit` know PySyncObj's inside. Runs on the Raft thread alone.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Collection
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
from pysyncobj import SyncObjConf, replicated
from pysyncobj.config import FAIL_REASON
from pysyncobj.monotonic import monotonic as raft_clock
from pysyncobj.node import TCPNode

from replkernel.errors import UNREADABLE
from replkernel.hosts.strangers import Strangers, is_expected
from replkernel.replication.consensus import JournalDamaged, StateCallbacks
from replkernel.replication.entries import ENTRY_BYTES_MAX
from replkernel.replication.raft_listener import (
    HANDSHAKE_S,
    STRANGERS_MAX,
    STRANGERS_OF_ADDRESS_MAX,
    RaftListener,
)
from replkernel.replication.raft_near import NearTransport
from replkernel.replication.raft_rules import PaperRules
from replkernel.replication.raft_thread import MemberPoller

if TYPE_CHECKING:
    from pysyncobj.node import Node
    from pysyncobj.tcp_connection import TcpConnection


JOURNAL_FILE = "raft.journal"
SNAPSHOT_FILE = "raft.snapshot"
BATCH_BYTES = 1024 * 1024
"""Larger than any command, because PySyncObj cuts a larger one up wrongly."""
SOCKET_BYTES = 512 * 1024
CONNECTION_TIMEOUT_S = 15.0
FALLBACK_S = 4.0
"""A leader without its majority for this long steps down."""
COMPACT_BYTES_MIN = 1024 * 1024
COMPACT_BYTES_MAX = 8 * 1024 * 1024
COMPACT_SNAPSHOTS = 4
"""The log is compacted after so many bytes of entries, or when it is as long as so many snapshots."""
COMPACT_ENTRIES = 4000
COMPACT_PERIOD_S = 600.0
SNAPSHOT_RETRY_S = 30.0

LED = "replkernel_led"
"""The message of a member that follows a leader; PySyncObj passes over types that it does not know."""

SUCCESS: int = FAIL_REASON.SUCCESS
DENIED: int = FAIL_REASON.REQUEST_DENIED
Answer = Callable[[object, int], None]

log = logging.getLogger(__name__)


class Pace(msgspec.Struct, frozen=True):
    """How often a member is ticked and talks, and for how long it bears a leader's silence."""

    tick_s: float
    heartbeat_s: float
    timeout_min_s: float
    timeout_max_s: float
    retry_s: float


BIRTH = Pace(tick_s=0.02, heartbeat_s=0.09, timeout_min_s=0.3, timeout_max_s=0.6, retry_s=0.02)
BUSY = Pace(tick_s=0.05, heartbeat_s=0.09, timeout_min_s=0.3, timeout_max_s=0.6, retry_s=0.2)
SETTLE = Pace(tick_s=0.05, heartbeat_s=1.0, timeout_min_s=3.5, timeout_max_s=6.0, retry_s=0.05)
REST = Pace(tick_s=0.5, heartbeat_s=1.0, timeout_min_s=3.5, timeout_max_s=6.0, retry_s=0.5)


class SnapshotFile(msgspec.Struct, array_like=True):
    """What a snapshot file holds: the state, the last two log entries under it, the members."""

    state: bytes
    last: tuple[bytes, int, int]
    previous: tuple[bytes, int, int]
    members: list[str]


_snapshot_decoder = msgspec.msgpack.Decoder(SnapshotFile)


def read_snapshot(path: Path) -> SnapshotFile:
    """Read a snapshot file; raise JournalDamaged when it is none."""
    try:
        return _snapshot_decoder.decode(path.read_bytes())
    except (OSError, *UNREADABLE) as error:
        raise JournalDamaged(str(path), str(error)) from error


class Transport(NearTransport):
    """A transport that also tells the node who comes, goes and speaks, and lets in peers only.

    Read-only members and PySyncObj's remote administration are shut out: nobody here uses them.
    """

    def __init__(self, node: RaftNode, self_node: object, other_nodes: object) -> None:
        self._watcher = node
        self._strangers: Strangers[Any] = Strangers(
            in_all=STRANGERS_MAX, of_address=STRANGERS_OF_ADDRESS_MAX, limit_s=HANDSHAKE_S
        )
        self._calls: dict[Any, float] = {}
        node.transport = self
        super().__init__(node, self_node, other_nodes)

    def _onTick(self) -> None:  # noqa: N802 - PySyncObj's name
        super()._onTick()
        # Asked with every tick, several times a commit: as cheap as can be.
        if self._unknownConnections or self._calls or self._server.paused_at is not None:
            self._look_at_strangers(monotonic())

    def _look_at_strangers(self, now: float) -> None:
        listener: RaftListener = self._server
        listener.resume(now)
        unanswered = [conn for conn, since in self._calls.items() if now - since >= HANDSHAKE_S]
        for conn in self._strangers.overdue(now) + unanswered:
            conn.disconnect()

    def _onNewIncomingConnection(self, conn: TcpConnection) -> None:  # noqa: N802
        super()._onNewIncomingConnection(conn)
        came_from, arrived_at = conn.ends
        expected = is_expected(came_from, arrived_at, {node.ip for node in self._nodes})
        for each in self._strangers.arrive(conn, came_from[0], expected=expected, now=monotonic()):
            each.disconnect()

    def _onIncomingMessageReceived(self, conn: TcpConnection, message: object) -> None:  # noqa: N802
        if not conn.sendRandKey:
            self._strangers.prove(conn)
        elif not isinstance(message, str) or message == "readonly":
            conn.disconnect()
            return
        super()._onIncomingMessageReceived(conn, message)
        if conn not in self._unknownConnections:
            self._strangers.leave(conn)

    def _onOutgoingConnected(self, conn: object) -> None:  # noqa: N802
        self._calls[conn] = monotonic()
        super()._onOutgoingConnected(conn)

    def _onOutgoingMessageReceived(self, conn: object, message: object) -> None:  # noqa: N802
        self._calls.pop(conn, None)
        super()._onOutgoingMessageReceived(conn, message)

    def _onDisconnected(self, conn: object) -> None:  # noqa: N802
        self._strangers.leave(conn)
        self._calls.pop(conn, None)
        super()._onDisconnected(conn)

    def _onMessageReceived(self, node: Node, message: object) -> None:  # noqa: N802
        self._watcher.heard[node.id] = monotonic()
        if isinstance(message, dict) and message.get("type") == LED:
            self._watcher.on_led()
        super()._onMessageReceived(node, message)

    def _onNodeConnected(self, node: object) -> None:  # noqa: N802
        super()._onNodeConnected(node)
        self._watcher.link_up(node)

    def _onNodeDisconnected(self, node: object) -> None:  # noqa: N802
        super()._onNodeDisconnected(node)
        self._watcher.link_down(node)


class RaftNode(PaperRules):
    """A PySyncObj node whose state machine is a StateCallbacks; ticked by its owner."""

    def __init__(
        self,
        address: str,
        peers: Collection[str],
        secret: str,
        directory: Path,
        callbacks: StateCallbacks,
        poller: MemberPoller,
        on_link: Callable[[str, bool], None],
        on_led: Callable[[], None],
        listens_at: str,
    ) -> None:
        self._member_poller = poller
        self._callbacks = callbacks
        self._on_link = on_link
        self.on_led = on_led
        self.transport: Any
        self.heard: dict[str, float] = {}
        self.applied_bytes = 0
        self._snapshot_bytes = 0
        self.fault = ""
        self._snapshot_failed_at = -SNAPSHOT_RETRY_S
        self._SyncObj__raftElectionDeadline: float
        conf = SyncObjConf(
            password=secret,
            autoTick=False,
            bindAddress=listens_at,
            maxBindRetries=1,
            dynamicMembershipChange=True,
            appendEntriesUseBatch=False,
            appendEntriesBatchSizeBytes=BATCH_BYTES,
            sendBufferSize=SOCKET_BYTES,
            recvBufferSize=SOCKET_BYTES,
            commandsQueueSize=4096,
            connectionTimeout=CONNECTION_TIMEOUT_S,
            leaderFallbackTimeout=FALLBACK_S,
            journalFile=str(directory / JOURNAL_FILE),
            fullDumpFile=str(directory / SNAPSHOT_FILE),
            serializer=self._write_snapshot,
            deserializer=self._read_snapshot,
            logCompactionMinEntries=COMPACT_ENTRIES,
            logCompactionMinTime=COMPACT_PERIOD_S,
            logCompactionBatchSize=ENTRY_BYTES_MAX,
        )
        _set_pace(conf, BIRTH)
        super().__init__(address, [peer for peer in peers if peer != address], conf, transportClass=Transport)
        self.transport.open_near()

    @property
    def _poller(self) -> MemberPoller:
        """Return the poller that PySyncObj is to use instead of the one that it makes."""
        return self._member_poller

    @_poller.setter
    def _poller(self, made: object) -> None:
        """Leave PySyncObj's own poller aside."""

    # -- the log --

    @replicated  # type: ignore[untyped-decorator]
    def append(self, entry: bytes) -> int:
        """Apply an entry at its place in the log and return its index."""
        index = int(self.raftLastApplied) + 1
        self.applied_bytes += len(entry)
        self._callbacks.on_apply(index, entry)
        return index

    def submit(self, entry: bytes, answer: Answer) -> None:
        """Send an entry to the leader's log."""
        self.append(entry, callback=answer)

    def _write_snapshot(self, path: str, data: tuple[Any, Any, Any]) -> None:
        """Write the state in this thread: a fork of a process with threads and sockets may hang."""
        if monotonic() - self._snapshot_failed_at < SNAPSHOT_RETRY_S:
            raise OSError("a snapshot could not be written a moment ago")
        last, previous, members = data
        try:
            state = self._callbacks.snapshot()
            file = SnapshotFile(state, tuple(last), tuple(previous), sorted(node.id for node in members))
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as out:
                self._snapshot_bytes = out.write(msgspec.msgpack.encode(file))
        except Exception:
            self._snapshot_failed_at = monotonic()
            log.exception("the snapshot %s could not be written; the log grows until it can", path)
            raise
        self.applied_bytes = 0

    def is_long(self) -> bool:
        """Tell whether the log is worth compacting: much longer than a snapshot, or than any log may be."""
        worth = max(COMPACT_BYTES_MIN, COMPACT_SNAPSHOTS * self._snapshot_bytes)
        return self.applied_bytes > min(worth, COMPACT_BYTES_MAX)

    def _read_snapshot(self, path: str) -> tuple[Any, Any, Any]:
        try:
            file = read_snapshot(Path(path))
            self._callbacks.restore(file.state)
        except Exception as error:
            self.fault = str(error)
            raise
        return file.last, file.previous, {TCPNode(member) for member in file.members}

    def destroy(self) -> None:
        """Leave the group's peers and close all files."""
        super().destroy()
        self._SyncObj__serializer.close()

    # -- peers --

    def link_up(self, node: Node) -> None:
        """Take note of a connection: a leader greets at once, so that nobody elects another, and a follower
        says that there is one.
        """
        self.greet()
        if not self.leads() and self.reaches_leader():
            self.transport.send(node, {"type": LED})
        self._on_link(node.id, True)

    def link_down(self, node: Node) -> None:
        """Take note of a lost connection; a snapshot that was on its way starts anew on the next one."""
        self._SyncObj__serializer.cancelTransmisstion(node)
        self.heard.pop(node.id, None)
        self._on_link(node.id, False)

    def keep_links(self) -> None:
        """Say something to the peers that Raft leaves alone for long: links silent for
        CONNECTION_TIMEOUT_S are cut on their next use, which is the vote request that matters.
        """
        leader = self._getLeader()
        for node in self.otherNodes:
            if node != leader and not self._isLeader() and self.isNodeConnected(node):
                self.transport.send(node, {"type": "replkernel_here"})

    def members(self) -> list[str]:
        """Return the addresses of all members, this one included."""
        return sorted([self.selfNode.id, *(node.id for node in self.otherNodes)])

    def linked(self) -> bool:
        """Tell whether every other member is connected."""
        return all(self.isNodeConnected(node) for node in self.otherNodes)

    def alone(self) -> bool:
        """Tell whether the group has no other member."""
        return not self._SyncObj__otherNodes

    def leader(self) -> str | None:
        """Return the leader's address as far as it is known."""
        node = self._getLeader()
        return None if node is None else str(node.id)

    def leads(self) -> bool:
        """Tell whether this member believes to be the leader."""
        return bool(self._isLeader())

    def campaigns(self) -> bool:
        """Tell whether this member asks for votes."""
        return bool(self._SyncObj__raftState == 1)

    def reaches_leader(self) -> bool:
        """Tell whether an entry submitted now has somewhere to go."""
        node = self._getLeader()
        return node is not None and (self._isLeader() or self.isNodeConnected(node))

    def current(self) -> bool:
        """Tell whether everything known to be committed is applied, by a leader's word in this term."""
        if self._isLeader() and self.raftCommitIndex < (self._SyncObj__noopIDx or 0):
            return False
        return self._getLeader() is not None and self.raftLastApplied == self._SyncObj__leaderCommitIndex

    # -- time (PySyncObj's clock is the raw one, which drifts from `time.monotonic`) --

    def _SyncObj__connectedToAnyone(self) -> bool:  # noqa: N802 - PySyncObj's name
        """Veto an election whose deadline only passed because this process stood still just now."""
        return bool(super()._SyncObj__connectedToAnyone()) and self._member_poller.steady()

    def set_pace(self, pace: Pace) -> None:
        """Adopt a pace; PySyncObj reads these values anew each time."""
        _set_pace(self.conf, pace)

    def elect_within(self, seconds: float) -> None:
        """Ask for votes after `seconds`, unless a leader speaks before or the time was to come sooner."""
        self._SyncObj__raftElectionDeadline = min(self._SyncObj__raftElectionDeadline, raft_clock() + seconds)

    def election_in_s(self) -> float:
        """Return in how many seconds this member asks for votes, unless a leader speaks before."""
        return float(self._SyncObj__raftElectionDeadline - raft_clock())

    def elect_not_before(self, seconds: float) -> None:
        """Do not ask for votes within the next `seconds`."""
        self._SyncObj__raftElectionDeadline = max(self._SyncObj__raftElectionDeadline, raft_clock() + seconds)

    def forgive(self, late_s: float) -> None:
        """Shift what counts silence by `late_s`."""
        self._SyncObj__raftElectionDeadline += late_s
        responses = self._SyncObj__lastResponseTime
        for node in responses:
            responses[node] += late_s
        for address in self.heard:
            self.heard[address] += late_s


def _set_pace(conf: Any, pace: Pace) -> None:
    conf.autoTickPeriod = pace.tick_s
    conf.appendEntriesPeriod = pace.heartbeat_s
    conf.raftMinTimeout = pace.timeout_min_s
    conf.raftMaxTimeout = pace.timeout_max_s
    conf.connectionRetryTime = pace.retry_s


def between(low_s: float, high_s: float) -> float:
    """Return a random time, so that two members seldom stand for election together."""
    return random.uniform(low_s, high_s)  # noqa: S311 - not a secret
