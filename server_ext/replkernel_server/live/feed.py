"""Gathers what pages are told while any of them listens, and sends each the changes.

Law: without listeners nothing is asked and no connection is open. A turn every TURN_S is all there is, so
nobody is told of one kernel more often than that. A listener that does not read is sent nothing more until it
has, then everything anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from traitlets import TraitError
from zmq import ZMQError

from replkernel.client.inquiry import ask_agents
from replkernel.leasing.standing import Asker, join
from replkernel.protocol.progress import ProgressAnswer
from replkernel.protocol.status import StatusDocument
from replkernel_server.live.account import ask_account
from replkernel_server.live.documents import KERNELS_MAX, Account, Message, Snapshot
from replkernel_server.live.jobs import ask_jobs, jobs_of
from replkernel_server.live.kernel_line import KernelLine
from replkernel_server.live.state import LiveState
from replkernel_server.sessions import replicated

if TYPE_CHECKING:
    from jupyter_client.manager import KernelManager
    from jupyter_server.services.kernels.kernelmanager import MappingKernelManager


log = logging.getLogger("replkernel.server")

TURN_S = 0.2
CALM_S = 2.0
"""How often a kernel that does nothing is asked."""
AGENTS_S = 2.0
SOON_S = 0.3
"""After a kernel changed what it holds, the scheduler knows; it is asked again after this."""
ACCOUNT_S = 10.0
BEAT_S = 8.0
"""When nothing has changed for so long, that is told: a page that hears nothing says it has no connection."""
LISTENERS_MAX = 1_000
FRESH_S = 1.0
"""A snapshot that was gathered for nobody in particular is given to others for so long."""
GATHER_S_MAX = 3.0
LOOK_S = 0.02


def _activity_of(manager: Any) -> object:
    """Return when a kernel was last active; None for one whose start failed, whose manager cannot say."""
    try:
        return manager.last_activity
    except (AttributeError, TraitError):
        return None


class Listener(Protocol):
    """Who is told."""

    @property
    def ready(self) -> bool:
        """Tell whether it has read."""
        ...

    def tell(self, message: Message) -> None:
        """Send a message."""
        ...


class Feed:
    """The live state of what this server's user has."""

    def __init__(self, kernels: MappingKernelManager, env: Mapping[str, str], timeout_s: float) -> None:
        """Tell of the kernels of a kernel manager; nothing happens yet."""
        self._kernels = kernels
        self._env = dict(env)
        self._timeout_s, self._scheduler = timeout_s, Asker(self._env)
        self._state = LiveState()
        self._lines: dict[str, KernelLine] = {}
        self._listeners: dict[Listener, bool] = {}
        """Whether each has everything up to now."""
        self._turning: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._gathering: asyncio.Task[None] | None = None
        self._agents_at = self._account_at = self._fresh_at = float("-inf")
        self._ask_again_at = float("inf")
        self._told_at = float("-inf")

    @property
    def listeners(self) -> int:
        """Return how many listen."""
        return len(self._listeners)

    def add(self, listener: Listener) -> bool:
        """Tell somebody from now on; False if too many listen already."""
        if len(self._listeners) >= LISTENERS_MAX:
            return False
        self._listeners[listener] = False
        if self._turning is None:
            self._turning = asyncio.get_running_loop().create_task(self._turn_on())
        elif self._agents_at > float("-inf"):
            self._tell(listener, self._state.snapshot(time.time()))
        return True

    def remove(self, listener: Listener) -> None:
        """Tell somebody nothing more."""
        self._listeners.pop(listener, None)

    async def snapshot(self) -> Snapshot:
        """Return everything, gathered now unless it is young; who comes meanwhile waits for that too."""
        unknown = self._agents_at == float("-inf")
        old = unknown if self._turning is not None else time.monotonic() > self._fresh_at + FRESH_S
        if old and self._gathering is None:
            self._fresh_at = time.monotonic()
            self._gathering = asyncio.get_running_loop().create_task(self._gather_once())
        if self._gathering is not None:
            await asyncio.shield(self._gathering)
        return self._state.snapshot(time.time())

    async def close(self) -> None:
        """End everything."""
        self._listeners.clear()
        tasks = [task for task in (self._turning, self._asking, self._gathering) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._rest()

    # -- turns ------------------------------------------------------------------------------------------

    async def _turn_on(self) -> None:
        try:
            while self._listeners:
                try:
                    self.turn()
                except Exception:
                    log.exception("What pages are shown of replicated kernels could not be gathered.")
                await asyncio.sleep(TURN_S)
        finally:
            self._turning = None
            self._rest()

    def turn(self) -> None:
        """Ask who is due, tell who listens."""
        now = time.monotonic()
        self._ask_kernels(now)
        if self._asking is None and now >= min(self._agents_at + AGENTS_S, self._ask_again_at):
            self._ask_again_at = float("inf")
            self._asking = asyncio.get_running_loop().create_task(self._ask_others())
        if self._agents_at == float("-inf"):
            return  # Nothing is known yet: a page would take it for nothing.
        changes = self._state.flush(time.time())
        if changes is None and now >= self._told_at + BEAT_S:
            changes = self._state.beat(time.time())
        if changes is not None:
            self._told_at = now
        for listener, current in list(self._listeners.items()):
            if not listener.ready:
                self._listeners[listener] = False
            elif not current:
                self._tell(listener, self._state.snapshot(time.time()))
            elif changes is not None:
                self._tell(listener, changes)

    def _tell(self, listener: Listener, message: Message) -> None:
        self._listeners[listener] = True
        listener.tell(message)

    async def _gather_once(self) -> None:
        """Ask everybody once, for a page that asks from time to time."""
        try:
            self._ask_kernels(time.monotonic())
            await self._ask_others()
            for _ in range(round(GATHER_S_MAX / LOOK_S)):
                if not any(line.waits for line in self._lines.values()):
                    break
                await asyncio.sleep(LOOK_S)
            if self._turning is None:  # Else what has changed is told to who listens.
                self._state.flush(time.time())
                self._rest()
        finally:
            self._gathering = None

    def _rest(self) -> None:
        """Let go of every connection."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()
        self._scheduler.forget()
        self._agents_at = self._account_at = float("-inf")

    # -- whom is asked ----------------------------------------------------------------------------------

    def _served(self) -> dict[str, Any]:
        """Return the managers of this server's replicated kernels that have started."""
        found = {}
        for kernel_id in list(self._kernels.list_kernel_ids())[:KERNELS_MAX]:
            manager = self._kernels.get_kernel(kernel_id)
            if replicated(manager) and manager.control_port:
                found[str(kernel_id)] = manager
        return found

    def _ask_kernels(self, now: float) -> None:
        served = self._served()
        for kernel_id in [kernel_id for kernel_id in self._lines if kernel_id not in served]:
            self._lines.pop(kernel_id).close()
        for kernel_id, manager in served.items():
            try:
                self._ask_kernel(kernel_id, manager, now)
            except (ZMQError, OSError) as error:  # It goes without; others go on.
                self._state.kernel_silent(kernel_id)
                log.debug("Kernel %s cannot be asked: %s", kernel_id, error)

    def _ask_kernel(self, kernel_id: str, manager: Any, now: float) -> None:
        line = self._line(kernel_id, manager)
        if line.silent:
            self._state.kernel_silent(kernel_id)
        active = self._state.unsettled(kernel_id) or manager.execution_state == "busy"
        activity = _activity_of(manager)
        due = active or activity != line.activity or now >= line.asked_at + CALM_S
        if due and not line.waits:
            line.activity = activity
            line.ask(self._state.version_of(kernel_id))

    def _line(self, kernel_id: str, manager: KernelManager) -> KernelLine:
        line = self._lines.get(kernel_id)
        if line is not None and line.port == manager.control_port:
            return line
        if line is not None:
            line.close()

        def hear(answer: ProgressAnswer) -> None:
            if self._state.kernel_told(kernel_id, answer, time.time()):
                self._ask_again_at = time.monotonic() + SOON_S

        line = self._lines[kernel_id] = KernelLine(manager, hear)
        return line

    async def _ask_others(self) -> None:
        """Ask the agents, and the scheduler wherever it is."""
        try:
            document = await asyncio.to_thread(self._document)
            refused = document.scheduler is not None and document.scheduler.refused
            account: Account | None = None
            due = time.monotonic() >= self._account_at + ACCOUNT_S or self._state.has_ended(document)
            if due and not refused:
                account = await asyncio.to_thread(ask_account, self._env)
                self._account_at = time.monotonic()
            # At once, so that no GPU-hour is missing in between, or is there twice.
            self._state.agents_told(document, self._served(), time.time())
            self._state.account_told(account)
            self._agents_at = time.monotonic()
            if not refused:
                answers = await asyncio.to_thread(ask_jobs, self._env)
                if answers is not None:
                    self._state.jobs_told(jobs_of(answers, self._state.jobs, time.time(), self._env))
        except Exception:
            log.exception("The agents of replicated kernels could not be asked.")
            self._agents_at = time.monotonic()
        finally:
            self._asking = None

    def _document(self) -> StatusDocument:
        return join(ask_agents(self._env, self._timeout_s), *self._scheduler.ask())
