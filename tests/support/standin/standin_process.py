"""A kernel process without a kernel: it keeps the agent's line and does what a test tells it at `shell`.

The test sends JSON commands to a REP socket and reads answers: claim, propose, fetch, seen, facts, exit, eat.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import sys
import threading

import msgspec
import zmq

from replkernel.kernel.link import AgentLink
from replkernel.protocol.kernel_spec import Endpoints
from replkernel.protocol.process_to_agent import ClaimExecution, ReplicaApplied
from replkernel.records import BlobRef, Delta, Mark, Seq


class Standin:
    """Listener of the line, and servant of the test."""

    def __init__(self) -> None:
        self.seen: list[list[object]] = []
        self.names: dict[str, int] = {}
        self.last = 0
        self.link: AgentLink | None = None

    def delta_arrived(self, delta: Delta) -> None:
        for component in delta.components:
            for name in component.names:
                self.names[name] = component.seq
        self.last = max(self.last, delta.seq)
        self.seen.append(["apply", delta.seq])
        if self.link is not None:
            self.link.tell(ReplicaApplied(delta.seq, len(self.names), 0))

    def delta_committed(self, seq: int, *, owing: bool = False) -> None:
        self.seen.append(["committed", seq])

    def execution_refused(self, seq: int, why: str) -> None:
        self.seen.append(["refused", seq, why])

    def stop(self, reason: str, *, patient: bool = False) -> None:
        if os.environ.get("STANDIN_STUBBORN"):
            self.seen.append(["stop", reason])
        else:
            os._exit(0)

    def applied(self) -> Mark:
        return Mark(Seq(self.last))

    def quiet(self) -> None:
        """Nothing rests here."""


def run_kernel(birth):
    os.environ.clear()
    os.environ.update(birth.spec.env)
    if os.environ.get("STANDIN_EXIT"):
        print("standin: told to fail", file=sys.stderr)
        log = os.open(birth.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(log, b"standin: told to fail\n")
        os._exit(int(os.environ["STANDIN_EXIT"]))
    if os.environ.get("STANDIN_STUBBORN"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    standin = Standin()
    signal.signal(signal.SIGINT, lambda *_: standin.seen.append(["interrupted"]))
    context = zmq.Context()
    shell = context.socket(zmq.REP)
    endpoint = f"ipc://{birth.ipc_base}-1"
    shell.bind(endpoint)
    endpoints = Endpoints(
        endpoint, f"ipc://{birth.ipc_base}-2", f"ipc://{birth.ipc_base}-3", f"ipc://{birth.ipc_base}-4"
    )
    standin.link = AgentLink(birth, context, endpoints, b"{}", standin, None, 60.0)
    standin.link.start()
    while True:
        command = json.loads(shell.recv())
        shell.send(json.dumps(_obey(standin, birth, command)).encode())


def _obey(standin: Standin, birth, command: dict) -> object:
    link = standin.link
    assert link is not None
    match command["do"]:
        case "claim":
            link.claim(ClaimExecution(command["seq"], command["fence"]))
        case "propose":
            delta = msgspec.msgpack.decode(base64.b64decode(command["delta"]), type=Delta)
            standin.last = max(standin.last, delta.seq)
            link.propose(delta)
        case "fetch":
            blobs = msgspec.json.decode(json.dumps(command["blobs"]), type=tuple[BlobRef, ...])
            try:
                link.fetch_blobs(blobs, 30.0)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        case "seen":
            return {
                "seen": standin.seen,
                "names": standin.names,
                "trouble": link.trouble,
                "agent": link.welcome.agent_pid if link.welcome else 0,
                "unacknowledged": len(link._unacknowledged.deltas()),
            }
        case "facts":
            return {
                "hash": hash("replkernel"),
                "seed": os.environ.get("PYTHONHASHSEED"),
                "session": os.getsid(0),
                "pid": os.getpid(),
                "parent": os.getppid(),
                "threads": threading.active_count(),
                "path0": sys.path[0],
                "descriptors_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            }
        case "exit":
            os._exit(command["code"])
        case "eat":
            eaten = [bytearray(os.urandom(1 << 20)) for _ in range(command["mib"])]
            return len(eaten)
    return "done"
