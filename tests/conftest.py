"""What every test gets: directories of its own for everything that replkernel, Jupyter and IPython keep.

Law: no test sees the user's own kernels, settings or agents, and none leaves a process behind that it started
through these fixtures.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE_PATHS = [str(ROOT), str(ROOT / "scheduler"), str(ROOT / "server_ext")]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Before numpy is imported: threads that wait for busy cores make small matrices a hundred times slower."""
KEPT = frozenset(
    {
        "REPLKERNEL_TEST_HOSTS",
        "REPLKERNEL_TEST_ADDRESS",
        "REPLKERNEL_TEST_S3",
        "REPLKERNEL_TEST_REDIS",
        "REPLKERNEL_TEST_POSTGRES",
    }
)


@pytest.fixture(scope="session", autouse=True)
def _children_find_the_sources() -> None:
    """Let the processes that tests start import the project, installed or not."""
    known = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(SOURCE_PATHS + known))


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """Return a directory whose path is short enough for Unix sockets."""
    directory = Path(tempfile.mkdtemp(prefix="rk-", dir="/tmp"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def _directories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give each test a directory: pytest would read the names of all that it has made to number the next."""
    base = tmp_path_factory.mktemp("env")
    return (base / str(number) for number in count())


@pytest.fixture(autouse=True)
def _own_directories(monkeypatch: pytest.MonkeyPatch, _directories: Iterator[Path]) -> Iterator[None]:
    """Point Jupyter, IPython, matplotlib and replkernel at empty directories; forget outside settings."""
    for name in [name for name in os.environ if name.startswith("REPLKERNEL_") and name not in KEPT]:
        monkeypatch.delenv(name)
    base = next(_directories)
    base.mkdir()
    for name in (
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTER_CONFIG_DIR",
        "IPYTHONDIR",
        "MPLCONFIGDIR",
    ):
        directory = base / name.lower()
        directory.mkdir()
        monkeypatch.setenv(name, str(directory))
    sockets = tempfile.mkdtemp(prefix="rk-", dir="/tmp")
    monkeypatch.setenv("REPLKERNEL_SOCKET_DIR", sockets)
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    yield
    shutil.rmtree(sockets, ignore_errors=True)
