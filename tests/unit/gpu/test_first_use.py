"""The first use of CUDA: met in libraries that are there, and in those that are imported later; once each."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from replkernel.gpu import first_use
from replkernel.gpu.first_use import EntryPoint

LIBRARY = """
started = []
class Driver:
    def begin(self, platform):
        started.append(platform)
        return platform
def run(platform="cuda"):
    return Driver().begin(platform)
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """A library with a door, which is not imported yet; what was asked for before it was let in."""
    (tmp_path / "some_cuda_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(first_use, "_watched", [])
    monkeypatch.setattr(
        first_use, "ENTRY_POINTS", {"some_cuda_library": EntryPoint(("some_cuda_library", "Driver"), "begin")}
    )
    yield []
    first_use.rest()
    sys.modules.pop("some_cuda_library", None)


def test_a_library_that_is_imported_later_is_stopped_and_its_import_is_stock(asked: list[str]) -> None:
    first_use.watch(lambda: asked.append("lease"))
    library = importlib.import_module("some_cuda_library")
    assert "exec_module" not in vars(library.__spec__.loader)
    assert library.Driver.begin.__name__ == "begin"
    assert asked == []
    assert library.run() == "cuda"
    assert asked == ["lease"]


def test_one_that_is_there_is_met_once_however_often_cells_begin(asked: list[str]) -> None:
    library = importlib.import_module("some_cuda_library")
    for _ in range(3):
        first_use.watch(lambda: asked.append("lease"))
        first_use.rest()
    library.run()
    assert (asked, library.started) == (["lease"], ["cuda"])
    assert not any(isinstance(each, first_use._Finder) for each in sys.meta_path)


def test_who_is_refused_has_not_started_it(asked: list[str]) -> None:
    def refuse() -> None:
        raise RuntimeError("no lease")

    library = importlib.import_module("some_cuda_library")
    first_use.watch(refuse)
    with pytest.raises(RuntimeError, match="no lease"):
        library.run()
    assert library.started == []


def test_only_the_platform_that_is_a_gpu_asks(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    library = importlib.import_module("some_cuda_library")
    entry_point = EntryPoint(("some_cuda_library",), "run", frozenset({"cuda"}))
    monkeypatch.setattr(first_use, "ENTRY_POINTS", {"some_cuda_library": entry_point})
    first_use.watch(lambda: asked.append("lease"))
    library.run("cpu")
    assert asked == []
    library.run("cuda")
    assert asked == ["lease"]


def test_a_forked_child_asks_nobody(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first_use.watch(lambda: asked.append("lease"))
    monkeypatch.setattr(first_use, "_process", [os.getpid() + 1])
    first_use.reached()
    assert asked == []


def test_torch_asks_whenever_it_starts_cuda_by_whatever_way(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.cuda._lazy_init, to which Python and C++ come, calls torch._C._cuda_init by its name."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(first_use, "ENTRY_POINTS", {"torch.cuda": EntryPoint(("torch", "_C"), "_cuda_init")})
    monkeypatch.setattr(torch._C, "_cuda_init", lambda: asked.append("started"), raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: 1, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_isInBadFork", lambda: False, raising=False)
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: False)
    monkeypatch.setattr(torch.cuda, "_cudart", object())
    monkeypatch.setattr(torch.cuda, "_initialized", False)
    monkeypatch.setattr(torch.cuda, "_queued_calls", [])
    monkeypatch.setattr(torch.cuda, "_lazy_seed_tracker", torch.cuda._LazySeedTracker())
    first_use.watch(lambda: asked.append("lease"))
    torch.cuda.init()
    assert asked == ["lease", "started"]


def test_tensorflow_is_stopped_where_it_was_built_for_gpus_alone(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_point = EntryPoint(("some_cuda_library", "Driver"), "begin", leads=first_use._tensorflow_has_cuda)
    monkeypatch.setattr(first_use, "ENTRY_POINTS", {"some_cuda_library": entry_point})
    built = type(sys)("tensorflow.python.platform.build_info")
    vars(built)["build_info"] = {"is_cuda_build": False}
    monkeypatch.setitem(sys.modules, "tensorflow.python.platform.build_info", built)
    first_use.watch(lambda: asked.append("lease"))
    library = importlib.import_module("some_cuda_library")
    library.run()
    assert asked == []
    vars(built)["build_info"] = {"is_cuda_build": True}
    library.run()
    assert asked == ["lease"]
