"""What every test gets: directories of its own for everything that replkernel, Jupyter and IPython keep.

Law: no test sees the user's own kernels, settings or agents, and none leaves a process behind that it started
through these fixtures.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path

import nbformat.sign  # noqa: F401  # It tells sqlite3 how to keep times, before tests of state look there.
import pytest

from tests.again import LastRun
from tests.support import left_open
from tests.support.ending import end_agents, end_schedulers
from tests.support.forked import end_zygotes
from tests.support.forked_scheduler import end_parent
from tests.support.in_memory import roomy_memory
from tests.support.longest_first import put_in_order
from tests.support.once import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler

ROOT = Path(__file__).parents[1]
LIGHTER = str(ROOT / "tests" / "support" / "lighter")
SOURCE_PATHS = [str(ROOT), str(ROOT / "scheduler"), str(ROOT / "server_ext"), LIGHTER]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Before numpy is imported: threads that wait for busy cores make small matrices a hundred times slower."""
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
"""Torch keeps its threads, but none spins while it waits for another: on busy cores, most of its time."""
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
"""Else each of the thousands of processes that tests start compiles the project anew, for half a second."""
SHORT = roomy_memory() or "/tmp"
"""Where directories lie whose paths must be short."""
if SHORT != "/tmp":
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", SHORT)
KEPT = frozenset(
    {
        "REPLKERNEL_TEST_HOSTS",
        "REPLKERNEL_TEST_ADDRESS",
        "REPLKERNEL_TEST_S3",
        "REPLKERNEL_TEST_REDIS",
        "REPLKERNEL_TEST_POSTGRES",
    }
)
OWN = ("JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "MPLCONFIGDIR")
NO_MORE_IMPORTS = ("REPLKERNEL_ZYGOTE_IDLE_S", "0")
"""What zygotes would import in a quiet moment takes a second, and few tests start processes after it.

Those that play on as users have it take `zygotes_as_shipped`.
"""
STARTS_NOTHING = frozenset({"unit", "golden"})
"""Folders whose tests make what they need of these: to make and remove five takes as long as a test there."""


left_open.install()


def pytest_configure(config: pytest.Config) -> None:
    """Keep what fails for `make again`, where pytest has a cache and is no worker of another."""
    if (cache := getattr(config, "cache", None)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(LastRun(cache))


def pytest_runtest_logstart(nodeid: str) -> None:
    """Say which test runs, before its fixtures are set up."""
    left_open.test_begins(nodeid)


def pytest_runtest_logfinish() -> None:
    """Look at what a test has started, when its own fixtures have ended."""
    left_open.test_ends()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without garbage collections, in a quarter less time: what is here then lasts anyway."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the longest modules begin first where several processes take one after another."""
    if hasattr(config, "workerinput"):
        put_in_order(items)


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open(
    _children_find_the_sources: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Fail the module whose tests left something open; set up first, so that it looks last.

    Garbage collections pass over what modules before it imported, or took back into sight: libraries would
    take most of their time.
    """
    gc.collect()
    gc.freeze()
    with left_open.nothing_left_open(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture(scope="session", autouse=True)
def _children_find_the_sources() -> Iterator[None]:
    """Let the processes that tests start import the project, installed or not, and a lighter library."""
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(SOURCE_PATHS + known))
    yield
    end_zygotes()
    end_parent()


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Return a directory whose path is short enough for Unix sockets."""
    directory = Path(tempfile.mkdtemp(prefix="rk-", dir=SHORT))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def zygotes_as_shipped(_own_directories: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have zygotes import what later processes need, in a quiet moment, as they do for users."""
    monkeypatch.delenv(NO_MORE_IMPORTS[0], raising=False)


@pytest.fixture(scope="session")
def _directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give each test a directory: pytest would read the names of all that it has made to number the next."""
    base = tmp_path_factory.mktemp("env")
    return (base / str(number) for number in count())


@pytest.fixture(autouse=True)
def _own_directories(
    monkeypatch: pytest.MonkeyPatch, _directories: Iterator[Path], request: pytest.FixtureRequest
) -> Iterator[None]:
    """Point Jupyter, IPython, matplotlib and replkernel at empty directories; forget outside settings."""
    for name in [name for name in os.environ if name.startswith("REPLKERNEL_") and name not in KEPT]:
        monkeypatch.delenv(name)
    base = next(_directories)
    base.mkdir()
    left_open.test_has(base)
    made = STARTS_NOTHING.isdisjoint(request.node.path.relative_to(ROOT).parts)
    for name in OWN:
        directory = base / name.lower()
        if made:
            directory.mkdir()
        monkeypatch.setenv(name, str(directory))
    sockets = tempfile.mkdtemp(prefix="rk-", dir=SHORT)
    monkeypatch.setenv("REPLKERNEL_SOCKET_DIR", sockets)
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    if made:
        monkeypatch.setenv(*NO_MORE_IMPORTS)
    yield
    if any(base.glob("jupyter_data_dir/replkernel/agents/*")):
        end_agents(os.environ)
        end_schedulers(base)
    shutil.rmtree(sockets, ignore_errors=True)
