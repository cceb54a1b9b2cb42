"""Asks the host agents of this user for their status, for the command line and the server extension.

It starts nothing: an agent that is not there is left out, one that does not answer in time is reported.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from itertools import islice

import msgspec
import zmq

from replkernel.agent.io.lookup import AgentAddress, find_agent
from replkernel.errors import UNREADABLE, AgentUnavailable
from replkernel.hosts.far_sockets import connect
from replkernel.hosts.places import given_address, named_hosts
from replkernel.launch.kernel_record import kernels_dir, read_record, router_lives
from replkernel.protocol.agent_to_router import AgentRefuses, AgentToRouter, StatusAnswer
from replkernel.protocol.message import decoder, encode
from replkernel.protocol.remote_status import NO_ANSWER
from replkernel.protocol.router_to_agent import RouterHello, StatusQuery
from replkernel.protocol.status import HostStatus, KernelStatus, StatusDocument, merge, read_document
from replkernel.records import KernelId
from replkernel.settings import data_dir

AGENTS_MAX = 1024
"""No more agents than this are asked."""

MESSAGES_MAX = 100
"""An agent that says so much else is not waited for."""

KERNELS_MAX = 10_000
"""No more kernels' records than this are read."""

_decoder = decoder(AgentToRouter)


def agent_names(env: Mapping[str, str]) -> list[str]:
    """Return the names of the hosts that have an agent's file here, alive or not, or a given address."""
    directory = data_dir(env) / "agents"
    given = {host for host in named_hosts(env) if given_address(host, env)}
    found = sorted(given | {path.parent.name for path in directory.glob("*/agent.json")})
    return found[:AGENTS_MAX]


def live_agents(env: Mapping[str, str]) -> list[AgentAddress]:
    """Return the addresses of the agents that listen and may be asked."""
    return _find_all(env)[0]


def _find_all(env: Mapping[str, str]) -> tuple[list[AgentAddress], list[StatusDocument]]:
    """Return the agents that listen, and what is told of those that are not to be asked."""
    found: list[AgentAddress] = []
    told: list[StatusDocument] = []
    for name in agent_names(env):
        try:
            address = find_agent(name, env)
        except AgentUnavailable as error:
            told.append(StatusDocument(hosts=(HostStatus(name=name, state=f"not asked: {error}"),)))
            continue
        if address is not None:
            found.append(address)
    return found, told


def ask_agents(env: Mapping[str, str], timeout_s: float = 2.0) -> StatusDocument:
    """Return the merged status of all live agents; one that is late appears as a host `not answering`."""
    addresses, told = _find_all(env)
    told += _ask_all(addresses, timeout_s)
    served = {kernel.kernel_id for document in told for kernel in document.kernels}
    resting = tuple(kernel for kernel in resting_kernels(env) if kernel.kernel_id not in served)
    return merge([with_records(merge(told), env), StatusDocument(kernels=resting)])


def with_records(document: StatusDocument, env: Mapping[str, str]) -> StatusDocument:
    """Add what records here say: when kernels began, and routers that agents on other hosts cannot tell."""
    kernels = tuple(_with_record(kernel, env) for kernel in document.kernels)
    return msgspec.structs.replace(document, kernels=kernels)


def _with_record(kernel: KernelStatus, env: Mapping[str, str]) -> KernelStatus:
    record = read_record(data_dir(env), kernel.kernel_id)
    if record is None:
        return kernel
    here = record.router_pid if kernel.router_pid is None and router_lives(record) else kernel.router_pid
    return msgspec.structs.replace(kernel, router_pid=here, began=record.began)


def resting_kernels(env: Mapping[str, str]) -> list[KernelStatus]:
    """Return the kernels that hibernate, as their records on this machine say."""
    found: list[KernelStatus] = []
    for path in islice(sorted(kernels_dir(data_dir(env)).glob("*/kernel.json")), KERNELS_MAX):
        record = read_record(data_dir(env), path.parent.name)
        if record is not None and record.state == "hibernated":
            pid = record.router_pid if router_lives(record) else None
            found.append(
                KernelStatus(
                    record.kernel_id,
                    "hibernated",
                    router_pid=pid,
                    cwd=record.cwd,
                    began=record.began,
                    rested=record.updated,
                    state_bytes=record.state_bytes,
                )
            )
    return found


def _ask_all(addresses: Sequence[AgentAddress], timeout_s: float) -> list[StatusDocument]:
    deadline = time.monotonic() + timeout_s
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    sockets: list[zmq.Socket[bytes]] = []
    try:
        for address in addresses:
            sockets.append(_hello(context, address))
        return [
            _await_answer(socket, address, deadline)
            for socket, address in zip(sockets, addresses, strict=True)
        ]
    finally:
        for socket in sockets:
            socket.close(linger=0)
        context.term()


def _hello(context: zmq.Context[zmq.Socket[bytes]], address: AgentAddress) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    connect(socket, address.endpoint)
    digest = hashlib.sha256(b"").hexdigest()
    pid = 0 if address.far else os.getpid()
    hello = RouterHello(token=address.token, kernel_id=KernelId(""), key_digest=digest, pid=pid)
    socket.send(encode(hello))
    socket.send(encode(StatusQuery(request=1)))
    return socket


def _await_answer(socket: zmq.Socket[bytes], address: AgentAddress, deadline: float) -> StatusDocument:
    for _ in range(MESSAGES_MAX):
        # What came while another agent was waited for is there, also when the time is over.
        if not socket.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            break
        message: object = None
        with contextlib.suppress(*UNREADABLE):
            message = _decoder.decode(socket.recv_multipart()[-1])
        if isinstance(message, StatusAnswer):
            try:
                return read_document(message.document)
            except UNREADABLE:
                return _absent(address, "answers in an unknown form")
        if isinstance(message, AgentRefuses):
            return _absent(address, f"refuses: {message.why}")
    return _absent(address, NO_ANSWER)


def _absent(address: AgentAddress, state: str) -> StatusDocument:
    return StatusDocument(hosts=(HostStatus(name=address.name, state=state),))
