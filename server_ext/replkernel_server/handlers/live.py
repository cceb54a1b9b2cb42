"""/replkernel/api/live: GET answers with a snapshot; …/live/channel is a WebSocket: a snapshot, then changes.

Law: whoever may look at kernels may look here, nobody else; neither counts as activity of a kernel or of the
server. A page sends nothing; what it sends all the same ends its connection.
"""

from __future__ import annotations

import asyncio

import msgspec
from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from replkernel_server.live.documents import Message
from replkernel_server.live.feed import Feed

RESOURCE = "kernels"
UNSENT_BYTES_MAX = 1024 * 1024
"""With so much unread, a page is told nothing more until it has read."""
RECEIVED_BYTES_MAX = 1024


class LiveHandler(ExtensionHandlerMixin, APIHandler):
    """The snapshot."""

    auth_resource = RESOURCE
    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with everything."""
        feed: Feed = self.settings["replkernel_feed"]
        document = msgspec.json.encode(await feed.snapshot())
        self.set_header("Cache-Control", "no-store")
        self.finish(document)


class LiveChannelHandler(ExtensionHandlerMixin, WebSocketMixin, WebSocketHandler, JupyterHandler):
    """One page's connection."""

    auth_resource = RESOURCE
    max_message_size = RECEIVED_BYTES_MAX

    @ws_authenticated
    async def get(self, *args: object, **kwargs: object) -> None:
        """Let in who may look at kernels."""
        user = self.current_user
        allowed = await ensure_async(self.authorizer.is_authorized(self, user, "read", RESOURCE))
        if not allowed:
            raise web.HTTPError(403)
        await super().get(*args, **kwargs)

    @property
    def feed(self) -> Feed:
        """Return what is told."""
        feed: Feed = self.settings["replkernel_feed"]
        return feed

    def open(self, *_args: object, **_kwargs: object) -> None:
        """Begin to listen."""
        super().open()
        self._unsent = 0
        if not self.feed.add(self):
            self.close(1013, "too many pages listen")

    @property
    def ready(self) -> bool:
        """Tell whether what was sent has been read, but for a bearable rest."""
        return self._unsent < UNSENT_BYTES_MAX

    def tell(self, message: Message) -> None:
        """Send a message."""
        data = msgspec.json.encode(message)
        try:
            sent = self.write_message(data)
        except WebSocketClosedError:
            return
        self._unsent += len(data)
        sent.add_done_callback(lambda done: self._is_sent(done, len(data)))

    def _is_sent(self, done: asyncio.Future[None], size: int) -> None:
        self._unsent -= size
        if not done.cancelled():
            done.exception()  # a connection that is over: on_close tells

    def on_message(self, _message: str | bytes) -> None:
        """Take nothing."""
        self.close(1008, "a page only listens")

    def on_close(self) -> None:
        """Listen no more."""
        self.feed.remove(self)
        super().on_close()
