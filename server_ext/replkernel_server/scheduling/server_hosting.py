"""A scheduler in a Jupyter Server: in its process and on its loop, behind a loopback port of its own.

A port of its own, because kernels outlive the server and know neither its token nor its path or certificate:
whoever hosts next (another server, `replkernel scheduler`) is found at the same place with the same token.
Law: of a user's servers one hosts, the journal's lock says which; the others stand by. A server starts and
ends as without it: what is wrong here is said once in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from replkernel.leasing.finding import forget_address, last_url
from replkernel_server.errors import JournalAway, JournalInUse, ServerError, ServiceSettingError

IP = "127.0.0.1"
STANDBY_S = 5.0
"""How often a server that stands by looks whether nobody hosts any more."""
AGAIN_S = 60.0
"""The pause after a journal could not be opened or written."""


class ServerHosting:
    """Keeps a scheduler hosted, here or in another server of this user."""

    def __init__(self, env: Mapping[str, str], log: logging.Logger) -> None:
        """Host as `env` says; nothing happens yet."""
        self._env, self._log = dict(env), log
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def close(self) -> None:
        """End, and let another host."""
        self._closing.set()
        if self._task is not None:
            await self._task

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, importlib.import_module, "replkernel_server.service")
        except Exception:
            self._log.exception("No GPU scheduler is hosted here.")
            return
        said = ""
        while not self._closing.is_set():
            pause_s = STANDBY_S
            try:
                await self._host()
            except JournalInUse as error:
                self._log.debug("Another server of this user hosts the GPU scheduler: %s", error)
            except JournalAway as error:
                if str(error) != said:
                    self._log.warning("No GPU scheduler is hosted here for now: %s", error)
                said, pause_s = str(error), AGAIN_S
            except ServiceSettingError as error:
                self._log.warning("No GPU scheduler is hosted here: %s", error)
                return
            except ServerError as error:
                self._log.error("The GPU scheduler ended: %s", error)
                pause_s = AGAIN_S
            except Exception:
                self._log.exception("No GPU scheduler is hosted here.")
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._closing.wait()

    async def _host(self) -> None:
        """Host until we are closed; raise what ends it earlier."""
        from replkernel_server import service
        from replkernel_server.scheduling.hosting import Hosted
        from replkernel_server.scheduling.identity import one_token
        from replkernel_server.scheduling.settings import read_service_settings

        token = service.read_token(service.token_file(self._env))
        hosted = await Hosted.open(read_service_settings(self._env), one_token(token))
        try:
            sockets = self._bind()
            server = service.answering(hosted, sockets)
            url = f"http://{IP}:{sockets[0].getsockname()[1]}"
            service.say_where(url, token)
            self._log.info("The GPU scheduler of this user is hosted here, at %s.", url)
            await service.first_of(self._closing.wait(), hosted.failed.wait())
            forget_address(self._env)
            server.stop()
            await hosted.channel.close()
            await server.close_all_connections()
        finally:
            await hosted.close()
        if hosted.trouble is not None:
            raise ServerError(str(hosted.trouble))

    def _bind(self) -> list[socket.socket]:
        """Listen where the last scheduler of this user did, if that is free: its clients look there."""
        from replkernel_server.service import bind

        try:
            return bind(IP, urlsplit(last_url(self._env)).port or 0)
        except (ServiceSettingError, ValueError):
            return bind(IP, 0)
