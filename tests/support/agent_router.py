"""A router for tests of the agent: says what it is told to say, and waits for what should come."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import zmq

from replkernel.agent.io.lookup import AgentAddress
from replkernel.protocol.agent_to_router import (
    AgentToRouter,
    AgentWelcome,
    Committed,
    KernelEnded,
    ReplicaPrepared,
    ReplicaReady,
    StatusAnswer,
)
from replkernel.protocol.kernel_spec import KernelSpec
from replkernel.protocol.message import decoder, encode
from replkernel.protocol.router_to_agent import (
    EndKernel,
    PrepareReplica,
    RouterHello,
    StartReplica,
    StatusQuery,
)
from replkernel.protocol.status import StatusDocument, read_document
from replkernel.records import (
    ComponentId,
    ComponentRecord,
    Delta,
    Digest,
    Fence,
    KernelId,
    Payload,
    ReplicaId,
    Seq,
)
from replkernel.replication.entries import execution_started, split_delta
from replkernel.replication.machine import KernelMachine

STANDIN = Path(__file__).parent / "standin"
PATIENCE_S = 20.0

Wanted = TypeVar("Wanted")


def standin_env(env: Mapping[str, str], **more: str) -> dict[str, str]:
    """Return an environment in which kernel processes are stand-ins."""
    path = os.pathsep.join([str(STANDIN), env.get("PYTHONPATH", "")])
    return {**env, "PYTHONPATH": path, **more}


def make_spec(env: Mapping[str, str], cwd: Path, **more: Any) -> KernelSpec:
    """Return a kernel's spec with a key of its own and a store below `cwd`."""
    given: dict[str, Any] = {
        "kernel_id": KernelId(f"kernel-{secrets.token_hex(4)}"),
        "incarnation": secrets.token_hex(8),
        "key": secrets.token_hex(16),
        "signature_scheme": "hmac-sha256",
        "python": sys.executable,
        "env": dict(env),
        "cwd": str(cwd),
        "store_url": f"file://{cwd / 'store'}",
        "replicas": 3,
    }
    return KernelSpec(**{**given, **more})


class RouterClient:
    """One router of one kernel, or (without a spec) the command line."""

    def __init__(self, address: AgentAddress, spec: KernelSpec | None = None, pid: int | None = None) -> None:
        self.address = address
        self.spec = spec
        self.ready: dict[ReplicaId, ReplicaReady] = {}
        self.heard: list[object] = []
        self.welcome: AgentWelcome | None = None
        self._decoder = decoder(AgentToRouter)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.connect(address.endpoint)
        key = spec.key if spec is not None else ""
        self.send(
            RouterHello(
                address.token,
                spec.kernel_id if spec is not None else KernelId(""),
                hashlib.sha256(key.encode()).hexdigest(),
                pid or os.getpid(),
            )
        )

    def __enter__(self) -> RouterClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()
        self._context.term()

    def send(self, message: Any) -> None:
        self._socket.send(encode(message))

    def send_bytes(self, data: bytes) -> None:
        self._socket.send(data)

    def receive(self, timeout_s: float = PATIENCE_S) -> object:
        """Return the next message; AssertionError when none comes."""
        assert self._socket.poll(int(timeout_s * 1000)), f"the agent said nothing; before: {self.heard[-5:]}"
        message = self._decoder.decode(self._socket.recv())
        self.heard.append(message)
        if isinstance(message, ReplicaReady):
            self.ready[message.replica] = message
        if isinstance(message, AgentWelcome):
            self.welcome = message
        return message

    def wait(
        self,
        kind: type[Wanted],
        fits: Callable[[Wanted], bool] = lambda message: True,
        timeout_s: float = PATIENCE_S,
    ) -> Wanted:
        """Return the next message of this kind that fits, passing over others."""
        deadline = time.monotonic() + timeout_s
        while True:
            left = deadline - time.monotonic()
            assert left > 0, f"no {kind.__name__} came; but: {self.heard[-5:]}"
            message = self.receive(left)
            if isinstance(message, kind) and fits(message):
                return message

    def make_replicas(self, *names: str) -> dict[ReplicaId, ReplicaReady]:
        """Have replicas made and their Raft group started; return when all are ready."""
        assert self.spec is not None
        replicas = [ReplicaId(name) for name in names]
        for replica in replicas:
            self.send(PrepareReplica(self.spec, replica))
        peers: dict[ReplicaId, str] = {}
        while len(peers) < len(replicas):
            message = self.receive()
            if isinstance(message, ReplicaPrepared):
                peers[message.replica] = message.raft_address
        secret = secrets.token_hex(16)
        for replica in replicas:
            self.send(StartReplica(self.spec.kernel_id, replica, peers, secret))
        self.await_ready(*names)
        return self.ready

    def await_ready(self, *names: str) -> None:
        while not set(names) <= set(self.ready):
            self.receive()

    def end(self, reason: str = "the test is over") -> None:
        assert self.spec is not None
        self.send(EndKernel(self.spec.kernel_id, reason))
        self.wait(KernelEnded)

    def status(self, kernel_id: KernelId | None = None) -> StatusDocument:
        self.send(StatusQuery(7, kernel_id))
        return read_document(self.wait(StatusAnswer).document)

    def standin(self, replica: str) -> StandinClient:
        return StandinClient(self.ready[ReplicaId(replica)].endpoints.shell)


