"""Listens for kernel processes: each proves itself by the token of its birth and speaks to its own keeper.

Law: a process that has been replaced, or whose replica is not kept here any more, is told to end.
"""

from __future__ import annotations

import hmac
import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from replkernel.agent.core import events as fact
from replkernel.agent.io.admission import Admission
from replkernel.agent.io.group import ReplicaGroup
from replkernel.agent.io.keeper_driver import KeeperDriver
from replkernel.agent.io.peers import PeerSocket
from replkernel.errors import ReplkernelError
from replkernel.protocol.agent_to_process import (
    AgentToKernel,
    HistoryAnswer,
    KernelWelcome,
    NotebookStatusAnswer,
    StopProcess,
)
from replkernel.protocol.message import check_version
from replkernel.protocol.process_to_agent import (
    ChunksWithdrawn,
    ChunksWritten,
    ClaimExecution,
    FetchBlobs,
    GpusFreed,
    HibernationWanted,
    HistoryQuery,
    KernelHello,
    KernelToAgent,
    NotebookStatusQuery,
    ProcessNotice,
    ProposeDelta,
    ReplicaApplied,
)
from replkernel.protocol.timeline import said_name
from replkernel.records import HostName, KernelId

log = logging.getLogger(__name__)


def _history(group: ReplicaGroup, asked: HistoryQuery) -> HistoryAnswer:
    """Return what a process asks of the history."""
    if asked.to is not None and asked.other is not None:
        timeline, _, why = group.history(None)
        found = group.differences(asked.to, asked.other)
        told = tuple(msgspec.structs.replace(one, name=said_name(one.name)) for one in found)
        return HistoryAnswer(asked.request, timeline.said(), None, why, told)
    timeline, way, why = group.history(asked.to)
    return HistoryAnswer(asked.request, timeline.said(), way, why)


class ProcessListener:
    """Serves kernel processes at one socket."""

    def __init__(
        self, name: str, path: Path, kernels: Admission, document: Callable[[KernelId], bytes]
    ) -> None:
        self._name = name
        self._kernels = kernels
        self._document = document
        self._drivers: dict[bytes, KeeperDriver] = {}
        self._identities: dict[str, bytes] = {}
        self._socket = PeerSocket(path, KernelToAgent, self._receive, self._nonsense, self._drop)

    def send(self, token: str, message: AgentToKernel) -> None:
        """Send to the kernel process that was born with `token`, if it has greeted us."""
        identity = self._identities.get(token)
        if identity is not None:
            self._socket.send(identity, message)

    def forget(self, token: str) -> None:
        """Listen no more to the process that was born with `token`."""
        self._drivers.pop(self._identities.pop(token, b""), None)

    def close(self) -> None:
        """Serve no more."""
        self._socket.close()

    def _nonsense(self, identity: bytes, why: str) -> None:
        log.warning("from a kernel process: %s", why)

    def _receive(self, identity: bytes, message: object) -> None:
        if isinstance(message, KernelHello):
            self._greet(identity, message)
            return
        driver = self._drivers.get(identity)
        if driver is None or self._identities.get(driver.token) != identity:
            log.warning("%s came from a process that has not greeted this agent", type(message).__name__)
            return
        match message:
            case ClaimExecution():
                driver.tell(fact.ExecutionClaimed(message.seq, message.fence, message.afresh))
            case ProposeDelta():
                driver.tell(fact.DeltaArrived(message.delta, message.capture_s))
            case ReplicaApplied():
                driver.tell(
                    fact.StateTaken(
                        message.seq,
                        message.components,
                        message.state_bytes,
                        message.pending_bytes,
                        message.unproven,
                        message.unfaithful,
                    )
                )
            case ChunksWritten():
                driver.chunks_written(message.chunks)
            case ChunksWithdrawn():
                driver.chunks_withdrawn(message.digests)
            case FetchBlobs():
                driver.tell(fact.BlobsWanted(message.request, message.blobs))
            case ProcessNotice():
                driver.notify(message.text)
            case GpusFreed():
                driver.lease_freed(message)
            case HibernationWanted():
                driver.hibernation_wanted()
            case HistoryQuery():
                self._socket.send(identity, _history(driver.group, message))
            case NotebookStatusQuery():
                document = self._document(driver.kernel_id)
                self._socket.send(identity, NotebookStatusAnswer(message.request, document))

    def _greet(self, identity: bytes, hello: KernelHello) -> None:
        driver = self._kernels.driver(hello.kernel_id, hello.replica)
        if driver is None or not hmac.compare_digest(hello.token.encode(), driver.token.encode()):
            log.warning("a process said it is %s of kernel %s and is not", hello.replica, hello.kernel_id)
            self._socket.send(identity, StopProcess("its host agent does not know it"))
            return
        try:
            check_version(hello.version, "kernel process")
        except ReplkernelError as error:
            log.error("%s", error)
            return
        self.forget(driver.token)
        self._drivers[identity] = driver
        self._identities[driver.token] = identity
        welcome = KernelWelcome(HostName(self._name), self._kernels.cache_dir, os.getpid())
        self._socket.send(identity, welcome)
        driver.tell(fact.ProcessGreeted(driver.core.life.birth, hello))

    def _drop(self, identity: bytes) -> None:
        driver = self._drivers.pop(identity, None)
        if driver is not None:
            self._identities.pop(driver.token, None)
