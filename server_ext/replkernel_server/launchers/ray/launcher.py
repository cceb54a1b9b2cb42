"""The launcher of Ray clusters, as the scheduler's service sees it: a process that speaks to Ray, kept alive.

Law: it never imports ray, and ends no agent when it closes. A process that ends is started again; what was
ordered of it has failed then, and is ordered anew by whoever needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
from collections.abc import Mapping

import msgspec

from replkernel.launch.module_command import module_command
from replkernel_server.errors import ServiceSettingError
from replkernel_server.launchers.installed import refuse_unknown, whole
from replkernel_server.launchers.protocol import (
    HOSTS_ASKED_MAX,
    Capabilities,
    LauncherFailed,
    Tell,
    Word,
)
from replkernel_server.launchers.ray.names import PREFIX
from replkernel_server.launchers.ray.words import (
    LINE_BYTES_MAX,
    Connected,
    Done,
    FromProcess,
    GiveBack,
    LeaveOne,
    Order,
    RayOptions,
    StartAgent,
    StopAgent,
    TakeOne,
    WantHosts,
)

log = logging.getLogger("replkernel.scheduler")
PROCESS = "replkernel_server.launchers.ray.process"
OPEN_S = 60.0
ORDER_S = 120.0
AGAIN_S, AGAIN_S_MAX = 1.0, 30.0
GPUS_MAX = 64
OPTIONS = ("address", "labels", "pretend", "bind", "gpus", "most", "scale")
PASSED = ("REPLKERNEL_SCHEDULER_URL", "REPLKERNEL_PORTS", "REPLKERNEL_HOST_LOST_S")
"""Settings of the scheduler's own environment that agents on Ray's nodes get as well; none is a secret."""


def make(options: Mapping[str, str]) -> RayLauncher:
    """Make it; raises ServiceSettingError for what cannot be used."""
    refuse_unknown("ray", options, OPTIONS)
    if importlib.util.find_spec("ray") is None:
        raise ServiceSettingError("The launcher ray needs Ray: run pip install 'replkernel[ray]'.")
    for name in ("pretend", "bind", "scale"):
        if options.get(name, "yes") not in ("yes", "no"):
            raise ServiceSettingError(
                f"The launcher ray wants yes or no for {name}: write --launcher-option {name}=no."
            )
    read = RayOptions(
        address=options.get("address", "auto"),
        labels=_labels(options.get("labels", "")),
        pretend=options.get("pretend", "no") == "yes",
        bind=options.get("bind", "yes") == "yes",
        gpus=whole("ray", options, "gpus", 8, GPUS_MAX),
        scale=options.get("scale", "no") == "yes",
    )
    most = whole("ray", options, "most", 48, HOSTS_ASKED_MAX)
    return RayLauncher(read, hosts_max=most)


def _labels(text: str) -> dict[str, str]:
    pairs = [part.partition(":") for part in text.split(",") if part.strip()]
    if any(not name.strip() or not value.strip() for name, _, value in pairs):
        raise ServiceSettingError(
            f"The launcher ray cannot read the labels {text!r}: write "
            "--launcher-option labels=ray.io/accelerator-type:H100,zone:a."
        )
    return {name.strip(): value.strip() for name, _, value in pairs}


class RayLauncher:
    """One Ray cluster."""

    def __init__(self, options: RayOptions, *, hosts_max: int = 48) -> None:
        """Use the cluster as `options` say."""
        self.capabilities = Capabilities(
            scales=options.scale,
            counts_gpus=True,
            tells_waiting=True,
            host_gpus=options.gpus,
            hosts_max=hosts_max,
            host_prefix=PREFIX,
        )
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._connected = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[str | None]] = {}
        self._numbers = 0
        self._task: asyncio.Task[None] | None = None
        self._tell: Tell | None = None

    async def open(self, tell: Tell) -> None:
        """Connect to the cluster."""
        self._tell = tell
        self._task = asyncio.create_task(self._run())
        connected = asyncio.create_task(self._connected.wait())
        done, _ = await asyncio.wait({connected}, timeout=OPEN_S)
        if not done:
            connected.cancel()
            await self.close()
            raise LauncherFailed(
                f"No Ray cluster answers at {self._options.address}: start it (`ray start --head`), or name "
                "it with --launcher-option address=HOST:PORT."
            )

    async def close(self) -> None:
        """End the process; agents and what is counted stay."""
        self._tell = None
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        self._connected.clear()

    async def start_agent(self, host: str) -> None:
        """Have the node's actor run, and wait until the agent listens."""
        await self._order(StartAgent(self._next(), host))

    async def stop_agent(self, host: str) -> None:
        """End the actor with its agent."""
        await self._order(StopAgent(self._next(), host))

    async def ask_hosts(self, more: int) -> None:
        """Ask Ray's autoscaler."""
        if not self.capabilities.scales:
            raise LauncherFailed(
                "This Ray cluster has no autoscaler: set --launcher-option scale=yes if it has."
            )
        if more > HOSTS_ASKED_MAX:
            raise LauncherFailed(f"At most {HOSTS_ASKED_MAX} hosts can be asked for at once.")
        await self._order(WantHosts(self._next(), more))

    async def give_back(self, host: str) -> None:
        """End the agent, and let Ray's autoscaler have the node."""
        await self._order(GiveBack(self._next(), host))

    async def take_gpu(self, host: str, gpu: str) -> str | None:
        """Have Ray reserve a GPU on the node; return which."""
        return await self._order(TakeOne(self._next(), host, gpu))

    async def leave_gpu(self, host: str, gpu: str) -> None:
        """Have Ray free it."""
        await self._order(LeaveOne(self._next(), host, gpu))

    # -- the process ---------------------------------------------------------------------------------

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    async def _order(self, order: Order) -> str | None:
        process = self._process
        if process is None or process.stdin is None or not self._connected.is_set():
            raise LauncherFailed("Ray cannot be reached at the moment.")
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[order.number] = answer
        try:
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            await process.stdin.drain()
            async with asyncio.timeout(ORDER_S):
                return await answer
        except (OSError, TimeoutError) as error:
            raise LauncherFailed(f"Ray does not answer ({error!r}).") from error
        finally:
            self._waiting.pop(order.number, None)

    async def _run(self) -> None:
        pause_s = AGAIN_S
        while True:
            try:
                await self._one_process()
            except OSError as error:
                log.warning("The process that speaks to Ray cannot be started: %s.", error)
            pause_s = AGAIN_S if self._connected.is_set() else min(AGAIN_S_MAX, 2 * pause_s)
            self._connected.clear()
            log.warning("Ray is not connected; it is tried again in %g s.", pause_s)
            await asyncio.sleep(pause_s)

    async def _one_process(self) -> None:
        process = self._process = await asyncio.create_subprocess_exec(
            *module_command(PROCESS),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        assert process.stdin is not None and process.stdout is not None
        decoder = msgspec.json.Decoder(FromProcess)
        try:
            settings = {name: os.environ[name] for name in PASSED if name in os.environ}
            options = msgspec.structs.replace(self._options, settings=settings)
            process.stdin.write(msgspec.json.encode(options) + b"\n")
            while line := await process.stdout.readline():
                self._heard(decoder.decode(line))
        finally:
            self._process = None
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(LauncherFailed("Ray's connection was lost."))
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _heard(self, word: FromProcess) -> None:
        match word:
            case Connected():
                self._connected.set()
            case Done(number, value, why):
                answer = self._waiting.get(number)
                if answer is not None and not answer.done():
                    if why:
                        answer.set_exception(LauncherFailed(why))
                    else:
                        answer.set_result(value)
            case _:
                self._pass_on(word)

    def _pass_on(self, word: Word) -> None:
        if self._tell is not None:
            self._tell(word)
