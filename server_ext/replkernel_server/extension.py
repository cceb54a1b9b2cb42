"""The Jupyter Server extension `replkernel`: replicated kernels outlive the server, and show their status.

Kernels are started, stopped and run through Jupyter's own API and managers, which stay as they are; sessions
are back before the first page is answered. Every handler authenticates and authorises.
"""

from __future__ import annotations

import asyncio
import os

from jupyter_server.extension.application import ExtensionApp
from tornado.ioloop import IOLoop
from traitlets import Bool, Float
from traitlets.config import Config

from replkernel.leasing.finding import URL as SCHEDULER_URL
from replkernel.leasing.finding import tell_hub_token
from replkernel.settings import data_dir
from replkernel_server import shared_cells
from replkernel_server.culling import Culling
from replkernel_server.handlers.carrying import ForksHandler, StateHandler
from replkernel_server.handlers.kernel_routes import ADDRESSES
from replkernel_server.handlers.live import LiveChannelHandler, LiveHandler
from replkernel_server.handlers.past import PastHandler
from replkernel_server.handlers.resting import RestingKernelHandler
from replkernel_server.handlers.scheduler_routes import pattern
from replkernel_server.handlers.status import StatusHandler
from replkernel_server.live.feed import Feed
from replkernel_server.scheduling.server_hosting import ServerHosting
from replkernel_server.sessions import Sessions
from replkernel_server.zmq_sockets import allow_sockets

PROVISIONER = "ReplkernelProvisioner"
"""The name of the provisioner's section in configuration files."""


class ReplkernelExtension(ExtensionApp):
    """Serves `/replkernel/api/…`; configured in `jupyter_replkernel_config.py`."""

    name = "replkernel"
    extension_url = "/replkernel"
    load_other_extensions = True
    description = "Status of replicated kernels over HTTP."

    status_timeout_s: Float[float, float] = Float(
        2.0,
        min=0.1,
        max=60.0,
        config=True,
        help="How many seconds a status request waits for the answers of the host agents.",
    )

    keep_kernels: Bool[bool, bool | int] = Bool(
        True,
        config=True,
        help="""Whether replicated kernels live on when the server stops and come back, with their sessions,
        when it is started again; an idle kernel that the server would cull is hibernated then.""",
    )

    scheduler: Bool[bool, bool | int] = Bool(
        True,
        config=True,
        help="""Whether this server hosts the GPU scheduler of its user, on a loopback port of its own; not if
        REPLKERNEL_SCHEDULER_URL names one, or another server or `replkernel scheduler` hosts it already.""",
    )

    _sessions: Sessions | None = None
    _hosting: ServerHosting | None = None
    _feed: Feed | None = None
    _restoring: asyncio.Task[None] | None = None

    def initialize(self) -> None:  # type: ignore[override]
        """Set the extension up; restore the sessions before the server answers anybody."""
        super().initialize()  # type: ignore[no-untyped-call]
        try:
            tell_hub_token(os.environ)
        except OSError as error:
            self.log.warning("Kernels cannot be told this server's token (%s): GPU cells may wait.", error)
        app = self.serverapp
        gateway = app is not None and app.gateway_config.gateway_enabled
        if app is not None and not gateway:
            shared_cells.install(app)
        if self.scheduler and not gateway and not os.environ.get(SCHEDULER_URL, "").strip():
            self._hosting = ServerHosting(os.environ, self.log)
            IOLoop.current().add_callback(self._hosting.start)
        if not self.keep_kernels or app is None or app.gateway_config.gateway_enabled:
            return
        directory = data_dir(os.environ)
        self._sessions = Sessions(app, directory)
        Culling(app.kernel_manager, directory).install()
        try:
            self._restoring = asyncio.get_running_loop().create_task(self._sessions.restore())
        except RuntimeError:
            IOLoop.current().run_sync(self._sessions.restore)

    async def stop_extension(self) -> None:
        """Leave the replicated kernels to the next server, and the scheduler to whoever hosts it next."""
        if self._feed is not None:
            await self._feed.close()
        if self._hosting is not None:
            await self._hosting.close()
        if self._sessions is None:
            return
        if self._restoring is not None:
            await self._restoring
        left = await self._sessions.leave()
        if left:
            self.log.info(
                "%d replicated kernel(s) live on; the next start of this server finds them again. "
                "`replkernel agent stop` ends them.",
                left,
            )

    def initialize_settings(self) -> None:
        """Hand the traits' values to the handlers, and the provisioner's configuration to the kernel manager.

        Kernels are made by the server's kernel manager, which reads the server's configuration, not ours:
        without this, `c.ReplkernelProvisioner.…` in our own file would be ignored.
        """
        self.settings["replkernel_status_timeout_s"] = self.status_timeout_s
        if self.serverapp is not None:
            self._feed = Feed(self.serverapp.kernel_manager, os.environ, self.status_timeout_s)
            self.settings["replkernel_feed"] = self._feed
            allow_sockets(self.serverapp.kernel_manager)
        section = Config({PROVISIONER: self.config[PROVISIONER]}) if PROVISIONER in self.config else None
        if section is not None and self.serverapp is not None:
            self.serverapp.kernel_manager.update_config(section)

    def initialize_handlers(self) -> None:
        """List the handlers."""
        self.handlers += [
            (r"/replkernel/api/status", StatusHandler),
            (r"/replkernel/api/live", LiveHandler),
            (r"/replkernel/api/live/channel", LiveChannelHandler),
            (r"/replkernel/api/past", PastHandler),
            (r"/replkernel/api/kernels/([A-Za-z0-9._-]{1,128})", RestingKernelHandler),
            (r"/replkernel/api/kernels/([A-Za-z0-9._-]{1,128})/forks", ForksHandler),
            (r"/replkernel/api/kernels/([A-Za-z0-9._-]{1,128})/state", StateHandler),
            *((pattern(address), handler) for address, handler in ADDRESSES.items()),
        ]
