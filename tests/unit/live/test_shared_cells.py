"""Which cell of a shared document holds code that the server sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from replkernel_server.shared_cells import DOCUMENTS, SharedCell, cells_of, metadata_of, with_whole_numbers


def cell(name: str, source: str, *, running: bool = False, wanted: object = None) -> SharedCell:
    return SharedCell(name, source, running, wanted)


def test_the_only_cell_with_the_code_goes_along_with_what_it_asks_for() -> None:
    cells = [cell("a", "x = 1"), cell("b", "x + 1", wanted={"gpus": 2})]
    assert metadata_of("x = 1", cells) == {"cellId": "a"}
    assert metadata_of("x + 1", cells) == {"cellId": "b", "replkernel": {"gpus": 2}}


def test_of_cells_with_the_same_code_it_is_the_first_that_runs() -> None:
    cells = [cell("a", "f()"), cell("b", "f()", running=True), cell("c", "f()", running=True)]
    assert metadata_of("f()", cells) == {"cellId": "b"}


def test_code_that_is_nobodys_or_of_one_of_several_cells_is_sent_alone() -> None:
    cells = [cell("a", "f()"), cell("b", "f()"), cell("c", "g()")]
    assert metadata_of("f()", cells) is None
    assert metadata_of("%who", cells) is None


def test_of_cells_that_run_the_same_code_and_ask_for_different_things_nobody_knows_which() -> None:
    one, two = (cell(name, "f()", running=True, wanted={"gpus": gpus}) for name, gpus in (("a", 1), ("b", 2)))
    assert metadata_of("f()", [one, two]) is None
    assert metadata_of("f()", [one, one]) == {"cellId": "a", "replkernel": {"gpus": 1}}


async def test_code_cells_alone_are_looked_at_in_the_notebooks_of_the_kernel() -> None:
    shared = [{"id": kind, "source": "x", "cell_type": kind} for kind in ("markdown", "code", "raw")]

    class Documents:
        async def get_document(self, **_: object) -> Any:
            return SimpleNamespace(ycells=shared)

    class Sessions:
        async def list_sessions(self) -> list[dict[str, Any]]:
            told = (("k", "notebook"), ("k", "console"), ("other", "notebook"))
            return [{"kernel": {"id": kernel}, "type": kind, "path": "a"} for kernel, kind in told]

    settings = {DOCUMENTS: Documents()}
    app: Any = SimpleNamespace(web_app=SimpleNamespace(settings=settings), session_manager=Sessions())
    assert await cells_of(app, "k") == [cell("code", "x")]


def test_numbers_of_a_shared_document_are_those_of_its_file() -> None:
    wanted = {"gpus": 2.0, "vram_gb": 0.5, "gpu_model": "H100"}
    made = with_whole_numbers(wanted)
    assert made == {"gpus": 2, "vram_gb": 0.5, "gpu_model": "H100"}
    assert isinstance(made["gpus"], int)
