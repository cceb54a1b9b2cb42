"""The agent's end of one zygote: births go out, forks and ends come in.

Law: when the zygote goes, births it has not answered are handed to their fallback, and its living children
to whoever watches orphans.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from replkernel.agent.io.death import Exit
from replkernel.agent.io.spawning_place import Spawned
from replkernel.agent.io.watch import ProcessWatch
from replkernel.agent.io.zygote_wire import (
    ForkKernel,
    ForkRefused,
    FrameReader,
    KernelExited,
    KernelForked,
    ZygoteReady,
    ZygoteReport,
    frame,
    report_decoder,
)
from replkernel.errors import UNREADABLE

log = logging.getLogger(__name__)

REASON_BYTES = 600


class SpawnListener(NamedTuple):
    """Whom to tell about one birth."""

    born: Callable[[int], None]
    refused: Callable[[str], None]
    ended: Callable[[Exit], None]


class ZygoteLink(asyncio.Protocol):
    """One zygote, from its spawning to its end."""

    def __init__(
        self,
        spawned: Spawned,
        on_gone: Callable[[str], None],
        on_orphan: Callable[[int, Callable[[Exit], None]], None],
    ) -> None:
        self.was_ready = False
        self._spawned = spawned
        self._on_gone = on_gone
        self._on_orphan = on_orphan
        self._reader = FrameReader()
        self._outgoing = bytearray()
        self._transport: asyncio.Transport | None = None
        self._tag = 0
        self._unanswered: dict[int, tuple[SpawnListener, Callable[[], None]]] = {}
        self._children: dict[int, Callable[[Exit], None]] = {}
        loop = asyncio.get_running_loop()
        self._connecting = loop.create_task(loop.create_unix_connection(lambda: self, sock=spawned.link))
        self._watch = ProcessWatch(spawned.pid, lambda end: None)

    def bear(self, birth: bytes, listener: SpawnListener, fallback: Callable[[], None]) -> None:
        """Ask for a fork; `fallback` is called when the zygote ends without an answer."""
        self._tag += 1
        self._unanswered[self._tag] = (listener, fallback)
        self._send(frame(ForkKernel(self._tag, birth)))

    def _send(self, data: bytes) -> None:
        if self._transport is None:
            self._outgoing += data
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Let the zygote end."""
        if self._transport is not None:
            self._transport.close()
        else:
            self._connecting.cancel()
            self._spawned.link.close()

    # -- asyncio.Protocol ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what was asked for before the loop ran."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(bytes(self._outgoing))
        self._outgoing.clear()

    def data_received(self, data: bytes) -> None:
        """Take the zygote's reports."""
        try:
            for body in self._reader.feed(data):
                self._on_report(report_decoder.decode(body))
        except UNREADABLE as error:
            log.error("the zygote %d does not make sense: %s", self._spawned.pid, error)
            self.close()

    def _on_report(self, report: ZygoteReport) -> None:
        """Take a report; raises ValueError for one about what nobody has asked for."""
        if isinstance(report, KernelForked | ForkRefused) and report.tag not in self._unanswered:
            raise ValueError(f"nobody has asked for the process of request {report.tag}")
        match report:
            case ZygoteReady():
                self.was_ready = True
                for name, why in report.skipped.items():
                    log.warning("REPLKERNEL_PRELOAD names %s, which cannot be imported: %s", name, why)
            case KernelForked():
                listener, _ = self._unanswered.pop(report.tag)
                self._children[report.pid] = listener.ended
                listener.born(report.pid)
            case ForkRefused():
                listener, _ = self._unanswered.pop(report.tag)
                listener.refused(f"its process could not be made: {report.why}")
            case KernelExited():
                ended = self._children.pop(report.pid, None)
                if ended is not None:
                    ended(Exit(report.wait_status, report.rss_max_kib * 1024, report.at))

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand over what the zygote leaves behind."""
        self._on_gone(self._reason())
        for pid, ended in self._children.items():
            self._on_orphan(pid, ended)
        self._children.clear()
        for _, fallback in self._unanswered.values():
            fallback()
        self._unanswered.clear()

    def _reason(self) -> str:
        with contextlib.suppress(OSError):
            said = Path(self._spawned.log).read_bytes()[-REASON_BYTES:].decode(errors="replace")
            return (
                " / ".join(line.strip() for line in said.splitlines()[-4:] if line.strip())
                or "it said nothing"
            )
        return "it left no log"
