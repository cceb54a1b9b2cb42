"""Listens for routers and the command line: who each peer is, and which wishes reach which kernel.

Law: nobody is served before he has shown the agent's token; a router speaks for its own kernel alone.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from replkernel.agent.core import events as fact
from replkernel.agent.io.admission import Admission
from replkernel.agent.io.cell_limits import CellLimits
from replkernel.agent.io.host_environment import HostEnvironments, at_home
from replkernel.agent.io.host_kernel import HostKernel
from replkernel.agent.io.peers import PeerSocket
from replkernel.agent.io.watch import ProcessWatch
from replkernel.errors import ReplkernelError
from replkernel.hosts.far_sockets import Keys
from replkernel.hosts.reach import Reach
from replkernel.protocol.agent_to_router import (
    AgentRefuses,
    AgentToRouter,
    AgentWelcome,
    CheckpointWritten,
    KernelEnded,
    KernelHibernated,
    StatusAnswer,
)
from replkernel.protocol.message import check_version
from replkernel.protocol.router_to_agent import (
    ChangeMembers,
    DescribeGround,
    DismissReplica,
    ElectExecutor,
    EndKernel,
    FindCheckpoint,
    FreeLease,
    HibernateKernel,
    InstallHere,
    InterruptReplica,
    LimitReplica,
    PauseCell,
    PrepareReplica,
    RouterHello,
    RouterToAgent,
    SettleReplica,
    StartReplica,
    StatusQuery,
    StopReplica,
)
from replkernel.records import HostName, KernelId

log = logging.getLogger(__name__)

CURRENT_LIMIT_S = 15.0
"""So long a router waits for its welcome while a restored kernel's log is replayed."""
CURRENT_LOOK_S = 0.02


class RouterPeer:
    """A router or command line that has proved itself."""

    def __init__(self, kernel_id: KernelId, watch: ProcessWatch | ConnectionWatch) -> None:
        self.kernel_id = kernel_id
        self.watch = watch


class ConnectionWatch:
    """Waits for the end of the connection of a router on another machine, by which it is dropped."""

    pid = 0

    def __init__(self, socket: PeerSocket, identity: bytes) -> None:
        self._socket, self._identity = socket, identity
        socket.watch(identity)

    def close(self) -> None:
        """Watch no longer."""
        self._socket.unwatch(self._identity)


