"""The points of a notebook's history as people see them: which cell made each, and where to go from here.

Pure. Law: a point has one parent, the point whose state its cell began with; going back makes a point that
stands for another, and never a parent.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import msgspec

from replkernel.errors import ReplkernelError
from replkernel.records import Mark, Seq

MAIN = "main"
MOVED = "The notebook has moved on since its history was shown; look at it again."
STEPS_MAX = 10_000
"""Nobody undoes or redoes more changes at a time."""

_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}")
_RESULT = re.compile(r"_replkernel_out_(\w+)")
_ADDRESS = re.compile(r"(\d{1,18})\.(\d{1,18})")


def address(mark: Mark) -> str:
    """Return what `Timeline.find` takes for this very point, whatever the number of its cell."""
    return f"{mark.seq}.{mark.audit}"


class NoName(ReplkernelError):
    """What was asked for is neither a name nor a point."""


def check_name(word: str) -> str:
    """Return a word that may name a mark or a branch; raises NoName."""
    if not _NAME.fullmatch(word):
        raise NoName(
            f"`{word[:64]}` is not a valid name: a letter, then letters, digits, `_`, `.`, `-`, 64 at most."
        )
    return word


def said_name(name: str) -> str:
    """Return how people call what a component has under a name: the results of cells are `Out[5]`."""
    result = _RESULT.fullmatch(name)
    return name if result is None else f"Out[{result[1]}]" if result[1].isdigit() else "Out"


class NotSo(ReplkernelError):
    """What is asked of names and branches cannot be, as they are."""


def check_free(kind: str, name: str, marks: Collection[str], branches: Collection[str]) -> None:
    """Raise NotSo where a new mark or branch cannot have this name; a mark is moved."""
    if kind == "mark" and name in branches:
        raise NotSo(f"`{name}` is a branch: give the point another name.")
    if kind == "branch" and name in marks:
        raise NotSo(f"There is already a point named `{name}`: give the branch another name.")
    if kind == "branch" and name in branches:
        raise NotSo(f"There is a branch `{name}` already: `%replkernel switch {name}` goes there.")


def check_gone(name: str, marks: Collection[str], branches: Collection[str], on: str) -> None:
    """Raise NotSo where no name is to be taken away, or the branch that the notebook is `on`."""
    if name not in marks and name not in branches:
        raise NotSo(f"There is no point or branch named `{name}`.")
    if name == on:
        raise NotSo(f"The notebook is on branch `{name}`: switch to another one first.")


def steps_of(verb: str, word: str) -> int:
    """Return how many changes are to be undone or redone; raises NotSo."""
    if not word.isdigit() or not 0 < int(word) <= STEPS_MAX:
        raise NotSo(f"`{word}` is not a number of changes: `%replkernel {verb} 2`.")
    return int(word)


class NoSuchPoint(ReplkernelError):
    """There is no such point, or it is not kept any more."""


def said_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return how people call these, each once."""
    return tuple(dict.fromkeys(map(said_name, names)))


class PointInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One point: the state after a cell (`number`, as its user counts).

    `changed` are some of the names that differ from the point before, `more` counts the others; `bytes` is
    what these take. `to` is set where the cell took the state to another point, which it stands for. `since`
    is the number of an earlier cell where the cells from that one on make one step.
    """

    mark: Mark
    number: int
    at: float = 0.0
    source: str = ""
    cell_id: str = ""
    changed: tuple[str, ...] = ()
    more: int = 0
    bytes: int = 0
    parent: Mark | None = None
    to: Mark | None = None
    branch: str = MAIN
    since: int = 0

    def of_cell(self, number: int) -> bool:
        """Tell whether it is a cell's of this number that its user has run in the notebook."""
        return self.number == number and bool(self.cell_id)

    @property
    def stands_for(self) -> Mark:
        """Return the point whose state this one has."""
        return self.to or self.mark


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """A variable that differs between two points, with its bytes at each; None where there is none.

    Variables that share objects are told apart by name alone: each has the bytes of all of them. `was` and
    `now` say in a few letters what it held, where that can be told without loading it.
    """

    name: str
    before: int | None = None
    after: int | None = None
    was: str = ""
    now: str = ""