class StandinClient:
    """Tells a stand-in process what to do."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint

    def _ask(self, **command: object) -> Any:
        with zmq.Context() as context, context.socket(zmq.REQ) as socket:
            socket.linger = 0
            socket.connect(self._endpoint)
            socket.send(json.dumps(command).encode())
            assert socket.poll(int(PATIENCE_S * 1000)), "the stand-in does not answer"
            return json.loads(socket.recv())

    def claim(self, seq: int, fence: int) -> None:
        self._ask(do="claim", seq=seq, fence=fence)

    def propose(self, delta: Delta) -> None:
        self._ask(do="propose", delta=base64.b64encode(msgspec.msgpack.encode(delta)).decode())

    def fetch(self, blobs: list[object]) -> str:
        answer: str = self._ask(do="fetch", blobs=msgspec.to_builtins(blobs))
        return answer

    def seen(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._ask(do="seen")
        return answer

    def facts(self) -> dict[str, Any]:
        answer: dict[str, Any] = self._ask(do="facts")
        return answer

    def exit(self, code: int) -> None:
        self._order(do="exit", code=code)

    def eat(self, mib: int) -> None:
        """Have it allocate so much memory, which it may not survive."""
        self._order(do="eat", mib=mib)

    def _order(self, **command: object) -> None:
        with zmq.Context() as context, context.socket(zmq.REQ) as socket:
            socket.linger = int(PATIENCE_S * 1000)
            socket.connect(self._endpoint)
            socket.send(json.dumps(command).encode())

    def await_seen(
        self, fits: Callable[[dict[str, Any]], bool], timeout_s: float = PATIENCE_S
    ) -> dict[str, Any]:
        """Return what the stand-in has seen once it fits."""
        deadline = time.monotonic() + timeout_s
        while True:
            seen = self.seen()
            if fits(seen):
                return seen
            assert time.monotonic() < deadline, f"the stand-in has only seen {seen}"
            time.sleep(0.05)


def delta(seq: int, *names: str, replica: str = "r1", payload: Payload | None = None) -> Delta:
    """Return a delta that sets these names, each in a component of ten bytes."""
    components = tuple(
        ComponentRecord(
            cid=ComponentId(name),
            names=(name,),
            seq=Seq(seq),
            payload=payload or Payload(head=b"x"),
            digest=Digest("0" * 64),
            state_bytes=10,
        )
        for name in names
    )
    return Delta(Seq(seq), Fence(seq), ReplicaId(replica), seq, components)


def snapshot_after(cells: int) -> bytes:
    """Return the snapshot of a group after so many cells, each of which set a variable."""
    machine = KernelMachine()
    index = 0
    for seq in range(1, cells + 1):
        started = execution_started(Seq(seq), ReplicaId("r1"), Fence(seq))
        for entry in (started, *split_delta(delta(seq, f"x{seq}"))):
            index += 1
            machine.apply(index, entry)
    return machine.snapshot()


def run_cell(router: RouterClient, seq: int, *names: str, replica: str = "r1") -> Committed:
    """Have a stand-in claim an execution and propose its delta; return when that is committed."""
    process = router.standin(replica)
    process.claim(seq, seq)
    process.propose(delta(seq, *names, replica=replica))
    return router.wait(Committed, lambda message: message.seq == seq)
