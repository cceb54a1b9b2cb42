"""Each Hub user's own agents on the hosts with GPUs, started before his server, by one command a host.

The Hub runs a command that an administrator gives, once for each host; the command starts the agent of one
Unix user, as that user, unless it is there. Law: a name that could mean something to a shell reaches no
command; an agent that cannot be started is reported and keeps nobody from his server.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import re
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from replkernel.agent.io.death import last_line
from replkernel_server.errors import ServerError

log = logging.getLogger("replkernel.hub")

START_S = 60.0
SAID_BYTES_MAX = 4096
SAID_CHARS = 300
LOCAL = ("replkernel", "agent", "--as", "{user}", "--name", "{host}")
"""The command where the Hub itself runs as root on the only host."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_WORDS = re.compile(r"\{(\w*)\}")


class AgentsConfigError(ServerError):
    """The command, the hosts or the users' template make no sense."""


class UserAgents:
    """A `pre_spawn_hook`: starts the user's agent on each host, and then does what `before` did."""

    def __init__(
        self,
        hosts: Sequence[str],
        command: Sequence[str] = LOCAL,
        user: str = "{username}",
        before: Callable[[Any], Awaitable[None] | None] | None = None,
        start_s: float = START_S,
    ) -> None:
        """`command` has `{user}` and `{host}` in it; `user` makes a Unix user of a Hub's `{username}`.

        Raises AgentsConfigError.
        """
        self.hosts, self.command, self.user = tuple(hosts), tuple(command), user
        self.before, self._start_s = before, start_s
        words = {word for part in self.command for word in _WORDS.findall(part)}
        if words != {"user", "host"} and not (words == {"user"} and len(self.hosts) == 1):
            raise AgentsConfigError(
                f"agents_command={list(self.command)} must name {{user}} and {{host}} and nothing else in "
                f"braces, as in {list(LOCAL)}."
            )
        if _WORDS.findall(user) != ["username"]:
            raise AgentsConfigError(
                f"agents_user={user!r} must have {{username}} in it, as in 'jupyter-{{username}}'."
            )
        for host in self.hosts:
            if not _NAME.fullmatch(host):
                raise AgentsConfigError(f"{host!r} in agents_on is no host's name.")

    def same(self, other: object) -> bool:
        """Say whether this is what another one does."""
        return isinstance(other, UserAgents) and (self.hosts, self.command, self.user) == (
            other.hosts,
            other.command,
            other.user,
        )

    async def __call__(self, spawner: Any) -> None:
        """Start the agents of the user whose server begins."""
        if self.before is not None:
            done = self.before(spawner)
            if inspect.isawaitable(done):
                await done
        for why in await self.start(str(spawner.user.name)):
            log.warning("%s", why)

    async def start(self, username: str) -> list[str]:
        """Start a user's agents; return a sentence for each that could not be."""
        user = self.user.replace("{username}", username)
        if not _NAME.fullmatch(user):
            return [f"No agent is started for {username!r}: {user!r} is not the name of a Unix user."]
        outcomes = await asyncio.gather(*(self._start(user, host) for host in self.hosts))
        return [why for why in outcomes if why]

    async def _start(self, user: str, host: str) -> str:
        command = [part.replace("{user}", user).replace("{host}", host) for part in self.command]
        failed = f"The agent of {user} on host {host} was not started: "
        try:
            program = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"{failed}{command[0]} cannot be run ({error.strerror})."
        said, late = b"", False
        try:
            async with asyncio.timeout(self._start_s):
                assert program.stdout is not None
                while data := await program.stdout.read(SAID_BYTES_MAX):
                    said = (said + data)[-SAID_BYTES_MAX:]
                await program.wait()
        except TimeoutError:
            late = True
        finally:
            if program.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
                await program.wait()
        if late:
            return f"{failed}{command[0]} did not end within {self._start_s:g} s."
        if program.returncode == 0:
            return ""
        last = last_line(said, SAID_CHARS) or "nothing"
        return f"{failed}{command[0]} ended with {program.returncode} and said: {last}"
