"""A fake agent and a fake router for one machine: they drive real kernel processes over their real sockets.

The agent side keeps every message a kernel process sent, in order; the router side is a signed Jupyter client
with one DEALER per channel, as the router has.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import zmq
from jupyter_client.session import Session

from replkernel.kernel.birth import Birth
from replkernel.objects.cache import BlobCache
from replkernel.protocol.agent_to_process import ApplyDelta, BlobsReady, KernelWelcome, NotebookStatusAnswer
from replkernel.protocol.envelope import ROUTER_IDENTITY, Envelope, envelope_frame
from replkernel.protocol.kernel_spec import Endpoints, KernelSpec
from replkernel.protocol.message import Message, decoder, encode
from replkernel.protocol.process_to_agent import (
    FetchBlobs,
    KernelHello,
    KernelToAgent,
    NotebookStatusQuery,
    ProposeDelta,
)
from replkernel.records import Delta, Fence, HostName, KernelId, ReplicaId, Seq
from tests.support.forked import ForkedProcess, fork

PATIENCE_S = 20.0
KEY = "0123456789abcdef"
Kind = TypeVar("Kind", bound=Message)


class FakeAgent:
    """The agent of one fake host: it welcomes kernel processes and hands over what a test tells it to."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or Path(tempfile.mkdtemp(prefix="rkt-"))
        self.endpoint = f"ipc://{self.directory}/kernels.sock"
        self.blobs = "bring"
        """What becomes of `FetchBlobs`: ``bring``, ``hold`` (no answer), or ``lack`` (no store has them)."""
        self.held: list[tuple[str, FetchBlobs]] = []
        """What was not answered."""
        self.log: list[tuple[str, Message]] = []
        self.status = b"{}"
        self.processes: list[ForkedProcess] = []
        self._context = zmq.Context()
        self._decoder = decoder(KernelToAgent)
        self._names: dict[bytes, str] = {}
        self._identities: dict[str, bytes] = {}
        self.listen()

    def listen(self) -> None:
        """Bind the agent's socket (again)."""
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.bind(self.endpoint)

    def vanish(self) -> None:
        """Close the agent's socket, as if the agent had died."""
        self._socket.close()
        self._names.clear()
        self._identities.clear()

    def close(self) -> None:
        """End all kernel processes and close."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self._socket.close()
        self._context.destroy(linger=0)

    def birth(self, replica: str, env: Mapping[str, str] | None = None, **spec: Any) -> Birth:
        """Return the birth of `replica` in directories of the test's own."""
        environment = {**os.environ, "PYTHONHASHSEED": "1729"}
        environment["JUPYTER_DATA_DIR"] = str(self.directory / "data")
        environment["JUPYTER_RUNTIME_DIR"] = str(self.directory / "runtime")
        environment["IPYTHONDIR"] = str(self.directory / "ipython")
        environment["REPLKERNEL_SOCKET_DIR"] = str(self.directory)
        environment.update(env or {})
        fields: dict[str, Any] = {
            "kernel_id": KernelId("0a1b2c3d-test"),
            "incarnation": "one",
            "key": KEY,
            "signature_scheme": "hmac-sha256",
            "python": sys.executable,
            "env": environment,
            "cwd": str(self.directory),
            "store_url": "memory://",
            "replicas": 2,
        }
        fields.update(spec)
        return Birth(
            spec=KernelSpec(**fields),
            replica=ReplicaId(replica),
            host=HostName(f"host-{replica}"),
            ipc_base=str(self.directory / f"k-{replica}"),
            agent_endpoint=self.endpoint,
            birth_token=f"token-{replica}",
            cache_dir=str(self.directory / f"cache-{replica}"),
            log_path=str(self.directory / f"{replica}.log"),
        )

    def spawn(self, birth: Birth) -> ForkedProcess:
        """Start the kernel process of `birth`."""
        process = fork(birth)
        self.processes.append(process)
        return process

    def send(self, replica: str, message: Message) -> None:
        """Send `message` to a replica's kernel process."""
        self._socket.send_multipart([self._identities[replica], encode(message)])

    def poll(self, timeout_s: float) -> bool:
        """Take one message in, answering hellos and questions; return whether one came."""
        if not self._socket.poll(round(timeout_s * 1000)):
            return False
        identity, frame = self._socket.recv_multipart()
        message = self._decoder.decode(frame)
        assert isinstance(message, Message)
        if isinstance(message, KernelHello):
            self._names[identity] = message.replica
            self._identities[message.replica] = identity
            self.send(
                message.replica,
                KernelWelcome(HostName(f"host-{message.replica}"), str(self.directory), os.getpid()),
            )
        name = self._names.get(identity, "?")
        self.log.append((name, message))
        if isinstance(message, FetchBlobs):
            self.held.append((name, message))
            if self.blobs != "hold":
                self.answer_held()
        if isinstance(message, NotebookStatusQuery):
            self.send(name, NotebookStatusAnswer(message.request, self.status))
        return True

    def answer_held(self) -> None:
        """Answer all `FetchBlobs` that have none yet."""
        while self.held:
            name, message = self.held.pop(0)
            self.send(name, self._fetch(name, message))

    def _fetch(self, replica: str, wanted: FetchBlobs) -> BlobsReady:
        chunks = [chunk.digest for blob in wanted.blobs for chunk in blob.chunks]
        if self.blobs == "lack":
            return BlobsReady(wanted.request, tuple(chunks), "The object store memory:// has lost them.")
        target = BlobCache(self.directory / f"cache-{replica}")
        for source in self.directory.glob("cache-*"):
            for digest in chunks:
                path = BlobCache(source).chunk_path(digest)
                if path.exists() and not target.chunk_path(digest).exists():
                    target.chunk_path(digest).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, target.chunk_path(digest))
        return BlobsReady(wanted.request)

    def await_message(
        self,
        replica: str,
        kind: type[Kind],
        fits: Callable[[Kind], bool] = lambda message: True,
        after: int = 0,
    ) -> Kind:
        """Return the first message of a kind from a replica, from log position `after` on."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for name, message in self.log[after:]:
                if name == replica and isinstance(message, kind) and fits(message):
                    return message
            assert time.monotonic() < deadline, f"no {kind.__name__} from {replica}; got {self.log[after:]}"
            self.poll(0.5)

    def await_delta(self, replica: str, seq: int) -> Delta:
        """Return the delta that a replica proposed for execution `seq`."""
        return self.await_message(replica, ProposeDelta, lambda message: message.delta.seq == seq).delta

    def move(self, delta: Delta, replica: str) -> None:
        """Hand a committed delta to another replica."""
        self.send(replica, ApplyDelta(delta))


class FakeRouter:
    """A signed Jupyter client on one kernel process's own sockets."""

    def __init__(self, endpoints: Endpoints, key: str = KEY) -> None:
        self.session = Session(key=key.encode(), signature_scheme="hmac-sha256", username="test")
        self._context = zmq.Context()
        self._identity = ROUTER_IDENTITY
        self.channels: dict[str, zmq.Socket[bytes]] = {}
        for name in ("shell", "control", "stdin", "executions"):
            if not getattr(endpoints, name):
                continue
            socket = self._context.socket(zmq.DEALER)
            socket.linger = 0
            socket.routing_id = self._identity
            socket.connect(getattr(endpoints, name))
            self.channels[name] = socket
        self.iopub = self._context.socket(zmq.SUB)
        self.iopub.linger = 0
        self.iopub.subscribe(b"")
        self.iopub.connect(endpoints.iopub)
        self.seq = 0
        self._early: dict[str, dict[str, Any]] = {}
        """Replies that came before anybody waited for them."""
        self.published: list[dict[str, Any]] = []
        self._await_iopub()

    def close(self) -> None:
        """Close all channels."""
        self._context.destroy(linger=0)

    def _await_iopub(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            reply = self.ask("kernel_info_request", {})
            if self.drain(reply["parent_header"]["msg_id"], patience_s=1.0):
                return
        raise AssertionError("the kernel's iopub channel says nothing")

    def send(
        self,
        msg_type: str,
        content: dict[str, Any],
        channel: str = "shell",
        envelope: Envelope | None = None,
        **header: Any,
    ) -> str:
        """Send a request and return its msg_id."""
        message = self.session.msg(msg_type, content)
        message["header"].update(header)
        frames = self.session.serialize(message)
        prefix = [] if envelope is None else [envelope_frame(envelope)]
        self.channels[channel].send_multipart([*prefix, b"client", *frames])
        return str(message["header"]["msg_id"])

    def receive(self, msg_id: str, channel: str = "shell", timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """Return the reply to `msg_id`, with its identity frames under ``idents``."""
        deadline = time.monotonic() + timeout_s
        while msg_id not in self._early:
            source = self._readable(channel, deadline)
            assert source is not None, f"no reply to {msg_id}"
            idents, frames = self.session.feed_identities(source.recv_multipart())
            reply = self.session.deserialize(frames)
            answers_to = msg_id if channel == "stdin" else str(reply["parent_header"].get("msg_id"))
            self._early[answers_to] = {**reply, "idents": idents}
        return self._early.pop(msg_id)

    def _readable(self, channel: str, deadline: float) -> zmq.Socket[bytes] | None:
        """Wait for a reply of a channel; the shell's may come on the direct way."""
        poller = zmq.Poller()
        for name in (channel, "executions") if channel == "shell" else (channel,):
            if name in self.channels:
                poller.register(self.channels[name], zmq.POLLIN)
        left_ms = round((deadline - time.monotonic()) * 1000)
        ready = poller.poll(left_ms) if left_ms > 0 else []
        return ready[0][0] if ready else None

    def ask(
        self, msg_type: str, content: dict[str, Any], channel: str = "shell", **header: Any
    ) -> dict[str, Any]:
        """Send a request and return its reply."""
        return self.receive(self.send(msg_type, content, channel, **header), channel)

    def submit(
        self,
        code: str,
        needs: int = 0,
        seq: int | None = None,
        bare: bool = False,
        channel: str = "executions",
        **content: Any,
    ) -> str:
        """Send an execution without waiting for it."""
        if seq is None and not bare:
            self.seq += 1
        envelope = None if bare else Envelope(Seq(seq or self.seq), Fence(seq or self.seq), Seq(needs))
        body = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
        }
        channel = "shell" if bare or channel not in self.channels else channel
        return self.send("execute_request", {**body, **content}, channel, envelope=envelope)

    def run(self, code: str, needs: int = 0, **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Run a cell; return its reply and what it published, up to its idle."""
        msg_id = self.submit(code, needs, **options)
        return self.receive(msg_id), self.drain(msg_id)

    def value(self, expression: str, needs: int = 0, **options: Any) -> Any:
        """Return the value of an expression (as JSON) after running it as a cell's user expression."""
        reply, _ = self.run(
            "", needs, user_expressions={"it": f"__import__('json').dumps({expression})"}, **options
        )
        answer = reply["content"]["user_expressions"]["it"]
        assert answer["status"] == "ok", answer
        text = answer["data"]["text/plain"]
        return json.loads(eval(text))

    def drain(self, msg_id: str, patience_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Return what was published for `msg_id`, up to its idle; empty when that does not come.

        What came while another message was waited for counts.
        """
        found: list[dict[str, Any]] = []
        for message in self._published_for(msg_id, patience_s):
            found.append(message)
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found
        return []

    def await_published(self, msg_id: str, said: str) -> None:
        """Wait until a text, or a status, is published for `msg_id`."""
        for message in self._published_for(msg_id, PATIENCE_S):
            content = message["content"]
            if said in (content.get("execution_state"), content.get("text")):
                return
        raise AssertionError(f"{said!r} was not published for {msg_id}")

    def _published_for(self, msg_id: str, patience_s: float) -> Iterator[dict[str, Any]]:
        """Yield what was published for `msg_id` and what comes, until patience ends."""
        deadline = time.monotonic() + patience_s
        seen = 0
        while True:
            for message in self.published[seen:]:
                if message["parent_header"].get("msg_id") == msg_id:
                    yield message
            seen = len(self.published)
            left = deadline - time.monotonic()
            if left <= 0 or not self.iopub.poll(round(left * 1000)):
                return
            _, frames = self.session.feed_identities(self.iopub.recv_multipart())
            self.published.append(self.session.deserialize(frames))


def text_of(published: list[dict[str, Any]], stream: str = "stdout") -> str:
    """Return what was printed on a stream."""
    return "".join(
        message["content"]["text"]
        for message in published
        if message["msg_type"] == "stream" and message["content"]["name"] == stream
    )


def interrupt(process: ForkedProcess) -> None:
    """Interrupt a kernel process as its agent does."""
    os.kill(process.pid, signal.SIGINT)
