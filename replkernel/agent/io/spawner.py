"""The agent's zygotes, and the kernel processes that come out of them.

One zygote per python, import-relevant environment and preload set; where none can be had, a fresh
interpreter is started instead. Law: every birth is answered once (born or refused), every end told once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from replkernel.agent.io.death import Exit
from replkernel.agent.io.spawning_place import (
    Spawned,
    ZygoteKey,
    interpreter_environment,
    keep_users_limits,
    preload_names,
    spawn_zygote,
    zygote_key,
)
from replkernel.agent.io.watch import ProcessWatch
from replkernel.agent.io.zygote_link import SpawnListener, ZygoteLink
from replkernel.kernel.birth import Birth, encode_birth
from replkernel.launch.module_command import kernel_command

log = logging.getLogger(__name__)

ZYGOTES_MAX = 8
"""So many zygotes are kept; the one that has not been asked for longest gives way."""

BROKEN_FOR_S = 60.0
"""So long a zygote that could not start is not tried again: births use fresh interpreters meanwhile."""


class Spawner:
    """Makes kernel processes and tells how they end."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._zygotes: dict[ZygoteKey, ZygoteLink] = {}
        self._broken: dict[ZygoteKey, float] = {}
        self._watches: dict[int, ProcessWatch] = {}
        self._serial = 0

    def take_over(self, key: ZygoteKey, spawned: Spawned) -> None:
        """Use a zygote that was spawned before this object existed."""
        self._zygotes[key] = ZygoteLink(spawned, lambda why: self._on_gone(key, why), self.adopt)

    def bear(self, birth: Birth, listener: SpawnListener) -> None:
        """Have a kernel process made from `birth`; `listener` hears of it later, never inside this call."""
        spec = birth.spec
        key = zygote_key(spec.python, spec.env, preload_names(spec.env))
        if time.monotonic() < self._broken.get(key, 0.0):
            self._start_fresh(birth, listener)
            return
        zygote = self._zygotes.pop(key, None)
        if zygote is None:
            try:
                zygote = self._spawn(key, birth)
            except OSError as error:
                why = f"the interpreter {spec.python} cannot be started: {error}"
                asyncio.get_running_loop().call_soon(listener.refused, why)
                return
        self._zygotes[key] = zygote  # The last one in the dict is the one asked last.
        zygote.bear(encode_birth(birth), listener, lambda: self._start_fresh(birth, listener))

    def _spawn(self, key: ZygoteKey, birth: Birth) -> ZygoteLink:
        while len(self._zygotes) >= ZYGOTES_MAX:
            self._zygotes.pop(next(iter(self._zygotes))).close()
        self._serial += 1
        spawned = spawn_zygote(
            key.python, birth.spec.env, key.preload, str(self._logs / f"zygote-{self._serial}.log")
        )
        return ZygoteLink(spawned, lambda why: self._on_gone(key, why), self.adopt)

    def _on_gone(self, key: ZygoteKey, why: str) -> None:
        zygote = self._zygotes.pop(key, None)
        if zygote is not None and not zygote.was_ready:
            self._broken[key] = time.monotonic() + BROKEN_FOR_S
        log.warning("a zygote ended: %s", why)

    def _start_fresh(self, birth: Birth, listener: SpawnListener) -> None:
        """Start a kernel process by itself: slower, and without the zygote's shared memory."""
        loop = asyncio.get_running_loop()
        try:
            pid = _spawn_interpreter(birth)
        except OSError as error:
            why = f"the interpreter {birth.spec.python} cannot be started: {error}"
            loop.call_soon(listener.refused, why)
            return
        loop.call_soon(listener.born, pid)
        self.adopt(pid, listener.ended)

    def adopt(self, pid: int, ended: Callable[[Exit], None]) -> None:
        """Watch a process that no zygote of ours reports about."""

        def on_exit(end: Exit) -> None:
            self._watches.pop(pid, None)
            ended(end)

        self._watches[pid] = ProcessWatch(pid, on_exit)

    def close(self) -> None:
        """Let the zygotes end; kernel processes stay."""
        for zygote in self._zygotes.values():
            zygote.close()
        for watch in self._watches.values():
            watch.close()
        self._zygotes.clear()
        self._watches.clear()


def _spawn_interpreter(birth: Birth) -> int:
    """Start ``python -m replkernel.kernel`` in a session of its own, its birth on standard input."""
    stdin = os.memfd_create("birth", os.MFD_CLOEXEC)
    try:
        os.write(stdin, encode_birth(birth))
        os.lseek(stdin, 0, os.SEEK_SET)
        log_flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        pid = os.posix_spawnp(
            birth.spec.python,
            kernel_command("replkernel.kernel", python=birth.spec.python),
            interpreter_environment(birth.spec.env),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_OPEN, 1, birth.log_path, log_flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        keep_users_limits(pid)
        return pid
    finally:
        os.close(stdin)
