"""A kernel's state in other kernels and in files: forks, and what is exported here and imported elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client import KernelManager

from replkernel.carrying.forking import fork_kernel
from replkernel.cli import main
from replkernel.launch.kernel_record import KernelRecord, read_record
from replkernel.settings import data_dir
from tests.support.ending import end_agents
from tests.support.live import Live, kernel
from tests.support.resting import hibernate
from tests.support.stock import OURS

pytestmark = pytest.mark.timeout(180)

CELL = """
import random, numpy as np
a = [1, 2]; b = a
big = np.arange(3_000_000)
view = big[:10]
random.seed(1)
"""
CHECK = "print(b is a, a, int(big.sum()), big[:10].base is big, np.shares_memory(view, big))"
CHECKED = "True [1, 2] 4499998500000 True True"


@contextlib.contextmanager
def opened(directory: Path, record: KernelRecord, **settings: str) -> Iterator[Live]:
    """Serve a kernel at rest."""
    manager = KernelManager(kernel_name=OURS, kernel_id=record.kernel_id)
    with kernel(directory, manager, **settings) as live:
        yield live


def test_forks_have_the_state_and_go_their_own_ways(tmp_path: Path) -> None:
    with kernel(tmp_path) as live:
        live.value(CELL)
        kernel_id = str(live.manager.kernel_id)
        made, behind = fork_kernel(kernel_id, os.environ, 3, reseed=True)
        assert not behind
        assert len({record.key for record in made} | {record.kernel_id for record in made}) == 6
        drawn = set()
        with contextlib.ExitStack() as stack:
            forks = [stack.enter_context(opened(tmp_path, record)) for record in made]
            for fork in forks:
                assert fork.value(CHECK) == CHECKED
                drawn.add(fork.value("print(random.random())"))
            forks[0].value("a.append(3); big[0] = 7")
            assert [fork.value("print(a, big[0])") for fork in forks] == [
                "[1, 2, 3] 7",
                "[1, 2] 0",
                "[1, 2] 0",
            ]
            assert live.value(CHECK) == CHECKED
            drawn.add(live.value("print(random.random())"))
        assert len(drawn) == 4
        assert live.value(CHECK) == CHECKED  # The forks' ends took nothing that it needs.
        hibernate(live)
        assert main(["export", kernel_id, str(tmp_path / "rest.rkz")]) == 0
        assert live.value(CHECK) == CHECKED


@pytest.mark.slow
def test_a_fork_and_a_file_of_a_point_have_the_state_of_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "then.rkz"
    with kernel(tmp_path) as live:
        live.value(CELL)
        live.run("'shown then'")
        live.run("%replkernel mark then")
        live.value("a.append(3); big[0] = 7; later = 1; random.seed(2)")
        live.run("'shown later'")
        kernel_id = str(live.manager.kernel_id)
        (fork,), _ = fork_kernel(kernel_id, os.environ, at="then")
        assert main(["export", kernel_id, str(file), "--at", "[1]"]) == 0
        assert "as of cell [1]" in capsys.readouterr().out
        assert main(["fork", kernel_id, "--at", "nowhere"]) == 1
        assert "There is no point `nowhere`" in capsys.readouterr().err
        there, _ = imported(capsys, str(file), "--yes")
        for record in (fork, _record(there)):
            with opened(tmp_path, record) as opened_again:
                assert opened_again.value(CHECK) == CHECKED
                drawn = "print(random.random() == random.Random(1).random(), 'later' in globals())"
                assert opened_again.value(drawn) == "True False"
        assert live.value("print(a, big[0], later)") == "[1, 2, 3] 7 1"


MORE = """
import pandas as pd
frame = pd.DataFrame({"x": range(50_000), "s": ["a", "b"] * 25_000})
column = frame["x"]
when = pd.Series([1.5, 2.5], index=pd.date_range("2020", periods=2), name="q")
table = {"numbers": [1, 2.5, None], "same": a}
def double(value): return 2 * value
import matplotlib.figure
figure = matplotlib.figure.Figure(); _ = figure.subplots().plot([1, 2, 3])
"""
MORE_CHECK = (
    "print(table['same'] is a, double(4), frame.x.sum(), frame.s.iloc[3], when.sum(), "
    "list(map(int, figure.axes[0].lines[0].get_ydata())))"
)
EVIL = """
import pathlib
class Evil:
    def __getstate__(self): return {{}}
    def __setstate__(self, state): pathlib.Path({marker!r}).touch()
evil = Evil()
"""
MORE_CHECKED = "True 8 1249975000 b 4.0 [1, 2, 3]"


@contextlib.contextmanager
def elsewhere(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be on another host: with another data directory, agent and store."""
    with monkeypatch.context() as there:
        there.setenv("JUPYTER_DATA_DIR", str(directory / "there"))
        there.setenv("REPLKERNEL_HOST_NAME", "there")
        try:
            yield
        finally:
            end_agents(os.environ)


def imported(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """Import a file; return the new kernel's id and all that was said."""
    assert main(["import", *words]) == 0
    said = capsys.readouterr().out
    return said.split()[-1], said


def test_an_exported_kernel_is_imported_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, marker = tmp_path / "state.rkz", tmp_path / "it-ran"
    monkeypatch.setenv("REPLKERNEL_PRELOAD", "pandas,matplotlib.figure")  # Three kernels have three replicas.
    with kernel(tmp_path) as live:
        live.value(CELL)
        live.value(MORE)
        live.value(EVIL.format(marker=str(marker)))
        marker.unlink(missing_ok=True)
        kernel_id = str(live.manager.kernel_id)
        assert main(["export", kernel_id, str(file)]) == 0
        assert file.stat().st_mode & 0o777 == 0o600
        assert main(["export", kernel_id, str(file)]) == 1
        assert "--force" in capsys.readouterr().err
        assert live.value(CHECK) == CHECKED
    assert main(["inspect", str(file)]) == 0
    said = capsys.readouterr().out
    for row in (("big", "numpy.ndarray", "3000000"), ("frame", "pandas.DataFrame", "50000×2")):
        assert any(line.split()[:3] == list(row) for line in said.splitlines()), said
    marker.unlink(missing_ok=True)
    with elsewhere(tmp_path, monkeypatch):
        there, _ = imported(capsys, str(file), "--yes")
        with opened(tmp_path, _record(there)) as live:
            assert live.value(CHECK) == CHECKED
            assert live.value(MORE_CHECK) == MORE_CHECKED
        marker.unlink(missing_ok=True)
        safe, said = imported(capsys, str(file), "--safe")
        assert "Left out: `evil`" in said
        with opened(tmp_path, _record(safe)) as live:
            plain = "print(b is a, int(big.sum()), frame.x.sum(), frame.s.iloc[3], when.sum(), column.sum())"
            assert live.value(plain) == "True 4499998500000 1249975000 b 4.0 1249975000"
            for name in ("evil", "double", "figure"):
                assert "StateLostError" in live.run(f"{name}.x").error
        assert not marker.exists()


def _record(kernel_id: str) -> KernelRecord:
    record = read_record(data_dir(os.environ), kernel_id)
    assert record is not None
    return record
