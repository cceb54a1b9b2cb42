"""Ends a kernel at its hosts in the place of its router, which can no longer do it.

Law: an agent that does not answer in time is named, and never waited for any longer.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping

import zmq
import zmq.asyncio

from replkernel.agent.io.lookup import find_agent
from replkernel.errors import ReplkernelError, SettingError
from replkernel.hosts.far_sockets import connect
from replkernel.protocol.agent_to_router import AgentRefuses, AgentToRouter, KernelEnded
from replkernel.protocol.message import decoder, encode
from replkernel.protocol.router_to_agent import EndKernel, RouterHello
from replkernel.records import KernelId
from replkernel.settings import host_name, read_settings

END_LIMIT_S = 5.0
"""How long agents may take to confirm the end of a kernel."""


async def end_at_hosts(env: Mapping[str, str], kernel_id: str, key: bytes, reason: str) -> list[str]:
    """Tell the agents of a kernel with the settings `env` that it has ended; return who did not confirm."""
    try:
        hosts = list(dict.fromkeys(read_settings(env).hosts or (host_name(env),)))
    except SettingError:
        return []
    end = EndKernel(kernel_id=KernelId(kernel_id), reason=reason)
    digest = hashlib.sha256(key).hexdigest()
    confirmed = await asyncio.gather(*(_end_at(host, env, digest, end) for host in hosts))
    return [host for host, done in zip(hosts, confirmed, strict=True) if not done]


async def _end_at(host: str, env: Mapping[str, str], key_digest: str, end: EndKernel) -> bool:
    """Tell one host's agent, if it lives, and wait until it confirms; return whether it did."""
    try:
        address = find_agent(host, env)
    except ReplkernelError:
        return True
    if address is None:
        return True
    hello = RouterHello(
        token=address.token,
        kernel_id=end.kernel_id,
        key_digest=key_digest,
        pid=0 if address.far else os.getpid(),
    )
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as link:
        link.linger = 500
        connect(link, address.endpoint)
        await link.send(encode(hello))
        await link.send(encode(end))
        try:
            async with asyncio.timeout(END_LIMIT_S):
                await _until_ended(link)
        except TimeoutError:
            return False
    return True


async def _until_ended(link: zmq.asyncio.Socket) -> None:
    decode = decoder(AgentToRouter)
    while True:
        message = decode.decode(await link.recv())
        if isinstance(message, KernelEnded | AgentRefuses):
            return
