"""Asks the host agents of this user for their status, for the command line and the server extension.

It starts nothing: an agent that is not there is left out, one that does not answer in time is reported.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Mapping, Sequence

import msgspec
import zmq

from replkernel.agent.lookup import AgentAddress, find_agent
from replkernel.protocol import (
    AgentRefuses,
    AgentToRouter,
    RouterHello,
    StatusAnswer,
    StatusQuery,
    decoder,
    encode,
)
from replkernel.records import KernelId
from replkernel.settings import data_dir
from replkernel.status import HostStatus, StatusDocument, merge, read_document

AGENTS_MAX = 1024
"""No more agents than this are asked."""

_decoder = decoder(AgentToRouter)


def agent_names(env: Mapping[str, str]) -> list[str]:
    """Return the names of the hosts that have an agent's file here, alive or not."""
    directory = data_dir(env) / "agents"
    found = sorted(path.parent.name for path in directory.glob("*/agent.json"))
    return found[:AGENTS_MAX]


def live_agents(env: Mapping[str, str]) -> list[AgentAddress]:
    """Return the addresses of the agents that listen."""
    addresses = [find_agent(name, env) for name in agent_names(env)]
    return [address for address in addresses if address is not None]


def ask_agents(env: Mapping[str, str], timeout_s: float = 2.0) -> StatusDocument:
    """Return the merged status of all live agents; one that is late appears as a host `not answering`."""
    return merge(_ask_all(live_agents(env), timeout_s))


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
    socket.connect(address.endpoint)
    digest = hashlib.sha256(b"").hexdigest()
    hello = RouterHello(token=address.token, kernel_id=KernelId(""), key_digest=digest, pid=os.getpid())
    socket.send(encode(hello))
    socket.send(encode(StatusQuery(request=1)))
    return socket


def _await_answer(socket: zmq.Socket[bytes], address: AgentAddress, deadline: float) -> StatusDocument:
    while True:
        left_ms = int((deadline - time.monotonic()) * 1000)
        if left_ms <= 0 or not socket.poll(left_ms):
            return _absent(address, "not answering")
        message: object = None
        with contextlib.suppress(msgspec.MsgspecError):
            message = _decoder.decode(socket.recv_multipart()[-1])
        if isinstance(message, StatusAnswer):
            try:
                return read_document(message.document)
            except msgspec.MsgspecError:
                return _absent(address, "answers in an unknown form")
        if isinstance(message, AgentRefuses):
            return _absent(address, f"refuses: {message.why}")


def _absent(address: AgentAddress, state: str) -> StatusDocument:
    return StatusDocument(hosts=(HostStatus(name=address.name, state=state),))
