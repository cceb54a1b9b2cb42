"""What programs ask of a history: whoever is refused has had nothing run in the notebook."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from replkernel.client import history as history_asking
from replkernel.client.history import name, travel, unname
from replkernel.errors import ReplkernelError
from replkernel.kernel.history_answers import _answer
from replkernel.protocol.agent_to_process import HistoryAnswer
from replkernel.protocol.points import REQUEST, HistoryQuestion
from replkernel.protocol.timeline import PointInfo, Timeline, said_name
from replkernel.records import Mark, Seq

FIRST, SECOND = Mark(Seq(1)), Mark(Seq(2))
TIMELINE = Timeline(
    (PointInfo(FIRST, 1, cell_id="a"), PointInfo(SECOND, 2, cell_id="b", parent=FIRST)),
    {"begun": FIRST},
    {"main": SECOND},
)


class StandInLine:
    """A line to a kernel that answers questions, and on which no cell may be run."""

    def history(self) -> HistoryAnswer:
        return HistoryAnswer(1, TIMELINE)

    def control(self, request: str, content: dict[str, Any], *_: float) -> Any:
        if request != REQUEST:
            return {"busy": False}
        return msgspec.to_builtins(_answer(self, msgspec.convert(content, HistoryQuestion)))  # type: ignore[arg-type]

    def ask(self, *_: object) -> Any:
        pytest.fail("a cell was run")

    def __enter__(self) -> StandInLine:
        return self

    def __exit__(self, *_: object) -> None:
        pass


REFUSED = {
    "more changes than there are": lambda: travel("k", {}, "undo", "2"),
    "nothing to redo": lambda: travel("k", {}, "redo", "1"),
    "no such point": lambda: travel("k", {}, "goto", "7"),
    "no such branch": lambda: travel("k", {}, "switch", "other"),
    "seen elsewhere": lambda: travel("k", {}, "undo", "1", since="1.0"),
    "a mark where none can be": lambda: name("k", {}, "mark", "here", "7"),
    "a mark named as a branch": lambda: name("k", {}, "mark", "main"),
    "a branch that is there": lambda: name("k", {}, "branch", "main"),
    "a branch named as a mark": lambda: name("k", {}, "branch", "begun"),
    "no such name": lambda: unname("k", {}, "nobody"),
    "the branch of now": lambda: unname("k", {}, "main"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_who_is_refused_has_had_nothing_run(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(history_asking, "awake", lambda kernel_id, env: None)
    monkeypatch.setattr(history_asking, "KernelLine", lambda record: StandInLine())
    with pytest.raises(ReplkernelError):
        REFUSED[what]()


def test_results_are_called_as_people_call_them() -> None:
    names = ("_replkernel_out_5", "_replkernel_out_own", "x", "_5")
    assert tuple(map(said_name, names)) == ("Out[5]", "Out", "x", "_5")
    point = PointInfo(FIRST, 1, changed=names[:2])
    assert Timeline((point,)).said().points[0].changed == ("Out[5]", "Out")
