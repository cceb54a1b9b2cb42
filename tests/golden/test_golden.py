"""What releases wrote is read by this one, and shows what it showed."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replkernel import loaders
from replkernel.state.libraries import index
from tests.golden.payloads import Golden, files, load, read, version_here
from tests.support.move import Mover

ROOT = Path(__file__).parents[2]
OWN_PLACES = re.compile(rb"replkernel\.(?:namespace|state|gpu)\.[a-z_.]+")
NAMED_BY_PLACE = {b"replkernel.gpu.batches"}
"""Where the few classes stand whose objects payloads hold."""
OF_A_FILE = frozenset({"memmap", "numpy_arrays: memmap through cells"})
"""What is a view of a file in the directory of whoever wrote it, which is on no other machine."""
BESIDE_A_FILE = frozenset({"pandas_frames: readers part-way"})
"""What has such a file, which the last cell does not ask for: before any import it is rebuilt too."""
ALL_LIBRARIES = frozenset({"sklearn", "torch"})
GOLDEN = [(path.stem, golden) for path in files() for golden in load(path)]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mover]:
    """A process that has written none of it."""
    before, home = Path.cwd(), tmp_path_factory.mktemp("golden")
    os.chdir(home)
    mover = Mover(home, 7)
    os.chdir(before)
    yield mover
    mover.close()


def _each_fifth_of_the_heavy() -> Iterator[Any]:
    """Yield the notebooks; of those that import all large libraries, all but each fifth as slow."""
    for number, (file, golden) in enumerate(GOLDEN):
        rarely = golden.needs.keys() >= ALL_LIBRARIES and number % 5
        yield pytest.param(golden, id=f"{file} {golden.name}", marks=[pytest.mark.slow] if rarely else [])


@pytest.mark.parametrize("golden", list(_each_fifth_of_the_heavy()))
def test_a_stored_notebook_of_an_older_release_shows_what_it_showed(reader: Mover, golden: Golden) -> None:
    for package, version in golden.needs.items():
        try:
            present = version_here(package)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"{package} is not installed")
        if present.split(".")[0] != version.split(".")[0]:
            pytest.skip(f"{package} {present} is here, its objects were written by {version}")

    answer = read(reader, golden.deltas, golden.last)

    if golden.name in OF_A_FILE:
        assert answer.failed and all("FileNotFoundError" in why for why in answer.failed), "the file is named"
        return
    beside = golden.name in BESIDE_A_FILE
    assert [why for why in answer.failed if not (beside and "No such file" in why)] == []
    assert answer.output == golden.output
    assert set(OWN_PLACES.findall(answer.delta)) <= NAMED_BY_PLACE, "payloads of today name loaders by id"


TOPICS = {*loaders.HOMES, *(topic for library in index.BUILT_IN for topic in library.loaders)}


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_each_module_that_is_named_for_a_topic_brings_loaders(topic: str) -> None:
    for module in loaders.homes(topic):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError as error:
            pytest.skip(f"{error.name} is not installed")
        here = set(map(id, vars(found).values()))
        brought = {name.partition(":")[0] for name, value in vars(loaders).items() if id(value) in here}
        assert topic in brought


READS = """
import sys, tempfile
from pathlib import Path
from tests.golden.payloads import files, load, read
from tests.support.move import Mover

with tempfile.TemporaryDirectory() as home:
    mover = Mover(Path(home), 1)
    for golden in load(files()[-1]):
        if golden.name in sys.argv[1:]:
            answer = read(mover, golden.deltas, golden.last)
            assert (answer.failed, answer.output) == ((), golden.output), golden.name
            print(golden.name)
    mover.close()
"""


def test_stored_notebooks_stay_readable_when_a_file_is_renamed(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    stored = ["pandas_frames: categoricals", "pandas_frames: index kinds"]
    if not GOLDEN:
        pytest.skip("no release wrote any under this Python")
    for part in ("replkernel", "tests/golden", "tests/support"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    home = tmp_path / "replkernel" / "state" / "libraries" / "pandas"
    (home / "frames.py").rename(home / "named_anew.py")
    for path in (tmp_path / "replkernel").rglob("*.py"):
        text = path.read_text()
        if "libraries.pandas.frames" in text:
            path.write_text(text.replace("libraries.pandas.frames", "libraries.pandas.named_anew"))

    read_there = subprocess.run(
        [sys.executable, "-c", READS, *stored],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert sorted(read_there.stdout.splitlines()) == stored, read_there.stderr
