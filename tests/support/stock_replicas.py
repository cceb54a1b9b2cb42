"""A stand-in for an agent, its replicas being stock ipykernel processes: it lets a router be tested alone.

It announces itself as an agent does (``agent.json``), so a router finds it and knows no difference. It keeps
no state: what one replica ran, the others never see. Run: ``python stock_replicas.py [--name HOST]``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.session import Session

from replkernel import settings
from replkernel.protocol.agent_to_router import (
    AgentRefuses,
    AgentWelcome,
    Elected,
    KernelEnded,
    ReplicaLost,
    ReplicaPrepared,
    ReplicaReady,
)
from replkernel.protocol.kernel_spec import Endpoints, KernelSpec
from replkernel.protocol.message import Message, decoder, encode
from replkernel.protocol.router_to_agent import (
    ElectExecutor,
    EndKernel,
    InterruptReplica,
    PrepareReplica,
    RouterHello,
    RouterToAgent,
)
from replkernel.records import HostName, KernelId, ReplicaId, Seq

PORT_NAMES = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
ORPHAN_GRACE_S = 30.0
"""The next router takes seconds to start where cores are busy."""
POLL_MS = 5


class StockReplica:
    """One stock kernel process, seen by its router as a replica."""

    def __init__(self, spec: KernelSpec, name: ReplicaId, directory: Path, context: zmq.Context[Any]) -> None:
        self.name = name
        self.ready = False
        self.kernel_info = b""
        self._base = directory / f"{secrets.token_hex(4)}-{name}"
        file = directory / f"{self._base.name}.json"
        fields: dict[str, Any] = {port: number + 1 for number, port in enumerate(PORT_NAMES)}
        fields |= {"transport": "ipc", "ip": str(self._base), "key": spec.key}
        fields |= {"signature_scheme": spec.signature_scheme}
        file.write_text(json.dumps(fields))
        self.process = subprocess.Popen(
            [spec.python, "-m", "ipykernel_launcher", "-f", str(file), *spec.argv_extra],
            env=spec.env,
            cwd=spec.cwd,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._session = Session(key=spec.key.encode(), signature_scheme=spec.signature_scheme)
        self._control = context.socket(zmq.DEALER)
        self._control.linger = 0
        self._control.connect(f"ipc://{self._base}-4")
        self._session.send(self._control, "kernel_info_request")

    @property
    def endpoints(self) -> Endpoints:
        """Return where the router finds the process."""
        base = f"ipc://{self._base}"
        return Endpoints(shell=f"{base}-1", iopub=f"{base}-2", stdin=f"{base}-3", control=f"{base}-4")

    def became_ready(self) -> bool:
        """Tell, once, that the process has answered for the first time."""
        if self.ready:
            return False
        _, message = self._session.recv(self._control)
        if message is None or message["msg_type"] != "kernel_info_reply":
            return False
        self.ready = True
        self.kernel_info = json.dumps(message["content"]).encode()
        return True

    def ask_to_end(self) -> None:
        """Ask the process to end in an orderly way."""
        self._session.send(self._control, "shutdown_request", {"restart": False})

    def close(self) -> None:
        """Kill what is left of the process and its group."""
        self._control.close(linger=0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Served:
    """One kernel of one router."""

    def __init__(self, identity: bytes) -> None:
        self.identity = identity
        self.router_pid = 0
        self.orphaned_at: float | None = None
        self.replicas: dict[ReplicaId, StockReplica] = {}
        self.deadline: float | None = None

    def orphaned(self) -> bool:
        """Tell whether the router has been gone for so long that no other one will come."""
        try:
            os.kill(self.router_pid, 0)
        except ProcessLookupError:
            self.orphaned_at = self.orphaned_at or time.monotonic()
        else:
            self.orphaned_at = None
        return self.orphaned_at is not None and time.monotonic() > self.orphaned_at + ORPHAN_GRACE_S


class StockAgent:
    """Serves routers on one socket until it is told to end."""

    def __init__(self, name: str, env: dict[str, str]) -> None:
        self._name = name
        self._context: zmq.Context[Any] = zmq.Context()
        self._directory = Path(tempfile.mkdtemp(prefix="rkst-"))
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.router_handover = 1
        self._socket.bind(f"ipc://{self._directory}/agent.sock")
        self._token = secrets.token_hex(16)
        self._kernels: dict[str, Served] = {}
        self._decode = decoder(RouterToAgent)
        file = settings.data_dir(env) / "agents" / name / "agent.json"
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fields = {
            "name": name,
            "pid": os.getpid(),
            "router_endpoint": f"ipc://{self._directory}/agent.sock",
            "token": self._token,
            "version": "0",
        }
        file.write_text(json.dumps(fields))
        self.ended = False

    def serve(self) -> None:
        """Serve until a signal ends it."""
        while not self.ended:
            if self._socket.poll(POLL_MS if self._kernels else 100):
                identity, data = self._socket.recv_multipart()
                self._take(identity, self._decode.decode(data))
            for kernel_id, served in list(self._kernels.items()):
                self._look_after(kernel_id, served)
        for served in self._kernels.values():
            for replica in served.replicas.values():
                replica.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _say(self, identity: bytes, message: Message) -> None:
        self._socket.send_multipart([identity, encode(message)])

    def _replicas(self, kernel_id: str) -> dict[ReplicaId, StockReplica]:
        served = self._kernels.get(kernel_id)
        return {} if served is None else served.replicas

    def _take(self, identity: bytes, message: object) -> None:
        match message:
            case RouterHello():
                if message.token != self._token:
                    self._say(identity, AgentRefuses("the token is wrong"))
                    return
                self._welcome(identity, message)
            case PrepareReplica():
                served = self._kernels.setdefault(message.spec.kernel_id, Served(identity))
                replica = StockReplica(message.spec, message.replica, self._directory, self._context)
                served.replicas[message.replica] = replica
                self._say(identity, ReplicaPrepared(message.replica, f"127.0.0.1:{replica.process.pid}"))
            case InterruptReplica():
                found = self._replicas(message.kernel_id).get(message.replica)
                if found is not None:
                    os.killpg(found.process.pid, signal.SIGINT)
            case ElectExecutor():
                ready = [name for name, replica in self._replicas(message.kernel_id).items() if replica.ready]
                self._say(identity, Elected(message.seq, ready[-1] if ready else None))
            case EndKernel():
                self._begin_end(identity, message)

    def _welcome(self, identity: bytes, hello: RouterHello) -> None:
        served = self._kernels.setdefault(hello.kernel_id, Served(identity))
        served.identity, served.router_pid = identity, hello.pid
        welcome = AgentWelcome(
            host=HostName(self._name),
            agent_pid=os.getpid(),
            incarnation="kept" if served.replicas else "",
            replicas=tuple(served.replicas),
        )
        self._say(identity, welcome)
        for replica in served.replicas.values():
            if replica.ready:
                self._say_ready(served, replica)

    def _say_ready(self, served: Served, replica: StockReplica) -> None:
        ready = ReplicaReady(
            replica=replica.name,
            host=HostName(self._name),
            pid=replica.process.pid,
            endpoints=replica.endpoints,
            applied=Seq(0),
            kernel_info=replica.kernel_info,
        )
        self._say(served.identity, ready)

    def _begin_end(self, identity: bytes, message: EndKernel) -> None:
        served = self._kernels.get(message.kernel_id)
        if served is None:
            self._say(identity, KernelEnded(message.kernel_id))
            return
        served.identity = identity
        served.deadline = time.monotonic() + 2.0
        for replica in served.replicas.values():
            replica.ask_to_end()

    def _look_after(self, kernel_id: str, served: Served) -> None:
        for replica in list(served.replicas.values()):
            if replica.became_ready():
                self._say_ready(served, replica)
            if served.deadline is None and replica.process.poll() is not None:
                code = replica.process.returncode
                del served.replicas[replica.name]
                replica.close()
                why = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
                self._say(served.identity, ReplicaLost(replica.name, why, returning=False))
        if served.deadline is None:
            if served.orphaned():
                self._begin_end(served.identity, EndKernel(KernelId(kernel_id), "its router is gone"))
            return
        alive = [replica for replica in served.replicas.values() if replica.process.poll() is None]
        if not alive or time.monotonic() > served.deadline:
            for replica in served.replicas.values():
                replica.close()
            del self._kernels[kernel_id]
            self._say(served.identity, KernelEnded(KernelId(kernel_id)))


def main() -> int:
    """Run the stand-in until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default=settings.host_name(os.environ))
    agent = StockAgent(parser.parse_args().name, dict(os.environ))

    def end(_number: int, _frame: object) -> None:
        agent.ended = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    print("ready", flush=True)
    agent.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
