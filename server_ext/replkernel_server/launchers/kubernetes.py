"""The launcher of a Kubernetes cluster: a pod on each GPU node that owns its GPUs, agents of users beside it.

Laws: it decides nothing (`kubernetes_hosts.py` does), and asks an API server that is away again at its next
turn; a pod that is refused keeps no other from being made; pods stay when it is closed, for the next one
finds them by their labels. It lists, makes and deletes pods of one namespace, and needs nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Mapping

from replkernel_server.errors import ServerError
from replkernel_server.launchers.kubernetes_api import KubernetesApi, NotAdmitted, Refused
from replkernel_server.launchers.kubernetes_hosts import KubernetesHosts
from replkernel_server.launchers.kubernetes_pods import KubernetesOptions, holder, read_options, read_pod
from replkernel_server.launchers.protocol import Capabilities, LauncherFailed, Tell, Word

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""How often pods are listed: an eviction is to be noticed well before its grace is over."""
LOOK_SOON_S = 0.5
STARTS_S_MAX = 120.0
ENDS_S_MAX = 60.0
ENDS_GRACE_S = 1
"""What is given back keeps nothing: its pod need not wait."""


def make(options: Mapping[str, str]) -> KubernetesLauncher:
    """Make it of `file=PATH`, as the Helm chart writes it, or of single options."""
    return KubernetesLauncher(read_options(options))


class KubernetesLauncher:
    """The pods of one release in one namespace."""

    def __init__(self, options: KubernetesOptions) -> None:
        """Make it; nothing is asked of Kubernetes before `open`."""
        self.capabilities = Capabilities(
            scales=True, host_gpus=options.gpus, hosts_max=options.most, host_prefix=options.host_prefix
        )
        self._options = options
        self._api = KubernetesApi(options.namespace, options.api)
        self._hosts = KubernetesHosts(options)
        self._tell: Tell | None = None
        self._task: asyncio.Task[None] | None = None
        self._poke = asyncio.Event()
        self._turn = asyncio.Lock()
        self._said = ""

    async def open(self, tell: Tell) -> None:
        """Find the pods that are there, and ask for those that are to be."""
        await self._api.open()
        self._tell, self._hosts = tell, KubernetesHosts(self._options)
        try:
            refused = await self._look()
            if refused is not None and not isinstance(refused, NotAdmitted):  # A quota may have room later.
                raise refused
        except LauncherFailed:
            await self._api.close()
            raise
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop asking; pods stay."""
        self._tell = None
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._api.close()

    async def start_agent(self, host: str) -> None:
        """Wait until the agent of a holder listens; make a pod on the same node where that one is over."""
        if self._hosts.pod_of(host) is None:
            await self._start_again(host)
        deadline = asyncio.get_running_loop().time() + STARTS_S_MAX
        while not ((pod := self._hosts.pod_of(host)) and pod.ready):
            if asyncio.get_running_loop().time() > deadline:
                why = f": {pod.why}" if pod is not None and pod.why else ""
                raise LauncherFailed(f"The agent of {host} does not come up in its pod{why}.")
            self._poke.set()
            await asyncio.sleep(LOOK_SOON_S / 2)

    async def stop_agent(self, host: str) -> None:
        """Delete the pod, and with it the agent and its kernels."""
        await self.give_back(host)

    async def ask_hosts(self, more: int) -> None:
        """Have so many more holders wait for nodes, or none."""
        if more > self._hosts.room():
            most = len(self._hosts.hosts()) + more
            raise LauncherFailed(
                f"Kubernetes is asked for {self._options.most} hosts at most: write "
                f"--launcher-option most={most}, or launcher.most in the chart's values."
            )
        self._hosts.want(more)
        try:
            refused = await self._look()
            if refused is not None:
                raise refused
        except LauncherFailed:
            self._hosts.want(0)  # Whoever awaited them is told that they do not come.
            raise

    async def give_back(self, host: str) -> None:
        """Delete the holder: its GPUs are the cluster's again. Users' agents there end when they idle."""
        async with self._turn:  # Pods that were listed in between would show one that ends by itself.
            pod = self._hosts.pod_of(host)
            if pod is None:
                return
            await self._api.delete(pod.name, ENDS_GRACE_S)
            self._say(self._hosts.give_back(host))
        deadline = asyncio.get_running_loop().time() + ENDS_S_MAX
        while any(read_pod(it, 0.0).name == pod.name for it in await self._api.list(self._options.own)):
            if asyncio.get_running_loop().time() > deadline:
                raise LauncherFailed(f"The pod {pod.name} of host {host} does not end; its node may be lost.")
            await asyncio.sleep(LOOK_SOON_S / 2)

    async def take_gpu(self, host: str, gpu: str) -> str | None:
        """Return the same: Kubernetes counts a node's GPUs as its holder's."""
        return gpu

    async def leave_gpu(self, host: str, gpu: str) -> None:
        """Do nothing."""

    # -- turn by turn -------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SOON_S if self._hosts.awaits else LOOK_S):
                    await self._poke.wait()
            self._poke.clear()
            try:
                await self._look()
            except ServerError as error:
                self._log(str(error))
            except Exception:  # The next turn must come: nobody else would tell what becomes of hosts.
                log.exception("The launcher of Kubernetes failed in one turn.")
            await asyncio.sleep(LOOK_SOON_S / 4)

    async def _look(self) -> Refused | None:
        """Ask what is, tell what is new, have done what is to be; return why a holder is refused."""
        async with self._turn:
            now, wall = asyncio.get_running_loop().time(), time.time()
            pods = [read_pod(it, wall) for it in await self._api.list(self._options.own)]
            self._say(self._hosts.told(pods, now))
            users = self._options.users
            servers = await self._api.list(self._options.users_selector) if users else []
            todo = self._hosts.todo(servers, now)
            refused = [await _refusal(self._api.delete(name, ENDS_GRACE_S)) for name in todo.delete]
            refused += [await _refusal(self._api.create(agent)) for agent in todo.agents]
            no_holder = None
            for _ in range(todo.holders):
                no_holder = no_holder or await _refusal(self._submit())
            said = [str(refusal) for refusal in (*refused, no_holder) if refusal is not None]
            self._log(" ".join(dict.fromkeys(said)))
            return no_holder

    async def _submit(self, node: str = "") -> None:
        await self._api.create(holder(self._options, secrets.token_hex(4), node))
        self._poke.set()

    async def _start_again(self, host: str) -> None:
        if host not in self._hosts.ever:
            raise LauncherFailed(f"The launcher kubernetes has no host {host}: it has {self._hosts.hosts()}.")
        async with self._turn:
            self._hosts.again()
            await self._submit(host.removeprefix(self._options.host_prefix))

    def _say(self, words: list[Word]) -> None:
        for word in words:
            log.info("%s", word)
            if self._tell is not None:
                self._tell(word)

    def _log(self, what: str) -> None:
        if what and what != self._said:
            log.warning("%s", what)
        self._said = what


async def _refusal(work: Awaitable[None]) -> Refused | None:
    """Have something done; return why it is refused."""
    try:
        await work
    except Refused as refused:
        return refused
    return None
