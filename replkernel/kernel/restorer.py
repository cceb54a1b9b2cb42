"""What is rebuilt before a cell: what it reaches; the rest behind it, the small first, while nobody waits.

Owns the decision and the pace; how components are rebuilt is the state's. Law: a cell that may reach a
variable finds it, or everything is rebuilt before it runs; no cell waits for what it does not reach.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Protocol

from replkernel.errors import ReplkernelError
from replkernel.records import BlobRef, ComponentId, ComponentRecord, payload_blobs
from replkernel.state.analysis.cell_mentions import CellMentions, cell_mentions
from replkernel.state.analysis.mentions import words_of
from replkernel.state.analysis.values import words_in
from replkernel.state.process.own_threads import marked, own_thread
from replkernel.state.restore.incoming import ReadAhead
from replkernel.state.restore.leaving import UNDERS, Reached

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


WORTH_BYTES = 64 * 2**20
"""From so many waiting bytes on a cell does not wait for what it does not reach."""

ROUNDS_MAX = 8
"""So often what was rebuilt is looked at for further names; then everything is rebuilt."""

SMALL_MAX = 200
"""So many components whose bytes are all in their records are rebuilt at a time."""

HEAVY_HEAD_BYTES = 8 * 2**20
"""A component with a longer stream holds the main thread for long: it waits until the notebook rests."""

REST_S = 2.0
"""So long after the last cell the notebook rests."""

_FIRST_WORD = re.compile(r"\s*([A-Za-z_]\w*+)\s*+(?![.(\[=,:])")
_NET = "__getattr__"

log = logging.getLogger(__name__)


class LeavingState(Protocol):
    """The part of `state_capture.StateCapture` that can leave components behind."""

    @property
    def pending_bytes(self) -> int:
        """The bytes received and not rebuilt."""

    @property
    def left_behind(self) -> AbstractSet[str]:
        """The variables that wait."""

    @property
    def ahead(self) -> ReadAhead:
        """The reader of what was left behind."""

    def waiting_names(self) -> Collection[str]:
        """Return the variables that wait, whether or not something stale is bound to them."""

    def awaits(self, name: str) -> bool:
        """Tell whether a variable is bound to nothing because it waits."""

    def reach(self, reads: Collection[str], binds: Collection[str] = ()) -> Reached:
        """Return what a cell reaches."""

    def pending_of(self, cids: AbstractSet[ComponentId]) -> list[ComponentId]:
        """Return those of `cids` that wait."""

    def behind(self) -> Sequence[ComponentRecord]:
        """Return what was left behind, the smallest first."""

    def withheld(self) -> Sequence[ComponentRecord]:
        """Return what waits because it lies on GPUs, and no cell with a lease runs here."""


class Restorer:
    """Restores one process's namespace in the order in which it is needed.

    `rebuild` rebuilds components, and all that no cell can be without; `bring` brings blobs to this host and
    may take long; `wake` has `advance` called on the main thread when nobody else needs that.
    """

    def __init__(
        self,
        state: LeavingState,
        shell: InteractiveShell,
        rebuild: Callable[[AbstractSet[ComponentId]], None],
        bring: Callable[[Sequence[BlobRef]], None],
        wake: Callable[[], None],
    ) -> None:
        self._state = state
        self._shell = shell
        self._rebuild = rebuild
        self._bring = bring
        self._wake = wake
        self._hopeless: set[ComponentId] = set()
        self._brought: frozenset[ComponentId] = frozenset()
        self._rested_at = 0.0
        self._timer: threading.Timer | None = None
        self._pid = os.getpid()
        self._net_hangs = False
        self.in_order = True
        """Whether cells may begin before everything is there; False once a debugger looks at variables."""

    # -- before a cell ------------------------------------------------------------------------------

    def prepare(self, texts: Sequence[str], *, received: bool = True) -> bool:
        """Rebuild what cells with these texts reach; return False when everything must be rebuilt.

        `received` tells that state has come in since the last cell here.
        """
        if not self.in_order or self._state.pending_bytes < WORTH_BYTES:
            return False
        mentions = self.mentions(texts)
        if mentions is None:
            return False
        if self._fetch_named(mentions.read, mentions.bound, received=received):
            self._bring_rest()
            self._hang_net()
            return True
        return False

    def fetch_named(self, text: str, bytes_max: int | None) -> None:
        """Rebuild the waiting variables that a question mentions, unless they have more than `bytes_max`."""
        asked = words_of(text).intersection(self._state.waiting_names())
        reached = self._state.reach(asked) if asked else None
        if reached is None or reached.anything:
            return
        size = sum(record.state_bytes for record in self._state.behind() if record.cid in reached.cids)
        if bytes_max is None or size <= bytes_max:
            self._rebuild(reached.cids)

    def mentions(self, texts: Sequence[str]) -> CellMentions | None:
        """Return the names that cells with these texts mention; None when that cannot be told."""
        read: set[str] = set()
        bound: set[str] = set()
        shows_all = getattr(self._shell, "ast_node_interactivity", "") not in ("last_expr", "none")
        for text in texts:
            cell = cell_mentions(text)
            if cell.anything or self._is_magic(text):
                return None
            read |= cell.read
            bound |= cell.bound
            if cell.displays or shows_all:
                read |= UNDERS - {"___"}
        return CellMentions(frozenset(read), frozenset(bound))

    def _is_magic(self, text: str) -> bool:
        """Tell whether IPython takes a line that is one word, or begins with one, for a magic."""
        found = None if "\n" in text.strip() else _FIRST_WORD.match(text)
        return found is not None and found[1] in self._shell.magics_manager.magics["line"]

    def _fetch_named(self, read: AbstractSet[str], bound: AbstractSet[str], *, received: bool) -> bool:
        names = set(read)
        for _ in range(ROUNDS_MAX):
            reached = self._state.reach(names, bound)
            if reached.anything:
                return False
            if received or self._state.pending_of(reached.cids):
                self._rebuild(reached.cids)
                received = False
            if self._state.pending_of(reached.cids):
                return False
            namespace: Mapping[str, Any] = self._shell.user_ns
            held = [namespace[name] for name in reached.names if name in namespace]
            words = words_in(held, self._shell)
            if words is None:
                return False
            further = (words & self._state.left_behind) - names
            if not further:
                return True
            names |= further
        return False

    # -- behind a cell ------------------------------------------------------------------------------

    def _bring_rest(self) -> None:
        """Have the blobs of what was left behind brought to this host while the cell runs."""
        rest = [record for record in self._state.behind() if record.cid not in self._hopeless]
        cids = frozenset(record.cid for record in rest)
        if rest and not cids <= self._brought:
            self._brought = cids
            refs = [ref for record in rest for ref in payload_blobs(record.payload)]
            own_thread(self._bring_quietly, "Bring ahead", (refs,)).start()

    def _bring_quietly(self, refs: Sequence[BlobRef]) -> None:
        try:
            self._bring(refs)
        except (ReplkernelError, OSError) as error:
            log.info("What waits to be rebuilt was not fetched ahead: %s", error)

    def rest(self) -> None:
        """Note that a cell has ended; go on with what was left behind."""
        self._rested_at = time.monotonic()
        if self._state.left_behind:
            self._wake()

    def advance(self) -> None:
        """Rebuild what is small, or a component whose bytes have been read; else read the next one's."""
        ahead = self._state.ahead
        if not self._state.left_behind:
            ahead.forget()
            return
        withheld = {record.cid for record in self._state.withheld()}
        hopeless = self._hopeless | withheld
        rest = [record for record in self._state.behind() if record.cid not in hopeless]
        if not rest or ahead.busy or self._put_off(rest[0]):
            return
        small = [record.cid for record in rest[:SMALL_MAX] if not payload_blobs(record.payload)]
        if small:
            self._rebuild_behind(small)
        elif ahead.cid == rest[0].cid:
            self._rebuild_behind([rest[0].cid])
        else:
            refs = payload_blobs(rest[0].payload)
            ahead.begin(rest[0], lambda: self._bring(refs), self._wake)

    def _rebuild_behind(self, cids: Sequence[ComponentId]) -> None:
        self._rebuild(frozenset(cids))
        self._hopeless.update(self._state.pending_of(frozenset(cids)))
        self._wake()

    def _put_off(self, record: ComponentRecord) -> bool:
        """Put a heavy component off until the notebook rests."""
        head = record.payload.head_blob
        left = self._rested_at + REST_S - time.monotonic()
        if head is None or head.size < HEAVY_HEAD_BYTES or left <= 0:
            return False
        if self._timer is None or not self._timer.is_alive():
            self._timer = threading.Timer(left, self._wake)
            self._timer.daemon = True
            marked(self._timer).start()
        return True

    # -- nobody may hear that a variable does not exist ---------------------------------------------

    def missed(self, content: Mapping[str, Any]) -> str:
        """Return the waiting variable that a cell's error says does not exist; empty when none."""
        if content.get("status") != "error" or content.get("ename") not in _NOT_FOUND:
            return ""
        text = str(content.get("evalue"))
        return next((name for name in sorted(words_of(text)) if self._state.awaits(name)), "")

    def _hang_net(self) -> None:
        """Answer attributes of the notebook's module that wait: pickle and imports look there by name."""
        if self._state.left_behind:
            self._net_hangs = True
            self._shell.user_ns.setdefault(_NET, self._late)

    def take_net_down(self) -> None:
        """Undo `_hang_net`."""
        if self._net_hangs:
            self._net_hangs = False
            namespace = self._shell.user_ns
            if namespace.get(_NET) == self._late:
                del namespace[_NET]

    def _late(self, name: str) -> object:
        """Return an attribute of the notebook's module whose value waits."""
        if self._state.awaits(name) and os.getpid() == self._pid:
            reached = self._state.reach([name])
            cids = {record.cid for record in self._state.behind()} if reached.anything else reached.cids
            self._rebuild(cids)
            if name in self._shell.user_ns:
                return self._shell.user_ns[name]
        raise AttributeError(f"module {self._shell.user_ns.get('__name__')!r} has no attribute {name!r}")


_NOT_FOUND = frozenset({
    "NameError", "KeyError", "AttributeError", "UndefinedVariableError", "CatalogException",
})  # fmt: skip
