"""One set of directories, one agent and the processes that fork kernels for all sequences of a module."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import KEPT
from tests.e2e.hosts.supervisor import PLACE, site_of_a_test
from tests.e2e.state.forks import Forks
from tests.e2e.state.going_back import PlayBack, there_and_back
from tests.e2e.state.play import Play, Players
from tests.e2e.state.sequence import Sequence
from tests.support.ending import end_agents
from tests.support.stock import kernelspec_dir

NEXT = pytest.StashKey[Sequence]()
OWN = ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR")


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Return a directory for all kernels of a module, to which the environment points."""
    base = Path(tempfile.mkdtemp(prefix="rks-", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("REPLKERNEL_") and name not in KEPT]:
            patch.delenv(name)
        for name in OWN:
            (base / name.lower()).mkdir()
            patch.setenv(name, str(base / name.lower()))
        (base / "stock_ipython").mkdir()
        (base / "s").mkdir(mode=0o700)
        patch.setenv("REPLKERNEL_SOCKET_DIR", str(base / "s"))
        patch.setenv("REPLKERNEL_EXECUTOR", "rotate")
        patch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
        patch.setenv("MPLBACKEND", "agg")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("JUPYTER_PATH", str(kernelspec_dir(base / "jupyter")))
        try:
            with contextlib.ExitStack() as across:
                if PLACE in os.environ:
                    for name, value in across.enter_context(site_of_a_test()).items():
                        patch.setenv(name, value)
                yield base
        finally:
            end_agents(os.environ)
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(autouse=True)
def _own_directories(place: Path) -> None:
    """Take the module's directories instead of a test's own."""


@pytest.fixture(autouse=True)
def _kernel_in_reach(place: Path) -> None:
    """Leave the agent to the next test."""


@pytest.fixture(scope="module")
def players(
    place: Path, _children_find_the_sources: None, request: pytest.FixtureRequest
) -> Iterator[Players]:
    """Return what plays a sequence on both kernels, each with its own `%store` and history.

    A module's SETTINGS are those of its kernels.
    """
    forks = Forks(os.environ, {"IPYTHONDIR": str(place / "stock_ipython")})
    players = Players(place, forks, getattr(request.module, "SETTINGS", {}))
    try:
        yield players
    finally:
        players.close()
        forks.close()


@pytest.fixture
def play(players: Players, request: pytest.FixtureRequest) -> Play:
    """Return what plays a sequence, while the kernels of the module's next one start."""
    return partial(players.play, then=request.node.stash.get(NEXT, None))


@pytest.fixture
def play_back(players: Players, request: pytest.FixtureRequest) -> PlayBack:
    """Return what plays a sequence there and back, while the kernels of the module's next one start."""
    return partial(players.play_as, there_and_back, then=request.node.stash.get(NEXT, None))


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Note which sequence of the same module comes next; other folders' tests pass here as well."""
    callspec = getattr(nextitem, "callspec", None)
    sequence = None if callspec is None else callspec.params.get("sequence")
    if nextitem is None or nextitem.path != item.path:
        return
    if isinstance(sequence, Sequence) and not sequence.missing():
        item.stash[NEXT] = sequence
