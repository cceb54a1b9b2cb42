"""`replkernel import` and `fork` that are killed, or lose their store: what they wrote goes, nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from replkernel.carrying import founding
from replkernel.carrying.container import StateFile
from replkernel.carrying.importing import import_kernel, read_state
from replkernel.cli.store import run_collect
from replkernel.errors import StoreError
from replkernel.launch.kernel_record import KernelRecord, kernels_dir, read_record
from replkernel.objects.collect import GRACE_S
from replkernel.objects.store import ObjectStore, open_store
from replkernel.settings import data_dir
from tests.support.breadth import each_nth
from tests.unit.carrying.test_container import DIGEST, entries, written

MAKER = """
import os, signal, sys
from replkernel.carrying import founding
from replkernel.objects.store import ObjectStore
from tests.integration.test_killed_makers import imported

where, when = sys.argv[2:]
holder = ObjectStore if hasattr(ObjectStore, where) else founding
known = getattr(holder, where)
def killed(*given, **options):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    known(*given, **options)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(holder, where, killed)
imported(sys.argv[1])
"""
POINTS = [
    ("write_mark", "after"),
    ("make_chunk", "before"),
    ("make_chunk", "after"),
    ("write_made", "after"),
    ("write_checkpoint", "after"),
    ("write_about", "after"),
]


def imported(path: str) -> KernelRecord:
    with StateFile(Path(path)) as file:
        return import_kernel(file, *read_state(file), os.environ, "/")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPLKERNEL_STORE", f"file://{tmp_path}/store")
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    return written(tmp_path / "state.rkz", entries())


def kill(place: Path, where: str, when: str) -> None:
    done = subprocess.run([sys.executable, "-c", MAKER, str(place), where, when], check=False)
    assert done.returncode == -signal.SIGKILL


def owners() -> set[str]:
    """Return whose documents the store has."""
    store = open_store(os.environ["REPLKERNEL_STORE"], os.environ)
    return {name.split("/")[0] for name in store.list_documents()}


@pytest.mark.parametrize(("where", "when"), each_nth(POINTS, 3))
def test_leftovers_of_a_killed_import_go_with_the_next_one(place: Path, where: str, when: str) -> None:
    kill(place, where, when)
    (left,) = owners()
    assert read_record(data_dir(os.environ), left) is None
    record = imported(str(place))
    assert owners() == {record.kernel_id}
    assert [one.name for one in kernels_dir(data_dir(os.environ)).iterdir()] == [record.kernel_id]


def test_leftovers_of_an_import_whose_store_went_away_go_with_the_next_one(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*about: object) -> None:
        raise StoreError("the store", "does not answer", "try again")

    def go_away(*about: object) -> None:
        for what in ("list_documents", "delete_document", "put_document"):
            away.setattr(ObjectStore, what, fail)
        fail()

    with monkeypatch.context() as away:
        away.setattr(founding, "write_checkpoint", go_away)
        with pytest.raises(StoreError):
            imported(str(place))
    assert len(owners()) == 1
    record = imported(str(place))
    assert owners() == {record.kernel_id}
    assert [one.name for one in kernels_dir(data_dir(os.environ)).iterdir()] == [record.kernel_id]


def test_one_that_was_killed_once_its_kernel_is_there_leaves_the_kernel(place: Path) -> None:
    kill(place, "write_record", "after")
    (made,) = owners()
    record = imported(str(place))
    assert owners() == {made, record.kernel_id}
    assert read_record(data_dir(os.environ), made) is not None


def test_the_stores_collection_takes_a_killed_imports_mark_and_in_time_its_chunks(place: Path) -> None:
    kill(place, "make_chunk", "after")
    (chunk,) = place.parent.glob(f"store/**/{DIGEST}")
    old = time.time() - GRACE_S - 60
    os.utime(chunk, (old, old))
    run_collect()
    assert owners() == set()
    assert not chunk.exists()


def test_one_that_is_still_at_work_is_left_alone(place: Path) -> None:
    first = Path(place)
    with StateFile(first) as file:
        base, state = read_state(file)
        seen: list[str] = []

        def meanwhile(done: int, total: int) -> None:
            seen.append(imported(str(place)).kernel_id)

        record = import_kernel(file, base, state, os.environ, "/", progress=meanwhile)
    assert owners() == {record.kernel_id, *seen}
