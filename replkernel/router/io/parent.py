"""The launcher of a kernel: a plain one must not be outlived, as with stock kernels; a provisioner's may be.

Law: a kernel whose launcher may come back ends only after its grace time without the launcher and any client.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping

WATCH_MS = 1000
NEVER_MS = 3_600_000
LOOK_MS_MAX = 60_000
AGAIN_S = 600.0

LAUNCHER_PID = "REPLKERNEL_LAUNCHER_PID"
"""The environment variable by which the provisioner names its own process to the router."""
LAUNCHER_RETURNS = "REPLKERNEL_LAUNCHER_RETURNS"
"""Set by a launcher that, started again, finds its kernels again: a Jupyter Server with our extension."""


class ParentWatch:
    """Tells when the parent process that JPY_PARENT_PID names is gone."""

    def __init__(self, env: Mapping[str, str]) -> None:
        text = env.get("JPY_PARENT_PID", "")
        named = int(text) if text.isdigit() else 0
        self._watches = named > 1
        self._parent = named if named == os.getppid() else 0

    @property
    def interval_ms(self) -> int:
        """Return how often to look."""
        return WATCH_MS if self._watches else NEVER_MS

    def vanished(self) -> bool:
        """Tell whether the parent is gone; true once only."""
        if not self._watches:
            return False
        parent = os.getppid()
        gone = parent != self._parent if self._parent else parent == 1
        if gone:
            self._watches = False
        return gone


class LauncherWatch:
    """Tells when a provisioner's process is gone and no client has been there for `grace_s`.

    A Jupyter server that is started again finds its kernels; a killed nbclient leaves them to this watch.
    """

    def __init__(self, env: Mapping[str, str], grace_s: float) -> None:
        text = env.get(LAUNCHER_PID, "")
        self.pid = int(text) if text.isdigit() else 0
        self.returns = bool(env.get(LAUNCHER_RETURNS))
        self.grace_s = grace_s
        self._alone_since: float | None = None
        self._clients: set[int] = set()
        self._ended: select.poll | None = None
        self._look_at = 0.0
        if self.pid > 1:
            self._watch()

    def _watch(self) -> None:
        """Watch the launcher by a descriptor; one that cannot be seen from here is taken to live."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (OSError, AttributeError):
            return
        self._ended = select.poll()
        self._ended.register(descriptor, select.POLLIN)

    @property
    def interval_ms(self) -> int:
        """Return how often to look."""
        if self._ended is None:
            return NEVER_MS
        return max(WATCH_MS, min(LOOK_MS_MAX, int(self.grace_s * 1000)))

    def client_came(self, descriptor: int) -> None:
        """Note a client's connection."""
        self._clients.add(descriptor)

    def client_left(self, descriptor: int) -> None:
        """Note the end of a client's connection."""
        self._clients.discard(descriptor)

    @property
    def client_count(self) -> int:
        """Return how many connections of clients there are."""
        return len(self._clients)

    def overdue(self) -> str:
        """Return why the kernel has nobody to live for any more, or an empty string.

        It is said once; where the launcher may return, again as long as nobody comes, for what is to follow
        from it can fail.
        """
        now = time.monotonic()
        if self._ended is None or now < self._look_at:
            return ""
        self._look_at = now + min(self.interval_ms, WATCH_MS) / 1000
        if self._clients or not self._ended.poll(0):
            self._alone_since = None
            return ""
        if self._alone_since is None:
            self._alone_since = now
        if now - self._alone_since < self.grace_s:
            return ""
        self._alone_since = None
        if self.returns:
            self._look_at = now + AGAIN_S
        else:
            self._ended = None
        return (
            f"its launcher, process {self.pid}, is gone, and no client has been connected for "
            f"{self.grace_s:g} s (REPLKERNEL_LAUNCHER_GRACE_S)"
        )
