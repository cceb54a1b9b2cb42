"""A router without sockets: clients, agents and replicas are method calls, time is a number.

Law: after every event the router's invariants hold.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any, TypeVar

from replkernel.leasing.request import GpuRequest
from replkernel.leasing.wire import FromClient, FromScheduler, Granted, GrantedLease
from replkernel.protocol.agent_to_router import AgentWelcome, Committed, ReplicaLost, ReplicaReady
from replkernel.protocol.envelope import Envelope, read_envelope
from replkernel.protocol.kernel_spec import Endpoints, KernelSpec
from replkernel.records import HostName, KernelId, MoveRecord, Pin, ReplicaId, Seq
from replkernel.router.core import events
from replkernel.router.core.events import ClientRequest, Effect, Event, Header, ReplicaChannel, ReplicaMessage
from replkernel.router.core.fleet import Fleet
from replkernel.router.core.host_environments import Versions
from replkernel.router.core.leases import Leases
from replkernel.router.core.placement import Placement, Policy
from replkernel.router.core.router import Identity, Rest, Router
from replkernel.router.core.wire import DELIMITER

HOST = HostName("here")
CLIENT = b"client"
E = TypeVar("E", bound=Effect)


def pack(value: object) -> bytes:
    """Return JSON bytes."""
    return json.dumps(value).encode()


class World:
    """One router and everything around it."""

    def __init__(
        self,
        replicas: int = 3,
        policy: Policy = "sticky",
        hosts: Iterable[HostName] = (HOST,),
        gpus: GpuRequest | None = None,
        guests: tuple[HostName, ...] = (),
        move: MoveRecord | None = None,
        versions: Versions = "warn",
        *,
        resuming: bool = False,
        standby_idle_s: float = 0.0,
        linger_s: float | None = None,
    ) -> None:
        self.now = 0.0
        self.checks = True
        self.hosts = tuple(hosts)
        spec = KernelSpec(
            kernel_id=KernelId("k"), incarnation="one", key="key", signature_scheme="hmac-sha256",
            python="python", env={}, cwd="/", store_url="memory://", replicas=replicas,
        )  # fmt: skip
        self.fleet = Fleet(
            spec,
            self.hosts,
            "digest",
            1,
            "secret",
            self.now,
            resuming=resuming or move is not None,
            guests=guests,
        )
        placement = Placement(policy, random.Random(1))
        self.leases = Leases("k", gpus)
        identity = Identity(b'{"banner": "own"}', {"shell_port": 5})
        self.router = Router(
            self.fleet,
            placement,
            identity,
            Rest(standby_idle_s=standby_idle_s, linger_s=linger_s),
            leases=self.leases,
            move=move,
            versions=versions,
        )
        self.all: list[Effect] = []
        self.last: list[Effect] = []
        self._requests: dict[str, ClientRequest] = {}
        self._count = self._leases = 0
        self._take(self.router.start(self.now))

    # -- driving ------------------------------------------------------------------------------------

    def _take(self, effects: list[Effect]) -> list[Effect]:
        if self.checks:
            self.router.check_invariants()
        self.last = effects
        self.all += effects
        return effects

    def feed(self, event: Event) -> list[Effect]:
        """Give the router one event."""
        return self._take(self.router.handle(event, self.now))

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass, ticking whenever the router wants it."""
        end = self.now + seconds
        effects: list[Effect] = []
        for _ in range(1000):
            due = self.router.deadline()
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            effects += self.feed(events.Tick())
            assert self.router.deadline() != due or self.now < due, "a deadline that a tick does not move"
        self.now = end
        self.last = effects
        return effects

    def say(self, message: Any, host: HostName = HOST) -> list[Effect]:
        """Have an agent say something."""
        return self.feed(events.AgentSaid(host, message))

    def up(self, *names: str, applied: int = 0) -> World:
        """Have agents found and these replicas (all, when none is named) ready and linked."""
        for host in self.hosts:
            if not self.fleet.hosts[host].found:
                self.feed(events.AgentFound(host, "token"))
                self.say(AgentWelcome(host=host, agent_pid=2, dismisses=True), host)
        for name in names or tuple(self.fleet.replicas):
            self.ready(name, applied)
        return self

    def ready(self, name: str, applied: int = 0) -> list[Effect]:
        """Have one replica become ready and its output reach the router."""
        ends = Endpoints(*(f"ipc://{name}-{self.now}-{kind}" for kind in ("s", "c", "i", "o")))
        host = self._host_of(name)
        ready = ReplicaReady(ReplicaId(name), host, 9, ends, Seq(applied), b'{"banner": "replica"}')
        self.say(ready, host)
        return self.output(name, "iopub_welcome", "", {})

    def _host_of(self, name: str) -> HostName:
        known = self.fleet.replicas.get(ReplicaId(name))
        return HOST if known is None else known.host

    def lose(
        self, name: str, why: str = "killed by SIGKILL", *, returning: bool = True, ago_s: float = 0.0
    ) -> list[Effect]:
        """Have a replica's process die, or have died some time ago."""
        host = self._host_of(name)
        return self.say(ReplicaLost(ReplicaId(name), why, returning=returning, ago_s=ago_s), host)

    def dismissed(self, name: str) -> list[Effect]:
        """Have a replica's process end because it was dismissed."""
        host = self._host_of(name)
        return self.say(ReplicaLost(ReplicaId(name), "dormant", returning=True, dormant=True), host)

    def commit(
        self, name: str, seq: int, pins: tuple[Pin, ...] = (), *, audit: int = 0, owing: tuple[str, ...] = ()
    ) -> list[Effect]:
        """Have an execution become durable, or be in the log `owing` an audit of these variables."""
        return self.say(Committed(ReplicaId(name), Seq(seq), seq, 0, pins, audit, owing))

    def request(
        self, msg_type: str, content: dict[str, Any] | None = None, *, channel: events.Channel = "shell",
        msg_id: str = "", subshell_id: str | None = None, repeated: bool = False,
        metadata: dict[str, Any] | None = None, stale: bool = False,
    ) -> str:  # fmt: skip
        """Have the client send a request; return its id."""
        self._count += 1
        msg_id = msg_id or f"m{self._count}"
        header = {"msg_id": msg_id, "msg_type": msg_type, "session": "s"}
        frames = [DELIMITER, b"sig", pack(header), b"{}", pack(metadata or {}), pack(content or {})]
        request = ClientRequest(
            channel=channel, identities=(CLIENT,), header=Header(msg_id, msg_type, "s", subshell_id),
            header_frame=frames[2], content=frames[5], frames=frames, repeated=repeated, stale=stale,
        )  # fmt: skip
        self._requests[msg_id] = request
        self.feed(request)
        return msg_id

    def execute(self, code: str = "pass", **options: Any) -> str:
        """Have the client run a cell; return the request's id."""
        msg_id, metadata = options.pop("msg_id", ""), options.pop("metadata", None)
        return self.request("execute_request", {"code": code, **options}, msg_id=msg_id, metadata=metadata)

    # -- the scheduler ------------------------------------------------------------------------------

    def needs(self, gpus: int, code: str = "pass", **options: Any) -> str:
        """Have the client run a cell whose metadata ask for GPUs; return the request's id."""
        return self.execute(code, metadata={"replkernel": {"gpus": gpus}}, **options)

    def told(self, effects: list[Effect] | None = None) -> list[FromClient]:
        """Return what the scheduler was told, by the last event unless told otherwise."""
        return [effect.message for effect in self.of(events.ToScheduler, effects)]

    def scheduler(self, message: FromScheduler) -> list[Effect]:
        """Have the scheduler say something."""
        return self.feed(events.SchedulerSaid(message))

    def grant(
        self, request: str, gpus: Iterable[str] = ("g0",), host: HostName = HOST, *, lease: str = ""
    ) -> list[Effect]:
        """Have the scheduler grant a wish."""
        self._leases += not lease
        name = lease or f"lease-{self._leases}"
        granted = GrantedLease(name, request, host, tuple(gpus), self._leases, 60.0)
        return self.scheduler(Granted(granted))

    def output(
        self,
        name: str,
        msg_type: str,
        parent_id: str,
        content: dict[str, Any],
        channel: ReplicaChannel = "iopub",
        metadata: dict[str, Any] | None = None,
    ) -> list[Effect]:
        """Have a replica send a message."""
        frames = [
            DELIMITER,
            b"sig",
            pack({"msg_type": msg_type}),
            pack({"msg_id": parent_id}),
            pack(metadata or {}),
            pack(content),
        ]
        prefix = (b"topic",) if channel == "iopub" else (CLIENT,)
        return self.feed(
            ReplicaMessage(ReplicaId(name), channel, msg_type, parent_id, prefix, frames[5], frames)
        )

    def status(self, name: str, parent_id: str, state: str) -> list[Effect]:
        """Have a replica publish a status."""
        return self.output(name, "status", parent_id, {"execution_state": state})

    def begin(self, name: str, msg_id: str, count: int = 1) -> None:
        """Have a replica begin a cell."""
        self.status(name, msg_id, "busy")
        self.output(name, "execute_input", msg_id, {"code": "", "execution_count": count})

    def finish(
        self,
        name: str,
        msg_id: str,
        *,
        status: str = "ok",
        count: int = 1,
        idle: bool = True,
        gpu_bytes: int = 0,
    ) -> list[Effect]:
        """Have a replica reply to a cell, which left so much on its GPUs, and go idle."""
        content = {"status": status, "execution_count": count}
        said = {"replkernel": {"replica": name, "ran": True, "gpu_bytes": gpu_bytes}} if gpu_bytes else None
        effects = self.output(name, "execute_reply", msg_id, content, "shell", said)
        return effects + (self.status(name, msg_id, "idle") if idle else [])

    def refuse(self, name: str, msg_id: str) -> None:
        """Have a replica reply to a cell that it did not run."""
        content, metadata = {"status": "error", "execution_count": 1}, {"replkernel": {"ran": False}}
        self.output(name, "execute_reply", msg_id, content, "shell", metadata)
        self.status(name, msg_id, "idle")

    def run(self, name: str, code: str = "pass", **options: Any) -> str:
        """Have a cell run from beginning to end."""
        msg_id = self.execute(code, **options)
        self.begin(name, msg_id)
        self.finish(name, msg_id)
        return msg_id

    # -- looking ------------------------------------------------------------------------------------

    def of(self, kind: type[E], effects: list[Effect] | None = None) -> list[E]:
        """Return the effects of one kind, of the last event unless told otherwise."""
        return [effect for effect in (self.last if effects is None else effects) if isinstance(effect, kind)]

    def header_frame(self, msg_id: str) -> bytes:
        """Return the header by which a client's request is known among frames."""
        return self._requests[msg_id].header_frame

    def sent_to(self, msg_id: str) -> list[str]:
        """Return the replicas that a request was given to, in order."""
        frame = self._requests[msg_id].header_frame
        return [
            str(effect.replica) for effect in self.of(events.ToReplica, self.all) if frame in effect.frames
        ]

    def envelope(self, msg_id: str) -> Envelope:
        """Return the envelope that an execution was last given."""
        frame = self._requests[msg_id].header_frame
        sent = [effect for effect in self.of(events.ToReplica, self.all) if frame in effect.frames]
        found = read_envelope(sent[-1].frames)
        assert found is not None
        return found

    def seen(self, msg_id: str) -> list[str]:
        """Return what the client saw of a request, in order: statuses, outputs and replies by name."""
        frame = self._requests[msg_id].header_frame
        told: list[str] = []
        for effect in self.all:
            if isinstance(effect, events.Publish | events.Answer) and effect.parent == frame:
                content = json.loads(effect.content)
                told.append(content.get("execution_state") or _with_status(effect.msg_type, content))
            elif isinstance(effect, events.PassToIopub | events.PassToClient):
                parent, content = json.loads(effect.frames[-3]), json.loads(effect.frames[-1])
                if parent.get("msg_id") == msg_id:
                    kind = json.loads(effect.frames[-4])["msg_type"]
                    told.append(content.get("execution_state") or _with_status(kind, content))
        return told

    def answer(self, msg_id: str) -> dict[str, Any]:
        """Return the content of the router's own last answer to a request."""
        frame = self._requests[msg_id].header_frame
        answers = [effect for effect in self.of(events.Answer, self.all) if effect.parent == frame]
        return dict(json.loads(answers[-1].content))


def _with_status(msg_type: str, content: dict[str, Any]) -> str:
    return (
        f"{msg_type}:{content['status']}" if msg_type.endswith("_reply") and "status" in content else msg_type
    )