class RouterListener:
    """Serves routers at one socket. `on_change` is called when a peer came or went."""

    def __init__(
        self,
        name: str,
        token: str,
        path: Path,
        kernels: Admission,
        document: Callable[[KernelId | None], bytes],
        on_change: Callable[[], None],
    ) -> None:
        self.peers: dict[bytes, RouterPeer] = {}
        self._name = name
        self._token = token
        self._kernels = kernels
        self._document = document
        self._on_change = on_change
        self._host_environments = HostEnvironments()
        self.limits = CellLimits(None, "nobody has looked for cgroups yet")
        self._tasks: set[asyncio.Task[None]] = set()
        self._socket = PeerSocket(path, RouterToAgent, self._receive, self._nonsense, self._drop)
        self.endpoint = self._socket.endpoint

    def listen_far(self, reach: Reach, port: int, keys: Keys) -> str:
        """Serve routers of other machines too; return the address at which they find this agent."""
        return self._socket.listen_far(reach, port, keys)

    def send(self, identity: bytes, message: AgentToRouter) -> None:
        """Send to a router."""
        self._socket.send(identity, message)

    def kernel_ended(self, kernel: HostKernel) -> None:
        """Tell whoever waits for a kernel's end beside its own router; one that hibernates has not ended."""
        if kernel.keeping:
            return
        for identity, peer in self.peers.items():
            if peer.kernel_id == kernel.spec.kernel_id and identity != kernel.router:
                self.send(identity, KernelEnded(kernel.spec.kernel_id))

    def close(self) -> None:
        """Serve no more."""
        for task in self._tasks:
            task.cancel()
        for peer in self.peers.values():
            peer.watch.close()
        self._socket.close()

    def _receive(self, identity: bytes, message: object) -> None:
        if isinstance(message, RouterHello):
            self._greet(identity, message)
            return
        peer = self.peers.get(identity)
        if peer is None:
            self._refuse(
                identity, f"{type(message).__name__} came before a RouterHello with this agent's token."
            )
            return
        if isinstance(message, StatusQuery):
            self.send(identity, StatusAnswer(message.request, self._document(message.kernel_id)))
            return
        why = self._serve(identity, peer, message)
        if why:
            self._refuse(identity, why)

    def _serve(self, identity: bytes, peer: RouterPeer, message: object) -> str:
        """Do what a router asks for; return why not, or an empty string."""
        if isinstance(message, FindCheckpoint):
            if message.spec.kernel_id != peer.kernel_id:
                return (
                    f"A router of kernel {peer.kernel_id} asked for a checkpoint of {message.spec.kernel_id}."
                )
            self._kernels.find_checkpoint(identity, message.spec)
            return ""
        if isinstance(message, PrepareReplica | DescribeGround | InstallHere):
            spec = at_home(message.spec, os.environ, far=not peer.watch.pid)
            message = msgspec.structs.replace(message, spec=spec)
        if isinstance(message, DescribeGround | InstallHere):
            return self._look_around(identity, peer, message)
        if isinstance(message, PrepareReplica):
            if message.spec.kernel_id != peer.kernel_id:
                return f"A router of kernel {peer.kernel_id} asked for a replica of {message.spec.kernel_id}."
            return self._kernels.prepare(identity, peer.watch.pid, message)
        kernel_id = getattr(message, "kernel_id", None)
        if kernel_id != peer.kernel_id:
            return (
                f"A router of kernel {peer.kernel_id} sent {type(message).__name__} for kernel {kernel_id}."
            )
        kernel = self._kernels.alive().get(peer.kernel_id)
        if isinstance(message, EndKernel):
            return self._end(identity, kernel, message)
        if isinstance(message, HibernateKernel):
            self._hibernate(identity, kernel, message)
            return ""
        if kernel is None and isinstance(message, StopReplica):
            return ""
        if kernel is None:
            return f"{type(message).__name__}: kernel {kernel_id} has no replica on host {self._name}."
        return self._tell_keepers(kernel, message)

    def _look_around(self, identity: bytes, peer: RouterPeer, message: DescribeGround | InstallHere) -> str:
        """Have this host looked at, or something installed on it, and the router told."""
        if not message.kernel_id == message.spec.kernel_id == peer.kernel_id:
            return f"The router of {peer.kernel_id} asked about the environment of {message.spec.kernel_id}."

        async def answer() -> None:
            if isinstance(message, DescribeGround):
                self.send(identity, await self._host_environments.describe(message))
            else:
                self.send(identity, await self._host_environments.install(message))

        task = asyncio.get_running_loop().create_task(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return ""

    def _tell_keepers(self, kernel: HostKernel, message: object) -> str:
        known = True
        match message:
            case StartReplica():
                named = fact.GroupNamed(
                    message.peers,
                    message.secret,
                    message.checkpoint,
                    message.checkpoint_digest,
                    message.generation,
                    message.joining,
                )
                known = kernel.tell(message.replica, named)
            case InterruptReplica():
                known = kernel.tell(message.replica, fact.InterruptAsked(message.seq, message.ends))
            case FreeLease():
                known = kernel.tell(message.replica, fact.LeaseWanted(message.lease))
            case PauseCell():
                wanted = fact.PauseWanted(message.lease, message.within_s, message.gpu_model)
                known = kernel.tell(message.replica, wanted)
            case LimitReplica():
                known = message.replica in kernel.drivers
                if known:
                    self._limit(kernel.drivers[message.replica].core.life.pid, message)
            case DismissReplica():
                known = kernel.tell(message.replica, fact.DismissalAsked(message.recalled))
            case SettleReplica():
                known = kernel.tell(message.replica, fact.SettleAsked())
            case ChangeMembers():
                kernel.membership.change(message)
            case StopReplica():
                return self._stop(kernel, message)
            case ElectExecutor():
                kernel.tell_all(fact.ElectionAsked(message.seq, message.fence))
        replica = getattr(message, "replica", "")
        return "" if known else f"{type(message).__name__}: host {self._name} keeps no replica {replica}."

    def _limit(self, pid: int, message: LimitReplica) -> None:
        """Let a replica's process have what its cell asked for, or all again; what cannot be is logged."""
        why = self.limits.limit(pid, message.cpu, message.memory_bytes)
        if why and (message.cpu or message.memory_bytes):
            log.warning("a cell of kernel %s runs without limits: %s", message.kernel_id, why)

    def _without_kernel(self) -> AgentWelcome:
        """Return the greeting for a router of whose kernel nothing is here."""
        return AgentWelcome(HostName(self._name), os.getpid(), describes=True, dismisses=True)

    def _stop(self, kernel: HostKernel, message: StopReplica) -> str:
        """Stop one replica; what the kernel has in the store is its other replicas'."""
        if message.replica in kernel.drivers and len(kernel.drivers) == 1:
            self._kernels.end(kernel, message.reason, keeping=True)
        else:
            kernel.tell(message.replica, fact.EndAsked(message.reason))
        return ""

    def _end(self, identity: bytes, kernel: HostKernel | None, message: EndKernel) -> str:
        if kernel is not None:
            self._kernels.end(kernel, message.reason)
        elif message.spec is not None:
            if message.spec.kernel_id != message.kernel_id:
                return f"EndKernel for kernel {message.kernel_id} speaks of {message.spec.kernel_id}."
            ended = partial(self.send, identity, KernelEnded(message.kernel_id))
            self._kernels.forget_stored(message.spec, ended)
        elif not self._kernels.is_ending(message.kernel_id):
            self.send(identity, KernelEnded(message.kernel_id))
        return ""

    def _hibernate(self, identity: bytes, kernel: HostKernel | None, message: HibernateKernel) -> None:
        if message.phase == "checkpoint":
            if kernel is None:
                self.send(identity, CheckpointWritten(message.kernel_id))
            else:
                kernel.checkpoints.ask(
                    message.seq, forced=message.forced, gone=message.gone, pinned=message.pinned
                )
        elif kernel is not None:
            self._kernels.end(kernel, "it hibernates", keeping=True)
        elif not self._kernels.is_ending(message.kernel_id):
            self.send(identity, KernelHibernated(message.kernel_id))

    def _greet(self, identity: bytes, hello: RouterHello) -> None:
        if not hmac.compare_digest(hello.token.encode(), self._token.encode()):
            self._refuse(
                identity, f"The agent of host {self._name} was not shown its token: read agent.json again."
            )
            return
        try:
            check_version(hello.version, "router")
        except ReplkernelError as error:
            self._refuse(identity, str(error))
            return
        kernel = self._kernels.alive().get(hello.kernel_id) if hello.kernel_id else None
        if kernel is not None and not kernel.custody.admits(hello.key_digest):
            self._refuse(
                identity,
                f"Kernel {hello.kernel_id} lives on host {self._name} under another connection file's key: "
                "start the kernel under another id, or end that one first.",
            )
            return
        try:
            watch = self._watch(identity, hello.pid)
        except OSError as error:
            self._refuse(
                identity, f"The agent cannot watch process {hello.pid}, which the router named: {error}."
            )
            return
        known = self.peers.pop(identity, None)
        if known is not None:
            known.watch.close()
        self.peers[identity] = RouterPeer(hello.kernel_id, watch)
        self._on_change()
        if kernel is None:
            self.send(identity, self._without_kernel())
        elif kernel.current:
            self._welcome(identity, hello.pid, kernel)
        else:
            task = asyncio.get_running_loop().create_task(
                self._welcome_when_current(identity, hello.pid, kernel)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _watch(self, identity: bytes, pid: int) -> ProcessWatch | ConnectionWatch:
        """Watch a router's process, or its connection where that runs on another machine."""
        if pid:
            return ProcessWatch(pid, lambda end: self._drop(identity))
        return ConnectionWatch(self._socket, identity)

    def _welcome(self, identity: bytes, pid: int, kernel: HostKernel) -> None:
        self.send(identity, kernel.welcome(self._name, os.getpid()))
        kernel.attach(identity, pid)

    async def _welcome_when_current(self, identity: bytes, pid: int, kernel: HostKernel) -> None:
        """Welcome a router once the log has been replayed, or only told what is known when that takes long.

        Else it would number its cells as if those in the log had never been, and lose the new ones.
        """
        peer = self.peers.get(identity)
        deadline = time.monotonic() + CURRENT_LIMIT_S
        while not kernel.current and not kernel.ending and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(CURRENT_LOOK_S)
        if peer is None or self.peers.get(identity) is not peer:
            return
        if kernel.ending:
            self.send(identity, self._without_kernel())
        else:
            self._welcome(identity, pid, kernel)

    def _refuse(self, identity: bytes, why: str) -> None:
        log.warning("refused a router: %s", why)
        self.send(identity, AgentRefuses(why))

    def _nonsense(self, identity: bytes, why: str) -> None:
        self._refuse(identity, f"The agent of host {self._name} cannot read {why}.")

    def _drop(self, identity: bytes) -> None:
        peer = self.peers.pop(identity, None)
        if peer is None:
            return
        peer.watch.close()
        kernel = self._kernels.alive().get(peer.kernel_id)
        if kernel is not None:
            kernel.router_gone(identity)
        self._on_change()
