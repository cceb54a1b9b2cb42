"""What a cell wants of the history: where to go, which points it names, its branch.

Pure but for the clock. Law: the notebook travels when the cell has ended; before that nothing is changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from replkernel.carrying.safe import NotSafe, check_payload, is_plain_name
from replkernel.errors import ReplkernelError
from replkernel.kernel.execution import Execution
from replkernel.protocol.timeline import MOVED, PointInfo, Timeline, address
from replkernel.records import ComponentRecord, Delta, Fence, Limits, Mark, Note, Pin, ReplicaId
from replkernel.state.analysis.looking import only_looks

NAMES_MAX = 8
HEAD_BYTES_MAX = 64 * 1024
"""To see whether a longer stream brings values only takes longer than to look at everything."""
LOST_MAX = 100
"""So many of what cannot come back are named to programs."""
PLAIN_PARTS = frozenset(
    ("@cwd", "@environ", "@numpy_random", "@random", "@same", "@sys_path", "@torch_random")
)
"""Parts of the process's state whose loading calls nothing of the user's."""


class CannotComeBack(ReplkernelError):
    """Objects would be lost on the way, `lost` by their names with their types, and nobody has agreed."""

    def __init__(self, lost: dict[str, str]) -> None:
        self.lost = lost
        told = ", ".join(f"`{name}` ({kind})" for name, kind in list(lost.items())[:NAMES_MAX])
        super().__init__(
            f"{told} cannot be copied, so it is lost on the way or does not come back; add `--yes` to go all "
            "the same. Files, sockets and other processes stay as they are."
        )


class MovedOn(ReplkernelError):
    """The notebook is not where whoever asks has seen it."""


class Travel:
    """The wishes of the cell that runs, and what its delta says for the history."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.cell_id = ""
        self.begin()

    def begin(self) -> None:
        """Forget the wishes of the cell before."""
        self.to: Callable[[Timeline], Mark] | None = None
        """Finds the point to go to, once the cell has ended."""
        self.sure = False
        """Whether what cannot come back is known to the user."""
        self.since = ""
        """The address of the point at which who asks has seen the notebook; empty: wherever it is."""
        self.outcome: dict[str, object] = {}
        """What came of it, for the reply's metadata."""
        self._named: dict[str, Mark | None] = {}
        self._unnamed: dict[str, None] = {}
        self._branch = ""
        self._begins = False

    # -- wishes -----------------------------------------------------------------------------------------

    def go(self, to: Callable[[Timeline], Mark], *, sure: bool, since: str = "") -> None:
        """Have the notebook go to a point when the cell has ended; `sure`: whatever is lost by that."""
        self.to, self.sure, self.since = to, sure, since

    def name(self, name: str, mark: Mark | None = None) -> None:
        """Give a name to a point: the one after this cell, or `mark`."""
        self._named[name] = mark

    def unname(self, name: str) -> None:
        """Take the name of a point, or a branch, away."""
        self._unnamed[name] = None

    def onto(self, branch: str, *, begins: bool) -> None:
        """Go on with a branch, which `begins` here."""
        self._branch, self._begins = branch, begins

    # -- what is said -----------------------------------------------------------------------------------

    def note(self, execution: Execution) -> Note:
        """Return what an execution says of itself."""
        text = execution.texts[0].strip() if execution.texts else ""
        return Note(
            time.time(),
            text.split("\n", 1)[0][:100],
            self.cell_id[:64],
            named=tuple(self._named.items()),
            unnamed=tuple(self._unnamed),
            branch=self._branch if self._begins else "",
            begins=self._begins,
            limits=self.limits,
            looks=only_looks(text),
        )

    def target(self, timeline: Timeline) -> Mark:
        """Return where to go; raises NoSuchPoint, and MovedOn where a cell has changed something since."""
        assert self.to is not None
        if self.since and self.since != address(timeline.here()):
            raise MovedOn(MOVED)
        return self.to(timeline)

    def check(self, way: Delta, held: Iterable[Pin]) -> None:
        """Raise unless the user is sure, where something would be lost on the way."""
        touched = {name for record in way.components for name in record.names}
        lost = {
            pin.name: pin.type_name
            for pin in held
            if pin.name in touched or (way.order is not None and pin.name not in way.order)
        }
        absent = {pin.name: pin.type_name for record in way.components for pin in record.pins}
        if not self.sure and (lost or absent):
            raise CannotComeBack(lost | absent)

    def went(self, to: Mark) -> None:
        """Note that the notebook is at a point."""
        self.outcome = {"point": address(to)}

    def stayed(self, why: Exception) -> None:
        """Note that nothing was undone, and why."""
        lost = list(why.lost.items())[:LOST_MAX] if isinstance(why, CannotComeBack) else []
        told = [{"name": name, "type": kind} for name, kind in lost]
        self.outcome = {"why": str(why), "lost": told, "moved": isinstance(why, MovedOn)}

    def told(self) -> dict[str, object]:
        """Return what programs are told of where the cell took the notebook; nothing if it did not."""
        return {"history": self.outcome} if self.outcome else {}

    def delta(self, way: Delta, to: Mark, mark: Mark, fence: Fence, replica: ReplicaId) -> Delta:
        """Return the delta that takes the notebook `to` a point."""
        note = Note(time.time(), "", self.cell_id[:64], to, branch=self._branch, limits=self.limits)
        return replace(way, seq=mark.seq, audit=mark.audit, fence=fence, replica=replica, note=note)

    @staticmethod
    def said(point: PointInfo, way: Delta, held: Iterable[Pin]) -> str:
        """Say where the notebook is now, what changed on the way, and what of the `held` stayed."""
        names = sorted({name for record in way.components for name in record.names})
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        told = f"; restored: {', '.join(names[:NAMES_MAX])}{more}" if names else ""
        stays = sorted({pin.name: pin.type_name for pin in held}.items())
        kept = ", ".join(f"`{name}` ({kind})" for name, kind in stays[:NAMES_MAX])
        unlike = f" Not undone, because they cannot be copied: {kept}." if kept else ""
        now = f"The notebook is back at cell [{point.number}]{told}. Files and what others have seen stay."
        return now + unlike


def brings_values_only(way: Delta) -> bool:
    """Tell whether taking in `way` makes and drops plain variables, and can change nothing else."""
    gone = all(cid in PLAIN_PARTS or is_plain_name(cid.partition("~")[0]) for cid in way.dropped)
    return gone and all(map(_is_value, way.components))


def _is_value(record: ComponentRecord) -> bool:
    if record.cid in PLAIN_PARTS:
        return True
    head = record.payload.head
    if head is None or len(head) > HEAD_BYTES_MAX or not all(map(is_plain_name, record.names)):
        return False
    sizes = [len(one) if isinstance(one, bytes) else one.size for one in record.payload.buffers]
    try:
        check_payload(head, sizes)
    except NotSafe:
        return False
    return True