class Timeline(msgspec.Struct, frozen=True, omit_defaults=True):
    """All points that are kept, the earliest first, and their names. The last one is the state of now.

    `kept` tells how many bytes the past takes beyond what the state of now needs.
    """

    points: tuple[PointInfo, ...] = ()
    names: dict[str, Mark] = {}
    branches: dict[str, Mark] = {}
    branch: str = MAIN
    kept: int = 0

    def said(self) -> Timeline:
        """Return the same with names as people call them."""
        points = (msgspec.structs.replace(one, changed=said_names(one.changed)) for one in self.points)
        return msgspec.structs.replace(self, points=tuple(points))

    def here(self) -> Mark:
        """Return the point at which the notebook is; raises NoSuchPoint before the first one."""
        if not self.points:
            raise NoSuchPoint(
                "Nothing is in the history yet: it begins with the next cell that changes something."
            )
        return self.points[-1].stands_for

    def aim(self, verb: str, word: str) -> Mark:
        """Return where `undo`, `redo`, `goto` or `switch` leads; raises NoSuchPoint, NotSo."""
        if verb == "undo":
            return self.undone(steps_of(verb, word))
        if verb == "redo":
            return self.redone(steps_of(verb, word))
        if verb == "goto":
            return self.find(word)
        if word not in self.branches:
            raise NotSo(f"There is no branch `{word}`; there are: {', '.join(self.branches)}.")
        return self.branches[word]

    def undone(self, steps: int) -> Mark:
        """Return the point `steps` changes before this one; raises NoSuchPoint."""
        at = self.here()
        known = self._known()
        for done in range(steps):
            point = known.get(at)
            if point is not None and point.parent is None:
                raise NoSuchPoint(_FROM_HERE.format(done, "change" if done == 1 else "changes"))
            if point is None or point.parent is None or point.parent not in known:
                raise NoSuchPoint(_TOO_FAR.format(done, "change" if done == 1 else "changes"))
            at = point.parent
        return at

    def redone(self, steps: int) -> Mark:
        """Return the point `steps` changes after this one on its branch; raises NoSuchPoint."""
        ahead = self._ahead()
        if not ahead:
            raise NoSuchPoint("Nothing was undone here: `%replkernel history` lists what you can go to.")
        return ahead[min(steps, len(ahead)) - 1]

    def may_undo(self) -> bool:
        """Tell whether there is a point before this one."""
        known = self._known()
        point = known.get(self.here()) if self.points else None
        return point is not None and point.parent in known

    def may_redo(self) -> bool:
        """Tell whether there is a point after this one on its branch."""
        return bool(self.points and self._ahead())

    def ancestors(self) -> tuple[set[Mark], Mark | None]:
        """Return this point and those before it, and the earliest of these if one before it is gone."""
        found: set[Mark] = set()
        known = self._known()
        at = self.here() if self.points else None
        last = None
        while at is not None and at in known:
            found.add(at)
            last, at = at, known[at].parent
        return found, None if at is None else last

    def _ahead(self) -> list[Mark]:
        """Return what comes after the point of now on its branch, the next one first."""
        here, known = self.here(), self._known()
        path: list[Mark] = []
        at = self.branches.get(self.branch)
        while at is not None and at != here:
            path.append(at)
            point = known.get(at)
            at = None if point is None else point.parent
        return path[::-1] if at == here else []

    def find(self, word: str) -> Mark:
        """Return the point that a name, a branch, a cell's number or an address means; raises NoSuchPoint."""
        found = self.names.get(word) or self.branches.get(word)
        if found is None and (exact := _ADDRESS.fullmatch(word)):
            found = Mark(Seq(int(exact[1])), int(exact[2]))
        if found is None and word.strip("[]").isdigit():
            found = self._after_cell(int(word.strip("[]")))
        if found is None or found not in self._known():
            raise NoSuchPoint(
                f"There is no point `{word}` in the history: `%replkernel history` lists what is kept. "
                "Settings REPLKERNEL_HISTORY_POINTS, _HOURS and _MIB say how many are; a marked one stays."
            )
        return found

    def _after_cell(self, number: int) -> Mark | None:
        """Return the point that a cell made, or as which the notebook was then; None if it is not kept.

        A program that goes somewhere after a cell has that cell's number, and no cell of its own.
        """
        own = [point.mark for point in self.points if point.number == number and point.to is None]
        if own:
            return own[-1]
        before = [point for point in self.points if point.number < number or point.of_cell(number)]
        behind = self.points[len(before) :][:1]
        if not before or (not behind and number > before[-1].number):
            return None
        if behind and 0 < behind[0].since <= number:
            return None
        at = before[-1].stands_for
        return at if not behind or behind[0].parent == at else None

    def point(self, mark: Mark) -> PointInfo:
        """Return a point that is kept."""
        return self._known()[mark]

    def _known(self) -> dict[Mark, PointInfo]:
        return {point.mark: point for point in self.points}


_FROM_HERE = (
    "The history begins {0} {1} before this: a notebook's, a fork's and an imported file's first state "
    "cannot be undone."
)
_TOO_FAR = (
    "The history goes back only {0} {1} from here: earlier points are not kept "
    "(settings REPLKERNEL_HISTORY_POINTS, _HOURS and _MIB)."
)
