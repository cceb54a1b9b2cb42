"""A notebook of many cells: what is kept of them stays small, and every replica has all of them."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import Live, kernel

pytestmark = pytest.mark.timeout(240)

CELLS = 700
COMPONENTS_MAX = 60
DISK_BYTES_MAX = 32 << 20


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with kernel(tmp_path) as running:
        yield running


def disk_bytes(root: Path) -> int:
    """Return what the files below a directory take, each once."""
    found = {}
    for path in root.rglob("*"):
        try:
            entry = path.lstat()
        except OSError:
            continue
        found[entry.st_ino] = entry.st_blocks * 512
    return sum(found.values())


@pytest.mark.slow
def test_hundreds_of_cells_are_a_few_components_and_all_there_after_a_takeover(
    live: Live, tmp_path: Path
) -> None:
    live.value("def made_first():\n    return 'the source of a cell'\nd = {}; x = 0")
    for number in range(CELLS):
        live.run(f"x = {number}; d['k'] = x")
    live.run("'an output'")
    said = live.value("%replkernel state")
    found = re.search(r"^(\d+) components,", said, re.MULTILINE)
    assert found is not None
    assert int(found[1]) < COMPONENTS_MAX
    assert disk_bytes(tmp_path) < DISK_BYTES_MAX
    pid = int(live.value("import os; print(os.getpid())"))
    before = live.value("print(len(In), In[5], _i7, In[-3:-1], Out, _i)")
    live.value("%replkernel sync")
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    after = live.value("print(len(In) - 2, In[5], _i7, In[-5:-3], Out, _iii)")
    assert after == before
    assert live.value("import inspect; print(inspect.getsource(made_first))").startswith("def made_first")
    assert live.value("_i7 = 5; print(_i7, _i8 == In[8])").strip() == "5 True"
