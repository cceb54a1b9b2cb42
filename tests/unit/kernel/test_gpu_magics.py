"""`%gpu` and `%%gpu`: what the router is asked, what is said of a wrong line, what becomes of a cell."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError

from replkernel.kernel.asking import IN_SUBSHELL, ask_router
from replkernel.kernel.gpu_magics import VERBS, GpuMagics, complete_gpu, drop_gpu_line
from replkernel.leasing.notebook import GpuAnswer, GpuQuestion


class FakeKernel:
    """A kernel whose router answers as told."""

    def __init__(self, answer: GpuAnswer) -> None:
        self.asked: list[GpuQuestion] = []
        self._answer = answer

    def ask_router(self, question: GpuQuestion) -> GpuAnswer:
        self.asked.append(question)
        return self._answer


def made(kernel: FakeKernel) -> Any:
    magics: Any = GpuMagics(None)
    magics.shell = SimpleNamespace(kernel=kernel)
    return magics


@pytest.mark.parametrize(
    ("line", "question"),
    [
        ("status", GpuQuestion("status")),
        (" release ", GpuQuestion("release")),
        ("off", GpuQuestion("off")),
        ("release  # nobody needs them now", GpuQuestion("release")),
        ("1  # help comes later", GpuQuestion("default", 1)),
        ("2", GpuQuestion("default", 2)),
        ("0", GpuQuestion("default", 0)),
        ("1 --vram 20 --model H100", GpuQuestion("default", 1, 20.0, "H100")),
    ],
)
def test_the_router_is_asked_and_its_answer_printed(
    line: str, question: GpuQuestion, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = FakeKernel(GpuAnswer(text="as you wish"))
    made(kernel).gpu(line)
    assert kernel.asked == [question]
    assert capsys.readouterr().out == "as you wish\n"


def test_a_request_that_the_router_refuses_is_the_cells_error() -> None:
    with pytest.raises(UsageError, match="there is no scheduler"):
        made(FakeKernel(GpuAnswer(error="there is no scheduler: start one"))).gpu("2")


@pytest.mark.parametrize("line", ["", "--help", "status --help"])
def test_help_tells_everything_and_asks_nobody(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = FakeKernel(GpuAnswer())
    made(kernel).gpu(line)
    said = capsys.readouterr().out
    assert not kernel.asked
    assert all(f"%gpu {verb}" in said for verb in VERBS)
    assert "%%gpu 2 --vram 20" in said and '"gpu_model"' in said


@pytest.mark.parametrize("line", ["statsu", "nine", "9", "1 --vrm 2", "status now"])
def test_a_line_that_is_not_understood_asks_nobody_and_names_the_help(line: str) -> None:
    kernel = FakeKernel(GpuAnswer())
    with pytest.raises(UsageError, match="`%gpu --help`"):
        made(kernel).gpu(line)
    assert not kernel.asked


def test_a_cell_whose_line_is_wrong_does_not_run() -> None:
    magics = made(FakeKernel(GpuAnswer()))
    with pytest.raises(UsageError, match="`two` is not a number of GPUs"):
        magics.gpu("two", "raise AssertionError('ran')")


@pytest.mark.parametrize(
    ("cell", "becomes"),
    [
        ("%%gpu 1\nx = 1\ny", "\nx = 1\ny"),
        ("%%gpu\n", "\n"),
        ("%%gpu 1\n%%time\nx", "%%time\nx"),
        ("%%gpu two\nx", "%%gpu two\nx"),
        ("%%gpu --help\nx", "%%gpu --help\nx"),
        ("%%gpus\nx", "%%gpus\nx"),
        ("x\n%%gpu 1", "x\n%%gpu 1"),
        ("", ""),
    ],
)
def test_a_cell_is_its_body(cell: str, becomes: str) -> None:
    assert "".join(drop_gpu_line(cell.splitlines(keepends=True))) == becomes


@pytest.mark.parametrize(
    ("line", "symbol", "found"),
    [
        ("%gpu s", "s", ["status"]),
        (
            "%gpu 1 --",
            "--",
            ["--vram", "--model", "--cpu", "--memory", "--share", "--preemptible", "--for", "--help"],
        ),
        ("%%gpu s", "s", []),
        ("%%gpu 1 --m", "--m", ["--model", "--memory"]),
    ],
)
def test_a_gpu_line_is_completed_with_what_can_follow(line: str, symbol: str, found: list[str]) -> None:
    assert complete_gpu(None, SimpleNamespace(line=line, symbol=symbol)) == found


def test_a_subshell_asks_nothing_by_the_socket_on_which_a_cell_may_wait() -> None:
    answers: list[GpuAnswer] = []
    kernel = SimpleNamespace()  # It has no socket that could be used.
    asks = threading.Thread(target=lambda: answers.append(ask_router(kernel, [b"x"], GpuQuestion("status"))))
    asks.start()
    asks.join(30)
    assert [answer.error for answer in answers] == [IN_SUBSHELL]
