"""`replkernel follow NOTEBOOK`: what the notebook's kernel does, as JSON, a document a line, for editors.

It reads what only this user may read, and opens no port. Law: it tells what changed, starts nothing, and ends
with its reader, whose end closes its standard input.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Mapping

import msgspec

from replkernel.client.by_record import KernelLine
from replkernel.client.inquiry import ask_agents
from replkernel.errors import UNREADABLE, ReplkernelError
from replkernel.launch.kernel_record import KernelRecord, read_record, router_lives
from replkernel.launch.notebook_link import link_file, read_link
from replkernel.leasing.standing import ask_scheduler, join
from replkernel.protocol.progress import REQUEST, Execution, Holding, ProgressAnswer
from replkernel.protocol.status import HostStatus, KernelStatus, StatusDocument, WaitingStatus
from replkernel.settings import data_dir

LOOK_S = 0.4
STATUS_S = 2.0
ANSWER_S = 3.0
PAGES_MAX = 20


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line. A list of executions has those that changed; `afresh`: forget what was told of others.

    What is null stays as it was. Times of executions are seconds of the router's clock, as `now` is.
    """

    kernel_id: str
    now: float = 0.0
    afresh: bool = False
    state: str | None = None
    executions: tuple[Execution, ...] = ()
    holdings: tuple[Holding, ...] | None = None
    kernel: KernelStatus | None = None
    hosts: tuple[HostStatus, ...] | None = None
    waiting: tuple[WaitingStatus, ...] | None = None
    trouble: str = ""


class Following:
    """One notebook's kernel, whichever that is at the moment."""

    def __init__(self, notebook: str, env: Mapping[str, str], status: Callable[[], StatusDocument]) -> None:
        self._place = link_file(notebook, env)
        self._env = env
        self._status = status
        self._status_at = float("-inf")
        self._line: KernelLine | None = None
        self._router: tuple[str, int] | None = None
        self._version = 0
        self._said: Told | None = None
        self._afresh = True

    def look(self, now: float) -> Told | None:
        """Return what is new; None if nothing is."""
        record = self._record()
        known = None if record is None else (record.kernel_id, record.router_pid)
        if known != self._router:
            self.close()
            self._router, self._version, self._afresh = known, 0, True
            self._status_at = float("-inf")
        state = "none" if record is None else "live" if router_lives(record) else "rests"
        told = Told("" if record is None else record.kernel_id, state=state)
        if state != "live":
            told = msgspec.structs.replace(told, holdings=())
        if record is not None and state == "live":
            told = self._with_progress(record, told)
        if now >= self._status_at + STATUS_S:
            told = self._with_status(told)
            self._status_at = now
        return self._news(told)

    def _record(self) -> KernelRecord | None:
        link = read_link(self._place)
        return None if link is None else read_record(data_dir(self._env), link.kernel_id)

    def _with_progress(self, record: KernelRecord, told: Told) -> Told:
        if self._line is None:
            self._line = KernelLine(record)
        found: dict[str, Execution] = {}
        version = self._version
        try:
            for _ in range(PAGES_MAX):
                content = self._line.control(REQUEST, {"since": version}, ANSWER_S)
                answer = msgspec.convert(content, ProgressAnswer)
                found |= {each.msg_id: each for each in answer.executions}
                if not answer.executions or answer.version == version:
                    break
                version = answer.version
        except (ReplkernelError, *UNREADABLE) as error:
            return msgspec.structs.replace(told, trouble=str(error)[:500])
        self._version = version  # Only now: what a failed answer would have told is asked for again.
        return msgspec.structs.replace(
            told, now=answer.now, executions=tuple(found.values()), holdings=answer.holdings
        )

    def _with_status(self, told: Told) -> Told:
        document = self._status()
        kernel = next((one for one in document.kernels if one.kernel_id == told.kernel_id), None)
        waiting = tuple(document.waiting)
        return msgspec.structs.replace(told, kernel=kernel, hosts=tuple(document.hosts), waiting=waiting)

    def _news(self, told: Told) -> Told | None:
        """Return what differs from what was said before; None if nothing does."""
        before = None if self._afresh else self._said
        said = msgspec.structs.replace(told, executions=(), now=0.0)
        if before is None:
            self._afresh, self._said = False, said
            return msgspec.structs.replace(told, afresh=True)
        kept = {
            name: getattr(before, name) if getattr(said, name) is None else getattr(said, name)
            for name in ("kernel", "hosts", "waiting", "holdings", "state")
        }
        whole = msgspec.structs.replace(said, **kept)
        if whole == before and not told.executions:
            return None
        self._said = whole
        new = {name: value if value != getattr(before, name) else None for name, value in kept.items()}
        return msgspec.structs.replace(told, **new)

    def close(self) -> None:
        """Let go of the kernel."""
        if self._line is not None:
            self._line.__exit__()
        self._line = None


def run_follow(notebook: str) -> int:
    """Print what is new until the standard input ends."""

    def status() -> StatusDocument:
        return join(ask_agents(os.environ), *ask_scheduler(os.environ))

    following = Following(os.path.abspath(notebook), os.environ, status)
    try:
        while not _reader_has_gone():
            told = following.look(time.monotonic())
            if told is not None:
                print(msgspec.json.encode(told).decode(), flush=True)
    finally:
        following.close()
    return 0


def _reader_has_gone() -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], LOOK_S)
    return bool(ready) and not os.read(sys.stdin.fileno(), 4096)
